"""The benchmark of recording measures the same work on both sides."""

import pytest

from benchmarks import record


@pytest.mark.parametrize("side", ["ours", "peer"])
@pytest.mark.parametrize("broker", ["redis_url", "amqp_url"])
def test_all_figures_are_measured_on_both_sides(
    broker: str, side: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "EVENTS", 2400)

    measured = record._measure(side, request.getfixturevalue(broker))

    assert min(measured.events_per_s, measured.replay_per_s, measured.state_per_s) > 0
    assert 10 < measured.bytes_per_event < 200
