"""What is masked in texts and events, what stays, and what the policies of tasks do."""

import re
import sys
from re import _constants, _parser  # type: ignore[attr-defined,unused-ignore]  # how re reads patterns
from types import ModuleType
from typing import Any

import pytest

from celeriac.core import redaction, secret, secret_name, secret_shape, secret_url, secret_value
from celeriac.core.redaction import Redactor
from celeriac.errors import ImproperlyConfigured
from celeriac.model.events import Extra, Sent, Succeeded, WorkerOnline
from tests.secrets_corpus import HONEST, SECRETS, SHAPES, Entry, as_event, leaked

KEY = b"a key of our own"
SENT: dict[str, Any] = {"timestamp": 1.0, "clock": 2, "hostname": "gen1@h", "uuid": "t1"}


@pytest.fixture(scope="module")
def redactor() -> Redactor:
    return Redactor()


# -- the corpus


def test_the_corpus_has_six_hundred_secrets_of_many_shapes() -> None:
    assert len(SECRETS) == len({entry.text for entry in SECRETS}) == 600
    assert len(SHAPES) >= 200
    assert all(leaked(entry.text, entry.secret) for entry in SECRETS)


@pytest.mark.parametrize("entry", SECRETS[: len(SHAPES)], ids=range(len(SHAPES)))
def test_no_secret_of_any_shape_is_left_in_a_text(redactor: Redactor, entry: Entry) -> None:
    masked = redactor.text(entry.text)

    assert leaked(masked, entry.secret) is None, masked
    assert redactor.text(masked) == masked


def test_no_secret_of_the_corpus_is_left_in_an_event(redactor: Redactor) -> None:
    leaks = [
        (entry, masked)
        for entry in SECRETS
        if leaked(repr(masked := redactor.event(as_event(entry))), entry.secret)
    ]

    assert leaks == []


@pytest.mark.parametrize("text", HONEST)
def test_honest_texts_stay_as_they_are(redactor: Redactor, text: str) -> None:
    assert redactor.text(text) == text


def test_every_secret_matches_the_pattern_that_texts_are_sorted_by(redactor: Redactor) -> None:
    texts = [entry.text for entry in SECRETS if entry.field != "rest"]

    missed = [
        text
        for text in texts
        if not re.search(redactor.pattern, text) and not re.search(redactor.long_pattern, text)
    ]

    assert missed == []


# -- what is left of a text


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("{'password': 'hunter22', 'n': 1}", "{'password': '**', 'n': 1}"),
        ("f(1, password='hunter22', n=1)", "f(1, password='**', n=1)"),
        (
            '{"a": "{\\"token\\": \\"hunter22\\", \\"n\\": 1}"}',
            '{"a": "{\\"token\\": \\"**\\", \\"n\\": 1}"}',
        ),
        ("{'credentials': {'a': ')', 'b': [1]}, 'n': 1}", "{'credentials': **, 'n': 1}"),
        ("redis://bob:hunter22@h:1/0", "redis://bob:**@h:1/0"),
        ("https://h/x?token=hunter22&page=2", "https://h/x?token=**&page=2"),
        ("Authorization: Bearer hunter22\nHost: h", "Authorization: **\nHost: h"),
        ("host=h password=hunter22 dbname=d", "host=h password=** dbname=d"),
        ("password: correct horse\nuser: bob", "password: **\nuser: bob"),
        ("{'password': 'hunter22...', ...}", "{'password': '**', ...}"),
        ("('4111 1111 1111 1111', 1)", "('**', 1)"),
        ("token=<Token abcdef>, n=1", "token=**, n=1"),
        ("{'tokens': 5, 'token': 5}", "{'tokens': 5, 'token': **}"),
    ],
)
def test_all_but_the_secret_stays(redactor: Redactor, text: str, masked: str) -> None:
    assert redactor.text(text) == masked


def test_names_of_the_user_are_secret_in_any_spelling() -> None:
    redactor = Redactor(names=("iban", "tax_id", "Straße"))
    text = (
        "{'customerIban': 'DE89', 'taxId': '12', 'TAX-ID2': '34', 'taxid': '56', 'straße': 'A', 'liban': 3}"
    )

    masked = redactor.text(text)

    assert masked == (
        "{'customerIban': '**', 'taxId': '**', 'TAX-ID2': '**', 'taxid': '**', 'straße': '**', 'liban': 3}"
    )


def test_an_explanation_says_which_rule_found_what_where(redactor: Redactor) -> None:
    text = "{'password': 'hunter22', 'url': 'redis://:x1y2z3@h/0'}"

    findings = redactor.explain(text)

    assert [(found.rule, text[found.start : found.end]) for found in findings if found.rule != "login"] == [
        ("name", "hunter22"),
        ("url", "x1y2z3"),
    ]


def test_an_example_shows_what_is_around_a_secret_and_never_the_secret(redactor: Redactor) -> None:
    shown = [redactor.example(entry.text) for entry in SECRETS]

    assert (
        redactor.example(f"{'a ' * 50}password='hunter22'{' b' * 50}", width=24)
        == "…a password='**' b b b b …"
    )
    assert [text for text, entry in zip(shown, SECRETS, strict=True) if leaked(text, entry.secret)] == []


def test_a_text_that_never_comes_to_rest_is_masked_whole(
    redactor: Redactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redaction, "_PASSES", 0)

    assert redactor.text("password='hunter22'") == "**"


# -- policies


def test_the_first_glob_that_fits_says_what_becomes_of_a_task() -> None:
    redactor = Redactor({"billing.report": "keep", "billing.*": "drop", "mail.*": "hash"}, hash_key=KEY)

    policies = [redactor.policy(name) for name in ("billing.report", "billing.pay", "mail.send", "shop.pay")]

    assert policies == ["keep", "drop", "hash", "keep"]
    assert redactor.has_policies


@pytest.mark.parametrize(
    ("tasks", "policy"),
    [({}, "keep"), ({"a": "keep"}, "keep"), ({"a": "hash"}, "hash"), ({"a": "drop", "b": "hash"}, "drop")],
)
def test_a_task_without_a_name_has_the_strictest_policy_of_all(tasks: dict[str, str], policy: str) -> None:
    redactor = Redactor(tasks, hash_key=KEY)

    assert redactor.policy(None) == policy


@pytest.mark.parametrize("policy", ["DROP", "mask", None, 3])
def test_a_policy_that_is_none_is_refused(policy: object) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"redact_tasks\['a'\].*keep, hash, drop"):
        Redactor({"a": policy})


def test_hashes_need_a_key() -> None:
    with pytest.raises(ImproperlyConfigured, match="redact_hash_key"):
        Redactor({"a": "hash"})


def test_equal_texts_have_equal_hashes_under_one_key_alone() -> None:
    one, same, other = Redactor(hash_key=KEY), Redactor(hash_key=KEY), Redactor(hash_key=b"k" * 100)

    made = one.hashed("(1, 'x')")

    assert re.fullmatch("blake2b:[0-9a-f]{32}", made)
    assert made == same.hashed("(1, 'x')") == one.hashed(made)
    assert len({made, other.hashed("(1, 'x')"), one.hashed("(1, 'y')")}) == 3


def test_an_event_obeys_the_policy_of_its_task() -> None:
    redactor = Redactor({"billing.*": "drop", "mail.*": "hash"}, hash_key=KEY)
    sent = Sent(**SENT, name="billing.pay", args="(1,)", kwargs="{}", extra=Extra(a=1))
    done = Succeeded(**SENT, result="'x'", extra=Extra(a=1, b="c"))

    dropped, hashed = redactor.event(sent), redactor.event(done, "mail.send")

    assert dropped == Sent(**SENT, name="billing.pay")
    assert hashed == Succeeded(
        **SENT, result=redactor.hashed("'x'"), extra=Extra(a=redactor.hashed("1"), b=redactor.hashed("c"))
    )
    assert redactor.event(done) == Succeeded(**SENT)
    assert redactor.event(done, "shop.pay") is done


def test_an_event_with_nothing_to_hide_is_the_very_same(redactor: Redactor) -> None:
    events = [
        Sent(
            **SENT,
            name="shop.pay",
            args="(1, 'é')",
            kwargs="{'order': 3}",
            extra=Extra(a=[1, {"b": None}], t=(1, 2)),
        ),
        WorkerOnline(timestamp=1.0, clock=2, hostname="h", extra=Extra(tokens=5, key="a/b", password=None)),
    ]

    assert all(redactor.event(event) is event for event in events)


def test_a_structure_that_is_too_deep_is_masked(redactor: Redactor) -> None:
    deep: object = "hunter22"
    for _ in range(100):
        deep = [deep]

    masked = redactor.fields({"a": deep})

    assert "hunter22" not in repr(masked)


# -- how much work a text can make

MODULES: list[ModuleType] = [secret, secret_name, secret_shape, secret_url, secret_value]
PATTERNS = [
    (f"{module.__name__}.{name}", value)
    for module in MODULES
    for name, value in vars(module).items()
    if isinstance(value, re.Pattern)
]


def may_be_missing(item: Any) -> bool:
    kind, value = item
    return kind is _constants.MAX_REPEAT and value[0] == 0


def last_may_fail(parsed: Any, *, is_tail: bool) -> list[str]:
    """Return the repetitions without a limit that something may fail after: there re goes back."""
    found: list[str] = []
    items = list(parsed)
    for place, (kind, value) in enumerate(items):
        is_last = is_tail and all(may_be_missing(each) for each in items[place + 1 :])
        if kind in (_constants.MAX_REPEAT, _constants.MIN_REPEAT):
            _, most, inner = value
            if most is _constants.MAXREPEAT and not is_last:
                found.append(f"repeat {inner}")
            found += last_may_fail(inner, is_tail=is_last)
        elif kind is _constants.SUBPATTERN:
            found += last_may_fail(value[-1], is_tail=is_last)
        elif kind is _constants.BRANCH:
            found += [each for branch in value[1] for each in last_may_fail(branch, is_tail=is_last)]
        elif kind in (_constants.ASSERT, _constants.ASSERT_NOT):
            found += last_may_fail(value[1], is_tail=False)
    return found


@pytest.mark.parametrize(("name", "pattern"), PATTERNS, ids=[name for name, _ in PATTERNS])
def test_what_is_repeated_without_a_limit_is_the_last_of_its_pattern(
    name: str, pattern: re.Pattern[str]
) -> None:
    assert last_may_fail(_parser.parse(pattern.pattern, pattern.flags), is_tail=True) == [], name


HOSTILE = [
    "a", "1", "'", '"', "\\", "key=", "password=", "pass", "password='", "{'token': ", "key='a", "tokens=1,",
    "://", "a://", "a://b:", "a://b@", "http://h/?a=", "eyJ", "-----BEGIN ", "4111 ", "411", "AKIA", "(",
    "<token ", "Authorization: ", "password: \\n", "\\\\'", "Bearer ", "a:b@", "--password ", "'password', ",
    "session session ",
    "password=\\", "secret>", "&key=", "x-", "_", " ", "\n", "é", "4111111111111111 ", "0" * 39 + " ", "a1B2",
    "mysql ", "mysql -p", "password(", "token('", "token(token ", "code=a&", "?code=", "/reset/", "/reset/a",
    "password\\n  ", "password\n  a", "Duplicate entry '", "%3A%2F%2Fa%3A", "&quot;password&quot;: ", "%22",
    "Private-Lines:", "---- BEGIN ", "\"kty\" \"d\":\"", "(AUTH ", "'name': 'password', ", "$2b$12$",
    "sid=a1B2", "password: |\\n  ", "password | ", "</td><td>", "<td>password</td>", "'password')",
    "unexpected token ",
]  # fmt: skip


def calls(redactor: Redactor, text: str) -> int:
    """Return how many functions are called to mask a text."""
    count = 0

    def count_call(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count_call)
    try:
        redactor.text(text)
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("piece", HOSTILE)
def test_a_text_that_is_twice_as_long_makes_about_twice_the_work(redactor: Redactor, piece: str) -> None:
    short, long = (piece * (size // len(piece)) for size in (1024, 4096))

    assert calls(redactor, long) <= 5 * calls(redactor, short) + 200


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_texts_of_the_longest_length_are_masked(redactor: Redactor, piece: str) -> None:
    text = piece * (65_536 // len(piece))
    shorter = piece * (8192 // len(piece)) + " password='hunter22'"

    masked = redactor.text(text + " password='hunter22'")
    once = redactor.text(shorter)

    assert "hunter22" not in masked
    # Of a shorter one, for it takes as long again.
    assert redactor.text(once) == once
