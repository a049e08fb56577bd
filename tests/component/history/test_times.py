"""How often and how long tasks ran, from roll-ups of hours and minutes."""

from collections.abc import Iterator
from math import isclose
from pathlib import Path
from random import Random

import pytest

from celeriac import history
from celeriac.errors import CallerError, DiskError
from celeriac.history import Warehouse
from celeriac.history.span import By
from celeriac.history.times import Per
from celeriac.history.warehouse import Side
from celeriac.model.answer import AttemptTimes, Spread
from tests.warehouses import MIDNIGHT, publish, rollup

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
#: Attempts by the minute: one at 00:10, two at 01:20 and three at 02:30, of two workers and queues.
MINUTES = [
    rollup(MIDNIGHT + 10 * MINUTE, runs=[1.0], waits=[0.1]),
    rollup(MIDNIGHT + 80 * MINUTE, runs=[2.0], failed=1),
    rollup(MIDNIGHT + 80 * MINUTE, "shop.mail", runs=[3.0], worker="w2@lab", queue="mail", retried=1),
    rollup(MIDNIGHT + 150 * MINUTE, runs=[4.0, 5.0], waits=[0.2, 0.3]),
    # Filed under another day: a task that was sent on the day before.
    rollup(MIDNIGHT + 150 * MINUTE, "shop.büro", runs=[6.0], day="2026-11-13"),
]
HOURS = [{**row, "begin_at": row["begin_at"] // HOUR * HOUR} for row in MINUTES]


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    root = tmp_path_factory.mktemp("times")
    publish(root, {"rollups_minute": MINUTES, "rollups_hour": HOURS})
    with history.open(root) as opened:
        yield opened


def counted(found: list[AttemptTimes]) -> list[tuple[float | None, int]]:
    return [(each.at, each.attempts) for each in found]


def test_the_attempts_of_a_name_are_counted_and_measured(warehouse: Warehouse) -> None:
    (found,) = warehouse.latency("shop.pay")

    assert (found.attempts, found.succeeded, found.failed, found.retried, found.revoked) == (4, 3, 1, 0, 0)
    assert found.failed_share == 0.25
    assert found.run == Spread(4, mean=3.0, p50=2.0, p95=5.0, p99=5.0, max=5.0)
    assert found.wait.known == 3
    assert isclose(found.wait.mean or 0.0, 0.2)
    assert (found.wait.p50, found.wait.max) == (0.2, 0.3)


@pytest.mark.parametrize(
    ("by", "told"),
    [
        ("minute", [(10 * MINUTE, 1), (80 * MINUTE, 2), (150 * MINUTE, 3)]),
        ("hour", [(0.0, 1), (HOUR, 2), (2 * HOUR, 3)]),
        ("day", [(0.0, 6)]),
    ],
)
def test_times_are_told_apart_and_those_without_attempts_left_out(
    warehouse: Warehouse, by: By, told: list[tuple[float, int]]
) -> None:
    found = warehouse.latency(by=by)

    assert counted(found) == [(MIDNIGHT + at, attempts) for at, attempts in told]


@pytest.mark.parametrize(
    ("since", "until", "attempts"),
    [
        (None, None, 6),
        (0.0, 3 * HOUR, 6),
        # Whole hours, and minutes at both ends.
        (10 * MINUTE, 150 * MINUTE, 3),
        (10 * MINUTE, 151 * MINUTE, 6),
        (11 * MINUTE, 151 * MINUTE, 5),
        # The minute that it begins in counts.
        (10 * MINUTE + 59, 3 * HOUR, 6),
        # No whole hour in it.
        (80 * MINUTE, 81 * MINUTE, 2),
        (81 * MINUTE, 100 * MINUTE, 0),
        (None, 80 * MINUTE, 1),
        (80 * MINUTE + 1, None, 5),
        (151 * MINUTE, None, 0),
    ],
)
def test_a_span_is_made_of_hours_and_minutes_without_counting_anything_twice(
    warehouse: Warehouse, since: float | None, until: float | None, attempts: int
) -> None:
    begin_at = None if since is None else MIDNIGHT + since
    end_at = None if until is None else MIDNIGHT + until

    whole = warehouse.latency(since=begin_at, until=end_at)
    by_minute = warehouse.latency(since=begin_at, until=end_at, by="minute")

    assert sum(each.attempts for each in whole) == attempts
    assert sum(each.attempts for each in by_minute) == attempts


@pytest.mark.parametrize(
    ("task", "worker", "queue", "attempts"),
    [
        ("shop.*", None, None, 6),
        ("shop.[pm]a*", None, None, 5),
        ("shop.büro", None, None, 1),
        ("shop", None, None, 0),
        (None, "w2@*", None, 1),
        (None, None, "mail", 1),
        ("shop.pay", "w2@lab", None, 0),
        ("' OR 1=1 --", None, None, 0),
    ],
)
def test_names_and_globs_choose_tasks_workers_and_queues(
    warehouse: Warehouse, task: str | None, worker: str | None, queue: str | None, attempts: int
) -> None:
    found = warehouse.latency(task, worker=worker, queue=queue)

    assert sum(each.attempts for each in found) == attempts


def test_the_slowest_names_are_those_with_the_longest_mean(warehouse: Warehouse) -> None:
    found = warehouse.top()

    assert [(each.name, each.times.run.mean) for each in found] == [
        ("shop.büro", 6.0),
        ("shop.mail", 3.0),
        ("shop.pay", 3.0),
    ] or [each.name for each in found] == ["shop.büro", "shop.pay", "shop.mail"]
    assert [each.times.run.p95 for each in found if each.name == "shop.pay"] == [5.0]


def test_failing_and_retried_names_are_those_of_which_there_were_most(warehouse: Warehouse) -> None:
    failing, retried = warehouse.top("failing"), warehouse.top("retried")

    assert [(each.name, each.times.failed) for each in failing] == [("shop.pay", 1)]
    assert [(each.name, each.times.retried) for each in retried] == [("shop.mail", 1)]


def test_top_tells_no_more_names_than_asked_for_and_of_the_span_alone(warehouse: Warehouse) -> None:
    first = warehouse.top(limit=1)
    early = warehouse.top(until=MIDNIGHT + HOUR)

    assert [each.name for each in first] == ["shop.büro"]
    assert [(each.name, each.times.attempts) for each in early] == [("shop.pay", 1)]


def test_tasks_whose_name_nobody_heard_are_ranked_too(tmp_path: Path) -> None:
    publish(
        tmp_path, {"rollups_hour": [rollup(MIDNIGHT, None, runs=[9.0]), rollup(MIDNIGHT, "", runs=[1.0])]}
    )

    with history.open(tmp_path) as warehouse:
        found = warehouse.top()

    assert [(each.name, each.times.run.p50) for each in found] == [(None, 9.0), ("", 1.0)]


@pytest.mark.parametrize(
    ("per", "told"),
    [
        ("task", [("shop.pay", 4), ("shop.büro", 1), ("shop.mail", 1)]),
        ("worker", [("w1@lab", 5), ("w2@lab", 1)]),
        ("queue", [("celery", 5), ("mail", 1)]),
    ],
)
def test_tasks_workers_and_queues_are_told_apart_those_with_most_attempts_first(
    warehouse: Warehouse, per: Per, told: list[tuple[str, int]]
) -> None:
    found = warehouse.latency_per(per)

    assert [(each.name, each.times.attempts) for each in found] == told
    assert warehouse.latency_per(per, limit=1) == found[:1]


@pytest.mark.parametrize("since", [None, MIDNIGHT, MIDNIGHT + 11 * MINUTE])
def test_each_that_is_told_apart_is_as_if_it_alone_was_asked_for(
    warehouse: Warehouse, since: float | None
) -> None:
    tasks = warehouse.latency_per("task", since)
    workers = warehouse.latency_per("worker", since)
    queues = warehouse.latency_per("queue", since)

    assert [[each.times] for each in tasks] == [warehouse.latency(each.name, since) for each in tasks]
    assert [[each.times] for each in workers] == [
        warehouse.latency(since=since, worker=each.name) for each in workers
    ]
    assert [[each.times] for each in queues] == [
        warehouse.latency(since=since, queue=each.name) for each in queues
    ]


def test_what_is_told_apart_is_of_the_names_and_the_span_alone(warehouse: Warehouse) -> None:
    def told(*arguments: float | None, **names: str) -> list[tuple[str | None, int, float | None]]:
        found = warehouse.latency_per("task", *arguments, **names)  # type: ignore[arg-type]
        return [(each.name, each.times.attempts, each.times.run.p99) for each in found]

    assert told(worker="w2@*") == [("shop.mail", 1, 3.0)]
    assert told(task="shop.[pm]a*", queue="celery") == [("shop.pay", 4, 5.0)]
    assert told(MIDNIGHT + HOUR, MIDNIGHT + 2 * HOUR) == [("shop.mail", 1, 3.0), ("shop.pay", 1, 2.0)]
    assert told(task="' OR 1=1 --") == []
    assert told(MIDNIGHT + 3 * HOUR) == []


def test_what_nobody_heard_the_name_of_is_told_together(tmp_path: Path) -> None:
    rows = [
        rollup(MIDNIGHT, queue=None, runs=[9.0], waits=[1.0]),
        rollup(MIDNIGHT, "shop.mail", queue=None, runs=[8.0]),
        rollup(MIDNIGHT, queue="", runs=[1.0]),
    ]
    publish(tmp_path, {"rollups_hour": rows})

    with history.open(tmp_path) as warehouse:
        found = warehouse.latency_per("queue")

    assert [(each.name, each.times.run.p99, each.times.wait.p50) for each in found] == [
        (None, 9.0, 1.0),
        ("", 1.0, None),
    ]


def test_two_names_are_compared(warehouse: Warehouse) -> None:
    found = warehouse.compare("shop.pay", "shop.mail", since=MIDNIGHT + HOUR)

    assert (found.left, found.right) == ("shop.pay", "shop.mail")
    assert (found.left_times.attempts, found.right_times.attempts) == (3, 1)
    assert (found.left_times.run.p50, found.right_times.run.p50) == (4.0, 3.0)


def test_two_spans_are_compared(warehouse: Warehouse) -> None:
    before, after = (None, MIDNIGHT + HOUR), (MIDNIGHT + HOUR, MIDNIGHT + 3 * HOUR)

    found = warehouse.compare(before, after, task="shop.pay")

    assert (found.left, found.right) == (
        "..2026-11-14T01:00:00Z",
        "2026-11-14T01:00:00Z..2026-11-14T03:00:00Z",
    )
    assert (found.left_times.attempts, found.right_times.attempts) == (1, 3)


def test_both_sides_of_a_comparison_are_narrowed_by_worker_and_queue(warehouse: Warehouse) -> None:
    before, after = (None, MIDNIGHT + HOUR), (MIDNIGHT + HOUR, None)

    def told(a: Side, b: Side, **names: str) -> tuple[int, int]:
        found = warehouse.compare(a, b, **names)  # type: ignore[arg-type]
        return found.left_times.attempts, found.right_times.attempts

    assert told(before, after) == (1, 5)
    assert told(before, after, worker="w2@*") == (0, 1)
    assert told(before, after, queue="celery") == (1, 4)
    assert told(before, after, queue="mail", worker="w1@lab") == (0, 0)
    assert told("shop.pay", "shop.mail", worker="w1@lab") == (4, 0)


def test_sketches_of_many_hours_merge_to_the_quantiles_of_all_values(tmp_path: Path) -> None:
    random = Random(7)
    hours = [[random.expovariate(1.0) for _ in range(2000)] for _ in range(24)]
    rows = [rollup(MIDNIGHT + hour * HOUR, runs=values) for hour, values in enumerate(hours)]
    publish(tmp_path, {"rollups_hour": rows})
    exact = sorted(value for values in hours for value in values)

    with history.open(tmp_path) as warehouse:
        (found,) = warehouse.latency()

    told = (found.run.p50, found.run.p95, found.run.p99)
    for rank, value in zip((0.5, 0.95, 0.99), told, strict=True):
        assert value is not None
        assert abs(sum(each <= value for each in exact) / len(exact) - rank) < 0.02
    assert found.run.max == exact[-1]
    assert found.run.known == 48_000


def test_a_sketch_that_cannot_be_read_is_told_with_the_fix(tmp_path: Path) -> None:
    publish(tmp_path, {"rollups_hour": [rollup(MIDNIGHT, runs=[1.0], run_sketch=b"no sketch")]})

    with history.open(tmp_path) as warehouse, pytest.raises(DiskError, match="celeriac pipeline backfill"):
        warehouse.latency()


def test_what_cannot_be_asked_is_refused(warehouse: Warehouse) -> None:
    with pytest.raises(CallerError, match="invalid interval 'week': use"):
        warehouse.latency(by="week")  # type: ignore[arg-type]
    with pytest.raises(CallerError, match="invalid ranking 'worst': use one of"):
        warehouse.top("worst")  # type: ignore[arg-type]
    with pytest.raises(CallerError, match="at least 1, not 0"):
        warehouse.top(limit=0)
    with pytest.raises(CallerError, match="cannot group attempts by 'name'"):
        warehouse.latency_per("name")  # type: ignore[arg-type]
    with pytest.raises(CallerError, match="at least 1, not 0"):
        warehouse.latency_per("task", limit=0)
    with pytest.raises(CallerError, match="swap them"):
        warehouse.latency_per("task", 2.0, 1.0)
    with pytest.raises(CallerError, match="swap them"):
        warehouse.compare((2.0, 1.0), (None, None))
