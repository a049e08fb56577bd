"""The one place where secrets are masked."""

import re
from collections.abc import Mapping
from urllib.parse import unquote

__all__ = ["SCHEME", "masked", "sanitize_url"]

_MASK = "**"
_SECRET = re.compile(
    r"pass|pwd|secret|token|credential|cookie|session|dsn|private|signature|\bsig\b"
    r"|auth(?!_?(source|mechanism|method|type))|key(?!_?(prefix|file))",
    re.IGNORECASE,
)
#: Text that cannot be a login or hold one.
_PLAIN = re.compile(r"[\w .,+*#/-]*")
#: How a URL begins.
SCHEME = r"[A-Za-z][\w+.-]*://"
_BETWEEN_URLS = re.compile(rf";(?={SCHEME})")
#: The login ends at the last @ of all: a password may hold one, or a slash, that nobody escaped.
_URL = re.compile(rf"(?P<scheme>{SCHEME})(?:(?P<login>.*)@)?(?P<place>.*)", re.DOTALL)
_HOST = r"(?:\[[^\]/@]*\]|[^\s:/?#\[\],;]+)(?::\d{1,5})?"
_PLACE = re.compile(rf"(?:{_HOST}(?:[,;]{_HOST})*)?(?:[/?#].*)?", re.DOTALL)
_PAIR = re.compile(r"(?P<key>[^?&#=]+)=[^&]*")


def sanitize_url(url: str) -> str:
    """Return a URL, or several parted by ``;``, for people: ``**`` for every password.

    Secrets in a query are masked too, and so is a user without a password: several
    brokers take a key there. What cannot be understood is masked whole.
    """
    return ";".join(_sanitize_one(each) for each in _BETWEEN_URLS.split(url))


def _sanitize_one(url: str) -> str:
    found = _URL.fullmatch(url)
    if found is None:
        return _MASK
    scheme, login, place = found["scheme"], found["login"], found["place"]
    if not _PLACE.fullmatch(place):
        return f"{scheme}{_MASK}"
    # A pair is looked at as a whole: a connection string may be the value of one key.
    place = _PAIR.sub(
        lambda pair: f"{pair['key']}={_MASK}" if _SECRET.search(unquote(pair[0])) else pair[0], place
    )
    if login is None:
        return f"{scheme}{place}"
    user, colon, _ = login.partition(":")
    is_user = colon and not re.search(r"[/?#&=;@]", user)
    return f"{scheme}{user}:{_MASK}@{place}" if is_user else f"{scheme}{_MASK}@{place}"


def masked(key: str, value: object) -> object:
    """Return a value as JSON can hold it, without what is secret in it or by its key."""
    if _SECRET.search(key):
        return _MASK
    if isinstance(value, Mapping):
        return {str(name): masked(str(name), item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [masked(key, item) for item in value]
    if isinstance(value, str):
        is_open = key not in ("broker_url", "result_backend") and _PLAIN.fullmatch(value)
        return value if is_open else sanitize_url(value)
    # Of other objects the type alone: nobody knows what their repr holds.
    return value if isinstance(value, int | float | None) else f"<{type(value).__name__}>"
