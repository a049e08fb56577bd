"""Failures, under the names that Celery's clients know."""

import json

import pytest

from celeriac import errors
from celeriac.wire.failure import failure_json, failure_text


@pytest.mark.parametrize(
    ("error", "module", "name"),
    [
        (errors.SoftTimeLimitExceeded(), "billiard.exceptions", "SoftTimeLimitExceeded"),
        (errors.TimeLimitExceeded(3.0), "billiard.exceptions", "TimeLimitExceeded"),
        (errors.WorkerLost("it died"), "billiard.exceptions", "WorkerLostError"),
        (errors.NotRegistered("shop.pay"), "celery.exceptions", "NotRegistered"),
        (errors.MaxRetriesExceeded("often"), "celery.exceptions", "MaxRetriesExceededError"),
        (errors.TaskRevoked("revoked", task_id="a"), "celery.exceptions", "TaskRevokedError"),
        (errors.Retry("soon"), "celery.exceptions", "Retry"),
    ],
)
def test_an_error_of_ours_is_one_that_a_client_of_celery_raises(
    error: Exception, module: str, name: str
) -> None:
    from celery import Celery  # noqa: PLC0415 - only here

    told = json.loads(failure_json(error))

    assert (told["exc_module"], told["exc_type"]) == (module, name)
    raised = Celery(backend="cache+memory://").backend.exception_to_python(told)
    assert (type(raised).__module__, type(raised).__name__) == (module, name)


def test_any_other_error_keeps_its_name() -> None:
    told = json.loads(failure_json(ValueError("no", 3)))

    assert told == {"exc_type": "ValueError", "exc_message": ["no", 3], "exc_module": "builtins"}


def test_a_class_made_of_ours_keeps_its_name() -> None:
    class Mine(errors.WorkerLost):
        pass

    told = json.loads(failure_json(Mine("no")))

    assert told["exc_type"].endswith("Mine")


def test_the_text_of_an_error_is_cut_and_can_be_written_as_utf8() -> None:
    text = failure_text(ValueError("ü" * 20_000))

    assert len(text) < 10_100
    assert text.encode()
