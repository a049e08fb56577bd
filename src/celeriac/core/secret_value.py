"""Where a value ends that stands after its name, in any spelling and however it was cut.

Texts of events are reprs, JSON, JSON within reprs, connection strings, headers and lines of code, and often
their end is missing. Where it is not sure that a value ends, it goes on: too much is masked, and not too
little. Each character is looked at a bounded number of times.
"""

import re
from typing import Final

__all__ = ["header_end", "line_end", "quoted_end", "value_span", "word_end"]

#: A quote, escaped any number of times: JSON in a repr has one backslash, JSON in JSON in a repr three.
_QUOTE: Final = re.compile(r"(?P<slashes>\\{0,32})(?P<mark>[\"'`])")
_IN_WORD: Final = re.compile(r"\w")
_OPENING: Final = re.compile(r"[bBrRuUfF]{0,2}(?P<slashes>\\{0,32})(?P<mark>[\"'`])")
_CALL: Final = re.compile(r"[A-Za-z_][\w.]{0,200}(?=[(\[{])")
_BRACKETS: Final = re.compile(r"[()\[\]{}]|\\{0,32}[\"']")
_ANGLES: Final = re.compile(r"[<>]")
#: What a word is made of for sure.
_PLAIN: Final = re.compile(r"[^\s,;&)\]}>'\"`<\\]+")
_ENDS_PAIR: Final = re.compile(r"[,;](?:\s|$|['\"\\\[({]|[\w.\-]{1,64}\s?=)")
_ENDS_QUERY: Final = re.compile(r"&(?:$|[\w%.\[\]\-]{1,64}=)")
_ENDS_CLOSED: Final = re.compile(r"[)\]}>'\"`](?:[\s)\]}>'\"`,.:;\\]|$)")
_ENDS_TAG: Final = re.compile(r"<(?:/|[A-Za-z]|$)")
_ESCAPED_BREAK: Final = re.compile(r"\\[nrt'\"`]")
_LINE: Final = re.compile(r"[\r\n\u2028\u2029]|\\[nr]")
#: A quote as HTML and URLs spell it.
_SPELLED: Final = re.compile(r"&(?:quot|apos|#0?3[49]|#x2[27]);|%2[27]")
#: Of YAML: a mark, and all lines below it that are indented.
_BLOCK: Final = re.compile(r"[|>][+\-]?(?:(?:\n|\\n)[ \t]{1,64}(?:[^\n\\]|\\(?!n)){0,4096})+")
_SCHEME: Final = re.compile(r"(?:Basic|Bearer|Digest|Negotiate|Token|ApiKey)[ \t]{1,8}(?=\S)", re.IGNORECASE)
_ASSIGNED: Final = re.compile(r"[ \t]{0,16}=[ \t]{0,16}(?=[^\s=])")


def quoted_end(text: str, at: int, mark: str, slashes: int) -> int:
    """Return where a text in quotes ends that begins at ``at``, after its quote.

    A quote with more backslashes before it than the first is a part of the value, and so is one that a letter
    follows; one with fewer closes a text around it. Without either the rest was cut off: it is all the value.
    """
    for quote in _QUOTE.finditer(text, at):
        is_closing = quote["mark"] == mark and len(quote["slashes"]) <= slashes
        if is_closing and not _IN_WORD.match(text, quote.end()):
            return quote.start()
    return len(text)


def _balanced_end(text: str, at: int) -> int:
    """Return where the bracket closes that opens at ``at``; the end of the text if it was cut."""
    if text[at] == "<":
        depth = 0
        for angle in _ANGLES.finditer(text, at):
            depth += 1 if angle[0] == "<" else -1
            if depth == 0:
                return angle.end()
        return len(text)
    depth = 0
    while (found := _BRACKETS.search(text, at)) is not None:
        at = found.end()
        if found[0] in "([{":
            depth += 1
        elif found[0] in ")]}":
            depth -= 1
            if depth == 0:
                return at
        else:
            at = quoted_end(text, at, found[0][-1], len(found[0]) - 1) + len(found[0])
    return len(text)


def word_end(text: str, at: int) -> int:
    """Return where a value without quotes ends: at a space, or at a mark that something else begins after."""
    size = len(text)
    while at < size:
        plain = _PLAIN.match(text, at)
        if plain is not None:
            at = plain.end()
            continue
        mark = text[at]
        if mark.isspace():
            break
        if mark == "\\":
            if _ESCAPED_BREAK.match(text, at):
                break
            at += 2
            continue
        if any(ends.match(text, at) for ends in (_ENDS_PAIR, _ENDS_QUERY, _ENDS_CLOSED, _ENDS_TAG)):
            break
        at += 1
    return min(at, size)


def line_end(text: str, at: int) -> int:
    """Return where the line ends, in the text or in a repr of it, or the quotes around it."""
    line = header_end(text, at)
    for quote in _QUOTE.finditer(text, at, line):
        if _ENDS_CLOSED.match(text, quote.end() - 1):
            return quote.start()
    return line


def header_end(text: str, at: int) -> int:
    """Return where the line ends, in the text or in a repr of it: headers may have quotes in them."""
    found = _LINE.search(text, at)
    return len(text) if found is None else found.start()


def value_span(text: str, at: int, *, is_whole_line: bool = False) -> tuple[int, int]:
    """Return where the value that begins at ``at`` begins and ends, without its quotes.

    Brackets are masked with all that is in them. ``is_whole_line`` says that words without quotes go on to
    the end of the line, as in YAML.
    """
    opening = _OPENING.match(text, at)
    if opening is not None:
        mark, slashes, start = opening["mark"], len(opening["slashes"]), opening.end()
        quote = text[start - slashes - 1 : start]
        if text.startswith(quote * 2, start):
            start += 2 * len(quote)
            end = text.find(quote * 3, start)
            return start, len(text) if end < 0 else end
        return start, quoted_end(text, start, mark, slashes)
    spelled = _SPELLED.match(text, at)
    if spelled is not None:
        end = text.find(spelled[0], spelled.end())
        return spelled.end(), len(text) if end < 0 else end
    call = _CALL.match(text, at)
    bracket = at if call is None else call.end()
    if bracket < len(text) and text[bracket] in "([{<":
        return at, max(_balanced_end(text, bracket), line_end(text, at) if is_whole_line else 0)
    if is_whole_line:
        block = _BLOCK.match(text, at)
        return at, line_end(text, at) if block is None else block.end()
    scheme = _SCHEME.match(text, at)
    end = word_end(text, at if scheme is None else scheme.end())
    # An annotation of a parameter, with its default behind it.
    assigned = _ASSIGNED.match(text, end)
    return at, end if assigned is None else _outer_end(text, assigned.end())


def _outer_end(text: str, at: int) -> int:
    opening = _OPENING.match(text, at)
    if opening is None:
        return word_end(text, at)
    slashes = len(opening["slashes"])
    return min(len(text), quoted_end(text, opening.end(), opening["mark"], slashes) + slashes + 1)
