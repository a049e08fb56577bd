"""The benchmark of waiting for results runs on both sides, in a small form."""

import json

import pytest

from benchmarks import brokers, drain
from benchmarks.drain import Measure
from benchmarks.report import show

SMALL = {
    "RESULTS": 60,
    "WORKER_RESULTS": 40,
    "WAKEUPS": 5,
    "BYSTANDERS": 3,
    "IDLERS": 10,
    "IDLE_SPAN": 0.2,
    "IDLE_REST": 0.2,
    "SETTLE": 0.2,
    "MEASURES": (
        Measure("threads", "finished_each"),
        Measure("threads", "worker_set"),
        Measure("threads", "rpc_finishing_set"),
        Measure("threads", "wakeup"),
        Measure("threads", "idle"),
        Measure("gevent", "finishing_each"),
        Measure("asyncio", "finishing_each"),
    ),
}


def test_both_sides_collect_the_same_results_in_every_way(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(brokers, "TURNS", 1)
    for name, value in SMALL.items():
        monkeypatch.setattr(drain, name, value)

    show("drain", drain.run())

    rows = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    assert list(rows) == [
        "finished_each",
        "worker_set_lag",
        "worker_set_cpu",
        "rpc_finishing_set",
        "wakeup_p50",
        "wakeup_p99",
        "idle_cpu",
        "gevent_finishing_each",
        "asyncio_finishing_each",
        "asyncio_block_each",
    ]
    assert all(figures["ours"] > 0 and figures["peer"] > 0 for figures in rows.values())
