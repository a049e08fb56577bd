"""Elections at a RabbitMQ without streams: who has an exclusive queue has the key, as far as that goes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from threading import Lock
from time import monotonic, time
from typing import Any, Final, TypeVar

from celeriac.config import Settings
from celeriac.errors import AccessRefused, CallerError, ConnectionLost, ImproperlyConfigured
from celeriac.masking import sanitize_url
from celeriac.model.election import Decision, Denied, Granted, Level, Mode, Record, RecordState
from celeriac.transport.amqp_stream_link import ArbiterLink, arbiter_settings
from celeriac.transport.arbiter import CALL_PATIENCE
from celeriac.transport.arbiter_check import check_key, check_ttl

__all__ = ["LockArbiter"]

_T = TypeVar("_T")

#: There is none to give.
_NO_TOKEN: Final = 0
#: RabbitMQ counts milliseconds with 32 bits: 49 days.
_LONGEST_MS: Final = 2**32 - 1
#: What a channel is closed with where a queue is another's, and where there is none.
_LOCKED, _NOT_FOUND = "ResourceLocked", "NotFound"


class LockLink(ArbiterLink):
    """A link that the broker keeps queues for, as long as it lives."""

    def has_lock(self, name: str) -> bool:
        """Make a queue that is ours alone; say whether it is."""
        return self._is_made(name, exclusive=True, auto_delete=False)

    def has_marker(self, name: str) -> bool:
        """Say whether a queue is there that anybody may have made."""
        return self._is_made(name, passive=True)

    def put_marker(self, name: str, *, expires_ms: int) -> None:
        """Make a queue that outlives us, for some time."""
        self._is_made(name, durable=True, auto_delete=False, arguments={"x-expires": expires_ms})

    def drop_lock(self, name: str) -> None:
        """Delete a queue."""
        self.delete_queue(name)

    def check(self) -> None:
        """Ask the broker for anything, to see that the link lives."""
        with self._translated():
            self._new_channel().close()

    def _is_made(self, name: str, **options: Any) -> bool:
        with self._translated():
            channel = self._new_channel()
            try:
                channel.queue_declare(name, **options)
            except self._errors as error:
                if type(error).__name__ in {_LOCKED, _NOT_FOUND}:
                    return False
                raise
            channel.close()
            return True


@dataclass
class _Hold:
    """A key that we hold."""

    owner: str
    mode: Mode
    ttl: float
    since: float


class LockArbiter:
    """Who decides elections, at a RabbitMQ that has no streams.

    An exclusive queue is deleted with the link that made it, so that a lease ends with the link and not
    with its time. There are no tokens, and no notes. Who holds a key is known only where it is held. What
    was granted once, and what is done, leaves a queue behind that expires.
    """

    level = Level.L1
    reason = (
        "by exclusive queues of RabbitMQ, with no tokens and no notes; a lease ends when RabbitMQ detects "
        "that a connection is lost, and a network partition can elect two winners: use RabbitMQ 3.9 or "
        "later with the feature flag stream_queue, or name another arbiter in election_url"
    )

    def __init__(self, settings: Settings) -> None:
        self._settings = arbiter_settings(settings)
        self._space = settings.election_namespace
        self._retain_ms = min(_LONGEST_MS, max(1, int(settings.election_retain * 1000)))
        self._lock = Lock()
        self._link: LockLink | None = None
        self._held: dict[str, _Hold] = {}

    @property
    def is_linked(self) -> bool:
        """Whether there is a link, and so what it holds."""
        return self._link is not None

    def look(self) -> Level:
        """Ask the broker, and return the level."""
        self._do(LockLink.check, CALL_PATIENCE)
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
        """Have a key granted, or learn that another has it; who that is nobody can say."""
        check_key(key)
        check_ttl(ttl)
        if floor < 0:
            raise CallerError(f"invalid floor {floor}: give the highest known token, or none")

        def attempt(link: LockLink) -> Decision:
            hold = self._held.get(key)
            if hold is not None:
                if hold.owner != owner:
                    return Denied(hold.owner, _NO_TOKEN, RecordState.HELD, ttl)
                link.check()
                hold.ttl = ttl
                return Granted(_NO_TOKEN)
            if not link.has_lock(self._lock_name(key)):
                return Denied("", _NO_TOKEN, RecordState.HELD, ttl)
            if link.has_marker(self._marker_name(key)):
                link.drop_lock(self._lock_name(key))
                return Denied("", _NO_TOKEN, RecordState.DONE, self._retain_ms / 1000)
            if mode is Mode.ONCE:
                # Before it is granted: who is granted it may be gone a moment later.
                link.put_marker(self._marker_name(key), expires_ms=self._retain_ms)
            self._held[key] = _Hold(owner, mode, ttl, time())
            return Granted(_NO_TOKEN)

        return self._do(attempt, timeout)

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
        """Say whether a key is still ours: it is while the link lives that it was granted to."""
        check_key(key)
        check_ttl(ttl)
        if note is not None:
            raise ImproperlyConfigured(
                "RabbitMQ without streams cannot store leader notes: use RabbitMQ 3.9 or later, with the "
                "feature flag stream_queue, or name another arbiter in election_url"
            )

        def attempt(link: LockLink) -> bool:
            hold = self._hold(key, owner, token)
            if hold is None:
                return False
            link.check()
            hold.ttl = ttl
            return True

        return self._do(attempt, timeout)

    def finish(
        self,
        key: str,
        owner: str,
        token: int,
        *,
        is_failed: bool = False,  # noqa: ARG002
        timeout: float = CALL_PATIENCE,
    ) -> bool:
        """Note that what was to be done is done: nobody is granted it for ``election_retain`` seconds."""
        check_key(key)

        def attempt(link: LockLink) -> bool:
            if self._hold(key, owner, token) is None:
                return False
            # In this order: at no time is neither there.
            link.put_marker(self._marker_name(key), expires_ms=self._retain_ms)
            del self._held[key]
            link.drop_lock(self._lock_name(key))
            return True

        return self._do(attempt, timeout)

    def release(self, key: str, owner: str, token: int, *, timeout: float = CALL_PATIENCE) -> bool:
        """Let others have a key; say whether it was still ours. Of mode ``once`` it never is let go."""
        check_key(key)

        def attempt(link: LockLink) -> bool:
            hold = self._hold(key, owner, token)
            if hold is None or hold.mode is Mode.ONCE:
                return False
            del self._held[key]
            link.drop_lock(self._lock_name(key))
            return True

        return self._do(attempt, timeout)

    def read(self, key: str) -> Record | None:
        """Return what we hold, or that it is done; of what others hold nothing is known."""
        check_key(key)

        def attempt(link: LockLink) -> Record | None:
            link.check()
            hold = self._held.get(key)
            if hold is not None:
                return _record(key, hold)
            if not link.has_marker(self._marker_name(key)):
                return None
            retain = self._retain_ms / 1000
            return Record(key, "", _NO_TOKEN, Mode.ONCE, RecordState.DONE, 0.0, retain, 0.0)

        return self._do(attempt, CALL_PATIENCE)

    def leases(self) -> list[Record]:
        """Return the leases that we hold; those of others nobody can say."""

        def attempt(link: LockLink) -> list[Record]:
            link.check()
            return [_record(key, hold) for key, hold in self._held.items() if hold.mode is Mode.LEASE]

        return self._do(attempt, CALL_PATIENCE)

    def close(self) -> None:
        """End the link, and with it all that we hold."""
        with self._lock:
            self._drop()

    # -- asking

    def _do(self, work: Callable[[LockLink], _T], timeout: float) -> _T:
        """Do something with the link: a new one holds nothing."""
        deadline = monotonic() + timeout
        with self._alone(timeout):
            try:
                if self._link is None:
                    self._link = LockLink(self._settings, timeout=max(0.0, deadline - monotonic()))
                return work(self._link)
            except AccessRefused:
                raise  # a channel was closed, and the link lives
            except BaseException:
                self._drop()
                raise

    def _hold(self, key: str, owner: str, token: int) -> _Hold | None:
        hold = self._held.get(key)
        return hold if hold is not None and (hold.owner, _NO_TOKEN) == (owner, token) else None

    def _drop(self) -> None:
        link, self._link = self._link, None
        self._held.clear()
        if link is not None:
            link.close()

    @contextmanager
    def _alone(self, timeout: float) -> Iterator[None]:
        if not self._lock.acquire(timeout=timeout):
            raise ConnectionLost(
                f"the arbiter at {sanitize_url(self._settings.broker_url)} is busy with other calls"
            )
        try:
            yield
        finally:
            self._lock.release()

    def _lock_name(self, key: str) -> str:
        return f"{self._space}.lock.{_name(key)}"

    def _marker_name(self, key: str) -> str:
        return f"{self._space}.done.{_name(key)}"


def _name(key: str) -> str:
    """Return a key as a part of the name of a queue, which has room for 255 bytes."""
    spelled = key.encode()
    return key if len(spelled) <= 128 else sha256(spelled).hexdigest()


def _record(key: str, hold: _Hold) -> Record:
    return Record(key, hold.owner, _NO_TOKEN, hold.mode, RecordState.HELD, hold.ttl, hold.ttl, hold.since)
