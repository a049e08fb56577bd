import pytest

from celeriac.core.workflow import Node, Shape, critical_path, in_tree_order, shapes


def test_those_below_a_task_follow_it_in_the_order_given() -> None:
    nodes = {"root": Node(None), "a": Node("root"), "b": Node("root"), "a1": Node("a"), "b1": Node("b")}

    assert list(in_tree_order(nodes, "root")) == [("root", 0), ("a", 1), ("a1", 2), ("b", 1), ("b1", 2)]


def test_one_whose_parent_is_unknown_stands_below_the_first_and_a_circle_at_the_top() -> None:
    nodes = {"root": Node("x"), "a": Node("gone"), "b": Node("c"), "c": Node("b"), "d": Node("d")}

    assert list(in_tree_order(nodes, "root")) == [("root", 0), ("a", 1), ("d", 1), ("b", 0), ("c", 1)]


def test_without_the_first_task_all_stand_at_the_top() -> None:
    assert list(in_tree_order({"a": Node("gone"), "b": Node("a")}, "root")) == [("a", 0), ("b", 1)]


def test_the_critical_path_leads_to_the_task_that_ended_last() -> None:
    nodes = {
        "root": Node(None, 1.0, 1.0),
        "quick": Node("root", 2.0, 9.0),
        "slow": Node("root", 5.0, 5.0),
        "open": Node("root", None, 99.0),
        "last": Node("slow", 7.0, 7.0),
    }

    assert critical_path(nodes, "root") == ("root", "slow", "last")
    assert critical_path({}, "root") == ()


def test_where_none_has_ended_it_leads_to_the_one_heard_of_last_and_a_circle_ends_it() -> None:
    nodes = {"root": Node(None), "a": Node("b", None, 2.0), "b": Node("a", None, 1.0)}

    assert critical_path(nodes, "root") == ("b", "a")


# -- chains, groups and chords


def ran(parent: str | None, begin: float, end: float | None, *, has_returned: bool = True) -> Node:
    return Node(parent, end, end or begin, begin, has_returned and end is not None)


def chord(**changed: Node) -> dict[str, Node]:
    """Return a task that sent a header of three, whose last member to return sent the body."""
    nodes = {
        "root": ran(None, 0, 1),
        "a": ran("root", 1, 4),
        "b": ran("root", 1, 3),
        "c": ran("root", 2, 5.1),
        # Workers tell of the end of a member after they have sent the body.
        "body": ran("c", 5, 6),
    }
    return nodes | changed


def test_the_body_of_a_chord_waited_for_all_of_its_header() -> None:
    assert shapes(chord(), "root") == {
        "a": Shape("group", 1),
        "b": Shape("group", 1),
        "c": Shape("group", 1),
        "body": Shape("body", None, 1),
    }


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"a": ran("root", 1, 5.5)}, id="a member ended later"),
        pytest.param({"a": ran("root", 1, None)}, id="a member has not ended"),
        pytest.param({"a": ran("root", 1, 4, has_returned=False)}, id="a member failed"),
        pytest.param({"c": ran("root", 1, 5.1, has_returned=False)}, id="its sender failed"),
        pytest.param({"other": ran("a", 4, 9)}, id="another member sent something too"),
        pytest.param({"body": Node("c")}, id="nobody knows when it began"),
        pytest.param({"a": Node("root", None, 4, 1, True)}, id="nobody knows when a member ended"),
    ],
)
def test_what_need_not_have_waited_is_a_link_of_a_chain(changed: dict[str, Node]) -> None:
    assert shapes(chord(**changed), "root")["body"] == Shape("chain")


def test_a_header_of_one_is_a_chain() -> None:
    nodes = {"root": ran(None, 0, 1), "a": ran("root", 1, 2), "b": ran("a", 2, 3)}

    assert shapes(nodes, "root") == {"a": Shape("chain"), "b": Shape("chain")}


def test_a_body_that_is_a_group_is_the_header_of_the_next() -> None:
    nodes = chord(body2=ran("c", 5, 7), last=ran("body2", 7, 8))

    found = shapes(nodes, "root")

    assert found["body"] == found["body2"] == Shape("body", 2, 1)
    assert found["last"] == Shape("body", None, 2)
    assert critical_path(nodes, "root", found) == ("root", "c", "body2", "last")


def test_what_a_member_sent_while_it_ran_is_no_part_of_the_body() -> None:
    nodes = chord(early=ran("c", 2.5, 3.5), late=ran("c", 2.6, 9))

    found = shapes(nodes, "root")

    assert (found["early"], found["late"]) == (Shape("group", 2), Shape("group", 2))
    assert found["body"] == Shape("body", None, 1)


def test_of_a_task_whose_parent_is_unknown_nothing_is_said() -> None:
    nodes = chord(lost=ran("gone", 1, 2), found=ran("gone", 1, 2))

    assert not {"root", "lost", "found"} & set(shapes(nodes, "root"))


def test_the_critical_path_leads_through_the_member_that_ended_last_whoever_sent_the_body() -> None:
    nodes = chord(c=ran("root", 2, 3.9))
    found = shapes(nodes, "root")

    assert critical_path(nodes, "root", found) == ("root", "a", "body")
    assert critical_path(nodes, "root") == ("root", "c", "body")
