"""Whether a task runs, waits or is dropped, and how long it may take."""

import pytest

from celeriac.core.admission import Admission, Discard, Run, Wait, admit, time_limits
from celeriac.model.task_request import TaskRequest

NOW = 1000.0


def asked(
    *,
    is_registered: bool = True,
    is_revoked: bool = False,
    eta: float | None = None,
    expires: float | None = None,
) -> Admission:
    """Ask at :data:`NOW` about a task."""
    request = TaskRequest("t1", "tasks.add", eta=eta, expires=expires)
    return admit(request, is_registered=is_registered, is_revoked=is_revoked, now=NOW)


def test_a_task_without_conditions_runs() -> None:
    assert asked() == Run()


def test_a_task_whose_moment_has_come_runs() -> None:
    assert asked(eta=NOW) == asked(eta=NOW - 5) == Run()


def test_a_task_whose_moment_is_to_come_waits_for_it() -> None:
    assert asked(eta=NOW + 5) == Wait(NOW + 5)


def test_a_task_that_has_not_expired_runs() -> None:
    assert asked(expires=NOW + 0.001) == Run()


@pytest.mark.parametrize("expires", [NOW, NOW - 5, 0.0])
def test_a_task_that_has_expired_is_dropped(expires: float) -> None:
    assert asked(expires=expires) == Discard("expired")


def test_a_task_that_expires_before_its_moment_waits_and_is_dropped_then() -> None:
    request = TaskRequest("t1", "tasks.add", eta=NOW + 5, expires=NOW + 1)

    first = admit(request, is_registered=True, is_revoked=False, now=NOW)
    then = admit(request, is_registered=True, is_revoked=False, now=NOW + 5)

    assert (first, then) == (Wait(NOW + 5), Discard("expired"))


def test_a_task_that_has_expired_does_not_wait_for_its_moment() -> None:
    assert asked(eta=NOW + 5, expires=NOW - 1) == Discard("expired")


def test_a_revoked_task_is_dropped_also_while_it_waits() -> None:
    assert asked(is_revoked=True) == asked(is_revoked=True, eta=NOW + 5) == Discard("revoked")


def test_of_a_task_that_is_revoked_and_expired_the_revocation_counts() -> None:
    assert asked(is_revoked=True, expires=NOW - 1) == Discard("revoked")


def test_a_task_that_nobody_knows_is_dropped_as_such_before_all_else() -> None:
    assert asked(is_registered=False, is_revoked=True, expires=0.0, eta=NOW + 5) == Discard("unregistered")


# -- time limits


def limits(
    of_message: tuple[float | None, float | None] = (None, None),
    of_task: tuple[float | None, float | None] = (None, None),
    of_settings: tuple[float | None, float | None] = (None, None),
) -> tuple[float | None, float | None]:
    request = TaskRequest("t1", "tasks.add", time_limit=of_message[0], soft_time_limit=of_message[1])
    return time_limits(
        request,
        task_hard=of_task[0],
        task_soft=of_task[1],
        default_hard=of_settings[0],
        default_soft=of_settings[1],
    )


def test_without_a_word_there_are_no_limits() -> None:
    assert limits() == (None, None)


def test_the_message_outweighs_the_task_and_the_task_the_settings() -> None:
    assert limits((30, 3), (20, 2), (10, 1)) == (30, 3)
    assert limits((None, None), (20, 2), (10, 1)) == (20, 2)
    assert limits((None, None), (None, None), (10, 1)) == (10, 1)


def test_each_limit_is_looked_for_by_itself() -> None:
    assert limits((30, None), (None, 2), (10, 1)) == (30, 2)


def test_a_limit_of_nothing_is_none_and_the_next_counts() -> None:
    assert limits((0, -1), (20, 2)) == (20, 2)


@pytest.mark.parametrize("soft", [30, 31])
def test_a_soft_limit_that_would_never_come_to_pass_is_none(soft: float) -> None:
    assert limits((30, soft)) == (30, None)
    assert limits((30, None), (None, soft)) == (30, None)


def test_a_soft_limit_may_be_alone() -> None:
    assert limits((None, 5)) == (None, 5)
