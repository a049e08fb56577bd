"""Parts that pages are made of."""

from celeriac.web.pages.part import state_class


def test_custom_states_share_one_class() -> None:
    assert state_class("SUCCESS") == "state state-success"
    assert state_class('x" onclick="alert(1)') == state_class(None) == "state"
