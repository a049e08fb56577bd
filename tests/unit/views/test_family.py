"""A task among its relatives: bounded, each told once, and what is left out is counted."""

from celeriac.model.answer import WorkflowStory, WorkflowTask
from celeriac.node.state import State
from celeriac.views.family import Family, live_family, more_text, story_family
from celeriac.views.task import task_detail
from tests.builders import AT, task


def state_of(parents: dict[str, str | None]) -> State:
    """Return a state with tasks and who sent them, in the order in which they were heard of."""
    state = State()
    for number, (uuid, parent) in enumerate(parents.items()):
        state.event(task("received", uuid, name="shop.pay", parent_id=parent, timestamp=AT + number))
    return state


def story_of(parents: dict[str, str | None], *, is_cut: bool = False) -> WorkflowStory:
    """Return the same as the tables tell it."""
    tasks = [
        WorkflowTask(uuid, "shop.pay", "RECEIVED", None, parent, 0, None, None, None, False)
        for uuid, parent in parents.items()
    ]
    return WorkflowStory("root", None, tasks, len(tasks), 0, 0, len(tasks), None, None, None, None, is_cut)


def told(family: Family) -> list[tuple[str, str, int, int]]:
    return [(row.uuid, row.kin, row.depth, row.more) for row in family.rows]


PARENTS: dict[str, str | None] = {
    "root": None,
    "parent": "root",
    "uncle": "root",
    "first": "parent",
    "me": "parent",
    "last": "parent",
    "child": "me",
    "grandchild": "child",
    "beyond": "grandchild",
    "nephew": "first",
}
TREE = [
    ("root", "ancestor", 0, 1),
    ("parent", "parent", 1, 0),
    ("first", "sibling", 2, 1),
    ("me", "self", 2, 0),
    ("child", "child", 3, 0),
    ("grandchild", "grandchild", 4, 1),
    ("last", "sibling", 2, 0),
]


def test_those_above_beside_and_below_are_told_as_a_tree_and_the_others_counted() -> None:
    family = live_family(state_of(PARENTS), "me")

    assert told(family) == TREE
    assert {(row.name, row.state) for row in family.rows} == {("shop.pay", "RECEIVED")}
    assert [more_text(row) for row in family.rows[:2]] == ["sent 1 more, not shown", ""]
    assert family.notes == []


def test_the_tables_tell_the_same_tree() -> None:
    family = story_family(story_of(PARENTS), "me")

    assert told(family) == TREE
    assert family.notes == []


def test_a_parent_that_is_gone_still_has_its_children() -> None:
    family = live_family(state_of({"me": "gone", "other": "gone"}), "me")

    assert told(family) == [("gone", "parent", 0, 0), ("me", "self", 1, 0), ("other", "sibling", 1, 0)]
    assert (family.rows[0].name, family.rows[0].state) == (None, None)


def test_of_a_large_family_the_first_are_told_and_all_others_counted() -> None:
    parents: dict[str, str | None] = {"root": None}
    parents |= {f"s{number:04}": "root" for number in range(600)}
    parents["me"] = "root"
    parents |= {f"c{number:04}": "me" for number in range(600)}
    parents |= {f"g{number:04}": f"c{number % 50:04}" for number in range(600)}
    state = state_of(parents)

    family = live_family(state, "me")
    detail = task_detail(state, "me")

    assert len(family.rows) == 1 + 20 + 1 + 100 + 200
    assert [(row.uuid, row.more) for row in family.rows if row.kin in ("parent", "self")] == [
        ("root", 580),
        ("me", 500),
    ]
    assert sum(row.more for row in family.rows if row.kin == "child") == 600 - 200
    assert detail is not None
    assert (len(detail.children), detail.more_children) == (500, 100)


def test_a_long_line_is_cut_at_the_top_and_says_so() -> None:
    parents: dict[str, str | None] = {"t0": None}
    parents |= {f"t{number}": f"t{number - 1}" for number in range(1, 50)}

    family = live_family(state_of(parents), "t40")

    assert [row.uuid for row in family.rows] == [f"t{number}" for number in range(10, 43)]
    assert family.is_cut_above
    assert "More ancestors" in family.notes[0]


def test_nobody_is_told_twice_however_they_sent_each_other() -> None:
    family = live_family(state_of({"a": "c", "b": "a", "c": "b", "d": "d"}), "a")

    assert told(family) == [("b", "ancestor", 0, 0), ("c", "parent", 1, 0), ("a", "self", 2, 0)]
    assert told(live_family(state_of({"d": "d"}), "d")) == [("d", "self", 0, 0)]


def test_what_was_not_looked_at_may_be_missing_and_that_is_said() -> None:
    family = story_family(story_of({"other": None}, is_cut=True), "me")

    assert told(family) == [("me", "self", 0, 0)]
    assert "may be missing" in family.notes[0]


def test_of_a_task_that_is_not_in_memory_nothing_is_told() -> None:
    assert task_detail(State(), "me") is None
