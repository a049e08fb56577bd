"""The tasks that one task brought about: in the order of a tree, how they were sent, and who ended last.

Events say who sent a task, and nothing of chains, groups and chords. What can be told without that:

- The only task that another sent is a link of a *chain*; several are a *group*. Whether Celery made them so
  or the task sent them one by one cannot be told.
- The *body* of a chord is sent by the member of its header that returned last, so it looks like a child of
  that one alone. A task is held for a body if all members of a group have returned, one of them sent it and
  no other sent anything, and all others had ended when it began. A link of a chain looks the same where its
  parent happened to return last: a body is inferred, and has to be shown so.

"Had ended" is by timestamp, as in :mod:`celeriac.core.order`: what passes from the header to the body passes
through the result backend, which carries no Lamport clock. The sender's own end is not looked at, as workers
tell of it after they have sent the body.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Final, Literal, NamedTuple

__all__ = ["Kind", "Node", "Shape", "critical_path", "in_tree_order", "shapes"]

Kind = Literal["chain", "group", "body"]


class Node(NamedTuple):
    """A task of a workflow."""

    #: Who sent it, if that is known.
    parent_id: str | None
    ended_at: float | None = None
    #: When it was last heard of.
    last_at: float | None = None
    #: When it first began to run; where nobody said so, when it was first heard of.
    began_at: float | None = None
    #: Whether it succeeded.
    has_returned: bool = False


class Shape(NamedTuple):
    """How a task was sent, as far as that can be told."""

    kind: Kind
    #: The number of the group that it is one of.
    group: int | None = None
    #: The number of the group that it waited for, if it is held for the body of a chord.
    waits_for: int | None = None


_NO_SHAPES: Final[Mapping[str, Shape]] = {}


def in_tree_order(nodes: Mapping[str, Node], root: str) -> Iterator[tuple[str, int]]:
    """Yield each id, and how many are above it, so that those below one follow it in the order given.

    One whose parent is unknown stands below the first. What stands in a circle is told last, at the top.
    """
    below: dict[str | None, list[str]] = defaultdict(list)
    for uuid in nodes:
        below[_above(uuid, nodes, root)].append(uuid)
    told: set[str] = set()
    for start in (*below[None], *nodes):
        waiting = [(start, 0)]
        while waiting:
            uuid, depth = waiting.pop()
            if uuid not in told:
                told.add(uuid)
                yield uuid, depth
                waiting += [(each, depth + 1) for each in reversed(below.get(uuid, []))]


def shapes(nodes: Mapping[str, Node], root: str) -> dict[str, Shape]:
    """Return how each task was sent whose parent is there; ``nodes`` are to be all tasks of the workflow."""
    below: dict[str, list[str]] = defaultdict(list)
    for uuid, node in nodes.items():
        if uuid != root and node.parent_id in nodes and node.parent_id != uuid:
            below[node.parent_id].append(uuid)  # type: ignore[index]  # None is no id
    found: dict[str, Shape] = {}
    waits: dict[str, int] = {}
    numbers = count(1)
    # From the top: what a task sent as bodies is known before it is asked what else it sent.
    for uuid, _ in in_tree_order(nodes, root):
        plain = [each for each in below.get(uuid, ()) if each not in waits]
        bodies = [each for each in below.get(uuid, ()) if each in waits]
        for members in (plain, bodies):
            number = next(numbers) if len(members) > 1 else None
            kind: Kind = "body" if members is bodies else "chain" if number is None else "group"
            found |= {each: Shape(kind, number, waits.get(each)) for each in members}
            if number is not None:
                waits |= dict.fromkeys(_bodies(members, nodes, below), number)
    return found


def _bodies(
    members: Sequence[str], nodes: Mapping[str, Node], below: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return the tasks that began when all members of a group had returned, if one of these sent them."""
    senders = [each for each in members if each in below]
    if len(senders) != 1 or not all(nodes[each].has_returned for each in members):
        return []
    ends = [nodes[each].ended_at for each in members if each not in senders]
    if None in ends:
        return []
    ended_at = max(map(_or_never, ends))
    return [each for each in below[senders[0]] if _or_never(nodes[each].began_at) >= ended_at]


def critical_path(
    nodes: Mapping[str, Node], root: str, found: Mapping[str, Shape] = _NO_SHAPES
) -> tuple[str, ...]:
    """Return the line from the first task to the one that ended last; where none has, to that heard of last.

    Above the body of a chord, by its shape, is the member of the header that ended last. A line that meets
    itself ends there.
    """
    if not nodes:
        return ()

    def end(uuid: str) -> tuple[float, float, str]:
        return _or_never(nodes[uuid].ended_at), _or_never(nodes[uuid].last_at), uuid

    groups: dict[int, list[str]] = defaultdict(list)
    for uuid, shape in found.items():
        if shape.group is not None:
            groups[shape.group].append(uuid)
    path: dict[str, None] = {}
    at: str | None = max(nodes, key=end)
    while at is not None and at not in path:
        path[at] = None
        waits_for = found[at].waits_for if at in found else None
        at = _above(at, nodes, root) if waits_for is None else max(groups[waits_for], key=end)
    return tuple(reversed(path))


def _above(uuid: str, nodes: Mapping[str, Node], root: str) -> str | None:
    """Return the task that one hangs under; the first hangs under none, whatever it says."""
    if uuid == root:
        return None
    parent = nodes[uuid].parent_id
    if parent is not None and parent in nodes and parent != uuid:
        return parent
    return root if root in nodes else None


def _or_never(at: float | None) -> float:
    return float("-inf") if at is None else at
