"""Elections decided by RabbitMQ: streams put entries in order, and every node folds them by one rule.

There are two, because what is granted once must be known for weeks, while a leader renews 17,000 times a day:
``<namespace>.leases`` has leases, ``<namespace>.decisions`` all else. A process reads both from their
beginning, once, before it asks for anything: of one leader 26,000 entries, 5 MB, which take us a second and
RabbitMQ up to three; what one call has no time for, the next reads. The price of two is that tokens need one
order: a lease draws its token from the decisions, which costs each grant one entry more. And who claims one
key as a lease and not as a lease in the same instant may be granted both; later than that, the one is denied
for the other.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from secrets import token_hex
from threading import Lock
from time import monotonic, sleep, time
from typing import Final, NamedTuple, TypeVar

from celeriac.config import DAY, MIB, Settings
from celeriac.core.decision_log import DecisionLog, max_age_of
from celeriac.errors import AccessRefused, CallerError, ConnectionLost, PeerError
from celeriac.masking import sanitize_url
from celeriac.model.decision import Entry, EntryKind, Verdict
from celeriac.model.election import Decision, Granted, Level, Mode, Record
from celeriac.transport.amqp_stream_link import StreamBehind, StreamLink, arbiter_settings
from celeriac.transport.arbiter import CALL_PATIENCE
from celeriac.transport.arbiter_check import check_key, check_note, check_ttl
from celeriac.wire.decision import MAX_ENTRY_BYTES, decode_entry, encode_entry

__all__ = ["StreamArbiter"]

_T = TypeVar("_T")

#: Leases are renewed within minutes. After half a day without, one is over for good.
_LEASE_RETAIN: Final = DAY / 2
#: RabbitMQ drops what is too old by whole segments: small ones, so that it does.
_SEGMENT_BYTES: Final = MIB
#: Between two tries to read a stream that the broker does not have at hand yet.
_PAUSE: Final = 0.1
#: With as many nodes an entry is read by nobody before most of them have it.
_MAJORITY_OF: Final = 3


class _Stream:
    """One stream, and what was made of it so far."""

    def __init__(self, name: str, *, retain: float) -> None:
        self.name = name
        self.log = DecisionLog(retain=retain)
        #: The place of the next entry; None if nothing was read yet.
        self.next: int | None = None
        #: The id of the entry by which it is known that all is read; empty once it is.
        self.mark_id = ""
        #: The id of an entry of ours that we wait for, and what came of it.
        self.awaited_id = ""
        self.verdicts: dict[str, Verdict] = {}

    @property
    def arguments(self) -> dict[str, object]:
        """How RabbitMQ makes it. All nodes must say the same."""
        return {
            "x-max-age": f"{int(max_age_of(self.log.retain))}s",
            "x-stream-max-segment-size-bytes": _SEGMENT_BYTES,
        }

    def begin_anew(self) -> None:
        """Forget all that was read."""
        self.log = DecisionLog(retain=self.log.retain)
        self.next = None

    def follow(self, place: int, body: bytes) -> None:
        """Take the next entry."""
        if self.next is not None and place < self.next:
            return
        if self.next is not None and place > self.next:
            # What was between is gone, and with it the use of what we knew: now we start late.
            self.begin_anew()
        self.next = place + 1
        try:
            entry = decode_entry(body)
        except PeerError:
            return  # nobody reads it
        verdict = self.log.apply(place, entry, now=monotonic())
        if entry.id == self.awaited_id:
            self.verdicts[entry.id] = verdict
        if entry.id == self.mark_id:
            self.mark_id = ""


class _Write(NamedTuple):
    """An entry to write, and where to."""

    stream: _Stream
    entry: Entry


class StreamArbiter:
    """Who decides elections, in streams of RabbitMQ; for any number of threads, one after the other.

    There is no thread of its own: who calls reads what has come. Of an entry of ours we know what came of
    it once we have read it, and with it all before it. To deny takes no entry, but the broker is asked
    whether there is more to read, so that nobody is denied for what is over.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = arbiter_settings(settings)
        space = settings.election_namespace
        self._leases = _Stream(f"{space}.leases", retain=_LEASE_RETAIN)
        self._decisions = _Stream(f"{space}.decisions", retain=settings.election_retain)
        self._streams = (self._leases, self._decisions)
        self._lock = Lock()
        self._link: StreamLink | None = None
        nodes = settings.election_broker_nodes
        if nodes >= _MAJORITY_OF:
            self.level = Level.L3
            self.reason = f"streams of RabbitMQ on {nodes} nodes: entries stored by a majority persist"
        else:
            self.level = Level.L2
            self.reason = (
                "streams of RabbitMQ on one node, which survive restarts: with three nodes or more, set "
                "election_broker_nodes"
            )

    def is_possible(self, timeout: float = CALL_PATIENCE) -> bool:
        """Say whether the broker has streams; if it has, ours are there from now on."""
        deadline = monotonic() + timeout
        with self._alone(deadline), StreamLink(self._settings, timeout=timeout) as link:
            return all(link.declare_stream(stream.name, stream.arguments) for stream in self._streams)

    def look(self) -> Level:
        """Ask the broker, and return the level."""
        self._do(lambda _: None, CALL_PATIENCE)
        return self.level

    def claim(
        self,
        key: str,
        owner: str,
        *,
        ttl: float,
        mode: Mode,
        floor: int = 0,
        timeout: float = CALL_PATIENCE,
    ) -> Decision:
        """Have a key granted, or learn who has it; the token is above ``floor``, the highest we know."""
        is_lease = mode is Mode.LEASE
        stream, other = self._streams if is_lease else self._streams[::-1]
        check_key(key)
        _check_ttl(ttl, stream)
        if floor < 0:
            raise CallerError(f"invalid floor {floor}: give the highest known token, or none")
        ticket = 0

        def plan(deadline: float) -> _Write | Decision:
            nonlocal ticket
            while True:
                now, at = monotonic(), time()
                # One key has one record, whatever it is claimed as.
                chosen = stream if other.log.read(key, now=now, at=at) is None else other
                planned = chosen.log.claim(
                    key, owner, ttl=ttl, mode=mode, now=now, at=at, id=_new_id(), floor=floor, ticket=ticket
                )
                if not isinstance(planned, Entry):
                    return planned
                highest = max(floor, chosen.log.last_token(key))
                if planned.kind is EntryKind.RENEW or not is_lease or ticket > highest:
                    return _Write(chosen, planned)
                ticket = self._draw(highest, deadline)

        answer: Verdict | Decision = self._do(plan, timeout)
        return Granted(answer.token, answer.note) if isinstance(answer, Verdict) else answer

    def renew(
        self,
        key: str,
        owner: str,
        token: int,
        *,
        ttl: float,
        note: bytes | None = None,
        timeout: float = CALL_PATIENCE,
    ) -> bool:
        """Prolong a lease from now on, and leave a note for who follows; say whether it was still ours."""
        _check_ttl(ttl, max(self._streams, key=lambda stream: stream.log.keep))
        check_note(note)
        return self._change(
            key,
            timeout,
            lambda log: log.renew(key, owner, token, ttl=ttl, at=time(), id=_new_id(), note=note),
        )

    def finish(
        self,
        key: str,
        owner: str,
        token: int,
        *,
        is_failed: bool = False,
        timeout: float = CALL_PATIENCE,
    ) -> bool:
        """Note that what was to be done is done: nobody is granted it for ``election_retain`` seconds.

        Of a lease that is half a day.
        """
        return self._change(
            key,
            timeout,
            lambda log: log.finish(key, owner, token, at=time(), id=_new_id(), is_failed=is_failed),
        )

    def release(self, key: str, owner: str, token: int, *, timeout: float = CALL_PATIENCE) -> bool:
        """Let others have a key; say whether it was still ours. Of mode ``once`` it never is let go.

        Where a link was lost it may be done and say False: it is ours no more.
        """
        return self._change(key, timeout, lambda log: log.release(key, owner, token, at=time(), id=_new_id()))

    def read(self, key: str) -> Record | None:
        """Return what stands of a key, by what we have read."""
        check_key(key)

        def plan(_: float) -> Record | None:
            now, at = monotonic(), time()
            records = [stream.log.read(key, now=now, at=at) for stream in self._streams]
            return next((record for record in records if record is not None), None)

        record = self._do(plan, CALL_PATIENCE)
        return record if isinstance(record, Record) else None

    def leases(self) -> list[Record]:
        """Return the leases that are held now, by what we have read."""
        records = self._do(lambda _: self._leases.log.leases(now=monotonic(), at=time()), CALL_PATIENCE)
        return records if isinstance(records, list) else []

    def close(self) -> None:
        """End the link; to call anything again makes a new one, and reads on where this one ended."""
        with self._lock:
            self._drop()

    # -- asking

    def _change(self, key: str, timeout: float, planned: Callable[[DecisionLog], Entry | bool]) -> bool:
        check_key(key)

        def plan(_: float) -> _Write | bool:
            is_done = False
            for stream in self._streams:
                entry = planned(stream.log)
                if isinstance(entry, Entry):
                    return _Write(stream, entry)
                is_done = is_done or entry
            return is_done

        answer = self._do(plan, timeout)
        return answer.is_valid if isinstance(answer, Verdict) else answer

    def _do(self, plan: Callable[[float], _Write | _T], timeout: float) -> Verdict | _T:
        """Do what is planned; twice if an old link is lost, and again while a stream is not yet at hand.

        Whatever came of the first try, it has been read before the second is planned.
        """
        deadline = monotonic() + timeout
        with self._alone(deadline):
            may_be_old = self._link is not None
            while True:
                try:
                    return self._attempt(plan, deadline)
                except StreamBehind:
                    if monotonic() + _PAUSE >= deadline:
                        raise
                    sleep(_PAUSE)
                except ConnectionLost:
                    if not may_be_old or self._link is not None or monotonic() >= deadline:
                        raise
                may_be_old = False

    def _attempt(self, plan: Callable[[float], _Write | _T], deadline: float) -> Verdict | _T:
        link, is_caught_up = self._ready_link(deadline)
        try:
            while True:
                step = plan(deadline)
                if isinstance(step, _Write):
                    verdict = self._write(step, deadline)
                    if verdict.is_valid:
                        return verdict
                elif is_caught_up:
                    return step
                else:
                    link.catch_up()
                is_caught_up = True
        except BaseException:
            self._drop()
            raise

    def _draw(self, floor: int, deadline: float) -> int:
        """Return a token above ``floor``, and above all that were given before."""
        while True:
            mark = self._decisions.log.mark(at=time(), id=_new_id(), floor=floor)
            verdict = self._write(_Write(self._decisions, mark), deadline)
            if verdict.is_valid:
                return verdict.token

    def _write(self, write: _Write, deadline: float) -> Verdict:
        """Write an entry, and read until we know what came of it."""
        stream, entry = write
        body = encode_entry(entry)
        stream.awaited_id, stream.verdicts = entry.id, {}
        if self._link is None:
            raise ConnectionLost(f"the connection to the arbiter at {self._address} was closed")
        self._link.write(stream.name, body)
        while entry.id not in stream.verdicts:
            self._link.drain(self._left(deadline))
        return stream.verdicts[entry.id]

    # -- the link

    def _ready_link(self, deadline: float) -> tuple[StreamLink, bool]:
        """Return a link by which all is read, and whether that is known to be so now."""
        is_new = self._link is None
        try:
            link = self._link or self._connect(deadline)
            places = [stream.next for stream in self._streams]
            while any(stream.mark_id for stream in self._streams):
                left = deadline - monotonic()
                if left <= 0:
                    break
                link.drain(left)
                if not any(stream.mark_id for stream in self._streams):
                    is_new = True
                    for stream in self._streams:
                        stream.log.resume(monotonic())
            else:
                link.drain(0.0)
                return link, is_new
        except BaseException:
            self._drop()
            raise
        # What takes longer to read than a call may take is read on by the next one.
        behind = [stream for stream in self._streams if stream.mark_id]
        if [stream.next for stream in self._streams] == places:
            # It is not there, or not where we look for it: somebody may have made the stream anew.
            self._drop()
            for stream in behind:
                stream.begin_anew()
        raise ConnectionLost(
            f"timed out while reading the streams of the arbiter at {self._address}; position: "
            + ", ".join(f"{stream.next or 0:,} of {stream.name}" for stream in behind)
        )

    def _connect(self, deadline: float) -> StreamLink:
        """Make a link that reads on where the last one ended, and ask for a sign that all is read."""
        link = self._link = StreamLink(self._settings, timeout=self._left(deadline))
        for stream in self._streams:
            if not link.declare_stream(stream.name, stream.arguments):
                raise AccessRefused(
                    f"the streams of the arbiter at {self._address} were deleted: restart this process"
                )
            start = "first" if stream.next is None else stream.next
            link.follow(stream.name, start=start, max_bytes=MAX_ENTRY_BYTES, follow=stream.follow)
        for stream in self._streams:
            stream.mark_id = _new_id()
            link.write(stream.name, encode_entry(stream.log.mark(at=time(), id=stream.mark_id)))
        return link

    def _drop(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def _left(self, deadline: float) -> float:
        left = deadline - monotonic()
        if left <= 0:
            raise ConnectionLost(f"the arbiter at {self._address} did not answer in time")
        return left

    @property
    def _address(self) -> str:
        return sanitize_url(self._settings.broker_url)

    @contextmanager
    def _alone(self, deadline: float) -> Iterator[None]:
        if not self._lock.acquire(timeout=max(0.0, deadline - monotonic())):
            raise ConnectionLost(f"the arbiter at {self._address} is busy with other calls")
        try:
            yield
        finally:
            self._lock.release()


def _check_ttl(ttl: float, stream: _Stream) -> None:
    check_ttl(ttl)
    if ttl > stream.log.keep / 2:
        raise CallerError(
            f"a lease of {ttl:,.0f} seconds is too long for RabbitMQ: give up to "
            f"{stream.log.keep / 2:,.0f}, half of the retention"
        )


def _new_id() -> str:
    return token_hex(12)
