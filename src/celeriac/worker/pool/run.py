"""What pools run, and the moment within which a task may be interrupted."""

from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, Final, Protocol

from celeriac.errors import WorkerLost
from celeriac.model.outcome import Outcome
from celeriac.model.states import FAILURE
from celeriac.node.context import Report
from celeriac.wire.failure import failure_json, failure_text
from celeriac.worker.pool.base import Job, Listener

__all__ = ["IMPORT_PATIENCE", "ListenerReport", "Runner", "failed", "harmless", "is_importing", "perform"]

#: How long a task that imports a module is not interrupted.
IMPORT_PATIENCE: Final = 10.0
_IMPORTS: Final = "<frozen importlib"


class Runner(Protocol):
    """Runs tasks; a pool knows no more of them. Any number of threads may use it at a time."""

    def execute(self, job: Job, report: Report) -> Outcome:
        """Run a job to its end."""

    def fail(self, job: Job, error: BaseException, *, cause: str, runtime: float) -> Outcome:
        """Return how a job ends that the pool ended, or lost. Never raises."""


class ListenerReport:
    """Passes on what a task says while it runs to who listens to the pool."""

    def __init__(self, key: int, listener: Listener) -> None:
        self._key = key
        self._listener = listener

    def told(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Pass on an event of the task's own."""
        self._listener.told(self._key, kind, fields)

    def progressed(self, state: str, result: bytes) -> None:
        """Pass on a state of the task's own."""
        self._listener.progressed(self._key, state, result)


def harmless(error: BaseException) -> Exception:
    """Return an error that can be told to clients: who raises what he is told of must not end by it."""
    if isinstance(error, Exception):
        return error
    told = f"the task raised {failure_text(error)}, which exits a process: return, or raise another exception"
    return WorkerLost(told).with_traceback(error.__traceback__)


def failed(error: BaseException, *, cause: str = "", runtime: float = 0.0) -> Outcome:
    """Return how a job ended that nothing better can be told of than an error."""
    told = harmless(error)
    return Outcome(FAILURE, failure_json(told), failure_text(told), runtime=runtime, cause=cause)


def perform(
    execute: Callable[[Job, Report], Outcome],
    job: Job,
    report: Report,
    *,
    begin: Callable[[], object],
    end: Callable[[], object],
) -> Outcome:
    """Run a job within the moment that ``begin`` opens and ``end`` closes; raises KeyboardInterrupt alone.

    Within it an exception may come from outside at any point, these lines included, but only once.
    ``end`` may be called twice: an exception may have come in the midst of it.
    """
    outcome: Outcome | None = None
    try:
        try:
            begin()
            outcome = execute(job, report)
        finally:
            end()
    except KeyboardInterrupt:
        raise  # it is meant for the whole program
    except BaseException as error:  # noqa: BLE001 - whatever it is, the job has ended with it
        end()
        # What came when the task had just ended comes too late.
        if outcome is None:
            outcome = failed(error)
    return outcome


def is_importing(frame: FrameType | None) -> bool:
    """Say whether a task is in the midst of an import: broken off, that leaves modules half made for all."""
    while frame is not None and frame.f_code is not perform.__code__:
        if frame.f_code.co_filename.startswith(_IMPORTS):
            return True
        frame = frame.f_back
    return False
