"""How much of a disk a log takes, asked for again and again."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["DiskUse"]

#: Files that grow where they are; all others are there whole, or not at all.
_GROWING: Final = ".wal"


class _Folder(NamedTuple):
    changed_at: int
    size: int
    inner: list[str]
    is_growing: bool


class DiskUse:
    """The bytes of all files under a folder; of those in it that did not change none is looked at again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, _Folder] = {}

    def measure(self) -> int:
        """Return the bytes; 0 if there is no such folder."""
        return sum(self._sizes(str(self._folder)))

    def _sizes(self, path: str) -> Iterator[int]:
        try:
            changed_at = Path(path).stat().st_mtime_ns
            known = self._known.get(path)
            if known is None or known.is_growing or known.changed_at != changed_at:
                self._known[path] = known = _look(path, changed_at)
        except OSError:  # it was removed meanwhile
            self._known.pop(path, None)
            return
        yield known.size
        for inner in known.inner:
            yield from self._sizes(inner)


def _look(path: str, changed_at: int) -> _Folder:
    size, inner, is_growing = 0, [], False
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                inner.append(entry.path)
            else:
                size += entry.stat(follow_symlinks=False).st_size
                is_growing = is_growing or entry.name.endswith(_GROWING)
    return _Folder(changed_at, size, inner, is_growing)
