"""The tasks that one task brought about: in the order of a tree, and the line of them that ended last."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

__all__ = ["Node", "critical_path", "in_tree_order"]


class Node(NamedTuple):
    """A task of a workflow."""

    #: Who sent it, if that is known.
    parent_id: str | None
    ended_at: float | None = None
    #: When it was last heard of.
    last_at: float | None = None


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


def critical_path(nodes: Mapping[str, Node], root: str) -> tuple[str, ...]:
    """Return the line from the first task to the one that ended last; where none has, to that heard of last.

    A line that meets itself ends there.
    """
    if not nodes:
        return ()
    last = max(nodes, key=lambda uuid: (*map(_or_never, nodes[uuid][1:]), uuid))
    path: dict[str, None] = {}
    at: str | None = last
    while at is not None and at not in path:
        path[at] = None
        at = _above(at, nodes, root)
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
