"""Leadership that lasts: one process of many leads, for as long as it renews its lease."""

import asyncio
import logging
import os
from collections.abc import Callable
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import wraps
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from math import inf
from threading import Lock
from time import monotonic
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar
from uuid import uuid4

from celeriac.errors import CallerError
from celeriac.model.election import Level
from celeriac.node.term import Term
from celeriac.transport.arbiter import Arbiter

__all__ = ["DEFAULT_TTL", "MAX_NAME_CHARS", "Leadership", "elected"]

logger = logging.getLogger(__name__)

#: Long enough for a pause of a busy machine, short enough for who waits.
DEFAULT_TTL: Final = 15.0
#: Shorter, and a slow answer of the arbiter would end it.
MIN_TTL: Final = 0.5
#: Longer, and no stream of RabbitMQ need still have what it was granted by.
MAX_TTL: Final = 6 * 3600.0
#: A key of an arbiter is made of it.
MAX_NAME_CHARS: Final = 190

#: How long a signal may go unheeded at the most.
_LONGEST_WAIT: Final = 1.0

_Parameters = ParamSpec("_Parameters")
_T = TypeVar("_T")


def _awaited(future: Future[_T], timeout: float | None) -> _T:
    """Return what comes of it, as ``result`` does, and heed Ctrl-C whenever it comes.

    A signal that comes just before a wait begins, or where somebody has the system go on waiting after one,
    is heeded when that wait is over: so none is long.
    """
    ends_at = inf if timeout is None else monotonic() + timeout
    while not future.done() and (left := ends_at - monotonic()) > 0:
        wait([future], min(left, _LONGEST_WAIT))
    return future.result(0)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value.isprintable() and 0 < len(value) <= MAX_NAME_CHARS


def _is_ttl(value: object) -> bool:
    return isinstance(value, int | float) and MIN_TTL <= value <= MAX_TTL


class Leadership:
    """One of all processes with the same leadership name is leader; needs an arbiter, and no worker.

    As a context manager, plain or asynchronous, it waits until this process is leader, and gives up the
    leadership at the end. Exclusive work must check :meth:`is_leader` before
    each step: no lease can stop a process that was suspended from waking up late. Only the receiver of the
    writes can, by refusing a :attr:`token` lower than one it has seen.

    A lost leadership stays lost until it is entered again. ``on_step_down`` is called with a
    reason, in another thread, before the lease is released. It has 5 seconds, or the remaining lease time
    if that is less: a process that did not renew for a whole ``ttl`` cannot keep others from leading.
    """

    def __init__(
        self,
        name: str,
        *,
        arbiter: Callable[[], Arbiter],
        hostname: str,
        min_level: Level,
        ttl: float = DEFAULT_TTL,
        on_step_down: Callable[[str], object] | None = None,
    ) -> None:
        if not _is_name(name):
            raise CallerError("leadership names are printable strings of up to 190 characters")
        if not _is_ttl(ttl):
            raise CallerError(f"ttl is {ttl!r:.40}: give a number of seconds from {MIN_TTL} to {MAX_TTL:g}")
        self.name = name
        self.ttl = float(ttl)
        self.hostname = hostname
        self._arbiter = arbiter
        self._min_level = min_level
        self._on_step_down = on_step_down
        self._term: Term | None = None
        self._pid = 0
        #: The highest token we had.
        self._floor = 0
        #: Two threads that enter at once must not both begin: nobody could end the first.
        self._beginning = Lock()

    def __repr__(self) -> str:
        state = f"is leader with token {self.token}" if self.is_leader() else "is not leader"
        return f"<Leadership {self.name!r}: {self.hostname} {state}>"

    # -- what a leader asks

    def is_leader(self) -> bool:
        """Return whether this process is leader now: by the clock, whatever it has received."""
        # A forked child leads nothing: its parent does.
        return self._term is not None and self._pid == os.getpid() and self._term.is_leader(monotonic())

    def time_left(self) -> float:
        """Return for how many seconds it leads if nothing is renewed; 0 if it does not."""
        return max(0.0, self._term.deadline - monotonic()) if self._term and self.is_leader() else 0.0

    @property
    def token(self) -> int:
        """Higher than that of every leader before; 0 before the first time, or where none is given."""
        return self._term.token if self._term is not None else 0

    @property
    def level(self) -> Level:
        """How far the promise of one leader holds."""
        return self._arbiter().level

    @property
    def note(self) -> bytes:
        """The note of the last leader that left one, including this process."""
        return self._term.note if self._term is not None else b""

    def leave_note(self, note: bytes) -> bool:
        """Leave something for the leaders after us, in one step with renewing the lease.

        Says whether it was ours to leave; if not, it is not left. NetworkError says that it may be left
        or not: to leave the same once more is right.
        """
        return self._term is not None and self.is_leader() and self._term.leave_note(note)

    # -- to lead, and to lead no more

    def elect(self, timeout: float | None = None) -> bool:
        """Wait until this process is leader, and return whether it is.

        Gives up after ``timeout`` seconds; 0 tries once. Raises ImproperlyConfigured if the level is too low,
        AccessRefused without permission, and with a timeout ConnectionLost if no arbiter was reached.
        """
        term = self._begin(tries_once=timeout == 0)
        try:
            return _awaited(term.elected, timeout or None)
        except FutureTimeoutError:
            self.resign()
            term.raise_trouble()
            return False
        except BaseException:
            self.resign()
            raise

    async def elect_async(self, timeout: float | None = None) -> bool:
        """Wait as :meth:`elect` does, without blocking the loop; to cancel it gives it up."""
        term = self._begin(tries_once=timeout == 0)
        try:
            # Shielded: to cancel this wait must not cancel what others look at.
            elected = asyncio.shield(asyncio.wrap_future(term.elected))
            return await asyncio.wait_for(elected, timeout or None)
        except TimeoutError:
            await self.resign_async()
            term.raise_trouble()
            return False
        except BaseException:
            term.resign()
            raise

    def resign(self) -> None:
        """Give up the leadership; on return others can lead, or the arbiter was unreachable."""
        ended = self._end()
        if ended is not None:
            ended.result()

    async def resign_async(self) -> None:
        """Resign as :meth:`resign` does, without blocking the loop."""
        ended = self._end()
        if ended is not None:
            await asyncio.shield(asyncio.wrap_future(ended))

    def __enter__(self) -> Self:
        self.elect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.resign()

    async def __aenter__(self) -> Self:
        await self.elect_async()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.resign_async()

    def _begin(self, *, tries_once: bool) -> Term:
        with self._beginning:
            if self._term is not None and self._pid == os.getpid() and not self._term.ended.done():
                raise CallerError(
                    f"the leadership {self.name!r} is already entered: create another one to enter it twice"
                )
            process = os.getpid()
            self._floor = max(self._floor, self.token)
            term = Term(
                self.name,
                # By boot and by entry: nobody resumes what another began.
                owner=f"{self.hostname}.{process}.{uuid4().hex[:12]}",
                arbiter=self._arbiter(),
                min_level=self._min_level,
                ttl=self.ttl,
                tries_once=tries_once,
                on_step_down=self._on_step_down,
                floor=self._floor,
            )
            before = self._pid, self._term
            self._pid, self._term = process, term  # whoever resigns in another thread must find it
            try:
                term.start()
            except BaseException:  # no thread can be started, or somebody interrupts: nothing has begun
                term.resign()
                self._pid, self._term = before
                raise
        return term

    def _end(self) -> "Future[None] | None":
        if self._term is None or self._pid != os.getpid():
            return None
        self._term.resign()
        return self._term.ended


def elected(
    make: Callable[[], Leadership], function: Callable[Concatenate[Leadership, _Parameters], _T]
) -> Callable[_Parameters, _T | None]:
    """Return a function that runs only in the process that is elected, as leader, and is None elsewhere.

    The function gets the leadership before its own arguments.
    """
    if any(is_one(function) for is_one in (iscoroutinefunction, isasyncgenfunction, isgeneratorfunction)):
        raise CallerError(
            f"{function.__name__} is a coroutine or generator, so it would run after the leadership check: "
            "use a plain function, or app.leadership() inside it"
        )

    @wraps(function)
    def run_if_elected(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> Any:
        leader = make()
        if not leader.elect(timeout=0):
            logger.info(
                "leadership: another process leads %r, so %s does not run here",
                leader.name,
                function.__name__,
            )
            return None
        try:
            return function(leader, *args, **kwargs)
        finally:
            leader.resign()

    return run_if_elected
