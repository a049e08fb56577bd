"""The note of a beat: what is left is read, and what is no note harms nothing."""

import logging

import pytest

from celeriac.node.beat_note import read_note, spell_note
from celeriac.transport.arbiter import MAX_NOTE_BYTES


def test_what_is_left_is_read() -> None:
    ticks = {"report": 1790000000.25, "größe": 60.0}

    assert read_note(spell_note(ticks)) == ticks
    assert read_note(b"") == {}


def test_a_note_that_is_too_long_leaves_out_the_last_entries() -> None:
    ticks = {f"{number:0100}": 60.0 for number in range(1000)}

    note = spell_note(ticks)

    kept = read_note(note)
    assert MAX_NOTE_BYTES * 0.8 < len(note) <= MAX_NOTE_BYTES
    assert list(kept) == list(ticks)[: len(kept)]


@pytest.mark.parametrize("note", [b"\xff", b"[]", b"7", b"{", b"[" * 100_000])
def test_what_is_no_note_is_told_and_counts_as_none(note: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = read_note(note)

    assert found == {}
    assert "cannot read the saved schedule state" in caplog.text


def test_a_moment_that_cannot_be_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = read_note(b'{"a": 60, "b": NaN, "c": -1, "d": "60", "e": true, "f": 1e300, "g": null}')

    assert found == {"a": 60.0}
    assert "incomplete" in caplog.text
