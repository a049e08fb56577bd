"""How results hang together, in the lists that Celery writes: ``[[id, parent], null or members]``."""

from typing import Final
from uuid import UUID

from celeriac.model.result import ResultTree
from celeriac.wire.value import mend_text, revive

__all__ = ["MAX_NODES", "MAX_TREE_DEPTH", "read_trees", "spell_tree"]

#: Parents and groups inside one another. A task that starts a chain stores all of it as parents of
#: the last one; who wants more than this of it asks those for theirs. Two levels of JSON each, so
#: that Python's own reader (1,000 levels) still takes it.
MAX_TREE_DEPTH: Final = 200
#: Of one result: a few large groups, in some 20 MB of memory.
MAX_NODES: Final = 100_000


class _Reader:
    """Reads the trees of one result, and cuts off what is beyond the limits or makes no sense."""

    def __init__(self) -> None:
        self.nodes_left = MAX_NODES

    def read(self, value: object, depth: int) -> ResultTree | None:
        """Return one tree; None for what is none."""
        line: list[tuple[str, object]] = []
        while value and depth + len(line) < MAX_TREE_DEPTH and self.nodes_left > 0:
            node = _split(value)
            if node is None:
                break
            name, value, members = node
            line.append((name, members))
            self.nodes_left -= 1
        tree = None
        for place in range(len(line) - 1, -1, -1):
            name, members = line[place]
            tree = ResultTree(name, tree, self.read_all(members, depth + place + 1))
        return tree

    def read_all(self, values: object, depth: int) -> tuple[ResultTree, ...] | None:
        """Return the trees in a list; None for what is no list."""
        if not isinstance(values, list):
            return None
        trees: list[ResultTree] = []
        for value in values:
            tree = self.read(value, depth)
            if tree is not None:
                trees.append(tree)
        return tuple(trees)


def _split(value: object) -> tuple[str, object, object] | None:
    """Return the id, the parent and the members that a list spells; None if it is no result."""
    members = None
    if isinstance(value, list):
        if len(value) != 2:
            return None
        value, members = value
    # Celery: an id without a parent may stand alone.
    parent = None
    if isinstance(value, list):
        if len(value) != 2:
            return None
        value, parent = value
    if isinstance(value, dict):  # Celery 5.7 takes a UUID for an id, and leaves it one here
        value = revive(value)
    if isinstance(value, UUID):
        value = str(value)
    return (mend_text(value), parent, members) if isinstance(value, str) and value else None


def read_trees(value: object) -> tuple[ResultTree, ...]:
    """Return the results in a decoded list; what is none of them is left out."""
    return _Reader().read_all(value, 0) or ()


def spell_tree(tree: ResultTree) -> list[object]:
    """Return a result as Celery writes it, parents and groups up to :data:`MAX_TREE_DEPTH`."""
    return _spell(tree, 0)


def _spell(tree: ResultTree, depth: int) -> list[object]:
    line: list[ResultTree] = []
    parent: ResultTree | None = tree
    while parent is not None and depth + len(line) < MAX_TREE_DEPTH:
        line.append(parent)
        parent = parent.parent
    spelled: list[object] | None = None
    for place in range(len(line) - 1, -1, -1):
        node, below = line[place], depth + place + 1
        members: list[object] | None = None
        if node.members is not None:
            members = [_spell(each, below) for each in node.members] if below < MAX_TREE_DEPTH else []
        spelled = [[node.id, spelled], members]
    return spelled or []
