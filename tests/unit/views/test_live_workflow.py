"""A workflow from what is in memory; one that is too large says so."""

import pytest

from celeriac.node.state import State
from celeriac.views import live_workflow as module
from celeriac.views.live_workflow import live_workflow
from celeriac.views.story import workflow_dict, workflow_lines
from tests.builders import task


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
    assert dict(workflow_lines(story)).get("shown") == ("4, as there are too many" if is_cut else None)
