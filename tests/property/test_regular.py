"""Laws 3, 4 and 6: histories as clusters produce them, beside Celery and in any order."""

from random import Random

import pytest
from celery.events.state import State as CeleryState
from hypothesis import given
from hypothesis import strategies as st

from celeriac import State
from celeriac.core import facts
from celeriac.model.events import TaskEvent
from celeriac.testing.histories import regular_history
from celeriac.wire.event import to_dict
from tests.property.strategies import fold, observe

seeds = st.integers(min_value=0, max_value=2**32)
#: The gate of each change: ten thousand histories, four orders of each.
HISTORIES, ORDERS = 10_000, 4

FIELDS = (
    "state", "name", "args", "kwargs", "root_id", "parent_id", "retries", "eta", "expires", "result",
    "runtime", "exception", "traceback", "client", "exchange", "routing_key", "sent", "received", "started",
    "succeeded", "failed", "retried", "revoked", "timestamp", "clock", "ready", "origin",
)  # fmt: skip


def differences(history: list[TaskEvent], fields: tuple[str, ...]) -> list[str]:
    """Feed both states one event after the other, and tell where their answers part."""
    ours, theirs = State(), CeleryState()
    found = []
    for event in history:
        body = to_dict(event) | {"local_received": event.timestamp}
        ours.event(dict(body))
        theirs.event(dict(body))
        mine, stock = ours.tasks[event.uuid], theirs.tasks[event.uuid]
        found += [
            f"{event.subject}: {name} is {getattr(mine, name)!r}, not {getattr(stock, name)!r}"
            for name in fields
            if getattr(mine, name) != getattr(stock, name)
        ]
        if stock.worker is not None and mine.host != stock.worker.hostname:
            found.append(f"{event.subject}: worker is {mine.host}, not {stock.worker.hostname}")
    return found


@given(seeds)
def test_every_prefix_in_causal_order_is_what_celery_says(seed: int) -> None:
    # Celery: a custom state outranks REVOKED, so a task terminated after one never ends (D1).
    history = regular_history(Random(seed), customs_before_revoke=False)

    assert differences(history, FIELDS) == []


@given(seeds)
def test_every_prefix_with_redelivery_has_the_state_celery_gives(seed: int) -> None:
    history = regular_history(Random(seed), redelivery=True, customs_before_revoke=False)

    assert [found for found in differences(history, ("state",)) if ": state is" in found] == []


@given(seeds, st.booleans(), st.randoms(use_true_random=False))
def test_any_order_gives_the_answer_of_the_causal_order(seed: int, redelivery: bool, random: Random) -> None:
    history = regular_history(Random(seed), redelivery=redelivery)
    shuffled = random.sample(history, len(history))

    assert observe(fold(shuffled)) == observe(fold(history))


@given(seeds, st.booleans())
def test_wall_clocks_an_hour_apart_do_not_change_the_state(seed: int, redelivery: bool) -> None:
    right = regular_history(Random(seed), redelivery=redelivery)
    # The same draws, but for the size of the error.
    wrong = regular_history(Random(seed), redelivery=redelivery, skew=3600.0)

    for length in range(1, len(right) + 1):
        assert facts.read(fold(wrong[:length])).state == facts.read(fold(right[:length])).state


@pytest.mark.parametrize("redelivery", [False, True])
def test_ten_thousand_histories_agree_in_every_order_tried(redelivery: bool) -> None:
    random = Random(20_261_115)

    wrong = 0
    for _ in range(HISTORIES):
        history = regular_history(random, redelivery=redelivery)
        expected = facts.read(fold(history)).state
        for _ in range(ORDERS):
            random.shuffle(history)
            wrong += facts.read(fold(history)).state != expected

    assert wrong == 0


def test_ten_thousand_histories_agree_with_celery_in_causal_order() -> None:
    random = Random(20_261_115)

    wrong = 0
    for _ in range(HISTORIES):
        wrong += bool(differences(regular_history(random, customs_before_revoke=False), ("state", "clock")))

    assert wrong == 0
