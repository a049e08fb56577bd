"""Reads expressions of Prometheus as far as ours need it: can they be asked, and what labels come of them."""

import re
from typing import NamedTuple

__all__ = ["Kind", "Promql"]


class Kind(NamedTuple):
    """What an expression is: ``scalar``, ``vector`` or ``range``; and which labels its series have."""

    of: str
    labels: frozenset[str] = frozenset()


SCALAR = Kind("scalar")
#: What Prometheus adds to each series that it scrapes.
TARGET = frozenset({"job", "instance"})
_TOKEN = re.compile(
    r"""\s*(?:(?P<string>"(?:\\.|[^"\\])*")|(?P<span>\d+(?:ms|[smhdwy])|\$__rate_interval)|(?P<number>\d+(?:\.\d+)?)"""
    r"""|(?P<word>[A-Za-z_][A-Za-z0-9_]*)|(?P<sign>==|!=|<=|>=|=~|!~|[-+*/<>=,(){}\[\]]))"""
)
_AGGREGATES = {"sum", "max", "min", "avg", "count"}
_OF_RANGES = {"rate", "increase"}
_OF_VECTORS = {"absent", "round"}
#: Each binds closer than those before it.
_LEVELS = [{"or"}, {"and", "unless"}, {"==", "!=", "<=", ">=", "<", ">"}, {"+", "-"}, {"*", "/"}]
_SETS = {"or", "and", "unless"}


class Promql:
    """Reads an expression as Prometheus does, over series with the labels that are given; else it raises."""

    def __init__(self, text: str, series: dict[str, frozenset[str]]) -> None:
        self._series = series
        self._tokens: list[tuple[str, str]] = []
        at, text = 0, text.strip()
        while at < len(text):
            token = _TOKEN.match(text, at)
            assert token is not None, f"unreadable: {text[at:]}"
            self._tokens.append((str(token.lastgroup), token[0].strip()))
            at = token.end()
        self._at = 0

    def read(self) -> Kind:
        """Return what the whole of it is."""
        kind = self._operation(0)
        assert self._peek() == "", f"left over: {self._tokens[self._at :]}"
        assert kind.of != "range"
        return kind

    def _peek(self) -> str:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else ""

    def _take(self, *wanted: str, group: str | None = None) -> str:
        assert self._at < len(self._tokens), f"it ends where {wanted or group} should be"
        kind, text = self._tokens[self._at]
        assert text in wanted or kind == group, f"{text} stands where {wanted or group} should be"
        self._at += 1
        return text

    def _operation(self, level: int) -> Kind:
        if level == len(_LEVELS):
            return self._term()
        left = self._operation(level + 1)
        while self._peek() in _LEVELS[level]:
            sign = self._take(*_LEVELS[level])
            right = self._operation(level + 1)
            assert "range" not in (left.of, right.of)
            if left.of == right.of == "vector":
                # Else no series of one side has one that it belongs to on the other.
                assert left.labels == right.labels, f"{left.labels} {sign} {right.labels}"
            else:
                assert sign not in _SETS
            left = left if left.of == "vector" else right
        return left

    def _term(self) -> Kind:
        if self._peek() == "(":
            self._take("(")
            kind = self._operation(0)
            self._take(")")
            return kind
        if self._tokens[self._at][0] == "number":
            self._take(group="number")
            return SCALAR
        word = self._take(group="word")
        if word in _AGGREGATES:
            return self._aggregate()
        return self._call(word) if self._peek() == "(" else self._selector(word)

    def _aggregate(self) -> Kind:
        self._take("by")
        by = self._names()
        self._take("(")
        inner = self._operation(0)
        self._take(")")
        assert inner.of == "vector"
        assert by <= inner.labels, f"no series has {by - inner.labels}"
        return Kind("vector", by)

    def _names(self) -> frozenset[str]:
        self._take("(")
        names = {self._take(group="word")}
        while self._peek() == ",":
            self._take(",")
            names.add(self._take(group="word"))
        self._take(")")
        return frozenset(names)

    def _call(self, name: str) -> Kind:
        self._take("(")
        if name == "time":
            self._take(")")
            return SCALAR
        if name == "histogram_quantile":
            assert 0 < float(self._take(group="number")) < 1
            self._take(",")
        inner = self._operation(0)
        self._take(")")
        if name == "histogram_quantile":
            assert inner.of == "vector"
            assert "le" in inner.labels
            return Kind("vector", inner.labels - {"le"})
        assert name in _OF_RANGES | _OF_VECTORS, f"{name} is no function that is known here"
        assert inner.of == ("range" if name in _OF_RANGES else "vector")
        return Kind("vector", inner.labels)

    def _selector(self, name: str) -> Kind:
        assert name in self._series, f"nothing exposes {name}"
        labels = self._series[name] | TARGET
        if self._peek() == "{":
            self._take("{")
            while True:
                label = self._take(group="word")
                assert label in labels, f"{name} has no label {label}"
                self._take("=", "!=", "=~", "!~")
                re.compile(self._take(group="string"))
                if self._take(",", "}") == "}":
                    break
        kind = "vector"
        if self._peek() == "[":
            self._take("[")
            self._take(group="span")
            self._take("]")
            kind = "range"
            # What falls, too, has no rate.
            assert name.endswith(("_total", "_bucket", "_count", "_sum")), name
        if self._peek() == "offset":
            self._take("offset")
            self._take(group="span")
        return Kind(kind, labels)
