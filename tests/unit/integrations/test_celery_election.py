"""What the elections of Celery's workers are told, and what they tell."""

from typing import Any

import pytest
from celery import Celery

from celeriac.integrations.celery_election import _settings, _Teller


@pytest.fixture
def conf() -> Any:
    return Celery("shop", broker="redis://web1/3", set_as_current=False).conf


def test_the_broker_of_the_app_decides(conf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELERIAC_BROKER_URL", "redis://another/0")

    settings = _settings(conf, {"election_actions": ["shop.*"]})

    assert settings.broker_url == "redis://web1/3"
    assert settings.election_actions == ("shop.*",)


def test_another_arbiter_is_named_by_a_variable_as_for_workers_of_ours(
    conf: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CELERIAC_ELECTION_URL", "redis://arbiter/0")
    monkeypatch.setenv("CELERIAC_ELECTION_NAMESPACE", "shop")

    settings = _settings(conf, {"election_namespace": "other"})

    assert settings.election_url == "redis://arbiter/0"
    assert settings.election_namespace == "other"


def test_who_won_is_told_by_a_worker_that_sends_no_events_of_tasks() -> None:
    app = Celery("shop", broker="memory://", set_as_current=False)
    # A name of its own: all that kombu has in memory is shared by the whole process, over all hosts.
    app.conf.event_exchange = "elections"
    with app.connection_for_write() as connection:
        dispatcher = app.events.Dispatcher(connection, hostname="w1@web", groups=["worker"])
        heard: list[str] = []
        receiver = app.events.Receiver(connection, handlers={"*": lambda event: heard.append(event["type"])})
        with receiver.consumer_context() as (link, *_):
            _Teller(type("Gossip", (), {"dispatcher": dispatcher})).tell("cluster-elected", id="e1")
            link.drain_events(timeout=30)

    assert heard == ["cluster-elected"]
