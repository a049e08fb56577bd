"""How many tasks wait in the queues of a cluster, asked in the background for whoever shows it."""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain, islice
from threading import Lock, Thread
from time import monotonic
from typing import Final

from celeriac.errors import CeleriacError
from celeriac.node.control import Control
from celeriac.node.state import State
from celeriac.transport.base import Connection
from celeriac.wire.field import is_name
from celeriac.wire.worker_setup import decode_queues

__all__ = ["QueueLengths", "ask_queues"]

#: For how long an answer is told again.
_KEPT: Final = 5.0
#: And for how long the names that workers said; each of them is asked, and answers.
_NAMES_KEPT: Final = 60.0
_PATIENCE: Final = 1.0
#: Tasks whose queues are looked at, and the most queues that are asked for.
_MOST_TASKS: Final = 500
_MOST_QUEUES: Final = 50

logger = logging.getLogger(__name__)


class QueueLengths:
    """Returns what is known of queues without waiting, and sees to it that it is not older than some seconds.

    The queues are those that workers take tasks from, and those that events of late told of.
    """

    def __init__(
        self, connect: Callable[[], Connection], control: Control, state: State, *, default: str
    ) -> None:
        self._connect = connect
        self._control = control
        self._state = state
        self._default = default
        #: Why nothing is known, if something keeps us from asking; nothing if all went well.
        self.trouble = ""
        self._mutex = Lock()
        self._thread: Thread | None = None
        self._lengths: dict[str, int] | None = None
        self._asked_at = -_KEPT
        self._names: frozenset[str] = frozenset()
        self._named_at = -_NAMES_KEPT

    def __call__(self) -> dict[str, int] | None:
        """Return the length of each queue by its name; None while nothing is known."""
        with self._mutex:
            if self._thread is None and monotonic() >= self._asked_at + _KEPT:
                self._thread = Thread(target=self._ask, name="queues", daemon=True)
                self._thread.start()
            return self._lengths

    def close(self) -> None:
        """Wait until nothing is asked any more."""
        with self._mutex:
            thread, self._asked_at = self._thread, float("inf")
        if thread is not None:
            thread.join(2 * _PATIENCE)

    def _ask(self) -> None:
        lengths: dict[str, int] | None = None
        trouble = ""
        try:
            trouble = self._learn_names()
            lengths = self._measured()
        except CeleriacError as error:
            trouble = str(error)
        except Exception as error:
            logger.exception("queues: cannot read queue lengths")
            trouble = f"{type(error).__name__}: {error}"
        finally:
            if trouble and trouble != self.trouble:
                logger.warning("queues: cannot read queue lengths: %s", trouble)
            with self._mutex:
                self._lengths, self.trouble = lengths, trouble
                self._asked_at = max(self._asked_at, monotonic())
                self._thread = None

    def _learn_names(self) -> str:
        """Ask the workers, if it is time; return why that failed: what they said before still counts."""
        if monotonic() < self._named_at + _NAMES_KEPT:
            return ""
        try:
            self._names = self._said_by_workers()
        except CeleriacError as error:
            return f"cannot query the workers: {error}"
        self._named_at = monotonic()
        return ""

    def _measured(self) -> dict[str, int]:
        # Those that are known first: anybody can name any number of others in events.
        known = dict.fromkeys((self._default, *sorted(self._names)))
        names = list({**known, **dict.fromkeys(sorted(self._heard()))})[:_MOST_QUEUES]
        with self._connect() as link:
            found = {name: self._length(link, name) for name in names}
        # On Redis a queue that is empty is not there.
        return {name: length or 0 for name, length in found.items() if length is not None or name in known}

    def _length(self, link: Connection, name: str) -> int | None:
        if name == self._default or name in self._names:
            return link.queue_length(name)
        # A name that only an event told may be that of something else, which is no reason to know nothing.
        with suppress(CeleriacError), link.clone() as other:
            return other.queue_length(name)
        return None

    def _heard(self) -> set[str]:
        def taken() -> set[str]:
            recent = islice(reversed(self._state.tasks.values()), _MOST_TASKS)
            return {task.queue for task in recent if task.queue}

        names: set[str] = self._state.freeze_while(taken)
        return set(filter(is_name, names))

    def _said_by_workers(self) -> frozenset[str]:
        said = ask_queues(self._control, patience=_PATIENCE)
        return frozenset(filter(is_name, chain.from_iterable(said.values())))


def ask_queues(
    control: Control, workers: Sequence[str] | None = None, *, patience: float
) -> dict[str, set[str]]:
    """Ask workers, or all of them, for the queues that they take tasks from; return what came, by worker."""
    replies = control.inspect(workers, timeout=patience).active_queues()
    return {worker: set(decode_queues(told)) for worker, told in replies.items()}
