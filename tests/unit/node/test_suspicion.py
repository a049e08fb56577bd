import sys

import pytest

from celeriac.core.redaction import Redactor
from celeriac.node.suspicion import quicken
from tests.secrets_corpus import HONEST, SECRETS, as_event


def test_it_masks_what_the_rules_mask_and_nothing_else() -> None:
    plain, quick = Redactor(), quicken(Redactor())
    events = [as_event(entry) for entry in SECRETS]

    assert [quick.event(event) for event in events] == [plain.event(event) for event in events]
    assert [quick.text(text) for text in HONEST] == [plain.text(text) for text in HONEST]


@pytest.mark.parametrize("text", ["(1, 'two')", "{}", "an order of 12 " * 60])
def test_what_is_clean_does_not_get_to_the_rules(text: str) -> None:
    assert not quicken(Redactor()).is_suspect(text)


def test_half_a_character_is_for_the_rules() -> None:
    assert quicken(Redactor()).text("password='\udc80abc'") == "password='**'"


def test_without_re2_the_rules_do_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)

    redactor = quicken(Redactor())

    assert redactor.is_suspect("{}")
    assert redactor.text("password='abc'") == "password='**'"


def test_what_was_clean_before_is_clean_and_what_was_suspect_is_suspect_however_many_came_between() -> None:
    redactor = quicken(Redactor())

    for _ in range(2):
        assert not any(redactor.is_suspect(f"order {number}") for number in range(5000))
        assert redactor.is_suspect("password='abc'")
