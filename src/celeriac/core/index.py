"""Which tasks share a name, a worker or a parent."""

__all__ = ["Index"]


class Index(dict[str, set[str]]):
    """Task ids under a key. A key without ids is gone, so it grows with the tasks alone."""

    def move(self, task_id: str, *, old: str | None, new: str | None) -> None:
        """Take an id from one key to another; None is no key."""
        if old == new:
            return
        if old is not None and (ids := self.get(old)) is not None:
            ids.discard(task_id)
            if not ids:
                del self[old]
        if new is not None:
            ids = self.get(new)
            if ids is None:
                self[new] = {task_id}
            else:
                ids.add(task_id)
