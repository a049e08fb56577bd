"""How results hang together, read and written."""

import json
from typing import Any

import pytest

from celeriac.model.result import ResultTree
from celeriac.wire.result_tree import MAX_NODES, MAX_TREE_DEPTH, read_trees, spell_tree

ONE = ResultTree("a")
CHAIN = ResultTree("c", ResultTree("b", ResultTree("a")))
GROUP = ResultTree("g", None, (ResultTree("x"), ResultTree("y")))
AFTER_GROUP = ResultTree("z", GROUP)
NESTED = ResultTree("o", CHAIN, (GROUP, AFTER_GROUP, ResultTree("e", None, ())))


def chain(length: int) -> ResultTree:
    tree = ResultTree("0")
    for number in range(1, length):
        tree = ResultTree(str(number), tree)
    return tree


def nest(levels: int) -> ResultTree:
    tree = ResultTree("0")
    for number in range(1, levels):
        tree = ResultTree(str(number), None, (tree,))
    return tree


def length_of(tree: ResultTree | None) -> int:
    length = 0
    while tree is not None:
        length, tree = length + 1, tree.parent
    return length


@pytest.mark.parametrize("tree", [ONE, CHAIN, GROUP, AFTER_GROUP, NESTED])
def test_what_is_written_is_what_is_read(tree: ResultTree) -> None:
    spelled = json.loads(json.dumps([spell_tree(tree)]))

    assert read_trees(spelled) == (tree,)


def test_the_lists_are_those_of_celery() -> None:
    assert spell_tree(ONE) == [["a", None], None]
    assert spell_tree(CHAIN) == [["c", [["b", [["a", None], None]], None]], None]
    assert spell_tree(GROUP) == [["g", None], [[["x", None], None], [["y", None], None]]]


@pytest.mark.parametrize(
    ("short", "tree"),
    [
        (["a", None], ONE),
        ("a", ONE),
        (["g", ["x", ["y", None]]], GROUP),
        ([["b", "a"], None], ResultTree("b", ONE)),
        ([["b", ["a", None]], None], ResultTree("b", ONE)),
        ([["a", ""], None], ONE),
        ([["a", []], None], ONE),
        ([[{"__type__": "uuid", "__value__": {"hex": "8acc1b1e000040008000000000000001"}}, None], None],
         ResultTree("8acc1b1e-0000-4000-8000-000000000001")),
    ],
)  # fmt: skip
def test_short_and_old_forms_are_read_too(short: object, tree: ResultTree) -> None:
    assert read_trees([short]) == (tree,)


@pytest.mark.parametrize(
    "value", [None, 7, "", [], [1], {}, {"a": 1}, [None, None], [[None, None], None], [["", None], None],
              [["a", None]], ["a", None, None], [["a", None, 1], None], [[["a"], None], None], True, 1.5],
)  # fmt: skip
def test_what_is_no_result_is_left_out(value: object) -> None:
    assert read_trees([value, ["a", None], value]) == (ONE,)


@pytest.mark.parametrize("parent", [7, True, {"a": 1}, [1], [None, None]])
def test_a_parent_that_makes_no_sense_counts_as_none(parent: object) -> None:
    assert read_trees([[["a", parent], None]]) == (ONE,)


@pytest.mark.parametrize("members", [7, "x", {"a": 1}, True])
def test_members_that_are_no_list_count_as_none(members: object) -> None:
    assert read_trees([[["a", None], members]]) == (ONE,)


@pytest.mark.parametrize("value", [None, 7, "a", {}, {"a": "b"}])
def test_children_that_are_no_list_count_as_none(value: object) -> None:
    assert read_trees(value) == ()


# -- limits


def test_a_chain_of_the_longest_length_is_read_whole() -> None:
    tree = chain(MAX_TREE_DEPTH)

    assert read_trees([spell_tree(tree)]) == (tree,)


def test_of_a_longer_chain_the_end_is_read() -> None:
    spelled: Any = None
    for number in range(1000):
        spelled = [[str(number), spelled], None]

    (tree,) = read_trees([spelled])

    assert tree.id == "999"
    assert length_of(tree) == MAX_TREE_DEPTH


def test_of_a_longer_chain_the_end_is_written() -> None:
    spelled = spell_tree(chain(1000))

    (tree,) = read_trees([json.loads(json.dumps(spelled))])

    assert tree.id == "999"
    assert length_of(tree) == MAX_TREE_DEPTH


def test_groups_in_groups_are_read_to_the_limit() -> None:
    spelled: Any = ["x", None]
    for number in range(1000):
        spelled = [str(number), [spelled]]

    (tree,) = read_trees([spelled])

    levels = 1
    while tree.members:
        levels, (tree,) = levels + 1, tree.members
    assert levels == MAX_TREE_DEPTH
    assert tree.members == ()


def test_groups_in_groups_are_written_to_the_limit() -> None:
    tree = nest(MAX_TREE_DEPTH)

    assert read_trees([spell_tree(tree)]) == (tree,)
    assert read_trees([spell_tree(nest(400))])


def test_no_more_results_are_read_than_the_limit() -> None:
    spelled = [["g", ["x"] * 60_000], ["h", ["y"] * 60_000], "z"]

    first, second = read_trees(spelled)

    assert len(first.members or ()) == 60_000
    assert len(second.members or ()) == MAX_NODES - 60_002
