import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from celeriac.cli.web import _listening, _serve
from celeriac.errors import AccessRefused, CallerError
from tests.program import run_here


def test_an_answer_does_not_wait_until_its_head_is_acknowledged() -> None:
    with _listening("127.0.0.1", 0) as link, socket.create_connection(link.getsockname()[:2]):
        accepted, _ = link.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


def test_a_port_that_is_taken_is_told_with_what_to_do() -> None:
    with (
        _listening("127.0.0.1", 0) as link,
        pytest.raises(CallerError, match="Use another --host or --port"),
    ):
        _listening("127.0.0.1", link.getsockname()[1])


#: The broker is not there, which ends it: what is told instead is told before anything is served.
NOWHERE = ("web", "--broker", "redis://127.0.0.1:1/0", "--port", "0")


def test_an_audit_that_cannot_be_written_is_told_before_anything_is_served(tmp_path: Path) -> None:
    done = run_here(*NOWHERE, "--allow-control", "--audit", str(tmp_path), env={})

    assert done.returncode == 1
    assert f"{tmp_path} cannot be written, actions are disabled" in done.stderr.decode()
    assert "free disk space, or name a writable file with --audit" in done.stderr.decode()


def test_where_nobody_may_act_no_audit_is_made(tmp_path: Path) -> None:
    done = run_here(*NOWHERE, "--audit", str(tmp_path / "audit.jsonl"), env={})

    assert done.returncode == 69
    assert list(tmp_path.iterdir()) == []


def test_a_reception_that_ended_before_anybody_could_be_told_is_told_all_the_same() -> None:
    def check() -> None:
        raise AccessRefused("no such user")

    class Server:
        def run(self, **_: object) -> None:
            raise AssertionError("what is shown would be old for ever")

    watcher = SimpleNamespace(on_end=None, check=check)

    with socket.create_server(("127.0.0.1", 0)) as link, pytest.raises(AccessRefused):
        _serve(cast("Any", Server()), cast("Any", SimpleNamespace(watcher=watcher)), link)
