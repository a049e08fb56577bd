"""Failures as results hold them, under the names that Celery's clients know them by."""

from collections.abc import Mapping
from typing import Final

from celeriac import errors
from celeriac.model.result import Failure
from celeriac.wire.result import failure_of
from celeriac.wire.text import CUT_MARK
from celeriac.wire.value import mend_text, spell

__all__ = ["failure_json", "failure_text"]

#: Events carry it, and lines of log.
_MAX_TEXT_CHARS: Final = 10_000
_BILLIARD: Final = "billiard.exceptions"
_CELERY: Final = "celery.exceptions"

#: Celery: a client looks up the class by module and name, and raises that.
_NAMES: Final[Mapping[type[BaseException], tuple[str, str]]] = {
    errors.SoftTimeLimitExceeded: (_BILLIARD, "SoftTimeLimitExceeded"),
    errors.TimeLimitExceeded: (_BILLIARD, "TimeLimitExceeded"),
    errors.WorkerLost: (_BILLIARD, "WorkerLostError"),
    errors.NotRegistered: (_CELERY, "NotRegistered"),
    errors.MaxRetriesExceeded: (_CELERY, "MaxRetriesExceededError"),
    errors.TaskRevoked: (_CELERY, "TaskRevokedError"),
    errors.Retry: (_CELERY, "Retry"),
}


def failure_json(error: BaseException) -> bytes:
    """Return an exception as a result holds it, in JSON; our own by the names that Celery gave them.

    Never raises: arguments that JSON cannot hold become their ``repr``.
    """
    failure = _failure_of(error)
    return spell(
        {"exc_type": failure.exc_type, "exc_message": failure.exc_args, "exc_module": failure.exc_module}
    )


def failure_text(error: BaseException) -> str:
    """Return an exception for people, cut: what events tell of it. Never raises."""
    try:
        text = repr(error)
    except Exception:  # noqa: BLE001 - what an exception says of itself may raise anything
        text = f"<{type(error).__name__}>"
    return mend_text(text if len(text) <= _MAX_TEXT_CHARS else text[:_MAX_TEXT_CHARS] + CUT_MARK)


def _failure_of(error: BaseException) -> Failure:
    try:
        failure = failure_of(error)
    except Exception:  # noqa: BLE001 - what an exception says of itself may raise anything
        failure = Failure(type(error).__qualname__, (), type(error).__module__)
    known = _NAMES.get(type(error))
    if known is None:
        return failure
    module, name = known
    return failure._replace(exc_type=name, exc_module=module)
