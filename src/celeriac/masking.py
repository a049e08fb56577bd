"""The one place where secrets are masked."""

import re
from collections.abc import Mapping
from urllib.parse import unquote

__all__ = ["MASK", "SCHEME", "SECRET_WORDS", "masked", "sanitize_place", "sanitize_url", "url_secrets"]

#: What stands where a secret was.
MASK = "**"
#: What makes a name secret. Of a setting any name that holds one of them is; in texts, where more names
#: hold one by chance, :mod:`celeriac.core.secret_name` looks closer.
SECRET_WORDS = (
    *("pass", "pwd", "secret", "token", "credential", "cookie", "session", "dsn", "private", "signature"),
    *("sig", "auth", "key"),
)
#: What such a word does not mean, in settings.
_UNLESS = {
    "sig": r"\bsig\b",
    "auth": r"auth(?!_?(source|mechanism|method|type))",
    "key": r"key(?!_?(prefix|file))",
}
_SECRET = re.compile("|".join(_UNLESS.get(word, word) for word in SECRET_WORDS), re.IGNORECASE)
#: Text that cannot be a login or hold one.
_PLAIN = re.compile(r"[\w .,+*#/-]*")
#: How a URL begins.
SCHEME = r"[A-Za-z][\w+.-]*://"
_BETWEEN_URLS = re.compile(rf";(?={SCHEME})")
#: The login ends at the last @ of all: a password may hold one, or a slash, that nobody escaped.
_URL = re.compile(rf"(?P<scheme>{SCHEME})(?:(?P<login>.*)@)?(?P<place>.*)", re.DOTALL)
_HOST = r"(?:\[[^\]/@]*\]|[^\s:/?#\[\],;]+)(?::\d{1,5})?"
_PLACE = re.compile(rf"(?:{_HOST}(?:[,;]{_HOST})*)?(?:[/?#].*)?", re.DOTALL)
#: Looked for where one can begin, and nowhere else: a long text takes as long as it is long.
_PAIR = re.compile(r"(?<![^?&#=])(?P<key>[^?&#=]+)=(?P<value>[^&]*)")


def sanitize_url(url: str) -> str:
    """Return a URL, or several parted by ``;``, for people: ``**`` for every password.

    Secrets in a query are masked too, and so is a user without a password: several
    brokers take a key there. What cannot be understood is masked whole.
    """
    parts: list[str] = []
    end = 0
    for start, stop in url_secrets(url):
        parts += url[end:start], MASK
        end = stop
    return "".join((*parts, url[end:]))


def sanitize_place(place: str) -> str:
    """Return a folder or file as it is, and a URL as :func:`sanitize_url` does."""
    return sanitize_url(place) if "://" in place else place


def url_secrets(url: str) -> list[tuple[int, int]]:
    """Return where :func:`sanitize_url` masks: beginnings and ends, in order."""
    found: list[tuple[int, int]] = []
    start = 0
    for each in _BETWEEN_URLS.split(url):
        found += [(start + first, start + last) for first, last in _secrets_of_one(each)]
        start += len(each) + 1
    return found


def _secrets_of_one(url: str) -> list[tuple[int, int]]:
    found = _URL.fullmatch(url)
    if found is None:
        return [(0, len(url))]
    login, place = found["login"], found["place"]
    if not _PLACE.fullmatch(place):
        return [(found.end("scheme"), len(url))]
    # A pair is looked at as a whole: a connection string may be the value of one key.
    at = found.start("place")
    secrets = [
        (at + pair.start("value"), at + pair.end("value"))
        for pair in _PAIR.finditer(place)
        if _SECRET.search(unquote(pair[0]))
    ]
    if login is None:
        return secrets
    user, colon, _ = login.partition(":")
    is_user = colon and not re.search(r"[/?#&=;@]", user)
    start, end = found.span("login")
    return [(start + len(user) + 1 if is_user else start, end), *secrets]


def masked(key: str, value: object) -> object:
    """Return a value as JSON can hold it, without what is secret in it or by its key."""
    if _SECRET.search(key):
        return MASK
    if isinstance(value, Mapping):
        return {str(name): masked(str(name), item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [masked(key, item) for item in value]
    if isinstance(value, str):
        is_open = key not in ("broker_url", "result_backend") and _PLAIN.fullmatch(value)
        return value if is_open else sanitize_url(value)
    # Of other objects the type alone: nobody knows what their repr holds.
    return value if isinstance(value, int | float | None) else f"<{type(value).__name__}>"
