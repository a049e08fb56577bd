"""Segments: what is written is read, what is damaged is found, and what is superseded is not read."""

import errno
from collections.abc import Sequence
from itertools import combinations, islice, permutations
from pathlib import Path
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from benchmarks.stream import bodies
from celeriac.errors import CallerError, DiskError
from celeriac.model.events import Event, Started
from celeriac.store.columns import SCHEMA, event_moment, to_batch, to_events
from celeriac.store.place import Place, place_for
from celeriac.store.segment import (
    Damaged,
    Segment,
    TooNew,
    check_segment,
    live,
    read_segment,
    segments_in,
    write_segment,
)
from celeriac.wire.event import Gate
from tests.builders import WIRE_EVENTS, by_dict, only
from tests.property.effort import COSTLY
from tests.property.test_columns import any_event

RECORDER = "web1-0a1b2c"
#: 2026-11-15 01:10:17.25 UTC.
AT = 1_794_705_017.25


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return place_for(tmp_path / "history")


@pytest.fixture
def memory() -> Place:
    """An object store."""
    return place_for("memory://history")


def events() -> list[Event]:
    """Return one of each type, as received."""
    gate = Gate()
    return [
        replace(only(by_dict(gate, event)), local_received=AT + number)
        for number, event in enumerate(WIRE_EVENTS.values())
    ]


def started(timestamp: float, received_at: float | None = AT) -> Event:
    return Started(timestamp=timestamp, clock=1, hostname="w", uuid="t", local_received=received_at)


def write(place: Place, given: Sequence[Event], *, first: int = 1, generation: int = 0) -> Segment:
    """Write events in batches of three."""
    batches = [
        to_batch(given[place : place + 3], recorder=RECORDER, first=first + place)
        for place in range(0, len(given), 3)
    ]
    last = first + len(given) - 1
    return write_segment(place, batches, recorder=RECORDER, first=first, last=last, generation=generation)


def read(place: Place, segment: Segment) -> list[Event]:
    return [event for batch in read_segment(place, segment).to_batches() for event in to_events(batch)]


# -- what is written is read


@COSTLY
@given(given=st.lists(any_event, min_size=1, max_size=12), first=st.integers(0, 2**50))
def test_events_come_back_from_a_segment_as_they_were(given: list[Event], first: int) -> None:
    place = place_for("memory://any")
    moments = [event_moment(event) for event in given]

    segment = write(place, given, first=first)
    table = read_segment(place, segment)
    place.remove(segment.path)

    assert [event for batch in table.to_batches() for event in to_events(batch)] == given
    assert table.schema.equals(SCHEMA, check_metadata=True)
    assert Segment.parse(segment.path, segment.size) == segment
    assert (segment.first, segment.last, segment.rows) == (first, first + len(given) - 1, len(given))
    assert segment.begin_at <= min(moments) <= max(moments) <= segment.end_at
    assert segment.begin_at > min(moments) - 0.0011
    assert segment.end_at < max(moments) + 0.0011


def test_a_listing_tells_all_there_is_to_know(place: Place) -> None:
    written = [write(place, events(), first=first) for first in (1, 100)]
    place.write("events/date=2026-11-15/hour=01/notes.txt", b"")

    assert segments_in(place) == written
    assert [segment.size for segment in written] == [place.size(segment.path) for segment in written]
    assert [segment.crc for segment in written] == [crc32(place.read(segment.path)) for segment in written]


def test_a_segment_lies_in_the_hour_in_which_its_first_event_was_received(place: Place) -> None:
    segment = write(place, [started(AT - 7200, AT), started(AT, AT + 7200)])

    assert segment.path == (
        "events/date=2026-11-15/hour=01/"
        f"{RECORDER}.000000000001-000000000002.g0.2.1794697817250-1794705017250.{segment.crc:08x}.parquet"
    )


def test_the_same_rows_make_the_same_file(place: Place, memory: Place) -> None:
    first = write(place, events())

    again, elsewhere = write(place, events()), write(memory, events())

    assert first == again == elsewhere
    assert place.names("") == memory.names("") == [first.path]
    assert place.read(first.path) == memory.read(first.path)


@pytest.mark.parametrize(
    ("timestamp", "received_at", "folder"),
    [(0.0, None, "date=1970-01-01/hour=00"), (AT, None, "date=2026-11-15/hour=01"),
     (-5.0, -5.0, "date=1970-01-01/hour=00"), (1e300, 1e300, "date=9999-12-31/hour=23"),
     (float("nan"), float("nan"), "date=1970-01-01/hour=00"),
     (float("inf"), float("inf"), "date=9999-12-31/hour=23")],
)  # fmt: skip
def test_no_moment_makes_an_event_that_cannot_be_written(
    place: Place, timestamp: float, received_at: float | None, folder: str
) -> None:
    given = [started(timestamp, received_at)]

    segment = write(place, given)

    assert segment.path.startswith(f"events/{folder}/")
    assert [event_moment(event).hex() for event in read(place, segment)] == [event_moment(given[0]).hex()]
    assert 0 <= segment.begin_at <= segment.end_at <= 253_402_300_799.999


def test_an_event_without_a_time_of_its_own_counts_when_it_was_received(place: Place) -> None:
    segment = write(place, [started(0.0, AT), started(AT + 1, AT + 5)])

    assert (segment.begin_at, segment.end_at) == (AT, AT + 1)


@pytest.mark.parametrize("moment", [1_795_336_235.9259999, 1_795_219_112.8470001, AT])
def test_a_moment_next_to_a_millisecond_is_never_outside_of_its_segment(place: Place, moment: float) -> None:
    segment = write(place, [started(moment)])

    assert segment.begin_at <= moment <= segment.end_at


def test_a_rewritten_segment_may_have_lost_rows_and_stands_for_all_its_numbers(place: Place) -> None:
    batch = to_batch(events(), recorder=RECORDER, first=1)
    kept = [batch.slice(2, 1), batch.slice(5, 2)]

    segment = write_segment(place, kept, recorder=RECORDER, first=1, last=11, generation=1)

    assert (segment.first, segment.last, segment.rows, segment.generation) == (1, 11, 3, 1)
    assert read_segment(place, segment)["sequence"].to_pylist() == [3, 6, 7]


def test_single_columns_can_be_read_and_some_as_dictionaries(place: Place) -> None:
    segment = write(place, events())

    table = read_segment(place, segment, columns=["uuid", "type"], dictionaries=["type"])

    assert table.column_names == ["uuid", "type"]
    assert table["type"].to_pylist() == list(WIRE_EVENTS)
    assert pa.types.is_dictionary(table["type"].type)


def test_rows_that_were_read_can_be_written_again(place: Place) -> None:
    segment = write(place, events())

    table = read_segment(place, segment)
    merged = write_segment(place, table.to_batches(), recorder=RECORDER, first=1, last=11, generation=1)

    assert read(place, merged) == events()
    assert live(segments_in(place)) == [merged]


def test_the_stream_of_a_busy_cluster_takes_less_than_thirty_bytes_an_event(memory: Place) -> None:
    gate = Gate()
    received = [
        replace(event, local_received=event.timestamp + 0.01)
        for body in islice(bodies(), 40_000)
        for event in gate.decode(body)
    ]
    batches = [
        to_batch(received[at : at + 1000], recorder=RECORDER, first=at + 1) for at in range(0, 40_000, 1000)
    ]

    segment = write_segment(memory, batches, recorder=RECORDER, first=1, last=40_000, generation=0)

    assert segment.rows == 40_000
    assert segment.size / segment.rows < 30


def test_a_file_says_itself_how_it_was_made(place: Place) -> None:
    segment = write(place, events())

    file = pq.ParquetFile(pa.BufferReader(place.read(segment.path)))
    told = file.schema_arrow.metadata

    assert told[b"celeriac.schema"] == b"1"
    assert (told[b"celeriac.recorder"], told[b"celeriac.first"], told[b"celeriac.last"]) == (
        RECORDER.encode(), b"1", b"11")  # fmt: skip
    group = file.metadata.row_group(0)
    columns = {group.column(n).path_in_schema: group.column(n) for n in range(group.num_columns)}
    assert {column.compression for column in columns.values()} == {"ZSTD"}
    assert "BYTE_STREAM_SPLIT" in columns["timestamp"].encodings
    assert "DELTA_BINARY_PACKED" in columns["sequence"].encodings
    assert "RLE_DICTIONARY" in columns["type"].encodings


@pytest.mark.parametrize(
    ("recorder", "first", "last", "why"),
    [("", 1, 11, "recorder id"), ("a.b", 1, 11, "recorder id"), ("../x", 1, 11, "recorder id"),
     ("a\n", 1, 11, "recorder id"),
     ("x" * 81, 1, 11, "recorder id"), ("ü", 1, 11, "recorder id"),
     ("a", 2, 11, "are outside of"), ("a", 1, 10, "are outside of"), ("a", -1, 11, "are outside of"),
     ("a", 1, 10**18, "too large")],
)  # fmt: skip
def test_a_segment_that_could_not_be_named_is_refused(
    place: Place, recorder: str, first: int, last: int, *, why: str
) -> None:
    batch = to_batch(events(), recorder="a", first=1)

    with pytest.raises(CallerError, match=why):
        write_segment(place, [batch], recorder=recorder, first=first, last=last, generation=0)

    assert place.names("") == []


@pytest.mark.parametrize("batches", [[], [to_batch([], recorder="a", first=1)]], ids=["none", "empty"])
def test_a_segment_without_rows_is_refused(place: Place, batches: list[pa.RecordBatch]) -> None:
    with pytest.raises(CallerError, match="at least one row"):
        write_segment(place, batches, recorder="a", first=1, last=1, generation=0)


# -- names


@given(
    recorder=st.from_regex(r"[A-Za-z0-9_-]{1,80}", fullmatch=True),
    numbers=st.tuples(st.integers(0, 10**18 - 1), st.integers(0, 10**18 - 1)).map(sorted),
    generation=st.integers(0, 10**9 - 1),
    moments=st.tuples(st.integers(0, 253_402_300_799_999), st.integers(0, 253_402_300_799_999)).map(sorted),
    crc=st.integers(0, 2**32 - 1),
)
def test_a_name_tells_what_it_was_made_from(
    recorder: str, numbers: list[int], generation: int, moments: list[int], crc: int
) -> None:
    first, last = numbers
    rows = min(last - first + 1, 10**12 - 1)
    bare = Segment(recorder, first, last, generation, rows, moments[0] / 1000, moments[1] / 1000, crc, "", 7)

    segment = bare._replace(path=f"events/date=2026-11-15/hour=01/{bare.name}")

    assert Segment.parse(segment.path, 7) == segment
    assert len(segment.name) < 200


GOOD = "web1-0a1b2c.000000000001-000000000011.g0.11.1794705017250-1794705027250.0badcafe.parquet"


WRONG = [
    ("-0a1b2c", "-0a.1b2c"), ("web1", "wéb1"), ("web1", "w" * 80), ("web1", ".web1"), ("web1-0a1b2c", ""),
    ("000000000001", "00000000001"), ("000000000001", "0000000000001"), ("000000000001", "000000000012"),
    ("000000000011", "00000000001\u0661"), (".g0.", ".g00."), (".g0.", ".g-1."), (".g0.", "."),
    (".11.", ".12."), (".11.", ".0."), (".11.", ".011."), ("1794705027250", "1794705017249"),
    ("1794705027250", "999999999999999"), ("0badcafe", "0BADCAFE"), ("0badcafe", "badcafe"),
    ("0badcafe", "0badcafeg"), (".parquet", ".parquet.1"), (".parquet", ".parquet\n"),
    (".parquet", ".PARQUET"), (GOOD, "notes.txt"), (GOOD, ""),
]  # fmt: skip


@pytest.mark.parametrize(("part", "wrong"), WRONG)
def test_the_name_of_no_segment_is_none(part: str, wrong: str) -> None:
    assert Segment.parse(f"events/{GOOD}", 1) is not None
    assert part in GOOD
    assert Segment.parse(f"events/{GOOD.replace(part, wrong)}", 1) is None


# -- damage


def test_every_flipped_bit_is_found(memory: Place) -> None:
    segment = write(memory, events()[:2])
    content = memory.read(segment.path)
    found = 0

    for at in range(len(content)):
        flipped = bytearray(content)
        flipped[at] ^= 1 << at % 8
        memory.write(segment.path, flipped)
        with pytest.raises(Damaged, match="wrong checksum; restore it from a backup"):
            read_segment(memory, segment)
        found += 1

    assert found == segment.size


@pytest.mark.parametrize(
    "how", ["cut", "empty", "zeroed tail", "zeros", "longer", "another", "swapped blocks"]
)
def test_damage_of_every_kind_is_found(place: Place, how: str) -> None:
    segment = write(place, events())
    other = write(place, events()[::-1])
    content = place.read(segment.path)
    half = len(content) // 2
    damaged = {
        "cut": content[:-1],
        "empty": b"",
        "zeroed tail": content[:half] + bytes(len(content) - half),
        "zeros": bytes(len(content)),
        "longer": content + b"\0",
        "another": place.read(other.path),
        "swapped blocks": content[half:] + content[:half],
    }[how]
    place.write(segment.path, damaged)

    with pytest.raises(Damaged, match=rf"history/{segment.path} is damaged: wrong checksum"):
        read_segment(place, segment)

    assert read(place, other) == events()[::-1]


def named(place: Place, segment: Segment, content: bytes) -> Segment:
    """Have a file of any content under a name whose checksum is right."""
    crc = crc32(content)
    bare = segment._replace(crc=crc, size=len(content))
    wrong = bare._replace(path=f"events/{bare.name}")
    place.write(wrong.path, content)
    return wrong


def test_a_file_that_was_damaged_before_it_was_named_is_found_or_read_but_harms_nothing(
    memory: Place,
) -> None:
    segment = write(memory, events()[:2])
    content = memory.read(segment.path)
    found = 0

    for at in range(0, len(content), 31):
        flipped = bytearray(content)
        flipped[at] ^= 1 << at % 8
        wrong = named(memory, segment, bytes(flipped))
        try:
            read_segment(memory, wrong)
        except Damaged:
            found += 1
        memory.remove(wrong.path)

    assert found > len(content) / 31 / 10


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" * 100, b"no Parquet at all"])
def test_what_is_no_parquet_file_is_damaged(place: Place, content: bytes) -> None:
    segment = named(place, write(place, events()), content)

    with pytest.raises(Damaged, match="is damaged: "):
        read_segment(place, segment)


@pytest.mark.parametrize(
    "changed",
    [{"recorder": "other-0a1b2c"}, {"first": 2, "last": 12}, {"last": 12}, {"rows": 10}],
    ids=["recorder", "numbers", "more numbers", "fewer rows"],
)
def test_a_right_file_under_a_wrong_name_is_found(place: Place, changed: dict[str, object]) -> None:
    segment = write(place, events())
    wrong = named(place, segment._replace(**changed), place.read(segment.path))  # type: ignore[arg-type]

    with pytest.raises(Damaged, match="its name does not match its content"):
        read_segment(place, wrong)


def remade(place: Place, segment: Segment, table: pa.Table, **told: str) -> Segment:
    """Write a table as a later or an earlier Celeriac could have."""
    about = {"recorder": segment.recorder, "first": str(segment.first), "last": str(segment.last), **told}
    metadata = {"celeriac.schema": "1"} | {f"celeriac.{name}": value for name, value in about.items()}
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata(metadata), sink)
    return named(place, segment, sink.getvalue().to_pybytes())


def test_a_segment_of_a_later_version_says_to_upgrade(place: Place) -> None:
    segment = write(place, events())
    later = remade(place, segment, read_segment(place, segment), schema="2")

    with pytest.raises(TooNew, match="has version 2, newer than 1: upgrade Celeriac"):
        read_segment(place, later)


def test_a_parquet_file_of_somebody_else_is_told_as_such(place: Place) -> None:
    segment = write(place, events())
    foreign = remade(place, segment, read_segment(place, segment), schema="")

    with pytest.raises(Damaged, match="is damaged: not a Celeriac segment; move it away"):
        read_segment(place, foreign)


def test_columns_that_a_file_lacks_are_null_and_those_it_has_too_many_are_left_out(place: Place) -> None:
    segment = write(place, events())
    table = read_segment(place, segment)
    more = table.drop_columns(["client_clock", "rest"]).append_column("mood", pa.array(["fine"] * 11))

    other = remade(place, segment, more)

    assert read_segment(place, other).schema.equals(SCHEMA)
    assert read_segment(place, other)["rest"].null_count == 11
    assert read(place, other) == events()


def test_what_others_cannot_read_as_it_is_is_found(place: Place) -> None:
    segment = write(place, events())
    table = read_segment(place, segment)
    number, name = table.schema.get_field_index("timestamp"), table.schema.get_field_index("recorder")
    as_text = table.set_column(number, "timestamp", table["timestamp"].cast(pa.string()))
    of_another = table.set_column(name, "recorder", pa.array([*["other"] * 5, *[None] * 6]))

    check_segment(place, segment)
    check_segment(place, remade(place, segment, table.drop_columns(["rest"])))

    with pytest.raises(Damaged, match="timestamp has type string, not double"):
        check_segment(place, remade(place, segment, as_text))
    with pytest.raises(Damaged, match="its rows do not match its name"):
        check_segment(place, remade(place, segment, of_another))
    with pytest.raises(Damaged, match="recorder"):
        check_segment(place, remade(place, segment, table.drop_columns(["recorder"])))


def test_a_column_of_another_type_is_damage(place: Place) -> None:
    segment = write(place, events())
    table = read_segment(place, segment)
    at = table.column_names.index("clock")

    wrong = remade(place, segment, table.set_column(at, "clock", pa.array(["many"] * 11)))

    with pytest.raises(Damaged, match="is damaged: "):
        read_segment(place, wrong)


def test_a_segment_that_was_removed_is_not_damaged_but_gone(place: Place, memory: Place) -> None:
    for each in (place, memory):
        segment = write(each, events())
        each.remove(segment.path)

        with pytest.raises(DiskError, match="No such file") as caught:
            read_segment(each, segment)

        assert not isinstance(caught.value, Damaged)
        assert caught.value.errno == errno.ENOENT


# -- which are read


def segment_of(
    first: int, last: int, *, generation: int = 0, crc: int = 0, recorder: str = "a", path: str = ""
) -> Segment:
    return Segment(recorder, first, last, generation, 1, 0.0, 0.0, crc, path, 1)


#: Every segment over the numbers 0 to 2, of two generations and two checksums.
ALL = [
    segment_of(first, last, generation=generation, crc=crc)
    for first in range(3)
    for last in range(first, 3)
    for generation in range(2)
    for crc in range(2)
]


def supersedes(one: Segment, other: Segment) -> bool:
    """The rule, as it is written down."""
    is_over = one.recorder == other.recorder and one.first <= other.first and one.last >= other.last
    width, other_width = one.last - one.first, other.last - other.first
    return is_over and (one.generation, width, one.crc) > (other.generation, other_width, other.crc)


def numbers(segments: Sequence[Segment]) -> set[int]:
    return {number for segment in segments for number in range(segment.first, segment.last + 1)}


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4])
def test_those_are_read_that_no_other_supersedes_and_no_number_is_lost(count: int) -> None:
    for chosen in combinations(ALL, count):
        read = live(chosen)

        expected = [each for each in chosen if not any(supersedes(other, each) for other in chosen)]
        assert set(read) == set(expected), chosen
        assert len(read) == len(expected)
        assert [each.first for each in read] == sorted(each.first for each in read)
        assert numbers(read) == numbers(chosen)
        assert live(read) == read


def test_the_order_of_a_listing_decides_nothing() -> None:
    for chosen in combinations(ALL[::2], 3):
        assert len({tuple(live(order)) for order in permutations(chosen)}) == 1


def test_a_merge_supersedes_what_it_was_made_from_whether_or_not_that_is_removed() -> None:
    parts = [segment_of(1, 10, crc=9), segment_of(11, 20, crc=8), segment_of(21, 30, crc=7)]
    merged = segment_of(1, 20, generation=1, crc=1)

    for left in range(3):
        for rest in combinations(parts[:2], left):
            assert live([*rest, merged, parts[2]]) == [merged, parts[2]]


def test_of_two_that_overlap_in_part_both_are_read() -> None:
    both = [segment_of(1, 10), segment_of(5, 15, generation=3)]

    assert live(both) == both


def test_recorders_have_nothing_to_do_with_each_other() -> None:
    both = [segment_of(1, 10, recorder="a"), segment_of(1, 10, recorder="b", generation=5, crc=5)]

    assert live(reversed(both)) == both


def test_a_segment_that_is_there_twice_is_read_once() -> None:
    twice = [segment_of(1, 10, path="events/b"), segment_of(1, 10, path="events/a")]

    assert live(twice) == [twice[1]]


def test_a_log_of_years_is_looked_through_in_passing() -> None:
    many = [segment_of(at, at + 9, crc=at) for at in range(0, 500_000, 10)]

    assert live([*many, segment_of(0, 499_999, generation=1)]) == [segment_of(0, 499_999, generation=1)]
    assert live(reversed(many)) == many
