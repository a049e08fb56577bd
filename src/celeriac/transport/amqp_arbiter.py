"""Elections decided by RabbitMQ: in streams where it has them, else by who holds an exclusive queue."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from time import monotonic

from celeriac.config import Settings
from celeriac.errors import ConnectionLost
from celeriac.masking import sanitize_url
from celeriac.model.election import Decision, Level, Mode, Record
from celeriac.transport.amqp_lock import LockArbiter
from celeriac.transport.amqp_stream import StreamArbiter
from celeriac.transport.amqp_stream_link import arbiter_settings
from celeriac.transport.arbiter import CALL_PATIENCE, Arbiter

__all__ = ["AmqpArbiter"]

logger = logging.getLogger(__name__)


class AmqpArbiter:
    """Who decides elections, at RabbitMQ; for any number of threads at once.

    Which of the two ways it is, the broker says when it is first asked; and again after a loss of the link to
    a broker without streams, which may have been updated.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = Lock()
        self._chosen: Arbiter | None = None
        self._is_told = False

    @property
    def level(self) -> Level:
        """How far its promise holds, as it was when last looked at."""
        return Level.L1 if self._chosen is None else self._chosen.level

    @property
    def reason(self) -> str:
        """Why that level, in a sentence for people."""
        if self._chosen is None:
            return "RabbitMQ was not checked for streams yet"
        return self._chosen.reason

    def look(self) -> Level:
        """Ask the broker, and return the level."""
        with self._chosen_for(CALL_PATIENCE) as (arbiter, _):
            return arbiter.look()

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
        with self._chosen_for(timeout) as (arbiter, left):
            return arbiter.claim(key, owner, ttl=ttl, mode=mode, floor=floor, timeout=left)

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
        with self._chosen_for(timeout) as (arbiter, left):
            return arbiter.renew(key, owner, token, ttl=ttl, note=note, timeout=left)

    def finish(
        self,
        key: str,
        owner: str,
        token: int,
        *,
        is_failed: bool = False,
        timeout: float = CALL_PATIENCE,
    ) -> bool:
        """Note that what was to be done is done: nobody is granted it for ``election_retain`` seconds."""
        with self._chosen_for(timeout) as (arbiter, left):
            return arbiter.finish(key, owner, token, is_failed=is_failed, timeout=left)

    def release(self, key: str, owner: str, token: int, *, timeout: float = CALL_PATIENCE) -> bool:
        """Let others have a key; say whether it was still ours. Of mode ``once`` it never is let go."""
        with self._chosen_for(timeout) as (arbiter, left):
            return arbiter.release(key, owner, token, timeout=left)

    def read(self, key: str) -> Record | None:
        """Return what stands of a key."""
        with self._chosen_for(CALL_PATIENCE) as (arbiter, _):
            return arbiter.read(key)

    def leases(self) -> list[Record]:
        """Return the leases that are held now."""
        with self._chosen_for(CALL_PATIENCE) as (arbiter, _):
            return arbiter.leases()

    def close(self) -> None:
        """End the links; to call anything again makes new ones."""
        chosen = self._chosen
        if chosen is not None:
            chosen.close()
        if isinstance(chosen, LockArbiter):
            self._chosen = None

    @contextmanager
    def _chosen_for(self, timeout: float) -> Iterator[tuple[Arbiter, float]]:
        """Have who decides, and what is left of the time."""
        deadline = monotonic() + timeout
        chosen = self._chosen
        if chosen is None:
            with self._lock:
                chosen = self._chosen = self._chosen or self._choose(deadline)
        try:
            yield chosen, max(0.0, deadline - monotonic())
        except ConnectionLost:
            # Whoever comes back may have streams.
            if isinstance(chosen, LockArbiter) and not chosen.is_linked:
                self._chosen = None
            raise

    def _choose(self, deadline: float) -> Arbiter:
        streams = StreamArbiter(self._settings)
        # What is raised here is no answer: whoever fell back for it would elect beside all others.
        if streams.is_possible(max(0.0, deadline - monotonic())):
            return streams
        locks = LockArbiter(self._settings)
        if not self._is_told:
            self._is_told = True
            logger.warning(
                "election: RabbitMQ at %s has no streams, so elections are decided %s",
                sanitize_url(arbiter_settings(self._settings).broker_url),
                locks.reason,
            )
        return locks
