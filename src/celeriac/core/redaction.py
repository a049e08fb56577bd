"""What of a task's arguments, results and errors may be written down.

Secrets are masked in every text (:mod:`celeriac.core.secret` has the rules), and for tasks whose texts are
secret as a whole there is a policy by name: ``keep``, ``hash`` or ``drop``.

What is masked too much, since a leak costs more:

- a value without an end that is sure, because the text was cut, takes with it all that follows;
- brackets under a secret name are masked whole: of ``credentials={'user': 'bob', …}`` nothing is left;
- numbers under a secret name: ``session=42``, ``pin=7``. Counts stay: ``token_count=5``, ``max_tokens=9``;
- ``session``, ``auth``, ``private``, ``cookie`` and ``…_key`` of tasks that mean something harmless by it;
- codes, tickets and sids that look random; certificates, which are PEM as private keys are;
- connection strings as a whole, and all that ``Password(…)`` and ``set_password(…)`` are called with;
- one in ten of the 16-digit numbers that begin as a card's do, and forty random letters and digits in a row;
- of source lines in tracebacks what is assigned to a secret name: ``token = **``.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import translate
from functools import cache
from hashlib import blake2b
from typing import Final, Literal, cast

from msgspec import json
from msgspec.structs import replace

from celeriac.core.secret import (
    DUPLICATE,
    Finding,
    NameRule,
    find,
    names_pattern,
    words_pattern,
)
from celeriac.core.secret_shape import LONG_PATTERN, SHAPE_PATTERN
from celeriac.core.secret_url import URL_PATTERN
from celeriac.errors import ImproperlyConfigured
from celeriac.masking import MASK
from celeriac.model.events import Event, Extra, TaskEvent

__all__ = ["FIELDS", "Policy", "Redactor"]

Policy = Literal["keep", "hash", "drop"]
#: From the one that shows most to the one that shows least.
_POLICIES: Final[tuple[Policy, ...]] = ("keep", "hash", "drop")
#: The fields of events that hold what users wrote, beside ``extra``.
FIELDS: Final = ("args", "kwargs", "result", "exception", "traceback")
#: Times that a text is looked through: what is left after masking must hold no secret by itself. Texts that
#: need more were made for it, and are masked whole.
_PASSES: Final = 6
_HASHED: Final = re.compile(r"blake2b:[0-9a-f]{32}")
#: What is private of a JSON Web Key.
_JWK: Final = frozenset({"d", "k", "p", "q", "dp", "dq", "qi"})
#: Beyond it an unknown structure is masked: nobody sends one that deep.
_MAX_DEPTH: Final = 32


class Redactor:
    """Masks what is secret in texts and events, and knows the policy of each task.

    ``tasks`` are policies by globs of task names, of which the first that fits counts; ``names`` are secret
    beside those that always are; ``hash_key`` makes hashes that nobody without it can guess values from.
    All of it is pure: the same texts give the same texts, and what was redacted is left as it is.
    """

    def __init__(
        self, tasks: Mapping[str, object] | None = None, names: Sequence[str] = (), hash_key: bytes = b""
    ) -> None:
        self._globs = [
            (re.compile(translate(glob)), _policy_of(glob, policy)) for glob, policy in (tasks or {}).items()
        ]
        used = {policy for _, policy in self._globs}
        self._strictest: Policy = max(used, key=_POLICIES.index, default="keep")
        if "hash" in used and not hash_key:
            raise ImproperlyConfigured(
                "redact_tasks has the policy hash, but redact_hash_key is not set: set it"
            )
        # A key of any length: blake2b takes up to 64 bytes.
        self._hash_key = blake2b(hash_key, digest_size=64).digest()
        self._names = NameRule(tuple(names))
        self._policies: dict[str, Policy] = {}
        #: A text that matches neither of these two has no secret in it. Python's re and RE2 take them; the
        #: second needs to be tried on texts of forty bytes and more.
        self.pattern = f"{names_pattern(tuple(names))}|{URL_PATTERN}|{DUPLICATE}|{SHAPE_PATTERN}"
        self.long_pattern = LONG_PATTERN
        #: The first for texts as JSON spells them, with escapes in them.
        self.loose_pattern = (
            f"{words_pattern(tuple(names))}|://|(?i:bearer|basic)|-u|{DUPLICATE}|{SHAPE_PATTERN}"
        )

        #: Tells of most texts without a secret that they have none, quicker than the rules do. It must be
        #: right then. Whoever has a quick way to match the patterns sets it.
        self.is_suspect: Callable[[str], bool] = _is_any

    @property
    def has_policies(self) -> bool:
        """Whether the texts of any task are hashed or dropped."""
        return self._strictest != "keep"

    def policy(self, name: str | None) -> Policy:
        """Return the policy of a task; where its name is not known, the strictest of all."""
        if name is None or not self._globs:
            return self._strictest
        known = self._policies.get(name)
        if known is not None:
            return known
        policy: Policy = next((policy for glob, policy in self._globs if glob.match(name)), "keep")
        # Names come from peers: an honest cluster has no more than this.
        if len(self._policies) < 10_000:
            self._policies[name] = policy
        return policy

    def explain(self, text: str) -> list[Finding]:
        """Return which rule finds a secret where in a text, in order."""
        return find(text, self._names)

    def text(self, text: str) -> str:
        """Return a text with ``**`` for every secret in it; the same text if there is none."""
        if not self.is_suspect(text):
            return text
        for _ in range(_PASSES):
            findings = find(text, self._names)
            if not findings:
                return text
            text = _masked(text, findings)
        return MASK

    def example(self, text: str, *, width: int = 60) -> str:
        """Return for people what is around the first secret of a text, which is masked as all others are."""
        shown = self.text(text)
        place = max(0, shown.find(MASK))
        start, end = max(0, place - width // 2), place + width // 2
        return f"{'…' if start else ''}{shown[start:end]}{'…' if end < len(shown) else ''}"

    def hashed(self, text: str) -> str:
        """Return the hash of a text: equal texts have equal ones. A hash is its own."""
        if _HASHED.fullmatch(text):
            return text
        made = blake2b(text.encode("utf-8", "surrogatepass"), key=self._hash_key, digest_size=16)
        return f"blake2b:{made.hexdigest()}"

    def under_policy(self, text: str, policy: Policy) -> str | None:
        """Return what may be written of a text under a policy."""
        if policy == "keep":
            return self.text(text)
        return None if policy == "drop" else self.hashed(text)

    def fields(self, extra: Mapping[str, object], policy: Policy = "keep") -> dict[str, object] | None:
        """Return what may be written of the fields of an event that have no place of their own."""
        if policy == "drop":
            return None
        if policy == "hash":
            return {name: self._hashed_value(value) for name, value in extra.items()}
        return cast("dict[str, object]", self._value(dict(extra), 0))

    def event(self, event: Event, name: str | None = None) -> Event:
        """Return an event as it may be written, and the very same one if there is nothing to hide.

        ``name`` is that of its task, for events that do not say it.
        """
        policy: Policy = "keep"
        if self._globs and isinstance(event, TaskEvent):
            policy = self.policy(getattr(event, "name", None) or name)
        changes: dict[str, object] = {}
        for field in _fields_of(type(event)):
            text = getattr(event, field)
            if text is not None and (made := self.under_policy(text, policy)) != text:
                changes[field] = made
        if event.extra is not None:
            extra = self.fields(event.extra, policy)
            if extra != event.extra:
                changes["extra"] = None if extra is None else Extra(extra)
        return replace(event, **changes) if changes else event

    def _hashed_value(self, value: object) -> str:
        return self.hashed(value if isinstance(value, str) else json.encode(value).decode())

    def _value(self, value: object, depth: int) -> object:
        """Return a value of JSON without what is secret in it."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bool) or value is None:
            return value
        if isinstance(value, int | float):
            return value if self.text(str(value)) == str(value) else MASK
        if isinstance(value, Mapping) and depth < _MAX_DEPTH:
            return dict(self._items(value, depth + 1))
        if isinstance(value, list | tuple) and depth < _MAX_DEPTH:
            return type(value)(self._elements(value, depth + 1))
        return MASK

    def _elements(self, value: Sequence[object], depth: int) -> list[object]:
        """Return what a list holds; two texts, of which the first is a secret name, are it and its value.

        So are an option of a command and what stands behind it.
        """
        if len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], str):
            name, text = value
            if self._names.is_secret(name):
                return [name, _hidden(text)]
        made: list[object] = []
        is_option = False
        for item in value:
            made.append(_hidden(item) if is_option else self._value(item, depth))
            is_option = isinstance(item, str) and item.startswith("--") and self._names.is_secret(item)
        return made

    def _items(self, value: Mapping[object, object], depth: int) -> Iterator[tuple[str, object]]:
        named = next((value[each] for each in ("name", "Name", "key", "Key") if each in value), None)
        is_named = isinstance(named, str) and self._names.is_secret(named)
        for key, item in value.items():
            name = str(key)
            is_secret = self._names.hides(name, item) or (is_named and name.lower() == "value")
            is_secret = is_secret or ("kty" in value and name in _JWK)
            yield self.text(name), _hidden(item) if is_secret else self._value(item, depth)


@cache
def _fields_of(kind: type[Event]) -> tuple[str, ...]:
    """Return the fields of a kind of events that hold what users wrote."""
    return tuple(field for field in FIELDS if field in kind.__struct_fields__)


def _is_any(_: str) -> bool:
    return True


def _hidden(value: object) -> object:
    """Return what stands for a secret value: what hides nothing stands for itself."""
    return value if value is None or isinstance(value, bool) or value in ("", [], {}) else MASK


def _policy_of(glob: str, policy: object) -> Policy:
    for known in _POLICIES:
        if policy == known:
            return known
    raise ImproperlyConfigured(f"redact_tasks[{glob!r}] is {policy!r}: use one of {', '.join(_POLICIES)}")


def _masked(text: str, findings: list[Finding]) -> str:
    """Return a text with a mask for each run of findings that meet."""
    parts: list[str] = []
    end = 0
    for finding in findings:
        if finding.start > end or not parts:
            parts += text[end : finding.start], MASK
        end = max(end, finding.end)
    return "".join((*parts, text[end:]))
