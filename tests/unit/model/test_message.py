"""Which keys a topic binding takes, as AMQP defines it."""

from itertools import product

import pytest

from celeriac.model.message import topic_leads_to


def reference(pattern: list[str], key: list[str]) -> bool:
    """Match word by word, in the words of the AMQP specification."""
    if not pattern:
        return not key
    if pattern[0] == "#":
        return reference(pattern[1:], key) or (bool(key) and reference(pattern, key[1:]))
    return bool(key) and pattern[0] in {"*", key[0]} and reference(pattern[1:], key[1:])


def words(text: str) -> list[str]:
    return text.split(".") if text else []


@pytest.mark.parametrize(
    ("pattern", "key"),
    [
        ("task.sent", "task.sent"),
        ("task.*", "task.sent"),
        ("*.sent", "task.sent"),
        ("worker.#", "worker.elect.ack"),
        ("worker.#", "worker"),
        ("#.ack", "ack"),
        ("#.ack", "worker.elect.ack"),
        ("worker.#.ack", "worker.ack"),
        ("worker.#.ack", "worker.elect.late.ack"),
        ("#", "task.multi"),
        ("#", ""),
        ("", ""),
    ],
)
def test_a_binding_takes_the_keys_it_describes(pattern: str, key: str) -> None:
    taken = topic_leads_to(pattern, key)

    assert taken


@pytest.mark.parametrize(
    ("pattern", "key"),
    [
        ("task.sent", "task.sen"),
        ("task.sent", "task.sent.late"),
        ("task.*", "task"),
        ("task.*", "task.sent.late"),
        ("*", ""),
        ("worker.#", "workers"),
        ("worker.#", "myworker.online"),
        ("#.ack", "back"),
        ("worker.#.ack", "workerack"),
        ("", "task"),
    ],
)
def test_a_binding_takes_no_other_key(pattern: str, key: str) -> None:
    taken = topic_leads_to(pattern, key)

    assert not taken


@pytest.mark.parametrize(("pattern", "key"), [("a.c", "abc"), ("a+", "aa"), ("[a]", "a"), ("a|b", "b")])
def test_only_the_two_wildcards_are_special(pattern: str, key: str) -> None:
    taken = topic_leads_to(pattern, key)

    assert not taken
    assert topic_leads_to(pattern, pattern)


def test_every_short_binding_agrees_with_the_specification_on_every_short_key() -> None:
    patterns = [".".join(each) for size in range(5) for each in product("a*#", repeat=size)]
    keys = [".".join(each) for size in range(5) for each in product("ab", repeat=size)]

    different = [
        (pattern, key)
        for pattern, key in product(patterns, keys)
        if topic_leads_to(pattern, key) != reference(words(pattern), words(key))
    ]

    assert different == []
