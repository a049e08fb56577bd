"""Whole batches: no secret gets past, what is clean is not touched, and tasks obey their policies."""

from itertools import islice
from typing import Any

import pyarrow as pa
import pytest

from benchmarks.stream import events
from celeriac import Gate
from celeriac.core.redaction import Redactor
from celeriac.model.events import (
    Custom,
    Event,
    Extra,
    Failed,
    Received,
    Sent,
    Started,
    Succeeded,
    WorkerOnline,
)
from celeriac.store.columns import TEXTS, to_batch, to_events
from celeriac.store.redacting import BatchRedactor
from tests.builders import by_dict
from tests.secrets_corpus import HONEST, SECRETS, as_event, leaked

KEY = b"a key of our own"


def said(uuid: str = "t1", **fields: Any) -> dict[str, Any]:
    return {
        "timestamp": 1.0,
        "clock": 2,
        "hostname": "celery@h",
        "local_received": 3.0,
        "uuid": uuid,
        **fields,
    }


def batch_of(*given: Event) -> pa.RecordBatch:
    return to_batch(given, recorder="r", first=1)


@pytest.fixture
def redact() -> BatchRedactor:
    return BatchRedactor(Redactor())


@pytest.mark.parametrize("size", [1, 7, 500])
def test_no_secret_of_the_corpus_is_left_in_any_batch(redact: BatchRedactor, size: int) -> None:
    leaks = []
    for start in range(0, len(SECRETS), size):
        entries = SECRETS[start : start + size]
        redacted = redact(batch_of(*map(as_event, entries)))
        for entry, row in zip(entries, redacted.to_pylist(), strict=True):
            if leaked(str([row[column] for column in TEXTS]), entry.secret):
                leaks.append((entry, row))

    assert leaks == []
    assert sum(redact.masked.values()) == len(SECRETS)


def test_batches_and_single_events_are_redacted_alike(redact: BatchRedactor) -> None:
    given = [as_event(entry) for entry in SECRETS]

    redacted = to_events(redact(batch_of(*given)))

    assert redacted == [Redactor().event(event) for event in given]


def test_what_was_redacted_is_left_as_it_is() -> None:
    redactor = Redactor({"mail.*": "hash", "billing.*": "drop"}, hash_key=KEY)
    given = [
        *map(as_event, SECRETS),
        Sent(**said("m"), name="mail.send", args="(1,)", extra=Extra(a=1)),
        Sent(**said("b"), name="billing.pay", args="(1,)"),
    ]

    once = BatchRedactor(redactor)(batch_of(*given))
    again = BatchRedactor(redactor)
    twice = again(once)

    assert twice is once
    assert not again.masked


def test_a_clean_stream_is_not_touched(redact: BatchRedactor) -> None:
    gate = Gate()
    stream = [event for each in islice(events(), 2000) if (event := by_dict(gate, each)) is not None]
    batch = to_batch(stream, recorder="r", first=1)

    assert len(stream) == 2000
    assert redact(batch) is batch
    assert not redact.masked


def test_honest_texts_are_not_touched(redact: BatchRedactor) -> None:
    batch = batch_of(*(Failed(**said(), exception=text, traceback=text) for text in HONEST))

    assert redact(batch) is batch


def test_a_row_that_is_clean_stays_beside_one_that_is_not(redact: BatchRedactor) -> None:
    clean = Sent(**said(), name="shop.pay", args="(1, 'é')", kwargs="{}", extra=Extra(a=[1, 2.5, None]))
    online = WorkerOnline(
        timestamp=1.0, clock=2, hostname="celery@h", local_received=3.0, extra=Extra(tokens=5)
    )
    given = [clean, Sent(**said(), name="shop.pay", args="(1,)", kwargs="{'token': 'x'}"), online]

    redacted = redact(batch_of(*given))

    assert to_events(redacted) == [
        clean,
        Sent(**said(), name="shop.pay", args="(1,)", kwargs="{'token': '**'}"),
        online,
    ]
    assert redacted.schema.equals(batch_of(*given).schema, check_metadata=True)
    assert redact.masked == {"kwargs": 1}


def test_names_of_the_user_are_masked() -> None:
    redact = BatchRedactor(Redactor(names=("tax_id",)))

    redacted = redact(batch_of(Sent(**said(), kwargs="{'taxId': '17', 'n': 2}", extra=Extra(tax_id=17))))

    assert to_events(redacted) == [Sent(**said(), kwargs="{'taxId': '**', 'n': 2}", extra=Extra(tax_id="**"))]


# -- policies


def test_results_and_errors_obey_the_policy_that_the_name_told_in_an_earlier_batch() -> None:
    redactor = Redactor({"billing.*": "drop", "mail.*": "hash"}, hash_key=KEY)
    redact = BatchRedactor(redactor)
    redact(
        batch_of(
            Sent(**said("b"), name="billing.pay"),
            Received(**said("m"), name="mail.send"),
            Sent(**said("k"), name="shop"),
        )
    )

    redacted = redact(
        batch_of(
            Succeeded(**said("b"), result="'x'"),
            Failed(**said("m"), exception="E('x')", traceback="T"),
            Succeeded(**said("k"), result="'x'"),
            Custom(**said("b"), subject="progress", extra=Extra(a=1)),
            Started(**said("b")),
        )
    )

    assert to_events(redacted) == [
        Succeeded(**said("b")),
        Failed(**said("m"), exception=redactor.hashed("E('x')"), traceback=redactor.hashed("T")),
        Succeeded(**said("k"), result="'x'"),
        Custom(**said("b"), subject="progress"),
        Started(**said("b")),
    ]
    assert redact.masked == {"dropped": 2, "hashed": 2}


def test_a_task_that_it_never_heard_of_has_the_strictest_policy_and_workers_have_none() -> None:
    redact = BatchRedactor(Redactor({"billing.*": "drop"}))
    online = WorkerOnline(timestamp=1.0, clock=2, hostname="celery@h", local_received=3.0, extra=Extra(a=1))

    redacted = redact(
        batch_of(Succeeded(**said("new"), result="'x'"), Sent(**said("nameless"), args="(1,)"), online)
    )

    assert to_events(redacted) == [Succeeded(**said("new")), Sent(**said("nameless")), online]


def test_tasks_are_forgotten_beyond_a_limit_and_then_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("celeriac.store.redacting._MAX_TASKS", 2)
    redact = BatchRedactor(Redactor({"billing.*": "drop"}))
    redact(batch_of(*(Sent(**said(uuid), name="shop.pay") for uuid in ("a", "b", "c"))))

    redacted = redact(batch_of(*(Succeeded(**said(uuid), result="1") for uuid in ("a", "b", "c"))))

    assert [row["result"] for row in redacted.to_pylist()] == [None, "1", "1"]


# -- the dry run


def test_a_dry_run_says_what_each_rule_finds_and_never_shows_a_secret(redact: BatchRedactor) -> None:
    batch = batch_of(*map(as_event, SECRETS))

    examples = redact.explain(batch)

    assert {example.rule for example in examples} == {
        "name",
        "header",
        "url",
        "login",
        "token",
        "aws",
        "bearer",
        "pem",
        "card",
    }
    assert {example.column for example in examples} == set(TEXTS)
    assert not redact.masked


def test_no_example_of_a_dry_run_shows_its_secret(redact: BatchRedactor) -> None:
    told = [(entry, redact.explain(batch_of(as_event(entry)))) for entry in SECRETS]

    assert all(examples for _, examples in told)
    assert [entry for entry, examples in told if leaked(repr(examples), entry.secret)] == []


def test_a_dry_run_of_a_clean_batch_finds_nothing(redact: BatchRedactor) -> None:
    assert redact.explain(batch_of(Sent(**said(), args="(1,)", extra=Extra(a=1)), Started(**said()))) == []


def test_an_empty_batch_is_fine(redact: BatchRedactor) -> None:
    batch = batch_of()

    assert redact(batch) is batch
    assert redact.explain(batch) == []
