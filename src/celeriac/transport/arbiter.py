"""The protocol of who decides an election: one register that everybody asks."""

from typing import Final, Protocol

from celeriac.model.election import Decision, Level, Mode, Record

__all__ = ["CALL_PATIENCE", "MAX_KEY_CHARS", "MAX_NOTE_BYTES", "Arbiter"]

#: How long a call may take, with making a link if one is needed.
CALL_PATIENCE: Final = 5.0
#: Of a key; the names of queues and keys that are made of it have room for it.
MAX_KEY_CHARS: Final = 200
#: Of a note: a leader leaves what its successor must know, and no more.
MAX_NOTE_BYTES: Final = 64 * 1024


class Arbiter(Protocol):
    """One linearizable register for each key, for any number of threads at once.

    A token is strictly higher than those of all grants before it. A call that raises NetworkError may have
    been done or not: repeat it with the same owner, and never assume. A claim of the present owner gives
    the same token, and prolongs the lease. ``timeout`` bounds a call as a whole.
    """

    @property
    def level(self) -> Level:
        """How far its promise holds, as it was when last looked at: :meth:`look` looks."""

    @property
    def reason(self) -> str:
        """Why that level, in a sentence for people."""

    def look(self) -> Level:
        """Ask the broker how it is set up, and return the level."""

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
        """Prolong a lease from now on, and leave a note for who follows; say whether it was still ours.

        The note is left in the same step, and outlives the lease.
        """

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

    def release(self, key: str, owner: str, token: int, *, timeout: float = CALL_PATIENCE) -> bool:
        """Let others have a key; say whether it was still ours. Of mode ``once`` it never is let go."""

    def read(self, key: str) -> Record | None:
        """Return what stands of a key."""

    def leases(self) -> list[Record]:
        """Return the leases that are held now."""

    def close(self) -> None:
        """End the links; to call anything again makes new ones."""
