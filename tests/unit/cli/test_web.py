import socket

import pytest

from celeriac.cli.web import _listening
from celeriac.errors import CallerError


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
