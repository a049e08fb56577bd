import socket
from types import SimpleNamespace
from typing import Any, cast

import pytest

from celeriac.cli.web import _listening, _serve
from celeriac.errors import AccessRefused, CallerError


def test_an_answer_does_not_wait_until_its_head_is_acknowledged() -> None:
    with _listening("127.0.0.1", 0) as link, socket.create_connection(link.getsockname()[:2]):
        accepted, _ = link.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


def test_a_port_that_is_taken_is_told_with_what_to_do() -> None:
    with (
        _listening("127.0.0.1", 0) as link,
        pytest.raises(CallerError, match="take another --host or --port"),
    ):
        _listening("127.0.0.1", link.getsockname()[1])


def test_a_reception_that_ended_before_anybody_could_be_told_is_told_all_the_same() -> None:
    def check() -> None:
        raise AccessRefused("no such user")

    class Server:
        def run(self, **_: object) -> None:
            raise AssertionError("what is shown would be old for ever")

    watcher = SimpleNamespace(on_end=None, check=check)

    with socket.create_server(("127.0.0.1", 0)) as link, pytest.raises(AccessRefused):
        _serve(cast("Any", Server()), cast("Any", SimpleNamespace(watcher=watcher)), link)
