from pathlib import Path
from time import time

import pytest

from celeriac.app import Celeriac
from celeriac.core.member import Liveness
from celeriac.core.redaction import Redactor
from celeriac.errors import CallerError
from celeriac.node.watcher import MAX_LISTENERS, Watcher
from celeriac.store.event_log import EventLog
from celeriac.testing.process import wait_until
from celeriac.transport.memory import MemoryBroker
from tests.event_logs import HOUR_AT, received, seal

PATIENCE = 20.0


@pytest.fixture
def app() -> Celeriac:
    return Celeriac(MemoryBroker(), hostname="watcher@lab", environ={})


def test_events_that_come_are_in_the_state_counted_and_given_to_who_listens(app: Celeriac) -> None:
    with Watcher(app.events, hostname=app.hostname, redactor=Redactor()) as watcher:
        assert wait_until(lambda: watcher.is_receiving, patience=PATIENCE)
        dispatcher = app.events.Dispatcher(hostname="w1@lab")
        with watcher.listening() as listener:
            dispatcher.send("worker-online", freq=2.0)
            dispatcher.send("task-received", uuid="a", name="shop.pay")
            assert wait_until(lambda: watcher.state.event_count == 2, patience=PATIENCE)
            assert wait_until(lambda: "w1@lab" in watcher.presences(), patience=PATIENCE)
            events, overlooked = listener.taken()

    assert [event.type for event in events] == ["worker-online", "task-received"]
    assert overlooked == 0
    assert watcher.scene.tally.by_state == {"RECEIVED": 1}
    assert watcher.presences()["w1@lab"].liveness is Liveness.ALIVE
    assert not watcher.is_receiving
    watcher.check()


def test_what_was_recorded_before_it_began_is_known_too(app: Celeriac, tmp_path: Path) -> None:
    seal(tmp_path, [received("old"), received("older", -7200.0)], recorder="rec-1")

    with Watcher(
        app.events,
        hostname=app.hostname,
        redactor=Redactor(),
        log=EventLog(tmp_path),
        wall=lambda: HOUR_AT + 60,
    ) as watcher:
        assert wait_until(lambda: watcher.has_recalled, patience=PATIENCE)

    assert set(watcher.state.tasks) == {"old"}
    assert watcher.scene.tally.by_state == {"RECEIVED": 1}
    # A series that began anew with what was in it before would be counted twice.
    assert not watcher.scene.series.events


def test_a_worker_that_leaves_is_told_as_such(app: Celeriac) -> None:
    begun_at = time()
    with Watcher(app.events, hostname=app.hostname, redactor=Redactor()) as watcher:
        assert wait_until(lambda: watcher.is_receiving, patience=PATIENCE)
        dispatcher = app.events.Dispatcher(hostname="w1@lab")
        dispatcher.send("worker-online", freq=2.0)
        dispatcher.send("worker-offline", freq=2.0)
        assert wait_until(
            lambda: watcher.presences().get("w1@lab", (None,))[0] is Liveness.LEFT, patience=PATIENCE
        )
        presence = watcher.presences()["w1@lab"]

    assert presence.reason == "said farewell"
    assert presence.since_at >= begun_at - 1


def test_not_everybody_can_listen(app: Celeriac) -> None:
    watcher = Watcher(app.events, hostname=app.hostname, redactor=Redactor())
    held = [watcher.listening() for _ in range(MAX_LISTENERS)]
    for each in held:
        each.__enter__()

    assert not watcher.has_room
    with pytest.raises(CallerError, match="listen already"), watcher.listening():
        pass

    for each in held:
        each.__exit__(None, None, None)
    with watcher.listening():
        assert watcher.has_room


def test_what_ends_the_reception_is_raised_where_somebody_sees_it() -> None:
    app = Celeriac("redis://127.0.0.1:1/0", environ={}, hostname="watcher@lab")

    with (
        Watcher(app.events, hostname=app.hostname, redactor=Redactor()) as watcher,
        pytest.raises(ConnectionError),
    ):
        watcher.wait()
