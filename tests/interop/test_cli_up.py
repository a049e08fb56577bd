"""``celeriac up`` with a sample cluster: all of its programs, real signals, and nothing left behind."""

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from time import time
from typing import Any

import httpx
import pytest

from celeriac.programs.process import wait_until
from tests.live import IS_LONG
from tests.program import run_program
from tests.promtool import promtool
from tests.spark.published import INTERPRETED
from tests.up import PATIENCE, Up, running


def test_it_ends_with_all_it_started_and_the_next_start_goes_on_from_there(tmp_path: Path) -> None:
    with running(tmp_path) as first:
        broker = first.wait_for(r"^broker +(\S+)")
        log = tmp_path / ".celeriac" / "log"

        def done() -> list[str]:
            tasks = first.get("/api/v1/tasks", limit=500, state="SUCCESS").json()["tasks"]
            return [task["uuid"] for task in tasks]

        assert wait_until(lambda: len(done()) > 3, patience=PATIENCE)
        known = done()
        code = first.end(signal.SIGINT)
        is_gone = first.is_gone()
    events = run_program("events", "--log", str(log), "--json", "--type", "task-succeeded").stdout

    assert code == 0, first.told
    assert is_gone, (first.alive(), list(first.temporary.iterdir()))
    assert first.told.splitlines()[-1] == "stopping"
    assert all(uuid in events for uuid in known)

    with running(tmp_path, "--pipeline-every", "0") as second:
        again = second.wait_for(r"^broker +(\S+)")

        def is_known(uuid: str) -> bool:
            return second.get(f"/api/v1/tasks/{uuid}").status_code == 200

        assert wait_until(lambda: all(map(is_known, known)), patience=PATIENCE)
        code = second.end(signal.SIGKILL)
        is_gone = wait_until(lambda: second.alive() == {}, patience=PATIENCE)

    assert again == broker
    assert (code, is_gone) == (-9, True)
    assert list(second.temporary.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT] if IS_LONG else [signal.SIGTERM])
def test_one_that_is_interrupted_while_it_starts_leaves_nothing_behind(tmp_path: Path, number: int) -> None:
    with running(tmp_path) as up:
        up.wait_for("^(starting)$")
        # Its broker runs by then, or is about to.
        assert wait_until(lambda: len(up.alive()) > 1, patience=PATIENCE)

        assert up.end(number) == 0
        assert up.is_gone()


# -- one that runs for all tests below


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One that has nothing named, and makes tables as soon as there is something to make them of."""
    folder = tmp_path_factory.mktemp("sample")
    variables: dict[str, Any] = {
        "CELERIAC_LOG_SEGMENT_AGE": "5",
        "CELERIAC_SPARK_CONF": json.dumps(INTERPRETED),
    }
    # Of a cluster of the user's.
    for name in ("LOG_URL", "LOG_SPOOL", "WAREHOUSE_URL"):
        variables[f"CELERIAC_{name}"] = str(folder / "mine" / name)
    with running(folder, "--pipeline-every", "0.5", **variables) as up:
        yield up


def test_a_cluster_of_its_own_is_seen_at_work(sample: Up) -> None:
    wanted = {
        ("sample.double", "SUCCESS"),
        ("sample.fail", "FAILURE"),
        ("sample.flaky", "SUCCESS"),
        ("sample.slow", "SUCCESS"),
        ("sample.order", "SUCCESS"),
        ("reports.count", "SUCCESS"),
        ("reports.total", "SUCCESS"),
        ("reports.fetch", "SUCCESS"),
        ("reports.render", "FAILURE"),
    }

    def seen() -> set[tuple[str, str]]:
        tasks = sample.get("/api/v1/tasks", limit=500).json()["tasks"]
        return {(task["name"], task["state"]) for task in tasks}

    def alive() -> set[str]:
        workers = sample.get("/api/v1/workers").json()["workers"]
        return {worker["name"] for worker in workers if worker["liveness"] == "ALIVE"}

    assert wait_until(lambda: seen() >= wanted, patience=PATIENCE), seen()
    assert wait_until(lambda: alive() == {"sample@localhost", "reports@localhost"}, patience=PATIENCE)


def test_it_says_first_where_the_dashboard_is_and_then_what_runs_and_what_can_be_done(sample: Up) -> None:
    sample.wait_for("^(end +with Ctrl-C)")

    heading = re.findall(r"^[a-z]+(?= )", sample.told.partition("end  ")[0], re.MULTILINE)

    rows = ["dashboard", "broker", "worker", "worker", "load", "recorder", "pipeline", "logs", "try"]
    assert heading == rows
    assert all(f" {command} " in sample.told for command in ("top", "status", "history"))


def test_a_second_one_in_the_folder_is_refused_and_told_of_the_first(sample: Up) -> None:
    address = sample.address

    second = run_program("up", cwd=sample.folder)

    assert second.returncode == 1
    assert len(second.stderr.splitlines()) == 1
    assert f"its dashboard is {address};" in second.stderr


def test_a_dashboard_that_is_killed_comes_back_where_it_was(sample: Up) -> None:
    before = int(sample.wait_for(r"^dashboard .* pid (\d+)"))

    os.kill(before, signal.SIGKILL)

    sample.wait_for("(dashboard: ended with code 137, restart in 1 s)")

    def is_back() -> bool:
        try:
            return sample.get("/healthz").status_code == 200
        except httpx.TransportError:
            return False

    assert wait_until(is_back, patience=PATIENCE)
    assert before not in sample.alive()


def test_a_recorder_that_shows_no_sign_of_life_is_told_and_that_it_is_well_again(sample: Up) -> None:
    # All is told once the load is sent, and that waits for the recorder to be ready.
    recorder = int(sample.wait_for(r"^recorder +pid (\d+)"))

    os.kill(recorder, signal.SIGSTOP)
    sample.wait_for(r"(recorder: unhealthy: no status update for )")
    os.kill(recorder, signal.SIGCONT)

    sample.wait_for("(recorder: healthy again)")
    assert "recorder: ended" not in sample.told


def test_prometheus_is_told_how_its_recorder_is_and_how_late_events_come(sample: Up) -> None:
    def told(series: str) -> list[float]:
        found = re.findall(rf"^{series}(?:{{.*}})? (\S+)$", sample.get("/metrics").text, re.MULTILINE)
        return [*map(float, found)]

    def is_well() -> bool:
        return told("celeriac_recorder_recording") == [1.0]

    assert wait_until(is_well, patience=PATIENCE), sample.get("/metrics").text
    assert promtool("check", "metrics", told=sample.get("/metrics").text) == (0, "")
    assert told("celeriac_recorder_dropped_events_total") == [0.0]
    assert wait_until(lambda: len(told("celeriac_event_lag_seconds")) == 1, patience=PATIENCE)


def test_tables_are_made_and_questions_answered_from_them(sample: Up) -> None:
    news = sample.wait_for(r"pipeline: ([\d,]+ events? of .*)")

    since = int(time()) - 3600
    answer = sample.get("/api/v1/history/latency", since=since, by="hour")

    assert re.search(r"[\d,]+ tasks? updated on \d day", news)
    assert not (sample.folder / "mine").exists()
    assert answer.status_code == 200, answer.text
    # The first run may have begun before any of them had ended.
    assert wait_until(
        lambda: "sample.double" in sample.get("/api/v1/history/top", since=since).text, patience=PATIENCE
    )
