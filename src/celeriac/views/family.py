"""A task among its relatives, as a tree: those above it, beside it, and two levels below it.

Who looks for more finds it at the workflow: a tree is at most some hundred rows, and each row says how many
of the tasks that it sent are not among them.
"""

from collections import Counter, defaultdict
from heapq import nsmallest
from typing import Final, NamedTuple, Protocol

from celeriac.core.task import Task
from celeriac.model.answer import WorkflowStory
from celeriac.node.state import State
from celeriac.views.text import visible

__all__ = ["Family", "FamilyRow", "live_family", "more_text", "story_family"]

#: Tasks above it: a chain may have a thousand.
_MOST_ABOVE: Final = 30
_MOST_BESIDE: Final = 20
_MOST_BELOW: Final = 100
#: Below each of those below it, and below all of them.
_MOST_EACH: Final = 10
_MOST_GRANDCHILDREN: Final = 200
_NAME_CHARS: Final = 120


class FamilyRow(NamedTuple):
    """A related task, or the task itself; its descendants follow it."""

    uuid: str
    #: The id itself, which may not be safe to show.
    key: str
    name: str | None
    #: None if it is not known any more.
    state: str | None
    #: How many rows are above it.
    depth: int
    #: What it is to the task: ``ancestor``, ``parent``, ``self``, ``sibling``, ``child`` or ``grandchild``.
    kin: str
    #: How many tasks it sent that have no row.
    more: int


class Family(NamedTuple):
    """A task and its related tasks, in the order of their tree."""

    rows: list[FamilyRow]
    #: Whether there are tasks above the first row that have none.
    is_cut_above: bool
    #: Whether not all tasks were looked at, so that relatives may be missing without being counted.
    is_partial: bool = False

    @property
    def notes(self) -> list[str]:
        """What is missing, each in a sentence."""
        told = {
            "More ancestors exist. Open the workflow to see them.": self.is_cut_above,
            "The workflow is large, so some related tasks may be missing.": self.is_partial,
        }
        return [note for note, is_so in told.items() if is_so]


class _Kin(Protocol):
    """Who knows who sent whom."""

    def parent(self, uuid: str) -> str | None: ...

    def children(self, uuid: str, most: int) -> list[str]:
        """Return the first that a task sent."""

    def count(self, uuid: str) -> int:
        """Return how many it sent."""

    def told(self, uuid: str) -> tuple[str | None, str | None]:
        """Return the name and the state of a task."""


def live_family(state: State, uuid: str) -> Family:
    """Return the relatives of a task that are in memory."""
    return _family(_LiveKin(state), uuid)


def story_family(story: WorkflowStory, uuid: str) -> Family:
    """Return the relatives of a task from the workflow that it is of."""
    return _family(_StoryKin(story), uuid)._replace(is_partial=story.is_cut)


def more_text(row: FamilyRow) -> str:
    """Return how many tasks that one sent have no row; nothing for none."""
    return f"sent {row.more:,} more, not shown" if row.more else ""


class _LiveKin:
    def __init__(self, state: State) -> None:
        self._state = state

    def parent(self, uuid: str) -> str | None:
        task: Task | None = self._state.tasks.get(uuid)
        return None if task is None else task.parent_link

    def children(self, uuid: str, most: int) -> list[str]:
        # Not by when they were heard of last: rows would change their places all the time.
        first = nsmallest(most, self._state.children_of(uuid), key=_first_told)
        return [each.uuid for each in first]

    def count(self, uuid: str) -> int:
        return self._state.count_children(uuid)

    def told(self, uuid: str) -> tuple[str | None, str | None]:
        task: Task | None = self._state.tasks.get(uuid)
        return (None, None) if task is None else (task.name, task.state)


class _StoryKin:
    def __init__(self, story: WorkflowStory) -> None:
        self._tasks = {each.uuid: each for each in story.tasks}
        self._below: dict[str, list[str]] = defaultdict(list)
        for each in story.tasks:
            if each.parent_id is not None and each.parent_id != each.uuid:
                self._below[each.parent_id].append(each.uuid)

    def parent(self, uuid: str) -> str | None:
        known = self._tasks.get(uuid)
        return None if known is None else known.parent_id

    def children(self, uuid: str, most: int) -> list[str]:
        return self._below.get(uuid, [])[:most]

    def count(self, uuid: str) -> int:
        return len(self._below.get(uuid, ()))

    def told(self, uuid: str) -> tuple[str | None, str | None]:
        known = self._tasks.get(uuid)
        return (None, None) if known is None else (known.name, known.state)


def _first_told(task: Task) -> tuple[float, str]:
    return (task.history[0].timestamp if task.history else 0.0, task.uuid)


def _family(kin: _Kin, uuid: str) -> Family:
    above, is_cut_above = _above(kin, uuid)
    placed = [(each, depth, "ancestor") for depth, each in enumerate(above[:-1])]
    placed += [(each, len(above) - 1, "parent") for each in above[-1:]]
    beside = kin.children(above[-1], _MOST_BESIDE) if above else []
    if uuid not in beside:
        beside.append(uuid)
    # Nobody is told twice, should the line go in a circle.
    seen = {*above, *beside}
    for each in beside:
        if each == uuid:
            placed.append((uuid, len(above), "self"))
            placed += _below(kin, uuid, len(above), seen)
        elif each not in above:
            placed.append((each, len(above), "sibling"))
    shown = Counter(kin.parent(each) for each, _, _ in placed)
    rows = [_row(kin, *each, more=max(kin.count(each[0]) - shown[each[0]], 0)) for each in placed]
    return Family(rows, is_cut_above)


def _above(kin: _Kin, uuid: str) -> tuple[list[str], bool]:
    """Return the line that leads to a task, from the top, and whether it begins further up."""
    line: list[str] = []
    at = kin.parent(uuid)
    while at is not None and at != uuid and at not in line:
        if len(line) == _MOST_ABOVE:
            return line[::-1], True
        line.append(at)
        at = kin.parent(at)
    return line[::-1], False


def _below(kin: _Kin, uuid: str, depth: int, seen: set[str]) -> list[tuple[str, int, str]]:
    """Return what a task sent, and what these sent."""
    children = [each for each in kin.children(uuid, _MOST_BELOW) if each not in seen]
    seen.update(children)
    placed: list[tuple[str, int, str]] = []
    room = _MOST_GRANDCHILDREN
    for child in children:
        placed.append((child, depth + 1, "child"))
        below = [each for each in kin.children(child, min(_MOST_EACH, room)) if each not in seen]
        seen.update(below)
        room -= len(below)
        placed += [(each, depth + 2, "grandchild") for each in below]
    return placed


def _row(kin: _Kin, uuid: str, depth: int, is_its: str, *, more: int) -> FamilyRow:
    name, state = kin.told(uuid)
    return FamilyRow(
        uuid=visible(uuid, _NAME_CHARS),
        key=uuid,
        name=None if name is None else visible(name, _NAME_CHARS),
        state=None if state is None else visible(state, 40),
        depth=depth,
        kin=is_its,
        more=more,
    )
