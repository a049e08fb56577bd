"""Task events are turned on for all workers, and for those that join later."""

from collections.abc import Sequence
from typing import Any

import pytest

from celeriac.core.member import Liveness
from celeriac.errors import ConnectionLost
from celeriac.node.event_enabler import EventEnabler
from celeriac.node.watcher import Presence
from celeriac.programs.process import wait_until


class Workers:
    """Workers that a watcher sees, and the commands that they get."""

    def __init__(self, *alive: str) -> None:
        self.presences = {name: Presence(Liveness.ALIVE, "heartbeat on time", 10.0) for name in alive}
        #: The nodes of each command.
        self.commands: list[list[str]] = []
        self.deaf: set[str] = set()
        self.is_broker_away = False
        self.enabler = EventEnabler(self, lambda: dict(self.presences))  # type: ignore[arg-type]

    def enable_events(self, destination: Sequence[str], **_: Any) -> list[dict[str, object]]:
        if self.is_broker_away:
            raise ConnectionLost("the broker is away")
        self.commands.append(sorted(destination))
        return [{name: {"ok": "task events enabled"}} for name in destination if name not in self.deaf]

    def see(self, name: str, *, liveness: Liveness = Liveness.ALIVE, since_at: float = 10.0) -> None:
        self.presences[name] = Presence(liveness, "", since_at)


def test_each_worker_gets_the_command_once() -> None:
    workers = Workers("a", "b")
    for _ in range(3):
        workers.enabler.enable()

    assert workers.commands == [["a", "b"]]


def test_worker_that_joins_later_gets_it_too() -> None:
    workers = Workers("a")
    workers.enabler.enable()
    workers.see("b", since_at=20.0)
    workers.enabler.enable()

    assert workers.commands == [["a"], ["b"]]


def test_worker_that_does_not_reply_gets_it_again_for_a_while() -> None:
    workers = Workers("a", "b")
    workers.deaf = {"b"}
    for _ in range(3):
        workers.enabler.enable()
    assert workers.commands == [["a", "b"], ["b"], ["b"]]

    for _ in range(100):
        workers.enabler.enable()
    assert len(workers.commands) == 30


def test_restarted_worker_gets_it_again() -> None:
    workers = Workers("a")
    workers.enabler.enable()
    workers.see("a", since_at=50.0)
    workers.enabler.enable()

    assert workers.commands == [["a"], ["a"]]


def test_presence_computed_from_another_clock_reading_is_no_restart() -> None:
    workers = Workers("a")
    workers.enabler.enable()
    workers.see("a", since_at=10.001)
    workers.enabler.enable()

    assert workers.commands == [["a"]]


@pytest.mark.parametrize("liveness", [Liveness.SUSPECT, Liveness.LOST, Liveness.LEFT])
def test_only_live_workers_get_it(liveness: Liveness) -> None:
    workers = Workers()
    workers.see("a", liveness=liveness)
    workers.enabler.enable()

    assert workers.commands == []


def test_thread_goes_on_when_the_broker_is_away() -> None:
    workers = Workers("a")
    workers.is_broker_away = True
    with pytest.raises(ConnectionLost):
        workers.enabler.enable()
    workers.is_broker_away = False

    with workers.enabler:
        assert wait_until(lambda: workers.commands == [["a"]], patience=20.0)
