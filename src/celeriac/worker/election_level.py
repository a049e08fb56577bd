"""The level of a worker's elections, as last looked up at the arbiter."""

import logging
from collections.abc import Callable
from typing import Final

from celeriac.errors import AccessRefused, CeleriacError, NetworkError
from celeriac.model.election import Level
from celeriac.node.rate_limited_log import RateLimitedLog
from celeriac.transport.arbiter import Arbiter

__all__ = ["ElectionLevel", "election_key"]

logger = logging.getLogger(__name__)


def election_key(id: str) -> str:  # noqa: A002
    """Return the key of an election at the arbiter."""
    return f"election/{id}"


#: A key that is only read.
_PROBE: Final = election_key("probe")


class ElectionLevel:
    """Looks up the level in force, and keeps the reason why nobody may act, for any number of threads."""

    def __init__(self, arbiter: Callable[[], Arbiter], *, min_level: Level) -> None:
        self.min_level = min_level
        #: The level as last seen; None before it was looked up.
        self.value: Level | None = None
        #: The reason why that level, or an arbiter that cannot be used, keeps this node from acting.
        self.refusal = ""
        self._arbiter = arbiter
        self._limited_log = RateLimitedLog(logger)

    def look(self) -> None:
        """Ask the arbiter, and log the level if it has changed."""
        before = self.value
        try:
            arbiter = self._arbiter()
            level = arbiter.look()
            # A user who may look may still be refused what a claim needs.
            arbiter.read(_PROBE)
        except CeleriacError as error:
            self.note_error(error)
            self._limited_log.write(
                logging.WARNING, "look", "election: cannot determine the level: %s", error
            )
            return
        self.note()
        if level is not before:
            log = logger.info if level >= self.min_level else logger.warning
            log(
                "election: level %s (election_min_level %s): %s",
                level.name,
                self.min_level.name,
                arbiter.reason,
            )

    def note(self) -> str:
        """Keep the level of the arbiter; return the reason why it keeps this node from acting, if it does."""
        arbiter = self._arbiter()
        level = arbiter.level
        refusal = ""
        if level < self.min_level:
            refusal = (
                f"the election level is {level.name}, below election_min_level ({self.min_level.name}): "
                f"{arbiter.reason}"
            )
        # In one step: other threads read it at any time.
        self.value, self.refusal = level, refusal
        return refusal

    def note_error(self, error: CeleriacError) -> bool:
        """Keep an error of the arbiter that lasts until somebody repairs it; return whether it is one."""
        is_lasting = isinstance(error, AccessRefused) or not isinstance(error, NetworkError)
        if is_lasting:
            self.refusal = f"cannot use the arbiter of elections: {error}"
        return is_lasting
