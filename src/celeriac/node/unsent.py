"""Couriers that hold unsent events, which are sent when the program ends."""

import atexit
import logging
from time import monotonic
from typing import Final, Protocol

__all__ = ["CLOSE_TIMEOUT", "send_unsent", "unsent_couriers"]

logger = logging.getLogger(__name__)

#: Seconds that closing waits for confirmations.
CLOSE_TIMEOUT: Final = 5.0


class _Courier(Protocol):
    def flush(self, timeout: float) -> None: ...

    def stop(self, timeout: float) -> None: ...


#: Couriers of this process, and of its parent if it is a fork. Each enters and leaves by itself.
unsent_couriers: Final[set[_Courier]] = set()


@atexit.register
def send_unsent() -> None:
    """Send what is left, within one timeout for all couriers together."""
    deadline = monotonic() + CLOSE_TIMEOUT
    for courier in list(unsent_couriers):
        try:
            if (left := deadline - monotonic()) > 0:
                courier.flush(left)
        except Exception as error:  # noqa: BLE001 - the others still have events to send
            logger.warning("publisher: cannot send the last events: %s", error)
        courier.stop(min(1.0, max(0.0, deadline - monotonic())))
