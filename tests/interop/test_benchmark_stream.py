"""The benchmarks measure the same work on both sides, and report as they say."""

import json
from itertools import islice

import pytest
from celery.events.state import State as CeleryState

from benchmarks import fold, stream
from benchmarks.report import Row, show
from celeriac import State


def test_both_sides_end_in_the_same_states_on_the_stream_in_order() -> None:
    ours, theirs = State(max_tasks_in_memory=10**6), CeleryState(max_tasks_in_memory=10**6)
    for body in islice(stream.bodies(), 20_000):
        ours.receive(body)
        theirs.event(json.loads(body) | {"local_received": stream.BEGIN})

    states = {uuid: task.state for uuid, task in ours.tasks.items()}
    assert states == {uuid: task.state for uuid, task in theirs.tasks.items()}
    assert set(states.values()) >= {"SUCCESS", "FAILURE", "RETRY", "STARTED", "RECEIVED", "PENDING"}
    assert not ours.gate.refused
    assert not ours.gate.mended


@pytest.mark.parametrize("side", ["ours", "peer"])
def test_every_row_is_measured_on_both_sides(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "CHUNK": 1000,
        "SMALL_EVENTS": 2000,
        "LARGE_TASKS": 500,
        "LARGE_EVENTS": 1000,
    }.items():
        monkeypatch.setattr(fold, name, value)

    rows = fold._small(side) | fold._large(side)

    assert list(rows) == ["bytes_10k", "dict_10k", "bytes_10k_shuffled", "bytes_1m", "dict_1m", "memory_1m"]
    assert all(rows[name] > 0 for name in rows if name != "memory_1m")


def test_a_report_ends_in_one_line_of_json_with_the_lowest_ratio(capsys: pytest.CaptureFixture[str]) -> None:
    show("demo", {"speed": Row(50, 10, "events/s"), "memory": Row(10, 30, "bytes", lower_is_better=True)})

    last = capsys.readouterr().out.splitlines()[-1]
    assert json.loads(last) == {
        "bench": "demo",
        "rows": {
            "speed": {"ours": 50, "peer": 10, "ratio": 5.0},
            "memory": {"ours": 10, "peer": 30, "ratio": 3.0},
        },
        "ratio": 3.0,
    }
