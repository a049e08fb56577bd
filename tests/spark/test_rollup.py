from collections import defaultdict
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import pytest
from datasketches import kll_doubles_sketch
from pyspark.sql import SparkSession

from celeriac.pipeline.rollup import SKETCH_SIZE, by_hour, by_minute
from celeriac.pipeline.schema import table_schema
from tests.spark.frames import rows

BEGIN = 1_794_000_000.0 // 3600 * 3600
OUTCOMES = {"succeeded": "SUCCESS", "failed": "FAILURE", "retried": "RETRY", "revoked": "REVOKED"}
KEYS = ("name", "worker", "queue", "day")
Row = dict[str, Any]


def made_attempts() -> list[Row]:
    """Return attempts of two hours: a minute with many, others with few, and one without any moment."""
    random = Random(17)
    empty = dict.fromkeys(table_schema("attempts").fieldNames())
    made = []
    for number in range(4000):
        minute = random.choice((0, 0, 0, random.randrange(120)))
        made.append(
            empty
            | {
                "uuid": f"task-{number}",
                "name": random.choice(("add", "add", "add", "größe", None)),
                "worker": random.choice(("a@x", "a@x", "a@x", None)),
                "queue": random.choice(("celery", "celery", "celery", None)),
                "retries": 0,
                "outcome": random.choice((*OUTCOMES.values(), "SUCCESS", "REJECTED", None)),
                "wait": random.choice((None, random.expovariate(1))),
                # Of one task no run is known, which is no sketch and not an empty one.
                "run": random.lognormvariate(0, 2) if number % 4 else None,
                "counted_at": BEGIN + 60 * minute + random.choice((0.0, 30.5, 59.999)),
                "day": random.choice(("2026-11-05",) * 3 + ("2026-11-06",)),
            }
        )
        if made[-1]["name"] == "größe":
            made[-1]["run"] = None
    made.append(empty | {"uuid": "no moment", "day": "2026-11-05", "outcome": "FAILURE"})
    return made


def counted(attempts: Iterable[Row], *, span: int) -> dict[tuple[Any, ...], list[Row]]:
    """Return the attempts of each row that a roll-up must have."""
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for attempt in attempts:
        moment = attempt["counted_at"]
        begin_at = None if moment is None else moment // span * span
        groups[(begin_at, *(attempt[key] for key in KEYS))].append(attempt)
    return groups


def key_of(row: Row) -> tuple[Any, ...]:
    return (row["begin_at"], *(row[key] for key in KEYS))


def counts_of(row: Row) -> Row:
    return {name: value for name, value in row.items() if not name.endswith(("_sum", "_sketch"))}


def expected_counts(key: tuple[Any, ...], group: Sequence[Row]) -> Row:
    known = {name: [each[name] for each in group if each[name] is not None] for name in ("wait", "run")}
    return {
        "begin_at": key[0],
        **dict(zip(KEYS, key[1:], strict=True)),
        "attempts": len(group),
        **{name: sum(each["outcome"] == state for each in group) for name, state in OUTCOMES.items()},
        **{f"{name}s": len(values) for name, values in known.items()},
        **{f"{name}_max": max(values, default=None) for name, values in known.items()},
    }


def assert_like(sketch: kll_doubles_sketch, values: list[float]) -> None:
    """Insist that a sketch is of these values: their number is exact, their ranks are nearly."""
    values.sort()
    # A sketch tosses coins. Its error is what 99 of 100 keep to; none is three times as wrong.
    allowed = 3 * sketch.normalized_rank_error(False) if len(values) > SKETCH_SIZE else 0.0
    assert sketch.n == len(values)
    for quantile in (0.0, 0.1, 0.5, 0.9, 0.99, 1.0):
        value = sketch.get_quantile(quantile)
        below = sum(each < value for each in values) / len(values)
        upto = sum(each <= value for each in values) / len(values)
        assert below - allowed - 1e-9 <= quantile <= upto + allowed + 1e-9


@pytest.fixture(scope="module")
def rolled(spark: SparkSession) -> tuple[list[Row], list[Row], list[Row]]:
    """Attempts, the rows of their minutes, and the rows of their hours."""
    attempts = made_attempts()
    schema = table_schema("attempts")
    frame = spark.createDataFrame([tuple(row.values()) for row in attempts], schema)
    minutes = by_minute(frame).cache()
    hours = by_hour(minutes)
    assert minutes.schema.simpleString() == table_schema("rollups_minute").simpleString()
    assert hours.schema.simpleString() == table_schema("rollups_hour").simpleString()
    made = attempts, rows(minutes), rows(hours)
    minutes.unpersist()
    return made


@pytest.mark.parametrize(("place", "span"), [(1, 60), (2, 3600)])
def test_counts_are_exact(rolled: tuple[list[Row], ...], place: int, span: int) -> None:
    groups = counted(rolled[0], span=span)

    made = rolled[place]

    assert len(made) == len(groups)
    for row in made:
        group = groups[key_of(row)]
        assert counts_of(row) == expected_counts(key_of(row), group)
        for name in ("wait", "run"):
            known = [each[name] for each in group if each[name] is not None]
            assert (row[f"{name}_sum"] is None) == (row[f"{name}_sketch"] is None) == (not known)
            assert row[f"{name}_sum"] is None or row[f"{name}_sum"] == pytest.approx(sum(known), abs=1e-3)


@pytest.mark.parametrize(("place", "span"), [(1, 60), (2, 3600)])
def test_sketches_tell_ranks_within_their_error(rolled: tuple[list[Row], ...], place: int, span: int) -> None:
    groups = counted(rolled[0], span=span)

    sketches = [
        (row, name, kll_doubles_sketch.deserialize(bytes(row[f"{name}_sketch"])))
        for row in rolled[place]
        for name in ("wait", "run")
        if row[f"{name}_sketch"] is not None
    ]

    for row, name, sketch in sketches:
        assert_like(sketch, [each[name] for each in groups[key_of(row)] if each[name] is not None])
    assert any(sketch.n > SKETCH_SIZE for _, _, sketch in sketches)


def test_any_range_is_a_merge_of_its_minutes(rolled: tuple[list[Row], ...]) -> None:
    attempts, minutes, _ = rolled
    merged = kll_doubles_sketch(SKETCH_SIZE)

    for row in minutes:
        if row["run_sketch"] is not None:
            merged.merge(kll_doubles_sketch.deserialize(bytes(row["run_sketch"])))

    assert_like(merged, [each["run"] for each in attempts if each["run"] is not None])
