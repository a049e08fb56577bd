from celeriac.core.workflow import Node, critical_path, in_tree_order


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
