"""Secrets that are known by their shape, whatever stands around them."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from celeriac.core.secret_name import BARE_NAMES
from celeriac.core.secret_value import value_span

__all__ = ["LONG_PATTERN", "SHAPES", "SHAPE_PATTERN", "Shape", "is_random", "looks_random"]

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
    if not 16 <= len(text) <= 200 or not re.fullmatch(r"[\w+/=.~%\-]+", text) or _UUID.fullmatch(text):
        return False
    return text.count("/") + text.count(".") <= 3 and len(_TRANSITIONS.findall(text)) >= max(
        6, len(text) // 3
    )


_TWILIO: Final = re.compile(r"[A-Z]{2}[0-9a-f]{32}")


def is_random(name: str, value: str) -> bool:
    """Return whether a value opens something by its looks, under a name that may mean anything."""
    name = name.lower()
    if name not in BARE_NAMES or not looks_random(value):
        return False
    # Codes of articles and vouchers are in capitals; what Twilio calls a sid is no secret.
    return not (value.isupper() or value.islower()) if name == "code" else not _TWILIO.fullmatch(value)


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
    # Slack, Discord, Teams, Zapier, Telegram
    ("xox[abcdeoprs]-|xapp-", r"[\w\-]{6,}"),
    (r"webhook\.office\.com/webhookb2/|hooks\.zapier\.com/hooks/catch/", r"[\w/@\-]{6,}"),
    ("bot[0-9]{8,10}:", r"[\w\-]{20,}"),
    (r"hooks\.slack\.com/(?:services|workflows)/|api/webhooks/", r"[\w/\-]{6,}"),
    # Stripe, Square, Shopify
    ("(?:sk|rk|pk)_(?:live|test)_|whsec_|sq0[a-z]{3}-|shp(?:at|ca|pa|ss)_", r"[\w+/=\-]{6,}"),
    # Google
    (r"AIza|ya29\.|GOCSPX-|1//0", r"[\w.\-]{6,}"),
    # Models: OpenAI, Anthropic, Groq, xAI, Perplexity, NVIDIA, LangSmith, Hugging Face, Replicate
    ("sk-|gsk_|xai-|pplx-|nvapi-|lsv2_[ps][tk]_", r"[\w\-]{16,}"),
    ("hf_|r8_", "[A-Za-z0-9]{6,}"),
    # Mail and messages: SendGrid, Mailgun, Brevo, Twilio
    (r"SG\.", r"[\w\-]{6,}(?:\.[\w\-]*)?"),
    ("key-|SK", "[0-9a-f]{32}"),
    ("xkeysib-", r"[\w\-]{6,}"),
    # Packages: npm, PyPI, RubyGems, Docker
    ("npm_|pypi-|rubygems_|dckr_pat_", r"[\w\-]{6,}"),
    # Clouds: DigitalOcean, Vault, Databricks, Doppler, Heroku, PlanetScale, Pulumi, Supabase, Tailscale
    (r"do[opr]_v1_|hv[sbr]\.|dapi|dp\.(?:pt|st|ct|sa)\.|HRKU-", r"[\w\-]{20,}"),
    (r"pscale_(?:pw|tkn|oauth)_|pul-|sbp_|tskey-(?:auth|api)-", r"[\w\-]{20,}"),
    # Fernet
    ("gAAAAA", r"[\w=\-]{6,}"),
    # Typeform, Figma, Postman, CircleCI, Buildkite, Facebook and Square, Notion
    ("tfp_|figd_|PMAK-|CCIPAT_|bk[uc]a_", r"[\w\-]{20,}"),
    ("EAA[A-Za-z]", r"[\w\-]{40,}"),
    ("secret_", "[A-Za-z0-9]{40,}"),
    # Others: Atlassian, Notion, New Relic, Sentry, Grafana, Linear, age
    ("ATATT3|ntn_|NRAK-|sntr[yu]s_|gl(?:sa|c)_|lin_api_|AGE-SECRET-KEY-1", r"[\w=+/\-]{6,}"),
)
#: Those that begin as anything may, by what is in their middle: Telegram, Mailchimp, Terraform, Azure,
#: Airtable.
_ODD: Final = (
    (r"[0-9]{8,10}:AA[\w\-]{6,}", "[0-9]:AA"),
    (r"[0-9a-f]{32}-us[0-9]{1,2}", "[0-9a-f]-us[0-9]"),
    (r"[A-Za-z0-9]{14}\.atlasv1\.[\w\-]{6,}", "atlasv1"),
    (r"[\w~.]{3}[0-9]Q~[\w~.\-]{20,}", "[0-9]Q~"),
    # Hashes of passwords: they are guessed from
    (
        r"\$(?:2[abxy]|argon2[a-z]{1,2}|[156y])\$[\w./$=,+\-]{16,}",
        r"\$(?:2[abxy]|argon2[a-z]{1,2}|[156y])\$",
    ),
    (
        r"(?:pbkdf2_sha[0-9]{1,3}|bcrypt_sha256|scrypt|argon2|SCRAM-SHA-[0-9]{1,3})\$[\w./$=,+:\-]{16,}",
        r"(?:pbkdf2_sha|bcrypt_sha|scrypt|argon2|SCRAM-SHA-)[0-9]*\$",
    ),
    (r"pat[A-Za-z0-9]{14}\.[0-9a-f]{40,}", r"pat[A-Za-z0-9]+\.[0-9a-f]"),
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


# -- logins of HTTP and SMTP

_LOGS_IN: Final = r"(?:(?i:Bearer|Basic)|AUTH (?:PLAIN|LOGIN|XOAUTH2))[ \t]{1,8}"
_CREDENTIAL: Final = rf"{_LOGS_IN}[A-Za-z0-9._~+/=\-]{{6,}}"
_CREDENTIALS: Final = re.compile(rf"{_START}{_LOGS_IN}(?P<value>[A-Za-z0-9._~+/=\-]{{6,}})")


def _credentials(text: str) -> Iterator[tuple[int, int]]:
    for found in _CREDENTIALS.finditer(text):
        value = found["value"].rstrip(".")
        # Basic training and bearer authentication are words.
        if not (value.replace("-", "").isalpha() and value[1:].islower()):
            yield found.span("value")


# -- logins without a scheme: user:password@host:5432/name, user:password@tcp(host), -u user:password; SQL

_LOGIN: Final = (
    r"[:/][^\s:@/'\"]+@/{0,2}[A-Za-z0-9_.\-]+[:/(]"
    r"|(?:-u|--user)[ \t=\\\"',]+[A-Za-z0-9_.@+\-]+:|(?i:identified by)"
    # With escapes of JSON or of URLs
    r"|%3[Aa]%2[Ff]%2[Ff]|:\\+/"
    r"|[( ]AUTH |sshpass|redis-cli|(?:mysql|mariadb|login)[^\n]*-p|[?&]code=|code=[^\s&]+&"
    r"|/[A-Za-z0-9_\-]*(?i:passw|reset|token|verify|activate|invite|magic)[A-Za-z0-9_\-]*/[A-Za-z0-9_.=~/\-]{16}"
)
_LOGINS: Final = re.compile(
    r"[A-Za-z0-9_.+\-]:(?P<a>[^\s:@/'\"]{1,128})@(?!sha\d)"
    r"(?:[A-Za-z0-9_.\-]{1,253}(?::[0-9]{2,5}|/)|(?:tcp|unix)\()"
    r"|(?<=\w)/(?P<b>[^\s/@'\"]{1,128})@(?://)?[A-Za-z0-9_.\-]{1,253}:[0-9]{2,5}[:/]"
    r"|(?<![\w\-])(?:-u|--user)(?:[ \t=]|\\{0,8}[\"'],)[ \t]{0,8}\\{0,8}[\"']?"
    r"[A-Za-z0-9_.@+\-]{1,64}:(?P<c>[^\s\"'\\]+)"
    r"|(?i:identified by)[ \t]{1,8}\\{0,8}[\"'](?P<d>[^\"'\\]+)"
    # https%3A%2F%2Fuser%3Apassword%40host, https:\/\/user:password@host
    r"|(?i:%3a%2f%2f)[A-Za-z0-9_.\-]{0,64}%3[Aa](?P<e>[^\s'\"@/&]{1,128}?)%40"
    r"|:(?:\\{1,8}/){2}[A-Za-z0-9_.+\-]{0,64}:(?P<f>[^\s'\"@\\]{1,128})@"
    # Redis, as its errors quote commands: (AUTH bob x) and (HELLO 3 AUTH bob x)
    r"|(?:\((?:HELLO [23] )?|HELLO [23] )AUTH (?P<g>[^)\n]{1,256})"
    # OAuth, in a form or in a URL without its beginning
    r"|(?:[?&]code=|(?<![A-Za-z0-9_\-])code=(?=[^\s&'\"]{12,256}&))(?P<h>[^\s&'\"\\]{12,256})"
)
_SEPARATED: Final = r"(?:[ \t]{1,8}|\\{0,8}[\"'][ \t]{0,4},[ \t]{0,8})"
_OPTION: Final = r"[^\n]{0,200}?[ \t\"']"
#: Commands that are given a password by an option that says nothing.
_COMMANDS: Final = re.compile(
    rf"(?<![A-Za-z0-9_\-])(?:sshpass{_SEPARATED}[\"']?-p(?:{_SEPARATED})?"
    rf"|(?:mysql|mariadb)[a-z_\-]{{0,16}}(?![A-Za-z0-9_:/]){_OPTION}-p(?=[^\s\"'\-\\,]|[\"'][^\s\"',)\]])"
    rf"|redis-cli{_OPTION}-a{_SEPARATED}"
    rf"|(?:docker|podman|helm){_SEPARATED}(?:[\"']?registry{_SEPARATED})?[\"']?login{_OPTION}-p{_SEPARATED})"
)
#: /password/reset/MQ/x: who has the link has what it opens.
_LINKS: Final = re.compile(
    r"/[A-Za-z0-9_\-]{0,32}(?i:passw|reset|token|verify|activate|invite|magic)[A-Za-z0-9_\-]{0,32}/"
    r"(?:[A-Za-z0-9_=\-]{1,15}/){0,2}(?P<key>[A-Za-z0-9_.=~\-]{16,200})"
)


def _logins(text: str) -> Iterator[tuple[int, int]]:
    for found in _LOGINS.finditer(text):
        kind = found.lastgroup
        if kind is not None and not found[kind].startswith("*"):
            yield found.span(kind)
    for command in _COMMANDS.finditer(text):
        yield value_span(text, command.end())
    for link in _LINKS.finditer(text):
        if looks_random(link["key"]):
            yield link.span("key")


# -- PEM, keys of SSH and PuTTY, JWK

_PEM: Final = "---- ?BEGIN |Private-Lines:|kty"
_BEGIN: Final = re.compile(r"-?----(?P<gap> ?)BEGIN |(?P<putty>Private-Lines:)")
_JWK: Final = re.compile(
    r"[\"'](?:d|k|p|q|dp|dq|qi)\\{0,8}[\"'][ \t]{0,4}:[ \t]{0,4}\\{0,8}[\"'](?P<key>[A-Za-z0-9_\-]{16,})"
)


def _pem(text: str) -> Iterator[tuple[int, int]]:
    at = 0
    while (begin := _BEGIN.search(text, at)) is not None:
        start = begin.start()
        if begin["putty"]:
            end = text.find("Private-MAC:", start)
            at = len(text) if end < 0 else end
        else:
            end = text.find(f"----{begin['gap']}END ", begin.end())
            closing = -1 if end < 0 else text.find("----", end + 8, end + 80)
            at = len(text) if closing < 0 else closing + 4 + text.startswith("-", closing + 4)
        yield start, at
    if "kty" in text:
        yield from (found.span("key") for found in _JWK.finditer(text))


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
