"""The benchmark of waiting for results runs on both sides, in a small form."""

import json

import pytest

from benchmarks import brokers, drain
from benchmarks.drain import Measure
from benchmarks.report import show
from tests.live import IS_LONG

#: What is measured, and the rows that come of it. The first two are the short form: they need no RabbitMQ.
ROWS = {
    Measure("threads", "worker_set"): ["worker_set_lag", "worker_set_cpu"],
    Measure("asyncio", "finishing_each"): ["asyncio_finishing_each", "asyncio_block_each"],
    Measure("threads", "wakeup"): ["wakeup_p50", "wakeup_p99"],
    Measure("threads", "finished_each"): ["finished_each"],
    Measure("threads", "rpc_finishing_set"): ["rpc_finishing_set"],
    Measure("threads", "idle"): ["idle_cpu"],
    Measure("gevent", "finishing_each"): ["gevent_finishing_each"],
}
MEASURES = tuple(ROWS) if IS_LONG else tuple(ROWS)[:2]
SMALL = {
    "RESULTS": 60,
    "WORKER_RESULTS": 40,
    "WAKEUPS": 5,
    "BYSTANDERS": 3,
    "IDLERS": 10,
    "IDLE_SPAN": 0.2,
    "IDLE_REST": 0.2,
    "SETTLE": 0.2,
    "MEASURES": MEASURES,
}


def test_both_sides_collect_the_same_results_in_every_way(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(brokers, "TURNS", 1)
    for name, value in SMALL.items():
        monkeypatch.setattr(drain, name, value)

    show("drain", drain.run())

    rows = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    assert list(rows) == [row for measure in MEASURES for row in ROWS[measure]]
    assert all(figures["ours"] > 0 and figures["peer"] > 0 for figures in rows.values())
