"""Where a setting comes from: arguments, variables, files."""

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from celeriac.config.kind import checked
from celeriac.errors import ImproperlyConfigured

__all__ = ["FILE_VARIABLE", "Given", "Types", "read_environ", "read_file", "read_given", "variables"]

_PREFIX: Final = "CELERIAC_"
#: Names the file of settings.
FILE_VARIABLE: Final = "CELERIAC_CONFIG"
#: The type of each setting there is.
Types = Mapping[str, object]
#: The value of a setting, and where it came from.
Given = dict[str, tuple[object, str]]


def read_given(types: Types, table: Mapping[str, object], source: str) -> Given:
    """Return the settings in a table, checked."""
    given = {}
    for name, value in table.items():
        if name not in types:
            raise _unknown(types, f"{name} ({source})", name)
        if value is not None:
            given[name] = (checked(name, types[name], value, source), source)
    return given


def read_environ(types: Types, environ: Mapping[str, str]) -> Given:
    """Return the settings in variables, checked."""
    names = {f"{_PREFIX}{name.upper()}": name for name in types}
    given = {}
    for variable in environ:
        if not variable.startswith(_PREFIX) or variable == FILE_VARIABLE:
            continue
        source = f"variable {variable}"
        if variable not in names:
            raise _unknown(
                types, source, variable.removeprefix(_PREFIX), lambda name: f"{_PREFIX}{name.upper()}"
            )
        name = names[variable]
        given[name] = (checked(name, types[name], environ[variable], source, is_text=True), source)
    return given


def variables(values: Mapping[str, object]) -> dict[str, str]:
    """Return the variables that give these settings to a program that is started; None is left out."""
    return {
        f"{_PREFIX}{name.upper()}": value if isinstance(value, str) else json.dumps(value)
        for name, value in values.items()
        if value is not None
    }


def read_file(types: Types, file: Path | None, folder: Path) -> Given:
    """Return the settings in a file, or in the one that a folder has."""
    found = (path for path in (folder / "celeriac.toml", folder / "pyproject.toml") if path.is_file())
    path = file or next(found, None)
    return read_given(types, _read_table(path), f"file {path}") if path else {}


def _read_table(path: Path) -> dict[str, object]:
    try:
        content: object = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ImproperlyConfigured(f"cannot read file {path}: {error.strerror}; use another file") from error
    except ValueError as error:
        raise ImproperlyConfigured(f"file {path} is not TOML: {error}; correct that line") from None
    for key in ("tool", "celeriac") if path.name == "pyproject.toml" else ():
        content = content.get(key, {}) if isinstance(content, dict) else None
    if not isinstance(content, dict):
        raise ImproperlyConfigured(f"tool.celeriac in file {path} is not a table; write [tool.celeriac]")
    return content


def _unknown(types: Types, place: str, key: str, spell: Callable[[str], str] = str) -> ImproperlyConfigured:
    # Celery: its old names were in capitals, most with one of these prefixes.
    plain = re.sub(r"^(celery|celeryd|celeriac)_", "", key.lower())
    near = get_close_matches(plain, types, n=1)
    fix = f"did you mean {spell(near[0])}?" if near else "see the settings reference for all names"
    return ImproperlyConfigured(f"{place} is not a setting; {fix}")
