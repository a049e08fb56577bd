"""Where the secrets of a text are: the rules that read arguments, results, tracebacks and URLs.

A secret is told by its name (:mod:`celeriac.core.secret_name`), by where it stands, such as the password of a
URL, or by its shape, such as a JWT, a PEM block or a card number. A secret that has none of these, such as a
password among positional arguments, cannot be told from any other text: for such tasks there are policies.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from celeriac.core.secret_name import (
    BARE_NAMES,
    CODE_OF,
    SHORT_WORDS,
    STEMS,
    SecretNames,
    is_counting,
    words_of,
)
from celeriac.core.secret_shape import SHAPES, is_random
from celeriac.core.secret_url import url_spans
from celeriac.core.secret_value import header_end, quoted_end, value_span
from celeriac.masking import MASK

__all__ = ["DUPLICATE", "Finding", "NameRule", "find", "names_pattern", "words_pattern"]


class Finding(NamedTuple):
    """What a rule found: the text from ``start`` to ``end`` must not be kept."""

    rule: str
    start: int
    end: int


# -- what stands under a secret name

#: Signs and quotes of other keyboards, as they are: RE2 has no escapes for them.
_WIDE: Final = "\uff1a\uff1d"
_CURLED: Final = "\u201c\u201d"
_QUOTE: Final = r"\\{0,32}[\"'`]"
#: Those that are looked for as words of their own.
_APART: Final = (*SHORT_WORDS, "sid", "ticket", "code", "codes", "pat", "hmac")
_CAMEL: Final = "|".join(f"{word.capitalize()}|{word.upper()}" for word in _APART)
#: Blanks, and tabs as reprs spell them; a line breaks only before a quote, as in JSON for people.
_GAP: Final = r"(?:[ \t\xa0]|\\{1,8}t){0,32}"
_BREAK: Final = rf"(?:(?:\s|\\{{1,8}}[nrt]){{1,32}}(?=[bu]?{_QUOTE}))?"
#: Quotes as HTML and URLs spell them.
_SPELLED: Final = r"&(?:quot|apos|#0?3[49]|#x2[27]);|%2[27]"
_SAID: Final = "id|key|value|code|string|hash|phrase|word|provided|given|supplied|received"
_BETWEEN: Final = rf"(?: (?i:{_SAID})){{0,2}}(?:{_QUOTE}|{_SPELLED}|[{_CURLED}])?(?:\]|\)|%5[Dd])?{_GAP}"
_BEFORE_PAIR: Final = re.compile(r"(?:[(\[]|setattr\([A-Za-z0-9_.]{1,32},)[ \t\r\n]{0,16}[bu]?\\{0,32}[\"']$")
#: password = 'x', 'password': 'x', ['password'] = 'x', [password] => x, password != 'x'
_ASSIGNS: Final = re.compile(
    rf"{_BETWEEN}(?:=>|->|:=|[=!]==?|[=:{_WIDE}]|\\{{1,8}}u003[AaDd]|%(?:25)?3[AaDd]){_GAP}{_BREAK}(?:%20)?"
)
#: ('password', 'x'), '--password', 'x'
_PAIRED: Final = re.compile(rf"{_QUOTE}[ \t]{{0,16}},\s{{0,16}}(?=[bu]?{_QUOTE})")
_ENDS_PAIR: Final = re.compile(r"$|[)\]\\.…\"'`]|,\s{0,4}(?:\.{3}|…)")
#: {"name": "password", "value": "x"}, <add name="password" value="x">
_VALUED: Final = re.compile(
    rf"{_QUOTE}[ \t]{{0,16}}(?:(?:,\s{{0,32}}{_QUOTE}\w{{1,32}}{_QUOTE}[ \t]{{0,4}}:[ \t]{{0,4}}"
    rf"(?:{_QUOTE}[\w.\-]{{0,64}}{_QUOTE}|\w{{1,32}})){{0,2}}"
    rf",\s{{0,32}}{_QUOTE}(?i:value){_QUOTE}[ \t]{{0,16}}[:=]"
    r"|[ \t](?i:value)[ \t]{0,16}=)[ \t]{0,16}"
    r"|(?:,|\r?\n|\\{1,8}n)[ \t]{0,32}(?i:value)[ \t]{0,4}[:=][ \t]{0,4}(?=\S)"
)
#: invalid password 'x', the password is "x"
_TOLD: Final = re.compile(rf"[ \t]{{1,16}}(?:(?:is|was|of)[ \t]{{1,16}})?(?={_QUOTE})")
#: the password is hunter2, as people write, or (hunter2): a word with digits in it
_BLURTED: Final = re.compile(
    r"(?:[ \t]{1,16}(?:(?:is|was|of)[ \t]{1,16}|\()?|[ \t]{0,16}\|[ \t]{0,16})"
    r"(?=[^\s,;'\"()]{0,32}[0-9])(?=[0-9]{0,32}[A-Za-z]\S{5})"
)
#: Of pydantic: the name, and on the next line what is wrong with [type=…, input_value='x', …]; as a dict,
#: 'loc': ('body', 'password'), 'msg': …, 'input': 'x'
_REFUSED: Final = re.compile(
    rf"{_QUOTE},?[)\]][^{{}}\n]{{0,200}}?{_QUOTE}input{_QUOTE}[ \t]{{0,4}}:[ \t]{{0,4}}|"
    r"[\w.]{0,64}(?:\r?\n|\\{1,8}n)[ \t]{2}[^\n]{0,200}?\[type=\w{1,64}, input_value="
)
#: Password('x'), Secret(name='a', value='x'), user.set_password('x')
_CALLED: Final = re.compile(rf"\((?=[^()\"'`]{{0,200}}[\"'`])(?!\w{{0,32}}=?[bu]?({_QUOTE})\*{{0,64}}\1\))")
_CALLS: Final = re.compile(
    r"(?:password|passwd|passphrase|secret|secret_?(?:str|bytes|value)|token|credentials?|api_?key|cookie)$"
)
_ASKS: Final = frozenset({
    "bad", "build", "create", "expired", "fetch", "find", "generate", "get", "invalid", "issue", "load",
    "make", "missing", "needs", "no", "read", "requires", "unknown", "wrong",
})  # fmt: skip
_IS_TAG: Final = re.compile(r"(?:<|&lt;)(?:[A-Za-z0-9_.\-]{1,32}:)?$")
#: <password>x</password>, <password kind="y">x</password>
_TAGGED: Final = re.compile(r"(?:[ \t][^<>]{0,200})?(?:>|&gt;)(?=[^<])")
#: <td>password</td><td>x</td>
_CELL: Final = re.compile(r"</t[dh]>\s{0,16}<t[dh][^<>]{0,100}>(?:<(?:pre|code)>)?(?=[^<])")
#: --password x
_SPACED: Final = re.compile(r"[ \t]{1,16}(?=[^\s\-])")
#: Values that hide nothing, and what a mask leaves behind.
_OPEN: Final = re.compile(
    r"(?:None|null|nil|True|False|true|false|undefined|\*{2,64}|\(\)|\[\]|\{\}|[\[({]\.\.\.[\])}]|\.\.\.)(?![\w*\-])"
    r"|(?:none|disabled|enabled|required|missing|invalid|expired|str|bytes|int)(?:[ \t]{0,16}[\r\n]|[,)]|$)"
)
_OPEN_QUOTED: Final = re.compile(rf"[bBrRuUfF]{{0,2}}({_QUOTE})\*{{0,64}}(?=\1(?!\w|\1)|$)")
_NUMBER: Final = re.compile(r"-?\d{1,12}(?:\.\d{1,12})?(?![\w.])")
_NAME_END: Final = re.compile(r"[\w\-]*")
_LINE_HEADERS: Final = frozenset({"authorization", "cookie"})
_IS_LINE_START: Final = re.compile(r"(?:^|[\r\n]|\\[nr])[ \t]{0,64}(?:- )?$")
_ESCAPES: Final = frozenset("nrt")


def words_pattern(extra: tuple[str, ...] = ()) -> str:
    """Return what a text has to match, by Python or by RE2, for a secret name to be in it."""
    stems = "|".join([*STEMS, *(r"[\W_]?".join(map(re.escape, words_of(name))) for name in extra)])
    return rf"(?:(?i:{stems})|(?:^|[^A-Za-z]|\\[nrt])(?i:{'|'.join(_APART)})|[a-z](?:{_CAMEL}))"


#: What stands between a name and its value, less exact than the rules have it, and quicker.
_NAME_REST: Final = r"[^\s\"'`=:,;(){}<>\[\]\\]*"
_LOOSELY: Final = (
    rf"(?:[=:!,>\"'`\\\])\xa0{_WIDE}{_CURLED}]"
    rf"|[ \t]+(?:(?i:{_SAID}|is|was|of)[ \t\"'`\\]*){{0,2}}[=:!>\"'`\\\-&%\xa0{_WIDE}{_CURLED}]"
    r"|[ \t]+(?:(?:is|was|of)[ \t]+)?[^\s]*[0-9]|[ \t][^<>]*(?:>|&gt;)|\([^()\"'`]*[\"'`]"
    r"|&(?:quot|apos|#|gt)|</t|%(?:2[27]|(?:25)?3[AaDd]|5[Dd])"
    r"|[\w.]*\s+[^\n]*input_value=|\s+(?i:value)|[ \t]*\|)"
)


def names_pattern(extra: tuple[str, ...] = ()) -> str:
    """Return what a text has to match for a value under a secret name to be in it."""
    return rf"{words_pattern(extra)}{_NAME_REST}{_LOOSELY}|--[\w\-]+[ \t]"


_SHORT: Final = rf"(?:(?<![A-Za-z])|(?<=\\[nrt])|(?=[A-Z])(?<=[a-z]))(?i:{'|'.join(_APART)})(?![a-z])"


class NameRule:
    """Finds the values of secret names."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = SecretNames(names)
        extra = [r"[\W_]?".join(map(re.escape, words_of(name))) for name in names]
        self._search = re.compile(rf"(?i:{'|'.join([*STEMS, *extra])})|{_SHORT}").search
        self.is_secret = self._names.is_secret

    def __call__(self, text: str) -> Iterator[Finding]:
        """Yield what is under secret names in a text, in order, and nothing twice."""
        at, floor = 0, 0
        while (stem := self._search(text, at)) is not None:
            start, end = _name_span(text, stem.start(), stem.end(), floor)
            at = floor = max(end, stem.end())
            found = self._value(text, start, end)
            if found is not None and found.start < found.end:
                yield found
                at = floor = max(at, found.end)

    def hides(self, name: str, value: object) -> bool:
        """Return whether a value that is no text yet is secret under this name, or is one by its looks."""
        if isinstance(value, int | float) and is_counting(name):
            return False
        is_random_key = isinstance(value, str) and is_random(name, value)
        return is_random_key or self.is_secret(name)

    def _value(self, text: str, start: int, end: int) -> Finding | None:
        """Return the secret under the name from ``start`` to ``end``, if it is one and has a value."""
        name = text[start:end]
        is_bare = name.lower() in BARE_NAMES
        if is_bare:
            name = f"{_word_before(text, start)} {name}"
        is_secret = self.is_secret(name)
        if not is_secret and not is_bare:
            return None
        called = _CALLED.match(text, end)
        if called is not None:
            return _call(text, end, words_of(name))
        assigns = _ASSIGNS.match(text, end)
        at = _unassigned(text, start, end) if assigns is None else assigns.end()
        if at < 0 or text.startswith((":", "//"), at) or _is_open(text, at):
            return None
        if not is_secret:
            return _random_key(text, at, text[start:end])
        if assigns is None:
            return Finding("name", *value_span(text, at))
        is_count = is_counting(name) and _NUMBER.match(text, at)
        return None if is_count else _assigned(text, start, assigns, words_of(name))


def _assigned(text: str, start: int, assigns: re.Match[str], words: list[str]) -> Finding | None:
    """Return the value of a name that begins at ``start``, after the sign behind it."""
    at = assigns.end()
    if not _LINE_HEADERS.isdisjoint(words) and _is_unquoted_header(text, assigns):
        return Finding("header", at, _end_of_header(text, start, at))
    if at >= len(text) or text[at] in "\r\n":
        return None
    # As YAML and settings are written; reprs have neither colon nor spaces there.
    is_line = assigns[0].endswith((":", " ")) and _IS_LINE_START.search(text, max(0, start - 80), start)
    return Finding("name", *value_span(text, at, is_whole_line=bool(is_line)))


def _call(text: str, at: int, words: list[str]) -> Finding | None:
    """Return what is between the brackets that open at ``at``, if what is called is given a secret."""
    if words[0] in _ASKS or not _CALLS.search("_".join(words)):
        return None
    _, end = value_span(text, at)
    return Finding("name", at + 1, end - text.startswith(")", end - 1))


def _random_key(text: str, at: int, name: str) -> Finding | None:
    """Return the value of a name that may be any key, if it looks like one that opens something."""
    first, last = value_span(text[at : at + 256], 0)
    is_key = is_random(name, text[at + first : at + last])
    return Finding("name", at + first, at + last) if is_key else None


def _name_span(text: str, start: int, end: int, floor: int) -> tuple[int, int]:
    """Return where a name begins and ends that a secret word from ``start`` to ``end`` was found in."""
    while start > floor and (text[start - 1].isalnum() or text[start - 1] in "_-"):
        start -= 1
    if start and text[start - 1] == "\\" and text[start] in _ESCAPES:
        # The n of a line break in a repr is no part of the name after it.
        start += 1
    elif start > 0 and text[start - 1] == "%" and re.match("[0-9A-Fa-f]{2}", text[start : start + 2]):
        start += 2
    matched = _NAME_END.match(text, end)
    assert matched is not None  # noqa: S101 - it matches anything
    return start, matched.end()


_WORDS_BEFORE: Final = CODE_OF | {"api", "access", "secret", "private", "account"}


def _word_before(text: str, start: int) -> str:
    """Return the word before a name, as in ``API key`` and ``login code``."""
    words = words_of(text[max(0, start - 24) : start]) if start and text[start - 1] in " \t" else []
    return words[-1] if words and words[-1] in _WORDS_BEFORE else ""


def _unassigned(text: str, start: int, end: int) -> int:
    """Return where the value of a name begins that has no sign before it, or -1 if it has none."""
    before = text[max(0, start - 64) : start]
    is_option = text.startswith("--", start)
    found = _VALUED.match(text, end) or _REFUSED.match(text, end)
    # Parsers say of what they read: unexpected token '<'.
    if found is None and not before.lower().endswith("unexpected "):
        found = _TOLD.match(text, end) or _BLURTED.match(text, end)
    if found is None and (is_option or _BEFORE_PAIR.search(before)):
        found = _PAIRED.match(text, end)
        if found is not None and not is_option:
            # Two names in a list are no name and its value.
            first, last = value_span(text, found.end())
            found = found if first == last or _ENDS_PAIR.match(text, last + 1) else None
    if found is None and is_option:
        found = _SPACED.match(text, end)
    if found is None and _IS_TAG.search(before):
        found = _TAGGED.match(text, end)
    if found is None and before.endswith(">"):
        found = _CELL.match(text, end)
    return -1 if found is None else found.end()


def _is_open(text: str, at: int) -> bool:
    return _OPEN.match(text, at) is not None or _OPEN_QUOTED.match(text, at) is not None


def _is_unquoted_header(text: str, assigns: re.Match[str]) -> bool:
    return (
        assigns[0].rstrip().endswith(":")
        and text[assigns.end() : assigns.end() + 1] not in ("", "[", "(", "{")
        and (re.match(rf"[bu]?{_QUOTE}", text[assigns.end() : assigns.end() + 40]) is None)
    )


def _end_of_header(text: str, start: int, at: int) -> int:
    """Return where a header ends: with the quotes around it, or with its line."""
    line = header_end(text, at)
    opening = re.search(r"(\\{0,32})([\"'`])$", text[max(0, start - 34) : start])
    if opening is None:
        return line
    return min(line, quoted_end(text, at, opening[2], len(opening[1])))


# -- what stands before its name

#: What has to be in a text for it.
DUPLICATE: Final = "Duplicate entry "
#: MySQL: Duplicate entry 'x' for key 'users.api_token'
_DUPLICATE: Final = re.compile(
    rf"{DUPLICATE}{_QUOTE}(?P<value>[^\n]{{1,512}}?){_QUOTE} for key {_QUOTE}(?P<name>[\w.\-]{{1,128}})"
)


def _duplicates(text: str, is_secret: Callable[[str], bool]) -> Iterator[Finding]:
    for found in _DUPLICATE.finditer(text):
        if is_secret(found["name"]):
            yield Finding("name", *found.span("value"))


def find(text: str, names: NameRule) -> list[Finding]:
    """Return all that is secret in a text, in order. What two rules find is there twice."""
    found = list(names(text))
    if "://" in text:
        found += [Finding("url", start, end) for start, end in url_spans(text, names.is_secret)]
    if DUPLICATE in text:
        found += _duplicates(text, names.is_secret)
    for shape in SHAPES:
        found += [Finding(shape.rule, start, end) for start, end in shape.find(text)]
    found = [each for each in found if each.start < each.end and text[each.start : each.end] != MASK]
    return sorted(found, key=lambda each: (each.start, -each.end))
