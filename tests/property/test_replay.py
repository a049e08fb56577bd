"""A log, however it was written, gives back the state that a live receiver has."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from celeriac import State
from celeriac.core.worker import Worker
from celeriac.model.events import Event, Extra, Gap, Other, WorkerHeartbeat, WorkerOffline, WorkerOnline
from celeriac.node.replay import Replay
from celeriac.store.columns import event_moment
from celeriac.store.event_log import EventLog
from celeriac.store.log_writer import LogWriter
from celeriac.store.place import place_for
from tests.property.effort import ON_DISK
from tests.property.strategies import events_of

#: Few values, so that events collide in every way they can; and clocks that are ahead, behind and lost.
_TIMES = st.sampled_from((0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 7.5, 20.0, 1e9))
_SENDERS: dict[str, st.SearchStrategy[Any]] = {
    "timestamp": _TIMES,
    "clock": st.sampled_from((0, 1, 2, 3, 5000)),
    "hostname": st.sampled_from(("a@x", "b@x", "ü@x")),
    "pid": st.sampled_from((0, 1, 2)),
}
_HEALTH = {
    "freq": st.sampled_from((None, 0.5, 2.0)),
    "active": st.sampled_from((None, 0, 1)),
    "loadavg": st.sampled_from((None, (0.5, 0.25, 0.125))),
    "sw_ver": st.sampled_from((None, "5.7.0")),
}
_others = st.one_of(
    *(st.builds(kind, **_SENDERS, **_HEALTH) for kind in (WorkerOnline, WorkerHeartbeat, WorkerOffline)),
    st.builds(Gap, **_SENDERS, since=_TIMES, until=_TIMES, reason=st.just("cut"), attempts=st.just(1)),
    st.builds(
        Other, **_SENDERS, group=st.just("worker"), subject=st.just("elect"), extra=st.just(Extra(id="e1"))
    ),
)
#: Where to sync takes no time, if there is such a folder: what is tested is not the disk.
_MEMORY = next((folder for folder in ("/dev/shm",) if os.access(folder, os.W_OK)), None)  # noqa: S108
_tasks = events_of(st.sampled_from(("task-1", "p", "q")))


#: To seal takes as long as all else together.
_STEPS = st.sampled_from(("nothing", "nothing", "nothing", "sync", "seal", "reopen"))


class Message(NamedTuple):
    """Events that came together, and what is done with the log after they were appended."""

    events: list[Event]
    after: str


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    """Return what a recorder received, in the order of receipt."""
    events: list[Event] = draw(st.permutations([*draw(_tasks), *draw(st.lists(_others, max_size=12))]))
    messages = []
    received_at = 1.0
    while events:
        size = draw(st.integers(1, 8))
        received_at += draw(st.sampled_from((0.0, 0.25, 1.0, 6.0)))
        part, events = events[:size], events[size:]
        stamped = [replace(event, local_received=received_at) for event in part]
        messages.append(Message(stamped, draw(_STEPS)))
    return messages


def unchanged(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


@contextmanager
def recorded(messages: Iterable[Message], *, beside: Path | None = None) -> Iterator[EventLog]:
    """Have a log that was written in these steps, or added to one that is there."""
    with TemporaryDirectory(dir=_MEMORY) as folder:
        root = beside or Path(folder) / "log"
        age = [0.0]

        def opened() -> LogWriter:
            writer = LogWriter(
                place_for(root), spool=root / "spool", name="s" if beside else "r", redact=unchanged,
                segment_bytes=1 << 30, segment_age=10.0, now=lambda: age[0],
            )  # fmt: skip
            writer.open()
            return writer

        writer = opened()
        try:
            for message in messages:
                writer.append(message.events)
                if message.after != "nothing":
                    writer.sync()
                if message.after == "seal":
                    age[0] += 11.0
                    writer.tick()
                elif message.after == "reopen":
                    writer.close()
                    writer = opened()
            writer.sync()
            # Read while it is open: what is not sealed counts too.
            yield EventLog(root)
        finally:
            writer.close()


def seen(state: State) -> dict[str, object]:
    """Return all that can be seen of a state, but for its workers."""
    return {
        "tasks": {uuid: task.as_dict() for uuid, task in state.tasks.items()},
        "order": list(state.tasks),
        "gaps": list(state.gaps),
        "counts": (state.event_count, state.task_count, list(state.workers)),
    }


def described(worker: Worker) -> dict[str, object]:
    """Return all that is known of a worker, but for when it is taken for dead."""
    names = (*Worker._fields, "timestamp", "utcoffset", "drift", "has_left", "is_member")
    return {name: getattr(worker, name) for name in names}


@ON_DISK
@given(histories())
def test_a_replay_of_all_is_the_live_state(messages: list[Message]) -> None:
    now = max((event.local_received or 0.0 for each in messages for event in each.events), default=0.0)
    with recorded(messages) as log:
        replay = Replay(log)
        replayed = replay.run()

    live = State(now=lambda: now)
    live.on_drift = None
    for message in messages:
        live.take(message.events, message.events[0].local_received)

    assert log.damage == []
    assert seen(replayed) == seen(live)
    for name, worker in live.workers.items():
        again = replayed.workers[name]
        assert described(again) == described(worker)
        assert (again.alive, again.heartbeat_expires) == (worker.alive, worker.heartbeat_expires)


@ON_DISK
@given(histories(), st.sampled_from((0.5, 1.0, 2.5, 4.0, 5.0, 8.0, 20.0, 100.0, 1e9)))
def test_a_replay_until_an_instant_is_a_live_state_of_what_had_happened(
    messages: list[Message], until: float
) -> None:
    with recorded(messages) as log:
        replayed = Replay(log, until=until).run()

    live = State(now=lambda: until)
    live.on_drift = None
    ahead = set()
    for event in (event for message in messages for event in message.events):
        if event_moment(event) <= until:
            received_at = event.local_received or 0.0
            # Who had spoken by then counts as heard by then.
            live.take([event], received_at if received_at <= until else event_moment(event))
            if event.timestamp > received_at:
                ahead.add(event.hostname)

    assert seen(replayed) == seen(live)
    for name, worker in live.workers.items():
        again = replayed.workers[name]
        assert described(again) == described(worker)
        assert (again.heartbeat_expires or 0.0) >= (worker.heartbeat_expires or 0.0)
        assert name in ahead or again.alive == worker.alive


def distinct(messages: Iterable[Message]) -> list[Message]:
    """Return the same without events that something marks no better than one before them."""
    known: set[object] = set()
    left = []
    for message in messages:
        events = []
        for event in message.events:
            # Without the clock, which of task-sent is the receiver's: less is left, and each is one event.
            who = (event.type, getattr(event, "uuid", None), event.hostname, event.pid, event.timestamp)
            if (event.timestamp or event.clock) and not isinstance(event, Gap) and who not in known:
                known.add(who)
                events.append(event)
        if events:
            left.append(Message(events, message.after))
    return left


@ON_DISK
@given(histories().map(distinct))
def test_a_second_recorder_that_saw_the_same_changes_nothing(messages: list[Message]) -> None:
    with recorded(messages) as one:
        alone = Replay(one)
        given_out = list(alone)
        with recorded(messages, beside=Path(one.place.url)) as both:
            together = Replay(both)
            merged = list(together)

    assert merged == given_out
    assert seen(together.state) == seen(alone.state)
