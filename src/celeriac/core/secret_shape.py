"""Secrets that are known by their shape, whatever stands around them."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

__all__ = ["LONG_PATTERN", "SHAPES", "SHAPE_PATTERN", "Shape", "looks_random"]

Spans = Iterable[tuple[int, int]]


class Shape(NamedTuple):
    """One rule: what a text has to match, by Python or by RE2, for it to find anything, and where that is."""

    rule: str
    pattern: str
    find: Callable[[str], Spans]


_CUT: Final = r"(?:\.{3}|…)"
#: Not within a word. The n of a line break in a repr is none.
_ESCAPED: Final = r"(?<=\\[abfnrtv0])|(?<=\\x[0-9a-fA-F]{2})|(?<=\\u[0-9a-fA-F]{4})"
_START: Final = rf"(?:(?<![A-Za-z0-9])|{_ESCAPED})"
_TRANSITIONS: Final = re.compile(r"[A-Z]+|[a-z]+|[0-9]+")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def looks_random(text: str) -> bool:
    """Return whether a text can be a key by its looks: long, letters and digits in turns, and no path."""
    if not 16 <= len(text) <= 200 or not re.fullmatch(r"[\w+/=.~\-]+", text) or _UUID.fullmatch(text):
        return False
    return text.count("/") + text.count(".") <= 3 and len(_TRANSITIONS.findall(text)) >= max(
        6, len(text) // 3
    )


# -- tokens with a beginning of their own

#: How they begin, and how they go on.
_KINDS: Final = (
    # JWT, and other JSON in base64
    ("eyJ", r"[\w+/=\-]{5,}(?:\.[\w+/=\-]*){0,4}"),
    # AWS: ids of access keys
    ("AKIA|ASIA|AROA|AIDA|AGPA|ANPA|ANVA|ABIA|ACCA", "[A-Z0-9]{6,}"),
    # GitHub, GitLab
    ("gh[oprsu]_|github_pat_", r"\w{6,}"),
    ("gl(?:pat|dt|rt|cbt|ptt|ft|soat)-", r"[\w\-]{6,}"),
    # Slack, Discord
    ("xox[abceoprs]-|xapp-", r"[\w\-]{6,}"),
    (r"hooks\.slack\.com/(?:services|workflows)/|api/webhooks/", r"[\w/\-]{6,}"),
    # Stripe, Square, Shopify
    ("(?:sk|rk|pk)_(?:live|test)_|whsec_|sq0[a-z]{3}-|shp(?:at|ca|pa|ss)_", r"[\w+/=\-]{6,}"),
    # Google
    (r"AIza|ya29\.|GOCSPX-|1//0", r"[\w.\-]{6,}"),
    # Models: OpenAI, Anthropic, Hugging Face, Replicate
    ("sk-", r"[\w\-]{16,}"),
    ("hf_|r8_", "[A-Za-z0-9]{6,}"),
    # Mail and messages: SendGrid, Mailgun, Brevo, Twilio
    (r"SG\.", r"[\w\-]{6,}(?:\.[\w\-]*)?"),
    ("key-|SK", "[0-9a-f]{32}"),
    ("xkeysib-", r"[\w\-]{6,}"),
    # Packages: npm, PyPI, Docker
    ("npm_|pypi-|dckr_pat_", r"[\w\-]{6,}"),
    # Clouds: DigitalOcean, Vault, Databricks, Doppler, Heroku
    (r"do[opr]_v1_|hv[sbr]\.|dapi|dp\.(?:pt|st|ct|sa)\.|HRKU-", r"[\w\-]{20,}"),
    # Fernet
    ("gAAAAA", r"[\w=\-]{6,}"),
    # Others: Atlassian, Notion, New Relic, Sentry, Grafana, Linear, age
    ("ATATT3|ntn_|NRAK-|sntr[yu]s_|gl(?:sa|c)_|lin_api_|AGE-SECRET-KEY-1", r"[\w=+/\-]{6,}"),
)
#: Those that begin as anything may, by what is in their middle: Telegram, Mailchimp, Terraform, Azure.
_ODD: Final = (
    (r"[0-9]{8,10}:AA[\w\-]{6,}", "[0-9]:AA"),
    (r"[0-9a-f]{32}-us[0-9]{1,2}", "[0-9a-f]-us[0-9]"),
    (r"[A-Za-z0-9]{14}\.atlasv1\.[\w\-]{6,}", "atlasv1"),
    (r"[\w~.]{3}[0-9]Q~[\w~.\-]{20,}", "[0-9]Q~"),
)
_STARTS: Final = "|".join(start for start, _ in _KINDS)
_TOKEN: Final = "|".join(
    [rf"(?:^|[^A-Za-z0-9]|\\[0-9A-Za-z]{{1,5}})(?:{_STARTS})[\w+/=.\-]{{5}}", *(hint for _, hint in _ODD)]
)
_WHOLE: Final = [*(f"(?:{start}){rest}" for start, rest in _KINDS), *(odd for odd, _ in _ODD)]
_TOKENS: Final = re.compile(rf"{_START}(?:{'|'.join(_WHOLE)})", re.ASCII)
#: What stands behind the id of an access key is, as like as not, the key.
_AFTER_ID: Final = re.compile(r"[\s'\",:;=)(\\]{1,8}(?P<key>[A-Za-z0-9/+]{16,})")


def _tokens(text: str) -> Iterator[tuple[int, int]]:
    for token in _TOKENS.finditer(text):
        yield token.span()
        if token[0].startswith("A") and (key := _AFTER_ID.match(text, token.end())) is not None:
            yield key.span("key")


# -- secret keys of AWS: forty letters of base64

_FORTY: Final = re.compile(rf"(?:(?<![A-Za-z0-9/+=_\-])|{_ESCAPED})[A-Za-z0-9/+]{{40}}(?![A-Za-z0-9/+=_\-])")


def _forty(text: str) -> Iterator[tuple[int, int]]:
    for found in _FORTY.finditer(text):
        kinds = {("A" if each.isupper() else "a" if each.islower() else "0") for each in found[0]}
        # A hash in hex has no letters of both sizes, a path has few changes between them.
        if len(kinds) == 3 and len(_TRANSITIONS.findall(found[0])) >= 14:
            yield found.span()


# -- logins of HTTP

_CREDENTIAL: Final = r"(?i:Bearer|Basic)[ \t]{1,8}[A-Za-z0-9._~+/=\-]{6,}"
_CREDENTIALS: Final = re.compile(
    rf"{_START}(?i:Bearer|Basic)[ \t]{{1,8}}(?P<value>[A-Za-z0-9._~+/=\-]{{6,}})"
)


def _credentials(text: str) -> Iterator[tuple[int, int]]:
    for found in _CREDENTIALS.finditer(text):
        value = found["value"].rstrip(".")
        # Basic training and bearer authentication are words.
        if not (value.replace("-", "").isalpha() and value[1:].islower()):
            yield found.span("value")


# -- logins without a scheme: user:password@host:5432/name, user:password@tcp(host), -u user:password; SQL

_LOGIN: Final = (
    r"[:/][^\s:@/'\"]+@[A-Za-z0-9_.\-]+[:/(]|(?:-u|--user)[ \t=\\\"',]+[A-Za-z0-9_.@+\-]+:|(?i:identified by)"
)
_LOGINS: Final = re.compile(
    r"[A-Za-z0-9_.+\-]:(?P<a>[^\s:@/'\"]{1,128})@(?!sha\d)"
    r"(?:[A-Za-z0-9_.\-]{1,253}(?::[0-9]{2,5}|/)|(?:tcp|unix)\()"
    r"|(?<=\w)/(?P<b>[^\s/@'\"]{1,128})@[A-Za-z0-9_.\-]{1,253}:[0-9]{2,5}/"
    r"|(?<![\w\-])(?:-u|--user)(?:[ \t=]|\\{0,8}[\"'],)[ \t]{0,8}\\{0,8}[\"']?"
    r"[A-Za-z0-9_.@+\-]{1,64}:(?P<c>[^\s\"'\\]+)"
    r"|(?i:identified by)[ \t]{1,8}\\{0,8}[\"'](?P<d>[^\"'\\]+)"
)


def _logins(text: str) -> Iterator[tuple[int, int]]:
    for found in _LOGINS.finditer(text):
        kind = found.lastgroup
        if kind is not None and not found[kind].startswith("*"):
            yield found.span(kind)


# -- PEM

_PEM: Final = "-----BEGIN "


def _pem(text: str) -> Iterator[tuple[int, int]]:
    at = 0
    while (start := text.find(_PEM, at)) >= 0:
        end = text.find("-----END ", start)
        closing = -1 if end < 0 else text.find("-----", end + 9, end + 80)
        at = len(text) if closing < 0 else closing + 5
        yield start, at


# -- cards

#: Any digits that are as many: to look at how they begin makes RE2 slow.
_CARD: Final = (
    r"[0-9]{4}[^0-9A-Za-z]?[0-9]{4}[0-9]*[^0-9A-Za-z]?[0-9]{4}"
    rf"|[0-9]{{6}}[ \-]?{_CUT}|[0-9]{{4}}[ \-][0-9]{{2,}}[ \-]?{_CUT}"
)
_CARDS: Final = re.compile(
    rf"(?:(?<![\w.\-])|{_ESCAPED})"
    r"(?P<number>[2-6][0-9]{3}(?:[0-9]{9,15}"
    r"|(?P<mark>[ .\-\u00a0])[0-9]{4}(?P=mark)[0-9]{4}(?P=mark)[0-9]{1,4}(?:(?P=mark)[0-9]{1,3})?"
    r"|(?P<other>[ .\-\u00a0])[0-9]{6}(?P=other)[0-9]{4,5}))(?!\w)"
)
_CUT_CARDS: Final = re.compile(
    rf"(?:(?<![\w.\-])|{_ESCAPED})[2-6][0-9]{{3}}(?:[ \-]?[0-9]{{2,6}}){{1,3}}[ \-]?(?={_CUT})"
)
#: How the numbers of each brand begin, and how long they are.
_BRANDS: Final = (
    (re.compile(r"4"), (13, 16, 19)),
    (re.compile(r"5[1-5]|2[2-7]"), (16,)),
    (re.compile(r"3[47]"), (15,)),
    (re.compile(r"3(?:0[0-5]|[689])"), (14, 16)),
    (re.compile(r"35"), (16,)),
    (re.compile(r"6(?:011|4[4-9]|5|2|7|0|3)"), (16, 17, 18, 19)),
    (re.compile(r"5[0678]|6"), (16, 19)),
)


def _cards(text: str) -> Iterator[tuple[int, int]]:
    for found in _CARDS.finditer(text):
        digits = re.sub(r"\D", "", found["number"])
        if _is_card(digits):
            yield found.span("number")
    for found in _CUT_CARDS.finditer(text):
        if any(brand.match(found[0]) for brand, _ in _BRANDS):
            yield found.span()


def _is_card(digits: str) -> bool:
    if not any(brand.match(digits) and len(digits) in lengths for brand, lengths in _BRANDS):
        return False
    doubled = [int(each) * (1 + place % 2) for place, each in enumerate(reversed(digits))]
    return sum(each - 9 if each > 9 else each for each in doubled) % 10 == 0 and len(set(digits)) > 1


#: What a text of forty bytes and more has to match too: alone, since it makes others slow.
LONG_PATTERN: Final = "[A-Za-z0-9/+]{40}"
SHAPES: Final = (
    Shape("pem", _PEM, _pem),
    Shape("token", _TOKEN, _tokens),
    Shape("aws", LONG_PATTERN, _forty),
    Shape("bearer", _CREDENTIAL, _credentials),
    Shape("login", _LOGIN, _logins),
    Shape("card", _CARD, _cards),
)
#: What a text has to match for any of the others to be in it.
SHAPE_PATTERN: Final = "|".join(shape.pattern for shape in SHAPES if shape.pattern != LONG_PATTERN)
