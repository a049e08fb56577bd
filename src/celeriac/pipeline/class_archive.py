"""What Java has loaded once, kept: the next start of Spark takes a fraction of the time."""

import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from time import time
from typing import Final

from celeriac.pipeline.java import Java

__all__ = ["ClassArchive"]

#: Seconds after which nobody writes a draft any more.
_DRAFT_AGE: Final = 3600.0


class ClassArchive:
    """An archive of classes (AppCDS) for one Java and one Spark, made when the first session ends.

    A Java that cannot make or use one goes on without. Each process makes a draft of its own, and the
    name is given to what is whole.
    """

    def __init__(self, folder: Path, java: Java, spark: Path) -> None:
        jars = spark / "jars"
        # Java refuses an archive of other files than it was made of: then there must be another name.
        told = f"{java.home}\n{java.version}\n{jars}\n{_changed_at(jars)}"
        self.path = folder / f"classes-{sha256(told.encode()).hexdigest()[:16]}.jsa"
        self._draft = self.path.with_suffix(f".{os.getpid()}.draft")

    def options(self) -> list[str]:
        """Return what to tell Java: to use the archive, or to make it when it ends."""
        if self.path.is_file():
            return [f"-XX:SharedArchiveFile={self.path}", "-Xshare:auto"]
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError:
            return []
        self._sweep()
        return [f"-XX:ArchiveClassesAtExit={self._draft}"]

    def keep(self) -> None:
        """Give a draft its name, once the Java that made it has ended well."""
        with suppress(OSError):
            if not self._draft.stat().st_size:
                self.drop()
                return
            self._draft.replace(self.path)

    def drop(self) -> None:
        """Remove a draft, of a Java that did not end well."""
        with suppress(OSError):
            self._draft.unlink(missing_ok=True)

    def _sweep(self) -> None:
        """Remove the drafts that killed processes left."""
        for draft in self.path.parent.glob("classes-*.draft"):
            with suppress(OSError):
                if time() - draft.stat().st_mtime > _DRAFT_AGE:
                    draft.unlink()


def _changed_at(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0
