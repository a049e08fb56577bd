from celeriac.core.lag import MAX_NODES, Lag

AT = 1_790_000_000.0


def beats(lag: Lag, node: str, *, late: float, ahead: float = 0.0, at: float = AT) -> None:
    """Have a heartbeat of a node come so many seconds late; its clock is ahead of ours by so many."""
    lag.take(node, sent_at=at - late + ahead, received_at=at)


def test_before_anything_was_heard_it_is_not_known_how_late_events_are() -> None:
    assert Lag().seconds(AT) is None


def test_clocks_that_disagree_make_no_event_late() -> None:
    lag = Lag()

    for second in range(10):
        beats(lag, "ahead", late=0.1, ahead=40.0, at=AT + second)
        beats(lag, "behind", late=0.1, ahead=-40.0, at=AT + second)

    assert lag.seconds(AT + 10) == 0.0


def test_events_that_all_come_later_than_at_best_are_late_by_the_difference() -> None:
    lag = Lag()
    for node, ahead in (("a", 0.0), ("b", 100.0), ("c", -100.0)):
        beats(lag, node, late=0.5, ahead=ahead)
        beats(lag, node, late=30.5, ahead=ahead, at=AT + 60)

    assert lag.seconds(AT + 61) == 30.0


def test_one_node_that_is_late_or_has_just_come_does_not_count_for_all() -> None:
    lag = Lag()
    for node in ("a", "b", "c"):
        beats(lag, node, late=0.0)
    beats(lag, "a", late=50.0, at=AT + 1)
    only_one = lag.seconds(AT + 1)

    beats(lag, "b", late=20.0, at=AT + 2)
    beats(lag, "c", late=20.0, at=AT + 2)
    beats(lag, "new", late=20.0, at=AT + 2)

    assert only_one == 0.0
    assert lag.seconds(AT + 2) == 20.0


def test_nodes_that_fell_silent_say_nothing_of_now() -> None:
    lag = Lag()
    beats(lag, "a", late=0.0)
    beats(lag, "a", late=9.0, at=AT + 1)

    assert lag.seconds(AT + 60) == 9.0
    assert lag.seconds(AT + 62) is None


def test_a_clock_that_was_set_counts_for_an_hour_at_the_most() -> None:
    lag = Lag()
    beats(lag, "a", late=0.0)

    for minute in range(1, 62):
        beats(lag, "a", late=0.0, ahead=-25.0, at=AT + 60 * minute)
        if minute == 29:
            assert lag.seconds(AT + 60 * minute) == 25.0

    assert lag.seconds(AT + 60 * 61) == 0.0


def test_our_own_clock_may_be_set_back() -> None:
    lag = Lag()
    beats(lag, "a", late=0.0)

    beats(lag, "a", late=-5000.0, at=AT - 5000)
    beats(lag, "a", late=-4990.0, at=AT - 4990)

    assert lag.seconds(AT - 4990) == 10.0


def test_of_too_many_nodes_the_ones_heard_of_last_are_remembered() -> None:
    lag = Lag()
    beats(lag, "first", late=0.0)
    for number in range(MAX_NODES):
        beats(lag, f"n{number}", late=0.0)

    beats(lag, "first", late=60.0, at=AT + 1)

    assert len(lag._nodes) == MAX_NODES
    assert lag._nodes["first"].late == 0.0
