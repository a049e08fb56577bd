"""The benchmark of probes runs on both sides, in a small form."""

import json

import pytest

from benchmarks import probe
from benchmarks.report import show


def test_the_benchmark_measures_both_sides(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(probe, "CALLS", 1)
    monkeypatch.setattr(probe, "BROKERS", {"redis": probe.BROKERS["redis"]})

    show("probe", probe.run())

    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {*figures["rows"]} == {"redis_cpu", "redis_time"}
    assert all(row["ours"] > 0 and row["peer"] > 0 for row in figures["rows"].values())
