"""What a database says, as errors of our own: with the fix, and without what is secret."""

from typing import Final

from sqlalchemy import URL
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError

from celeriac.errors import AccessRefused, CeleriacError, ConnectionLost, DiskError, ImproperlyConfigured
from celeriac.masking import sanitize_url

__all__ = ["is_contention", "place_of", "translated"]

_MASK: Final = "**"
#: What PostgreSQL says of a login before it gives its error a number.
_LOGIN: Final = ("authentication failed", "no pg_hba.conf entry", "no password supplied", "does not exist")
#: Classes and numbers of PostgreSQL's errors.
_REFUSED: Final = ("28", "42501")
_READ_ONLY: Final = "25006"
_ROOM: Final = "53100"
_CONTENTION: Final = ("40001", "40P01")
_SHAPE: Final = ("42P01", "42703", "42804", "42P10")
#: What SQLite says of a table that is not as ours are.
_ODD_TABLE: Final = (
    "no such table",
    "no column named",
    "no such column",
    "ON CONFLICT clause does not match",
)


def place_of(url: URL) -> str:
    """Return where a database is, for people."""
    return sanitize_url(url.render_as_string(hide_password=False)) if url.host else url.render_as_string()


def translated(error: SQLAlchemyError, url: URL) -> CeleriacError:
    """Return an error of ours for one of SQLAlchemy's.

    The statement and the values in it are left out: they hold what tasks were given.
    """
    said = _said(error, url)
    code = _code(error)
    place = place_of(url)
    if _is_refused(code, said):
        return AccessRefused(f"access refused by {place}: {said}; correct the login or its permissions")
    if code in _SHAPE or any(words in said for words in _ODD_TABLE):
        return ImproperlyConfigured(
            f"the tables in {place} were not created by Celeriac: {said}; use another prefix, or drop them"
        )
    if code in (_ROOM, _READ_ONLY) or url.get_backend_name() == "sqlite":
        return DiskError(f"{place} cannot be written: {said}; check free space and permissions")
    if isinstance(error, OperationalError | InterfaceError) or _is_lost(error):
        return ConnectionLost(f"{place} cannot be reached: {said}")
    return DiskError(f"{place} rejected the snapshot: {said}")


def is_contention(error: SQLAlchemyError) -> bool:
    """Tell whether others were in the way, so that to try again at once is right."""
    return _code(error) in _CONTENTION


def _code(error: SQLAlchemyError) -> str:
    return str(getattr(getattr(error, "orig", None), "sqlstate", None) or "")


def _is_refused(code: str, said: str) -> bool:
    return code.startswith(_REFUSED) or (not code and any(words in said for words in _LOGIN))


def _is_lost(error: SQLAlchemyError) -> bool:
    return isinstance(error, DBAPIError) and error.connection_invalidated


def _said(error: SQLAlchemyError, url: URL) -> str:
    """Return the first line of what the driver said: details below it can hold values of a row."""
    original = getattr(error, "orig", None)
    lines = str(original if original is not None else type(error).__name__).strip().splitlines()
    said = lines[0] if lines else type(original).__name__
    return said.replace(str(url.password), _MASK) if url.password else said
