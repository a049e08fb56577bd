"""Where a log is kept: a folder of this machine, or an object store. Both promise the same."""

from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlsplit

from celeriac.errors import ImproperlyConfigured
from celeriac.masking import sanitize_url
from celeriac.store.disk import At, pass_by
from celeriac.store.local_place import LocalPlace
from celeriac.store.remote_place import RemotePlace

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Place", "place_for"]


class Place(Protocol):
    """Files under names such as ``events/date=2026-11-15/hour=01/….parquet``.

    A name is relative, and can never lead out of the place; one with a part that begins with a dot
    is refused. Whatever fails raises DiskError, whose ``errno`` is ENOENT where a file is missing.
    """

    @property
    def url(self) -> str:
        """Say where it is, to people: no secret is in it."""

    @property
    def is_local(self) -> bool:
        """Say whether it is a folder of this machine."""

    def names(self, under: str) -> list[str]:
        """Return the names of all files under a folder, sorted; none if it is not there."""

    def sizes(self, under: str) -> dict[str, int]:
        """Return the same names, in the same order, and the bytes of each."""

    def read(self, name: str) -> bytes:
        """Return all of a file."""

    def size(self, name: str) -> int:
        """Return the bytes of a file."""

    def write(self, name: str, content: "bytes | memoryview | pa.Buffer") -> None:
        """Make or replace a file. It is there whole or not at all, and on return it outlives a crash."""

    def remove(self, name: str) -> None:
        """Remove a file; one that is not there is fine."""

    def set_aside(self, name: str) -> str:
        """Move a file to ``damaged/``, where nothing is ever overwritten, and return its new name."""


def place_for(url: str | Path, *, at: At = pass_by) -> Place:
    """Return the place that a folder or a URL names; nothing is made before the first write.

    ``at`` is called at each point that a write passes, with ``before-write``, ``after-write``,
    ``before-fsync``, ``after-fsync``, ``before-rename`` and ``after-rename``; an object store has the
    first two. Raises ImproperlyConfigured for what cannot be a place, or if its driver is missing.
    """
    if isinstance(url, Path):
        return LocalPlace(url, at=at)
    if "://" not in url:
        return LocalPlace(_home_filled_in(url), at=at)
    if url.partition("://")[0].lower() not in ("file", "local"):
        return RemotePlace(url, at=at)
    told = urlsplit(url)
    if told.netloc not in ("", "localhost"):
        raise ImproperlyConfigured(
            f"{sanitize_url(url)} is on another machine: mount it, and give the folder; an absolute path "
            "follows three slashes, file:///srv/history"
        )
    return LocalPlace(Path(unquote(told.path)), at=at)


def _home_filled_in(url: str) -> Path:
    if not url:
        raise ImproperlyConfigured("log_url is empty: give a folder or a URL")
    try:
        return Path(url).expanduser()
    except RuntimeError as error:
        raise ImproperlyConfigured(f"cannot store a history in {url}: {error}") from None
