"""An object store as the place of a log: whatever fsspec has a driver for."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from celeriac.errors import DiskError, ImproperlyConfigured
from celeriac.masking import sanitize_url
from celeriac.store.disk import At, failed, pass_by
from celeriac.store.local_place import DAMAGED, parts_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RemotePlace"]

#: Where a file that is being written can be seen half, or where nothing can be written at all.
_NOT_WHOLE: Final = frozenset(
    {"arrow_hdfs", "data", "ftp", "ftps", "git", "github", "hdfs", "http", "https", "jupyter", "libarchive",
     "sftp", "smb", "ssh", "tar", "webhdfs", "zip"}
)  # fmt: skip
_MASK: Final = "**"


class RemotePlace:
    """Objects under a prefix of a bucket. A put is whole or not at all, and is kept once it is answered.

    What others put there is seen at once: no listing is kept. Who we are is the business of the driver,
    which finds it in the environment; a secret in the URL is told to nobody else.
    """

    is_local = False

    def __init__(self, url: str, *, at: At = pass_by) -> None:
        self.url = sanitize_url(url)
        self._secrets = _secrets_of(url)
        self._at = at
        self._files, self._root = self._driver(url)

    def names(self, under: str) -> list[str]:
        """Return the names of all objects under a folder."""
        return list(self.sizes(under))

    def sizes(self, under: str) -> dict[str, int]:
        """Return the same names, and the bytes of each, by a single listing."""
        path = self._path(under) if under else self._root
        with self._told(under or ".", "listed"), suppress(FileNotFoundError):
            self._files.invalidate_cache()
            found = self._files.find(path, detail=True)
            root = f"{self._root.strip('/')}/".lstrip("/")
            named = ((full.strip("/"), about) for full, about in found.items())
            sizes = {
                full.removeprefix(root): about["size"]
                for full, about in named
                if full.startswith(root) and full != path.strip("/")
            }
            return dict(sorted(each for each in sizes.items() if not _is_hidden(each[0])))
        return {}

    def read(self, name: str) -> bytes:
        """Return all of an object."""
        path = self._path(name)
        with self._told(name, "read"):
            content: bytes = self._files.cat_file(path)
            return content

    def size(self, name: str) -> int:
        """Return the bytes of an object."""
        path = self._path(name)
        with self._told(name, "read"):
            self._files.invalidate_cache()
            about = self._files.info(path)
            if about["type"] != "file":
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            size: int = about["size"]
            return size

    def write(self, name: str, content: "bytes | memoryview | pa.Buffer") -> None:
        """Put an object, in the place of one that was there."""
        path = self._path(name)
        self._at("before-write")
        with self._told(name, "written"):
            # Drivers cut it into parts, which not all of them can do with another kind of buffer.
            self._files.pipe_file(path, bytes(content))
        self._at("after-write")

    def remove(self, name: str) -> None:
        """Remove an object; one that is not there is fine."""
        path = self._path(name)
        with self._told(name, "removed"), suppress(FileNotFoundError):
            self._files.rm_file(path)

    def set_aside(self, name: str) -> str:
        """Copy an object to ``damaged/``, and remove it; a number is added to a name that is taken there."""
        path = self._path(name)
        with self._told(name, "set aside"):
            self._files.invalidate_cache()
            for number in count():
                aside = f"{DAMAGED}/{name}" + (f".{number}" if number else "")
                if not self._files.exists(self._path(aside)):
                    break
            self._files.cp_file(path, self._path(aside))
            self._files.rm_file(path)
        return aside

    def _path(self, name: str) -> str:
        return f"{self._root}/{'/'.join(parts_of(name))}"

    def _driver(self, url: str) -> tuple[Any, str]:
        """Return the driver of a URL, and the path that it knows our place by."""
        scheme = url.partition("://")[0].lower()
        if "::" in url:
            raise ImproperlyConfigured(f"{self.url} has several locations: give only the last one")
        if scheme in _NOT_WHOLE:
            raise ImproperlyConfigured(
                f"{self.url} cannot store a history: {scheme} shows files that are half written. Use an "
                "object store, or mount it and give the folder"
            )
        try:
            # Heavy, and only for a log that is kept elsewhere.
            from fsspec.core import url_to_fs  # noqa: PLC0415
        except ImportError:
            raise ImproperlyConfigured(
                f"{self.url} needs fsspec: install celeriac[history], or use a folder"
            ) from None
        try:
            files, root = url_to_fs(url, use_listings_cache=False)
        except ImportError as error:
            raise ImproperlyConfigured(
                f"{self.url} needs an fsspec driver that is not installed: {self._masked(error)}"
            ) from None
        # Each driver has its own, and none of them is ours to know.
        except Exception as error:  # noqa: BLE001
            raise ImproperlyConfigured(
                f"cannot store a history in {self.url}: {self._masked(error)}; use a folder, or a URL that "
                "fsspec supports, such as s3://bucket/history"
            ) from None
        if scheme != "memory" and not root.strip("/"):
            raise ImproperlyConfigured(f"{self.url} has no bucket: use {scheme}://bucket/history")
        return files, root.rstrip("/")

    @contextmanager
    def _told(self, name: str, what: str) -> Iterator[None]:
        try:
            yield
        except DiskError:
            raise
        # Drivers raise errors of their own, and of the libraries that they use.
        except Exception as error:  # noqa: BLE001
            where = f"{self.url.rstrip('/')}/{name} cannot be {what}"
            if isinstance(error, FileNotFoundError):
                raise failed(where, FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))) from None
            number = error.errno if isinstance(error, OSError) else None
            made = DiskError(
                f"{where}: {self._masked(error)}; check that the store is reachable and grants access"
            )
            made.errno = number
            raise made from None

    def _masked(self, error: Exception) -> str:
        """Return what a driver said, without what the URL holds that is secret."""
        text = str(error) or type(error).__name__
        for secret in self._secrets:
            text = text.replace(secret, _MASK)
        return text


def _secrets_of(url: str) -> list[str]:
    """Return what of a URL is masked, the longest first, in each way that a message could spell it."""
    public = set(re.split(r"[/?#&=:@]+", sanitize_url(url)))
    login = url.partition("://")[2].rpartition("@")[0]
    parts = {url, login, login.partition(":")[2], *re.split(r"[/?#&=:@]+", url)} - public - {""}
    return sorted({*parts, *map(unquote, parts)}, key=len, reverse=True)


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or "/." in name
