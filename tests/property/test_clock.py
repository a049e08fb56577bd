"""The laws of the clock and of display order."""

from hypothesis import given
from hypothesis import strategies as st

from celeriac import Gate, LamportClock
from celeriac.core.clock import CEILING, MAX_JUMP
from celeriac.core.order import display_key
from celeriac.model.clock import clock_value
from celeriac.model.events import Event

values = st.integers(min_value=0, max_value=2**40)
#: Whatever a peer may write where a clock belongs.
anything = st.one_of(
    st.integers(min_value=-(2**70), max_value=2**70),
    st.sampled_from((2**31, 2**32, 2**33, CEILING - 1, CEILING, 2**53 - 1, 2**53, 2**63, 2**100)),
    st.floats(),
    st.none(),
    st.booleans(),
    st.text(max_size=3),
    st.lists(st.integers(), max_size=2),
)
peers = st.sampled_from(("a@x", "b@x", "c@x", "d@x"))


@given(values, st.lists(st.tuples(peers, anything)))
def test_the_clock_never_falls_and_every_receipt_moves_it(
    start: int, received: list[tuple[str, object]]
) -> None:
    clock = LamportClock(start)

    for peer, value in received:
        before = clock.value
        clock.receive(value, peer=peer, alive=4)

        assert clock.value > before


@given(values, anything, peers)
def test_an_adopted_clock_is_passed_and_a_refused_one_only_counted(
    start: int, value: object, peer: str
) -> None:
    clock = LamportClock(start)

    if clock.receive(value, peer=peer, alive=4):
        stamp = clock_value(value)
        assert stamp is not None
        assert clock.value == max(start, stamp) + 1
    else:
        assert clock.value == start + 1
        assert clock.rejected == {peer: 1}


@given(values, st.lists(anything))
def test_no_message_of_one_poisoned_peer_moves_the_clock_beyond_the_jump(
    start: int, poison: list[object]
) -> None:
    clock = LamportClock(start)

    for value in poison:
        before = clock.value
        for honest in ("a@x", "b@x", "c@x"):
            clock.receive(before, peer=honest, alive=4)
        clock.receive(value, peer="poisoned@x", alive=4)

        assert clock.value <= before + MAX_JUMP + 4


@given(
    values,
    st.integers(min_value=2**34, max_value=2**50),
    st.lists(st.integers(0, 1000), min_size=3, max_size=3),
)
def test_a_cluster_that_is_truly_ahead_is_followed(start: int, ahead: int, offsets: list[int]) -> None:
    clock = LamportClock(start)
    reports = [start + ahead + offset for offset in offsets]

    adopted = [
        clock.receive(value, peer=peer) for value, peer in zip(reports, ("a@x", "b@x", "c@x"), strict=True)
    ]

    assert adopted == [False, False, True]
    assert clock.value > reports[-1]


@given(st.lists(values, min_size=2), anything)
def test_one_poisoned_reply_cannot_choose_the_start(replies: list[int], poison: object) -> None:
    clock = LamportClock()

    clock.start([poison, *replies])

    assert clock.value <= max(replies)


@given(values, st.lists(anything), anything)
def test_the_start_is_not_before_the_last_run(value: int, replies: list[object], persisted: object) -> None:
    clock = LamportClock(value)

    clock.start(replies, persisted=persisted)

    stamp = clock_value(persisted)
    assert clock.value >= value
    assert stamp is None or stamp >= CEILING or clock.value >= stamp


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.sampled_from("abc"), st.dictionaries(st.text(), st.none())),
        min_size=1,
    )
)
def test_the_lowest_clock_leads_the_heap_and_the_lowest_id_among_equals(
    heap: list[tuple[int, str, object]],
) -> None:
    clock, node, _ = LamportClock.sort_heap(heap)

    assert (clock, node) == min((clock, node) for clock, node, _ in heap)


@given(
    st.lists(
        st.tuples(anything, st.one_of(anything, st.floats(0, 2e9)), peers, st.integers(0, 3)), max_size=8
    )
)
def test_display_order_is_strict_and_total_whatever_the_clocks(
    raw: list[tuple[object, object, str, int]],
) -> None:
    gate = Gate()
    events: list[Event] = [
        converted[0]
        for clock, timestamp, hostname, pid in raw
        if (converted := gate.convert(_started(clock, timestamp, hostname, pid))) is not None
    ]

    keys = [display_key(event) for event in events]

    assert len(events) == len(raw)
    for x in keys:
        for y in keys:
            assert (x < y) + (y < x) + (x == y) == 1
            assert all(x < z for z in keys if x < y < z)
    without_clock = [key for key in sorted(keys) if key[0] == 0]
    assert sorted(keys)[: len(without_clock)] == without_clock
    assert [key[1] for key in without_clock] == sorted(key[1] for key in without_clock)


def _started(clock: object, timestamp: object, hostname: str, pid: int) -> dict[str, object]:
    return {
        "type": "task-started",
        "uuid": "u",
        "clock": clock,
        "timestamp": timestamp,
        "hostname": hostname,
        "pid": pid,
    }
