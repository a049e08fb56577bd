"""``celeriac beat``: what it is told, what it shows, and how it ends."""

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from celeriac.app import Celeriac
from celeriac.programs.process import wait_until
from celeriac.transport.memory import MemoryBroker
from tests.component.cli.kit import HOSTILE, Cluster, is_harmless, lines

APP = """
from celeriac import Celeriac, crontab
from celeriac.transport.memory import MemoryBroker

broker = MemoryBroker()
app = Celeriac(broker, environ={}, timezone="Europe/Berlin", beat_schedule={
    "pulse": {"task": "shop.pulse", "schedule": 0.5},
    "nightly": {"task": "shop.report", "schedule": crontab(minute=0, hour=3), "options": {"queue": "slow"}},
})
"""
PATIENCE = 120.0


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An app with a schedule in a module where the command is run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "shopbeat.py").write_text(APP)
    yield "shopbeat:app"
    sys.modules.pop("shopbeat", None)


def scheduled(cluster: Cluster, **settings: object) -> Celeriac:
    """Return an app on the broker of a cluster with a schedule, or with settings of its own."""
    return cluster.app(**{"beat_schedule": {"pulse": {"task": "shop.pulse", "schedule": 5}}, **settings})


def sent(broker: MemoryBroker) -> list[object]:
    return [message.headers.get("beat") for _, message in broker.published]


# -- what is shown


def test_what_is_sent_and_when_next_is_shown_as_a_table(cluster: Cluster, place: str) -> None:
    result = cluster.run("beat", "-A", place, "--show")

    head, *rows = lines(result.stdout)
    nightly, pulse = sorted(rows)
    assert result.exit_code == 0
    assert head.split() == ["NAME", "TASK", "SCHEDULE", "NEXT"]
    assert pulse.startswith("pulse    shop.pulse   every 0.5 s  ")
    assert nightly.startswith("nightly  shop.report  0 3 * * *    ")
    assert " 03:00:00+0" in nightly


def test_what_is_sent_is_shown_as_json(cluster: Cluster, place: str) -> None:
    result = cluster.run("beat", "-A", place, "--json")

    shown = json.loads(result.stdout)
    assert result.exit_code == 0
    assert sorted((row["name"], row["task"], row["schedule"]) for row in shown) == [
        ("nightly", "shop.report", "0 3 * * *"),
        ("pulse", "shop.pulse", "every 0.5 s"),
    ]


def test_without_an_app_the_settings_are_those_of_the_folder(cluster: Cluster) -> None:
    result = cluster.run("beat", "--show", assemble=lambda **_: scheduled(cluster))

    assert result.exit_code == 0
    assert "shop.pulse" in result.stdout


def test_what_is_shown_can_do_nothing_to_a_terminal(cluster: Cluster) -> None:
    schedule = {"pulse": {"task": f"shop.{HOSTILE}", "schedule": 5}}

    result = cluster.run("beat", "--show", assemble=lambda **_: scheduled(cluster, beat_schedule=schedule))

    assert is_harmless(result.stdout)
    assert is_harmless(result.stderr)


# -- a run


def test_it_sends_until_a_signal_says_what_it_does_and_gives_the_leadership_up(
    cluster: Cluster, place: str
) -> None:
    def stop_once_sent() -> None:
        wait_until(lambda: hasattr(sys.modules.get("shopbeat"), "app"), patience=PATIENCE)
        wait_until(lambda: "pulse" in sent(sys.modules["shopbeat"].broker), patience=PATIENCE)
        os.kill(os.getpid(), signal.SIGTERM)

    stopper = Thread(target=stop_once_sent)
    stopper.start()
    result = cluster.run("beat", "-A", place, "--ttl", "5", "--name", "reports")
    stopper.join()

    app = sys.modules["shopbeat"].app
    assert result.exit_code == 0, result.stderr
    assert "beat reports, process" in result.stderr
    assert "level L3: decided within one process" in result.stderr
    assert "pulse (every 0.5 s), nightly (0 3 * * *)" in result.stderr
    assert "leadership 'reports': acquired" in result.stderr
    assert "entry 'pulse': sent shop.pulse[" in result.stderr
    assert app.arbiter.leases() == []


def test_a_broker_that_is_away_at_the_start_is_waited_for(cluster: Cluster, place: str) -> None:
    def come_back() -> None:
        wait_until(lambda: hasattr(sys.modules.get("shopbeat"), "app"), patience=PATIENCE)
        broker = sys.modules["shopbeat"].broker
        wait_until(
            lambda: any(each.name == "celeriac-beat" for each in threading.enumerate()), patience=PATIENCE
        )
        broker.start()
        wait_until(lambda: "pulse" in sent(broker), patience=PATIENCE)
        os.kill(os.getpid(), signal.SIGTERM)

    Path("shopbeat.py").write_text(f"{APP}\nbroker.stop()\n")
    stopper = Thread(target=come_back)
    stopper.start()
    result = cluster.run("beat", "-A", place)
    stopper.join()

    assert result.exit_code == 0, result.stderr
    assert "unknown: " in result.stderr
    assert "entry 'pulse': sent shop.pulse[" in result.stderr


# -- what is wrong


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"beat_schedule": {}}, "beat_schedule is empty"),
        ({"beat_schedule": {"pulse": {"schedule": 5}}}, "entry 'pulse': missing task"),
        ({"timezone": "Nowhere"}, "timezone is 'Nowhere'"),
    ],
)
def test_a_schedule_that_cannot_work_ends_it_with_the_code_of_settings(
    cluster: Cluster, settings: dict[str, object], told: str
) -> None:
    result = cluster.run("beat", assemble=lambda **_: scheduled(cluster, **settings))

    assert result.exit_code == 78
    assert told in result.stderr


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("--ttl=0.1", "equal to 0.5"),
        ("--name=", "error: Invalid --name. Use up to 190 printable characters\n"),
        (f"--name={'x' * 191}", "error: Invalid --name. Use up to 190 printable characters\n"),
    ],
)
def test_an_option_that_cannot_work_is_a_matter_of_usage(cluster: Cluster, option: str, told: str) -> None:
    result = cluster.run("beat", option, assemble=lambda **_: scheduled(cluster))

    assert result.exit_code == 2
    assert told in result.stderr
    assert "process" not in result.stderr


def test_a_module_that_is_not_there_is_told(cluster: Cluster) -> None:
    result = cluster.run("beat", "-A", "shopnone:app")

    assert result.exit_code == 78
    assert "no module 'shopnone'" in result.stderr
