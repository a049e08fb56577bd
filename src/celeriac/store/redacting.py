"""Redaction of whole batches, before any of it is written: what is clean costs next to nothing.

Every text is matched once by RE2, in linear time, against a pattern that anything secret matches. Only what
does goes through the rules of :class:`~celeriac.core.redaction.Redactor`, one text at a time.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from celeriac.core.redaction import Policy, Redactor
from celeriac.model.events import Extra
from celeriac.store.columns import TEXTS

__all__ = ["BatchRedactor", "Example"]

#: Tasks whose names are remembered, 20 MB of them: those under way in a large cluster, and some.
_MAX_TASKS: Final = 100_000
_REST: Final = "rest"
#: Columns with long texts that are often the same.
_REPEATED: Final = frozenset({"exception", "traceback"})
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


class Example(NamedTuple):
    """A text that has a secret in it, for people: where, by which rule, and what will be written."""

    column: str
    rule: str
    text: str


class BatchRedactor:
    """Redacts rows of :data:`~celeriac.store.columns.SCHEMA`; what is clean is returned as it is.

    A task's name is told by the events that say what it is. It is remembered, so that its results and errors
    obey its policy too; of tasks it never heard of it takes the strictest.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._pattern = redactor.pattern
        self._rest_pattern = redactor.loose_pattern
        self._policies: OrderedDict[str, Policy] = OrderedDict()
        #: How many values were changed, by column; of the policies, under ``hashed`` and ``dropped``.
        self.masked: Counter[str] = Counter()

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows as they may be written."""
        columns = {name: values for name in TEXTS if (values := batch.column(name)).null_count < len(values)}
        made = dict(columns)
        if self._redactor.has_policies:
            hidden: dict[int, Policy] = {
                row: each for row, each in enumerate(self._policies_of(batch)) if each != "keep"
            }
            made = {name: self._under_policies(name, values, hidden) for name, values in columns.items()}
        for name, places in self._suspects(made).items():
            made[name] = self._masked(name, made[name], places)
        for name, values in made.items():
            if values is not columns[name]:
                place = batch.schema.get_field_index(name)
                batch = batch.set_column(place, batch.schema.field(place), values)
        return batch

    def explain(self, batch: pa.RecordBatch) -> list[Example]:
        """Return what would be masked and why: one for each rule that finds something in a value."""
        examples: list[Example] = []
        columns = {name: batch.column(name) for name in TEXTS}
        for column, places in self._suspects(columns).items():
            for place in places:
                text = columns[column][place].as_py()
                rules = dict.fromkeys(finding.rule for finding in self._redactor.explain(text))
                if not rules and column == _REST and self._rest(text) != text:
                    rules = {"name": None}
                shown = self._redactor.example(text if column != _REST else self._rest(text))
                examples += [Example(column, rule, shown) for rule in rules]
        return examples

    # -- secrets

    def _masked(self, column: str, values: pa.Array, places: list[int]) -> pa.Array:
        redact: Callable[[str], str] = self._rest if column == _REST else self._redactor.text
        changes: dict[int, str] = {}
        seen: dict[str, str] = {}
        for place in places:
            text = values[place].as_py()
            if text not in seen:
                seen[text] = redact(text)
            if seen[text] != text:
                changes[place] = seen[text]
        if not changes:
            return values
        self.masked[column] += len(changes)
        return _changed(values, changes)

    def _suspects(self, columns: dict[str, pa.Array]) -> dict[str, list[int]]:
        """Return the rows of each column that may have a secret in them."""
        suspects: dict[str, list[int]] = {}
        texts = {
            name: _Texts(values, is_repeated=name in _REPEATED)
            for name, values in columns.items()
            if values.null_count < len(values)
        }
        plain = [name for name in texts if name != _REST]
        # All columns at once: to build the pattern takes as long as to match a thousand texts.
        for pattern, names in ((self._pattern, plain), (self._rest_pattern, texts.keys() - set(plain))):
            if not names:
                continue
            found = self._matches(pa.concat_arrays([texts[name].distinct for name in names]), pattern)
            at = 0
            for name in names:
                size = len(texts[name].distinct)
                suspects[name] = texts[name].rows(found.slice(at, size))
                at += size
        return {name: places for name, places in suspects.items() if places}

    def _matches(self, texts: pa.Array, pattern: str) -> pa.Array:
        """Return for each text whether a secret may be in it."""
        found = pc.match_substring_regex(texts, pattern)
        is_long = pc.greater_equal(pc.binary_length(texts), 40)
        long = texts.filter(is_long)
        if len(long):
            found = pc.or_kleene(
                found,
                pc.replace_with_mask(
                    is_long, is_long, pc.match_substring_regex(long, self._redactor.long_pattern)
                ),
            )
        return found

    def _rest(self, text: str) -> str:
        """Return the JSON of fields without what is secret in them; the same text if that is nothing."""
        extra = _decode(text)
        made = self._redactor.fields(extra)
        return text if made == extra else _encode(Extra(made or {})).decode()

    # -- policies

    def _policies_of(self, batch: pa.RecordBatch) -> list[Policy]:
        """Return the policy of each row, and learn the names of tasks."""
        redactor, known = self._redactor, self._policies
        policies: list[Policy] = []
        for uuid, name in zip(
            batch.column("uuid").to_pylist(), batch.column("name").to_pylist(), strict=True
        ):
            if uuid is None:
                policies.append("keep")
                continue
            if name is not None:
                known[uuid] = redactor.policy(name)
                if len(known) > _MAX_TASKS:
                    known.popitem(last=False)
            policy = known.get(uuid)
            if policy is None:
                policy = redactor.policy(None)
            else:
                known.move_to_end(uuid)
            policies.append(policy)
        return policies

    def _under_policies(self, column: str, values: pa.Array, policies: dict[int, Policy]) -> pa.Array:
        """Return a column with what policies leave of its rows; those that are kept have none here."""
        changes: dict[int, str | None] = {}
        redact = self._rest_under if column == _REST else self._redactor.under_policy
        texts = values.take(pa.array(policies, pa.int64())).to_pylist()
        for (place, policy), text in zip(policies.items(), texts, strict=True):
            if text is None or (made := redact(text, policy)) == text:
                continue
            changes[place] = made
            self.masked["dropped" if policy == "drop" else "hashed"] += 1
        return _changed(values, changes) if changes else values

    def _rest_under(self, text: str, policy: Policy) -> str | None:
        made = self._redactor.fields(_decode(text), policy)
        return None if made is None else _encode(Extra(made)).decode()


class _Texts:
    """The texts of a column, without rows that have none; those that are often the same but once."""

    def __init__(self, values: pa.Array, *, is_repeated: bool) -> None:
        self._values = values
        self._codes: pa.Array | None = None
        self.distinct = values
        if is_repeated:
            encoded = values.dictionary_encode()
            self._codes, self.distinct = encoded.indices, encoded.dictionary
        elif values.null_count:
            self.distinct = values.drop_null()

    def rows(self, matches: pa.Array) -> list[int]:
        """Return the rows of the texts that matched."""
        found = pc.indices_nonzero(matches)
        if len(found) and self._codes is not None:
            found = pc.indices_nonzero(pc.is_in(self._codes, found.cast(self._codes.type)))
        elif len(found) and self._values.null_count:
            found = pc.indices_nonzero(self._values.is_valid()).take(found)
        return cast("list[int]", found.to_pylist())


def _changed(values: pa.Array, changes: dict[int, str] | dict[int, str | None]) -> pa.Array:
    """Return a column with other values in some places."""
    made = values.to_pylist()
    for place, text in changes.items():
        made[place] = text
    return pa.array(made, values.type)
