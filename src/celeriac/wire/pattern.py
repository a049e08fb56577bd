"""Patterns for node names, in the two languages that control requests use.

A regular expression from a peer can keep Python's engine busy for years: it tries
every way to divide the name among the repeats and alternatives of the expression.
So the ways are counted before any is tried. That takes an expression in which no
group repeats, and nothing refers back or looks around; names of nodes need no more.
Shell patterns cannot do such harm: Python matches them without going back.
"""

import re
from fnmatch import translate
from math import comb
from typing import Final

from celeriac.errors import PeerError

__all__ = ["MAX_PATTERN_CHARS", "MAX_WAYS", "matches"]

#: As long as a node name can be.
MAX_PATTERN_CHARS: Final = 256

#: Ways to try before giving up. The slowest expression that keeps to it takes some 20 ms; three
#: repeats in a name of 80 characters are within it.
MAX_WAYS: Final = 100_000

_TOKEN: Final = re.compile(
    r"""
      (?P<repeat> (?: [*+?] | \{ \d* ,? \d* \} ) [?+]? )
    | (?P<open>   \( (?: \?: )? )
    | (?P<close>  \) )
    | (?P<bar>    \| )
    | (?P<anchor> [\^$] | \\[AbBZ] )
    | (?P<atom>   \\ [^0-9] | \[ \^?+ \]?+ (?: \\. | [^\]\\\[] )*+ \] | [^\\\[] )
    """,
    re.VERBOSE | re.DOTALL,
)
#: Python reserves these inside of a set, and warns of them.
_RESERVED: Final = re.compile(r"--|&&|~~|\|\|")


def matches(hostname: str, *, pattern: str, matcher: str) -> bool:
    """Tell whether a node name fits a pattern, in the language ``glob`` or ``pcre``.

    Raises :class:`PeerError` for another language, and for a pattern that is broken or
    might take too long.
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        raise PeerError("pattern")
    match matcher:
        case "glob":
            expression = translate(pattern)
        case "pcre" if _count_ways(pattern, len(hostname)) <= MAX_WAYS:
            expression = pattern
        case "pcre":
            raise PeerError("pattern")
        case _:
            raise PeerError("matcher")
    try:
        # Celery: an expression need only fit the beginning of a name, a shell pattern all of it.
        return re.match(expression, hostname) is not None
    except (re.error, OverflowError, RecursionError):
        raise PeerError("pattern") from None


def _count_ways(pattern: str, length: int) -> int:
    """Return a bound on the ways that a name of this length can be tried in.

    Each part of the expression is met once, as no group repeats. So a way is a choice of
    one alternative for each group, and of a length for each repeat, which together are no
    longer than the name.
    """
    repeats, ways = 0, 1
    alternatives = [1]
    before = "start"
    for kind, token in _tokens(pattern):
        match kind:
            case "repeat":
                if before != "atom":
                    raise PeerError("pattern")
                repeats += 1
            case "open":
                alternatives.append(1)
            case "close":
                ways *= alternatives.pop()
                if not alternatives:
                    raise PeerError("pattern")
            case "bar":
                alternatives[-1] += 1
            case "atom" if token[0] == "[" and _RESERVED.search(token):
                raise PeerError("pattern")
        before = kind
    return ways * alternatives[0] * comb(length + repeats, repeats)


def _tokens(pattern: str) -> list[tuple[str, str]]:
    tokens = []
    at = 0
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None or token.lastgroup is None:
            raise PeerError("pattern")
        tokens.append((token.lastgroup, token[0]))
        at = token.end()
    return tokens
