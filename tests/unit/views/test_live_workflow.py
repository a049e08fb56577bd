"""A workflow from what is in memory; one that is too large says so."""

import pytest

from celeriac.node.state import State
from celeriac.views import live_workflow as module
from celeriac.views.live_workflow import live_workflow
from celeriac.views.story import kind_texts, workflow_dict, workflow_lines, workflow_rows
from tests.builders import AT, task


def fan(width: int) -> State:
    """Return a state with a task that sent some others."""
    state = State()
    state.event(task("received", "root", name="shop.order"))
    for number in range(width):
        below = {"root_id": "root", "parent_id": "root"}
        state.event(task("received", f"t{number}", name="shop.pack", **below))
    return state


@pytest.mark.parametrize(("width", "is_cut"), [(3, False), (4, True)])
def test_one_with_more_tasks_than_are_followed_says_so(
    monkeypatch: pytest.MonkeyPatch, width: int, is_cut: bool
) -> None:
    monkeypatch.setattr(module, "_MOST", 4)

    story = live_workflow(fan(width), "root")

    assert story is not None
    assert (len(story.tasks), story.is_cut) == (4, is_cut)
    assert workflow_dict(story)["is_cut"] is is_cut
    assert dict(workflow_lines(story)).get("shown") == ("first 4" if is_cut else None)


def test_of_one_that_is_cut_no_critical_path_is_claimed_nor_what_rests_on_all_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = live_workflow(fan(4), "root")
    monkeypatch.setattr(module, "_MOST", 4)
    cut = live_workflow(fan(4), "root")

    assert whole is not None
    assert cut is not None
    assert (whole.makespan, len(whole.critical_path or ())) == (0.0, 2)
    assert (cut.critical_path, cut.critical_run, cut.makespan) == (None, None, None)
    assert not any(each.is_critical for each in cut.tasks)
    assert {*kind_texts(cut.tasks)} == {""}
    assert dict(workflow_lines(cut))["critical path"] == "not computed: too many tasks"


def chord() -> State:
    """Return a state with a task that sent a chord; of its header the second sent the body."""
    state = State()
    below = {"root_id": "root"}
    for uuid, parent, begin, end in (
        ("root", None, 0, 1),
        ("a", "root", 1, 3),
        ("b", "root", 1, 5),
        ("body", "b", 5, 6),
    ):
        told = {**below, "parent_id": parent, "name": f"shop.{uuid}"}
        state.event(task("received", uuid, timestamp=AT + begin, clock=3 * begin + 1, **told))
        state.event(task("started", uuid, timestamp=AT + begin + 0.1, clock=3 * begin + 2))
        state.event(task("succeeded", uuid, timestamp=AT + end, clock=3 * end, runtime=1.5))
    return state


def test_it_says_how_tasks_were_sent_and_that_a_body_is_inferred() -> None:
    story = live_workflow(chord(), "root")

    assert story is not None
    assert [(row.task.strip(), row.kind, row.critical) for row in workflow_rows(story)] == [
        ("shop.root", "", "*"),
        ("shop.a", "group of 2", ""),
        ("shop.b", "group of 2", "*"),
        ("shop.body", "chord body", "*"),
    ]
    assert dict(workflow_lines(story))["chord bodies"].startswith("1, inferred")
    told = workflow_dict(story)["tasks"]
    assert isinstance(told, list)
    assert [(each["kind"], each["group"], each["waits_for"]) for each in told] == [
        (None, None, None), ("group", 1, None), ("group", 1, None), ("body", None, 1),
    ]  # fmt: skip


def test_what_was_tried_twice_began_when_it_was_tried_first() -> None:
    state = chord()
    state.event(task("started", "body", timestamp=AT + 2, clock=5))

    story = live_workflow(state, "root")

    assert story is not None
    assert kind_texts(story.tasks)[-1] == "chain link"
