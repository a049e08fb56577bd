"""Elections decided within one process."""

from collections.abc import Callable
from copy import copy
from threading import Lock
from time import monotonic, time
from typing import Self

from celeriac.core.register import RETAIN, Register
from celeriac.errors import ConnectionLost
from celeriac.model.election import Decision, Level, Mode, Record, RecordState
from celeriac.transport.arbiter import CALL_PATIENCE
from celeriac.transport.arbiter_check import check_key, check_note, check_ttl

__all__ = ["MemoryArbiter"]


class MemoryArbiter:
    """One register for each namespace, under one lock; nothing outlives the process.

    While ``is_up`` says no, every call raises ConnectionLost.
    """

    level = Level.L3
    reason = "decided within one process"

    def __init__(self, *, is_up: Callable[[], bool] = lambda: True) -> None:
        self._is_up = is_up
        self._lock = Lock()
        #: By namespace.
        self._registers: dict[str, Register] = {}
        self._namespace = ""
        self._retain = RETAIN

    def seen_by(self, *, namespace: str, retain: float) -> Self:
        """Return the same arbiter as nodes of some settings see it."""
        seen = copy(self)
        seen._namespace, seen._retain = namespace, retain  # noqa: SLF001 - our own
        return seen

    def look(self) -> Level:
        """Return the level: it is always the same."""
        with self._lock:
            self._register()
        return self.level

    def claim(
        self,
        key: str,
        owner: str,
        *,
        ttl: float,
        mode: Mode,
        floor: int = 0,
        timeout: float = CALL_PATIENCE,  # noqa: ARG002 (nothing here takes time)
    ) -> Decision:
        """Have a key granted, or learn who has it; the token is above ``floor``, the highest we know."""
        check_key(key)
        check_ttl(ttl)
        with self._lock:
            return self._register().claim(
                key, owner, ttl=ttl, mode=mode, now=monotonic(), floor=floor, since=time()
            )

    def renew(
        self,
        key: str,
        owner: str,
        token: int,
        *,
        ttl: float,
        note: bytes | None = None,
        timeout: float = CALL_PATIENCE,  # noqa: ARG002
    ) -> bool:
        """Prolong a lease from now on, and leave a note for who follows; say whether it was still ours."""
        check_key(key)
        check_ttl(ttl)
        check_note(note)
        with self._lock:
            return self._register().renew(key, owner, token, ttl=ttl, now=monotonic(), note=note)

    def finish(
        self,
        key: str,
        owner: str,
        token: int,
        *,
        is_failed: bool = False,
        timeout: float = CALL_PATIENCE,  # noqa: ARG002
    ) -> bool:
        """Note that what was to be done is done: nobody is granted it for ``election_retain`` seconds."""
        check_key(key)
        with self._lock:
            return self._register().finish(key, owner, token, now=monotonic(), is_failed=is_failed)

    def release(
        self,
        key: str,
        owner: str,
        token: int,
        *,
        timeout: float = CALL_PATIENCE,  # noqa: ARG002
    ) -> bool:
        """Let others have a key; say whether it was still ours. Of mode ``once`` it never is let go."""
        check_key(key)
        with self._lock:
            return self._register().release(key, owner, token, now=monotonic())

    def read(self, key: str) -> Record | None:
        """Return what stands of a key."""
        check_key(key)
        with self._lock:
            return self._register().read(key, monotonic())

    def leases(self) -> list[Record]:
        """Return the leases that are held now."""
        with self._lock:
            records = self._register().records(monotonic())
        return [each for each in records if each.mode is Mode.LEASE and each.state is RecordState.HELD]

    def close(self) -> None:
        """End nothing: there are no links."""

    def _register(self) -> Register:
        if not self._is_up():
            raise ConnectionLost("the memory arbiter is stopped: start its broker")
        register = self._registers.setdefault(self._namespace, Register())
        register.retain = self._retain
        return register
