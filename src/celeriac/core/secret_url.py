"""Secrets that stand in URLs: logins, and what some parameters of a query hold."""

import re
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import unquote

from celeriac.core.secret_shape import is_random, looks_random
from celeriac.masking import MASK, url_secrets

__all__ = ["URL_PATTERN", "url_spans"]

_SCHEME_CHARS: Final = re.compile(r"[A-Za-z][\w+.\-]{0,31}$")
_URL_REST: Final = re.compile(r"(?:[^\s\"'`\\]|\\[^\snrt\"'`])*")
_TO_SPACE: Final = re.compile(r"\S*")
_WEB: Final = re.compile(
    r"(?i:https?|wss?|ftps?|git\+https?)://(?P<host>[^/?#@:]{1,253}(?::\d{1,5})?)(?P<rest>[/?#]|$)"
)
_PLACE: Final = re.compile(r"(?:\[[^\]]{0,64}\]|[^/?#:@\[\]]{1,253})(?::\d{0,5})?(?=[/?#,;)\]}>.]|$)")
_CUT: Final = re.compile(r"(?:\.{3}|…)")
_IS_QUERY_PAIR: Final = re.compile(r"[?&;#](?P<key>[^?&;#=]{1,64})=(?P<value>[^&#]*)")
_QUERY_KEYS: Final = frozenset({"key", "code", "sig", "sas", "hmac", "access"})
_STATUS: Final = re.compile(r"\d{1,4}")
#: A key for a user, as GitHub, Bitbucket and Stripe take it.
_KEY_AS_USER: Final = re.compile(r"(?P<user>[^:/?#@]{1,256}):(?P<rest>(?:x-oauth-basic|x-token-auth|)@)?")
#: What a URL has to look like for a secret to be in it.
URL_PATTERN: Final = r"://\S*[@?]|://[^\s/]*:"


def url_spans(text: str, is_secret: Callable[[str], bool]) -> Iterator[tuple[int, int]]:
    """Yield where the logins of the URLs in a text are, and the secrets in their queries.

    ``is_secret`` tells it of the name of a parameter.
    """
    at = 0
    while (colon := text.find("://", at)) >= 0:
        at = colon + 3
        scheme = _SCHEME_CHARS.search(text, max(0, colon - 32), colon)
        if scheme is None:
            continue
        start, end = scheme.start(), _end_of_url(text, at)
        url = text[start:end]
        is_cut = bool(_CUT.match(text, end)) or end == len(text)
        for first, last in _secrets_of(url, is_secret, is_cut=is_cut):
            if first < last and url[first:last] != MASK:
                yield start + first, start + last
        at = max(at, end)


def _end_of_url(text: str, at: int) -> int:
    """Return where a URL ends. A quote ends it, unless that would leave a login without its end."""
    rest = _URL_REST.match(text, at)
    end = at if rest is None else rest.end()
    if "@" not in text[at:end] and ":" in text[at:end] and _PLACE.match(text, at, end) is None:
        space = _TO_SPACE.match(text, end)
        stop = end if space is None else space.end()
        last = text.rfind("@", end, stop)
        if last >= 0:
            rest = _URL_REST.match(text, last)
            return last if rest is None else rest.end()
    return end


def _secrets_of(url: str, is_secret: Callable[[str], bool], *, is_cut: bool) -> list[tuple[int, int]]:
    web = _WEB.match(url)
    place = url.index("://") + 3
    if "@" in url[place:] and web is None:
        found = [(first, last) for first, last in url_secrets(url) if url[first:last] != "git"]
        login = _KEY_AS_USER.match(url, place)
        if login is not None and (login["rest"] or looks_random(login["user"])):
            found.append(login.span("user"))
        return found
    found = [
        pair.span("value")
        for pair in _IS_QUERY_PAIR.finditer(url, place)
        if _is_secret_pair(unquote(pair["key"]), pair["value"], is_secret)
    ]
    host = _PLACE.match(url, place)
    is_login = host is None and ":" in url[place:] and not url.startswith(("/", ":/"), place)
    is_port_cut = is_cut and host is not None and re.search(r":\d*(?:\.{3}|…)", url[place:]) is not None
    if web is None and (is_login or is_port_cut):
        colon = url.index(":", place)
        user_end = colon + 1 if colon > place else place
        return [(user_end, len(url))]
    return found


def _is_secret_pair(key: str, value: str, is_secret: Callable[[str], bool]) -> bool:
    if is_secret(key) or is_random(key, value):
        return True
    return key.lower() in _QUERY_KEYS and not _STATUS.fullmatch(value)
