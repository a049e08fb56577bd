"""What a node has to say and has not been heard to say yet."""

from collections import Counter, deque
from typing import Final, NamedTuple

__all__ = ["BATCH_BYTES", "Outbox", "Parcel"]


class Parcel(NamedTuple):
    """One message to publish: where to, and the events in it, spelled out."""

    routing_key: str
    group: str
    events: tuple[bytes, ...]
    #: Whether the body is a list, even of one event.
    is_batch: bool = False

    @property
    def body(self) -> bytes:
        """The body of the message."""
        return b"[%b]" % b",".join(self.events) if self.is_batch else self.events[0]


#: A batch of long events leaves before it is so long that receivers refuse it.
BATCH_BYTES: Final = 512 * 1024


class Outbox:
    """Events between the moment they are stamped and the moment a broker has confirmed them.

    They leave in the order they were put in. What is taken out stays with us until it is
    confirmed, and if the link is lost it goes back to the front as it was: same order, same
    bytes, so that whoever got it the first time knows it again. There is room for ``limit``
    events; beyond it the oldest go, and are counted by group.
    """

    def __init__(self, *, limit: int, batch_limit: int) -> None:
        self.limit = limit
        # A batch that can never be full would never leave.
        self.batch_limit = min(batch_limit, limit)
        #: Events that had to go for want of room, by group.
        self.dropped: Counter[str] = Counter()
        self._batches: dict[str, list[bytes]] = {}
        self._batch_bytes: Counter[str] = Counter()
        self._outgoing: deque[Parcel] = deque()
        self._on_the_way: deque[Parcel] = deque()
        self._count = 0

    def __len__(self) -> int:
        """Return the number of events in it, confirmed by nobody."""
        return self._count

    @property
    def unsent(self) -> int:
        """How many messages wait to be taken."""
        return len(self._outgoing)

    @property
    def on_the_way(self) -> int:
        """How many messages were taken and are not confirmed."""
        return len(self._on_the_way)

    def put(self, routing_key: str, group: str, event: bytes) -> Parcel:
        """Add one event, to leave as a message of its own, which is returned."""
        # What was said before of the same group leaves before it.
        self.close_batch(group)
        parcel = Parcel(routing_key, group, (event,))
        self._outgoing.append(parcel)
        self._grow()
        return parcel

    def put_in_batch(self, group: str, event: bytes) -> bool:
        """Add one event, to leave with others of its group; say whether their batch is full."""
        batch = self._batches.setdefault(group, [])
        batch.append(event)
        self._grow()
        self._batch_bytes[group] += len(event)
        if len(batch) < self.batch_limit and self._batch_bytes[group] < BATCH_BYTES:
            return False
        self.close_batch(group)
        return True

    def close_batch(self, group: str | None = None) -> None:
        """Let what is gathered of one group, or of all, leave as it is."""
        for name in list(self._batches) if group is None else [group]:
            events = self._batches.pop(name, None)
            self._batch_bytes.pop(name, None)
            if events:
                self._outgoing.append(Parcel(f"{name}.multi", name, tuple(events), is_batch=True))

    def take(self) -> Parcel | None:
        """Return the next message to publish; None if there is none."""
        if not self._outgoing:
            return None
        parcel = self._outgoing.popleft()
        self._on_the_way.append(parcel)
        return parcel

    def confirm(self, unconfirmed: int) -> None:
        """Forget what has arrived: all that was taken but the last ``unconfirmed`` messages."""
        while len(self._on_the_way) > unconfirmed:
            self._count -= len(self._on_the_way.popleft().events)

    def put_back(self) -> None:
        """Take back what was on its way: the link is lost, and it may not have arrived."""
        self._outgoing.extendleft(reversed(self._on_the_way))
        self._on_the_way.clear()

    def withdraw(self, parcel: Parcel) -> None:
        """Forget this very message if it waits: who gave it to us was told that it failed."""
        for place, waiting in enumerate(self._outgoing):
            if waiting is parcel:
                del self._outgoing[place]
                self._count -= len(parcel.events)
                return

    def clear(self) -> None:
        """Forget everything: it is another's to send."""
        self._batches.clear()
        self._batch_bytes.clear()
        self._outgoing.clear()
        self._on_the_way.clear()
        self._count = 0

    def adopt(self, other: "Outbox") -> None:
        """Take over all that another outbox holds, behind our own."""
        self.close_batch()
        other.put_back()
        other.close_batch()
        while (parcel := other.take()) is not None:
            other.confirm(0)
            self._outgoing.append(parcel)
            self._count += len(parcel.events)
        self._shrink()

    def _grow(self) -> None:
        self._count += 1
        self._shrink()

    def _shrink(self) -> None:
        while self._count > self.limit:
            oldest = self._outgoing or self._on_the_way
            if oldest:
                parcel = oldest.popleft()
                group, lost = parcel.group, len(parcel.events)
            else:
                group, batch = next((name, batch) for name, batch in self._batches.items() if batch)
                lost = 1
                del batch[0]
            self._count -= lost
            self.dropped[group] += lost
