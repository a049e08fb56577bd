from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.web.kit import Rig, served
from tests.unit.web.kit import rig as made


def read(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Read what is scraped as Prometheus does; a text that it could not read raises."""
    told: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = (("", sample.name), *sorted(sample.labels.items()))
            told.setdefault(family.name, {})[labels] = sample.value
    return told


def test_tasks_workers_and_times_are_scraped(rig: Rig, ask: httpx.Client) -> None:
    rig.send("worker-online", freq=600.0)
    rig.run_task("a")
    rig.run_task("b", 'mail."send"\n')
    rig.arrived()

    told = read(ask.get("/metrics").text)

    events = told["celeriac_task_events"]
    assert events[("", "celeriac_task_events_total"), ("event", "succeeded"), ("name", "shop.pay")] == 1
    assert events[("", "celeriac_task_events_total"), ("event", "received"), ("name", 'mail."send"\\n')] == 1
    runs = told["celeriac_run_seconds"]
    assert runs[("", "celeriac_run_seconds_bucket"), ("le", "0.25"), ("name", "shop.pay")] == 1
    assert runs[("", "celeriac_run_seconds_bucket"), ("le", "0.1"), ("name", "shop.pay")] == 0
    assert runs[("", "celeriac_run_seconds_sum"), ("name", "shop.pay")] == 0.25
    assert told["celeriac_tasks"][("", "celeriac_tasks"), ("state", "SUCCESS")] == 2
    assert told["celeriac_workers"][("", "celeriac_workers"), ("liveness", "ALIVE")] == 1
    assert told["celeriac_receiving"][("", "celeriac_receiving"),] == 1


def test_queues_are_scraped(tmp_path: Path) -> None:
    with made(tmp_path, queues=lambda: {"celery": 3, "bulk": 0}) as rig, served(rig) as ask:
        told = read(ask.get("/metrics").text)["celeriac_queue_length"]
        overview = ask.get("/api/v1/overview").json()

    assert told == {
        (("", "celeriac_queue_length"), ("queue", "celery")): 3,
        (("", "celeriac_queue_length"), ("queue", "bulk")): 0,
    }
    assert overview["queues"] == {"celery": 3, "bulk": 0}


def test_an_empty_cluster_is_scraped_too(ask: httpx.Client) -> None:
    told = read(ask.get("/metrics").text)

    assert told["celeriac_events"] == {(("", "celeriac_events_total"),): 0}
    assert "celeriac_link_losses" in told
