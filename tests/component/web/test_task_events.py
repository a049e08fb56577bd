"""Workers that send no task events are named in the overview, the list of workers and the metrics."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from celeriac.programs.process import wait_until
from celeriac.store.audit import Audit
from celeriac.views.alert import ENABLE_EVENTS
from celeriac.web.access import Access
from celeriac.web.action import Actions
from tests.component.cli.kit import Cluster
from tests.component.web.kit import Rig, served

PATIENCE = 20.0


def beat(rig: Rig, *counts: int) -> None:
    for count in counts:
        rig.send("worker-heartbeat", freq=2.0, active=0, processed=count)
    rig.arrived()


def alerts(client: httpx.Client) -> list[dict[str, Any]]:
    return [each for each in client.get("/api/v1/overview").json()["alerts"] if "task events" in each["text"]]


def test_worker_that_runs_tasks_without_events_is_named(rig: Rig) -> None:
    beat(rig, 5, 6, 6, 6)

    with served(rig) as client:
        (alert,) = alerts(client)
        overview = client.get("/api/v1/overview").json()
        worker = client.get("/api/v1/workers/w1@lab").json()
        metrics = client.get("/metrics").text

    assert alert["text"] == f"Workers without task events: w1@lab. Enable them: {ENABLE_EVENTS}"
    assert (alert["level"], alert["page"]) == ("warning", "workers")
    assert overview["without_task_events"] == ["w1@lab"]
    assert worker["task_events"] is False
    assert 'celeriac_worker_task_events_enabled{worker="w1@lab"} 0.0' in metrics


def test_worker_that_sends_task_events_is_not_named(rig: Rig) -> None:
    beat(rig, 5)
    rig.run_task("a")
    beat(rig, 6, 6, 6)

    with served(rig) as client:
        # The events of a task are noted twice a second, for all workers at once.
        assert wait_until(
            lambda: client.get("/api/v1/workers/w1@lab").json()["task_events"] is True, patience=PATIENCE
        )
        assert alerts(client) == []
        assert client.get("/api/v1/overview").json()["without_task_events"] == []
        metrics = client.get("/metrics").text

    assert 'celeriac_worker_task_events_enabled{worker="w1@lab"} 1.0' in metrics


def test_idle_worker_is_in_neither_list(rig: Rig) -> None:
    beat(rig, 5, 5, 5, 5, 5)

    with served(rig) as client:
        assert client.get("/api/v1/workers/w1@lab").json()["task_events"] is None
        assert alerts(client) == []
        metrics = client.get("/metrics").text

    assert "celeriac_worker_task_events_enabled{" not in metrics


def test_worker_that_shut_down_is_not_named(rig: Rig) -> None:
    beat(rig, 5, 6, 6, 6)
    rig.send("worker-offline", freq=2.0)
    rig.arrived()

    with served(rig) as client:
        assert alerts(client) == []


@pytest.fixture
def cluster(rig: Rig) -> Cluster:
    cluster = Cluster()
    cluster.broker = rig.broker
    return cluster


@pytest.mark.parametrize("is_dry", [True, False])
def test_operator_enables_task_events_of_named_workers(
    rig: Rig, cluster: Cluster, tmp_path: Path, is_dry: bool
) -> None:
    enabled: list[str] = []
    for name in ("w1@lab", "w2@lab"):
        cluster.add_node(name, enable_events=_noting(enabled, name))
    actions = Actions(rig.board, rig.app.control, Audit(tmp_path / "audit.jsonl"), send=rig.app.send_task)

    with served(rig, Access(allow_control=True), actions) as client:
        order = {"workers": ["w1@lab"], "dry_run": is_dry}
        done = client.post("/api/v1/control/enable-events", json=order).json()

    assert done["targets"] == ["w1@lab"]
    assert (enabled, len(done["replies"])) == (([], 0) if is_dry else (["w1@lab"], 1))
    if not is_dry:
        noted = [json.loads(line)["action"] for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
        assert noted == ["enable-events", "enable-events done"]


def _noting(enabled: list[str], name: str) -> Callable[[], dict[str, str]]:
    def enable() -> dict[str, str]:
        enabled.append(name)
        return {"ok": "task events enabled"}

    return enable
