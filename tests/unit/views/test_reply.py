"""What nodes answer becomes lines, whatever it is."""

import pytest

from celeriac.views.reply import answer_text, reply_lines

HOSTILE = "\x1b[31m\r\u202ex"


@pytest.mark.parametrize(
    ("value", "lines"),
    [
        ({"ok": "pong"}, ["pong"]),
        ({"clock": 12}, ["clock: 12"]),
        ([], ["none"]),
        ({}, ["none"]),
        (None, ["None"]),
        (["shop.pay", "shop.mail"], ["shop.pay", "shop.mail"]),
        ({"pool": {"sizes": [1, 2], "limits": []}}, ["pool.sizes: 1", "pool.sizes: 2", "pool.limits: none"]),
        ({"ok": "one\ntwo"}, ["one", "two"]),
        ({"text": "one\ntwo"}, ["text:", "one", "two"]),
    ],
)
def test_a_reply_is_told_in_lines(value: object, lines: list[str]) -> None:
    assert reply_lines(value) == lines


def test_a_task_is_told_in_one_line() -> None:
    running = {"id": "t1", "name": "shop.pay", "args": [1], "kwargs": {}, "worker_pid": 7, "time_start": None}

    assert reply_lines([running]) == ["shop.pay[t1]  worker_pid=7  args=[1]"]


def test_a_task_that_runs_tells_since_when() -> None:
    (line,) = reply_lines([{"id": "t1", "name": "shop.pay", "time_start": 1_794_703_817.25}])

    assert line.startswith("shop.pay[t1]  since ")
    assert line.endswith(":17.250")


def test_a_task_that_waits_for_its_time_tells_when_that_is() -> None:
    waiting = {"eta": "2026-11-15T01:30:00", "priority": 6, "request": {"id": "t1", "name": "shop.pay"}}

    assert reply_lines([waiting]) == ["shop.pay[t1]  eta=2026-11-15T01:30:00"]


def test_what_a_node_knows_of_a_task_is_told_under_its_id() -> None:
    assert reply_lines({"t1": ["active", {"id": "t1", "name": "shop.pay"}]}) == [
        "t1: active",
        "t1: shop.pay[t1]",
    ]


@pytest.mark.parametrize(
    "value",
    [
        HOSTILE,
        {HOSTILE: HOSTILE},
        [HOSTILE, {HOSTILE: [HOSTILE]}],
        {"ok": HOSTILE},
        f"{HOSTILE}\n{HOSTILE}",
        {"id": HOSTILE, "name": HOSTILE, "args": HOSTILE},
    ],
)
def test_hostile_text_in_a_reply_is_made_visible(value: object) -> None:
    assert all(line.isprintable() for line in reply_lines(value))
    assert answer_text(value).isprintable()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "done"),
        ({"ok": "pool will grow"}, "pool will grow"),
        ({"error": "unknown task"}, "error: unknown task"),
        (3, "3"),
    ],
)
def test_an_answer_to_a_command_is_told_in_a_few_words(value: object, text: str) -> None:
    assert answer_text(value) == text
