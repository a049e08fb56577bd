"""Steps start in the order of their needs, stop in reverse, and restart with what they require."""

import pytest

from celeriac.errors import CallerError, ConnectionLost
from celeriac.worker.graph import Graph, Step


def make(
    name: str,
    log: list[str],
    *,
    requires: tuple[str, ...] = (),
    after: tuple[str, ...] = (),
    is_enabled: bool = True,
    fails: int = 0,
) -> Step:
    """Return a step that writes down what it is told, and fails a number of times."""
    failures = [None] * fails

    class Noting(Step):
        def start(self) -> None:
            log.append(f"start {name}")
            if failures:
                failures.pop()
                raise ConnectionLost("away")

        def stop(self) -> None:
            log.append(f"stop {name}")

    step = Noting()
    step.name = name  # type: ignore[misc]
    step.requires, step.after = requires, after  # type: ignore[misc]
    step.is_enabled = is_enabled
    return step


def test_steps_start_after_what_they_need_and_stop_in_reverse() -> None:
    log: list[str] = []
    graph = Graph([make("c", log, requires=("b",)), make("a", log), make("b", log, after=("a",))])

    graph.start()
    graph.stop()

    assert log == ["start a", "start b", "start c", "stop c", "stop b", "stop a"]


def test_where_needs_leave_a_choice_the_given_order_holds() -> None:
    graph = Graph([make("b", []), make("a", []), make("c", [])])

    names = [step.name for step in graph]

    assert names == ["b", "a", "c"]


def test_a_restart_takes_those_along_that_require_it_and_no_others() -> None:
    log: list[str] = []
    steps = [
        make("link", log),
        make("gossip", log, requires=("link",)),
        make("control", log, requires=("gossip",)),
        make("tasks", log, after=("link",)),
    ]
    graph = Graph(steps)
    graph.start()
    log.clear()

    graph.restart("link")

    assert log == ["stop control", "stop gossip", "stop link", "start link", "start gossip", "start control"]


def test_a_restart_that_failed_can_be_tried_again() -> None:
    log: list[str] = []
    graph = Graph([make("link", log), make("gossip", log, requires=("link",), fails=2)])
    with pytest.raises(ConnectionLost):
        graph.start()
    log.clear()

    with pytest.raises(ConnectionLost):
        graph.restart("link")
    graph.restart("link")

    assert log == [
        *("start link", "start gossip", "stop gossip", "stop link"),
        *("start link", "start gossip"),
    ]


def test_when_a_start_fails_what_had_started_is_stopped() -> None:
    log: list[str] = []
    graph = Graph([make("a", log), make("b", log, fails=1), make("c", log)])

    with pytest.raises(ConnectionLost):
        graph.start()

    assert log == ["start a", "start b", "stop b", "stop a"]


def test_a_step_that_is_off_keeps_its_place_and_does_nothing() -> None:
    log: list[str] = []
    graph = Graph([make("mingle", log, is_enabled=False), make("gossip", log, requires=("mingle",))])

    graph.start()
    graph.stop()

    assert log == ["start gossip", "stop gossip"]


def test_a_circle_is_named() -> None:
    steps = [make("a", [], requires=("b",)), make("b", [], after=("c",)), make("c", [], requires=("a",))]

    with pytest.raises(CallerError, match="circular dependency between steps: a → b → c → a"):
        Graph(steps)


def test_a_need_that_is_not_there_is_named() -> None:
    with pytest.raises(CallerError, match="step 'gossip' needs step 'mingle', which is missing: add it, or"):
        Graph([make("gossip", [], requires=("mingle",))])


def test_two_steps_of_one_name_are_refused() -> None:
    with pytest.raises(CallerError, match="two steps are named a"):
        Graph([make("a", []), make("a", [])])


def test_the_text_tells_order_needs_and_what_is_off() -> None:
    steps = [
        make("control", [], requires=("link",), after=("tasks",)),
        make("tasks", [], is_enabled=False),
        make("link", []),
    ]

    text = Graph(steps).text()

    assert text.splitlines() == [
        "1. tasks    off",
        "2. link",
        "3. control  requires link; after tasks",
    ]
