"""Where the tasks of a workflow stand in its graph."""

from celeriac.model.answer import WorkflowTask
from celeriac.web.pages.graph import MOST_NODES, Place, drawn_of, joins, places


def told(*depths: int, critical: frozenset[int] = frozenset()) -> list[WorkflowTask]:
    """Return tasks in the order of their tree, of these depths."""
    return [
        WorkflowTask(f"t{number}", None, None, None, None, depth, None, None, None, number in critical)
        for number, depth in enumerate(depths)
    ]


def test_each_stands_at_the_middle_of_those_below_it() -> None:
    assert places(told(0, 1, 2, 2, 1)) == [
        Place(0, 1.25, None),
        Place(1, 0.5, 0),
        Place(2, 0.0, 1),
        Place(2, 1.0, 1),
        Place(1, 2.0, 0),
    ]


def test_what_stands_in_a_circle_has_a_place_of_its_own() -> None:
    assert [place.above for place in places(told(0, 1, 0, 1))] == [None, 0, None, 2]
    assert places([]) == []


def test_of_too_many_those_of_the_critical_path_are_drawn() -> None:
    many = told(0, *([1] * 1000), critical=frozenset({0, 999}))

    drawn = drawn_of(many)

    assert len(drawn) == MOST_NODES
    assert [each.uuid for each in drawn if each.is_critical] == ["t0", "t999"]
    assert len(drawn_of(told(*range(1000), critical=frozenset(range(1000))))) == MOST_NODES


def test_lines_lead_to_a_body_from_all_it_waited_for_but_for_its_sender() -> None:
    root, *members, body, link = told(0, 1, 1, 1, 2, 3)
    members = [each._replace(kind="group", group=1, parent_id=root.uuid) for each in members]
    body = body._replace(kind="body", waits_for=1, parent_id=members[2].uuid)

    assert list(joins([root, *members, body, link])) == [(1, 4), (2, 4)]
    # Of a workflow that is drawn in part, from those that are there.
    assert list(joins([root, members[0], body])) == [(1, 2)]
    assert list(joins([root, body])) == []
