"""The laws of redaction, whatever the text: no secret is left, twice is once, RE2 misses nothing."""

import json
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import assume, given
from hypothesis import strategies as st

from celeriac.core.redaction import Redactor
from celeriac.model.events import Custom, Extra, Failed
from celeriac.store.columns import to_batch, to_events
from celeriac.store.redacting import BatchRedactor
from tests.property.effort import COSTLY
from tests.secrets_corpus import SHAPES, leaked

REDACTOR = Redactor(names=("iban",))
NAMES = (
    "password",
    "db_password",
    "PASSWORD2",
    "userToken",
    "x-api-key",
    "clientSecret",
    "Authorization",
    "iban",
)
#: What a password is made of: letters to tell it by, and between them whatever people take.
cores = st.text("abcdefghKLMNOP0123456789", min_size=8, max_size=16)
marks = st.text("!$%&/()=?'\"\\[]{}<>,;.:-_#+*~ é秘\n\t", max_size=3)
secrets = st.tuples(cores, marks, cores, marks, cores).map("".join)
names = st.sampled_from(NAMES)
Writer = Callable[[str, str], str]
WRITERS: tuple[Writer, ...] = (
    lambda name, secret: repr({"a": 1, name: secret, "b": "x"}),
    lambda name, secret: repr({"a": [{name: [secret, 1]}], "b": "x"}),
    lambda name, secret: repr({name: secret.encode()}),
    lambda name, secret: repr([(name, secret)]),
    lambda name, secret: json.dumps({"a": 1, name: secret, "b": "x"}),
    lambda name, secret: json.dumps({"a": 1, name: secret}, ensure_ascii=False, indent=2),
    lambda name, secret: repr((json.dumps({"a": 1, name: secret, "b": "x"}),)),
    lambda name, secret: repr((json.dumps({"a": json.dumps({name: secret, "b": "it's"})}),)),
    lambda name, secret: json.dumps({"a": json.dumps({"b": json.dumps({name: secret})})}),
    lambda name, secret: f"f({name.replace('-', '_')}={secret!r}, n=1)",
    lambda name, secret: f"{name.replace('-', '_')} = {secret!r}\nn = 1",
)
#: Pieces of which texts are made that come near the rules.
PIECES = (
    'password', 'token', 'key', 'session', 'iban', '=', ':', "'", '"', '\\', '\\n', ' ', ',', '(', ')', '[',
    ']', '{', '}', '<', '>', '://', 'redis://', '@', 'http://h', '/', '?', '&', 'a', '1', 'é', '...', '…',
    '**', '*', '--', 'Bearer ', 'Authorization', '\n', 'eyJabcdefgh', '-----BEGIN ', '-----END ', '-----',
    '4111 1111 1111 1111', 'AKIAABCDEFGH', '-u', 'hunter22', 'None', "''", 'is', 'value', 'pin', 'aUserPin',
    "b'", ';', '%5D', '\t', '\xa0', '`',
)  # fmt: skip
texts = st.lists(st.sampled_from(PIECES), max_size=14).map("".join) | st.text(max_size=40)


def is_suspect(text: str) -> bool:
    """Whether RE2 would have it looked at."""
    array = pa.array([text])
    return any(
        pc.match_substring_regex(array, each)[0].as_py() for each in (REDACTOR.pattern, REDACTOR.long_pattern)
    )


@given(name=names, secret=secrets, write=st.sampled_from(WRITERS))
def test_no_secret_is_left_however_it_is_written(name: str, secret: str, write: Writer) -> None:
    masked = REDACTOR.text(write(name, secret))

    assert leaked_core(masked, secret) is None


@given(name=names, secret=secrets, write=st.sampled_from(WRITERS), data=st.data())
def test_no_secret_is_left_wherever_the_text_is_cut(
    name: str, secret: str, write: Writer, data: st.DataObject
) -> None:
    text = write(name, secret)
    cut = text[: data.draw(st.integers(0, len(text)))]
    mark = data.draw(st.sampled_from(("", "...", "...'", "...', ...}", "…", "…[cut]")))

    masked = REDACTOR.text(cut + mark)

    assert leaked_core(masked, secret) is None


def leaked_core(text: str, secret: str) -> str | None:
    """Return what is left of the letters of a secret: its marks are spelled in many ways."""
    cores = "".join(each if each.isalnum() and each.isascii() else "\0" for each in secret).split("\0")
    return next((part for core in cores if len(core) >= 6 and (part := leaked(text, core))), None)


@given(texts)
def test_twice_is_once(text: str) -> None:
    once = REDACTOR.text(text)

    assert REDACTOR.text(once) == once


@given(texts)
def test_what_is_changed_was_found_by_re2(text: str) -> None:
    assert REDACTOR.text(text) == text or is_suspect(text)


@given(texts)
def test_what_is_found_is_explained(text: str) -> None:
    findings = REDACTOR.explain(text)

    assert bool(findings) == (REDACTOR.text(text) != text)
    assert all(0 <= found.start < found.end <= len(text) for found in findings)


@COSTLY
@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=5))
def test_a_batch_is_redacted_as_its_events_are(pairs: list[tuple[str, str]]) -> None:
    common = {"timestamp": 1.0, "clock": 1, "hostname": "h", "local_received": 2.0, "uuid": "t"}
    events = [
        event
        for one, other in pairs
        for event in (
            Failed(**common, exception=one, traceback=other),  # type: ignore[arg-type]
            Custom(**common, subject="x", extra=Extra({one: other, "a": [one, other]})),  # type: ignore[arg-type]
        )
    ]

    redacted = to_events(BatchRedactor(REDACTOR)(to_batch(events, recorder="r", first=0)))

    assert redacted == [REDACTOR.event(event) for event in events]


@given(
    shape=st.sampled_from(SHAPES),
    before=texts.filter(lambda text: not text.endswith("\\")),
    random=st.randoms(use_true_random=False),
)
def test_no_shape_of_the_corpus_is_hidden_by_what_stands_on_another_line(shape, before: str, random) -> None:  # type: ignore[no-untyped-def]
    field, text, make = shape
    secret = make(random)
    assume(leaked(before, secret) is None)

    masked = REDACTOR.text(f"{before}\n{text.replace('@@', secret)}")

    assert field == "rest" or leaked(masked, secret) is None
