"""Who is connected is told, whatever the others do."""

import logging
from typing import Any

import pytest

from celeriac.node.signal import Signal


def test_receivers_are_told_in_the_order_they_were_connected() -> None:
    signal, told = Signal("shutter"), list[Any]()
    signal.connect(lambda sender, **_: told.append(("first", sender)))
    signal.connect(lambda sender, **_: told.append(("second", sender)))

    signal.send("state")

    assert told == [("first", "state"), ("second", "state")]


def test_a_receiver_is_told_by_name_and_what_it_returns_is_given_back() -> None:
    signal = Signal("shutter")

    @signal.connect
    def receiver(**said: Any) -> dict[str, Any]:
        return said

    answers = signal.send("state", camera=7)

    assert answers == [(receiver, {"sender": "state", "signal": signal, "camera": 7})]


def test_a_receiver_that_raises_does_not_keep_the_others_from_being_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    signal, told = Signal("shutter"), list[object]()
    error = ValueError("no film")

    def fail(**_: object) -> None:
        raise error

    signal.connect(fail)
    signal.connect(lambda sender, **_: told.append(sender))

    with caplog.at_level(logging.ERROR):
        answers = signal.send("state")

    assert told == ["state"]
    assert answers[0] == (fail, error)
    assert "shutter" in caplog.text
    assert "no film" in caplog.text


def test_a_receiver_is_told_once_however_often_it_is_connected() -> None:
    signal, told = Signal("shutter"), list[object]()

    def receiver(sender: object, **_: object) -> None:
        told.append(sender)

    signal.connect(receiver)
    signal.connect(receiver)
    signal.send("state")

    assert told == ["state"]


def test_who_is_disconnected_is_told_no_longer() -> None:
    class Album:
        def __init__(self) -> None:
            self.pictures: list[object] = []

        def keep(self, sender: object, **_: object) -> None:
            self.pictures.append(sender)

    signal, album = Signal("shutter"), Album()
    signal.connect(album.keep)

    were_told = [signal.disconnect(album.keep), signal.disconnect(album.keep)]
    signal.send("state")

    assert were_told == [True, False]
    assert (album.pictures, signal.receivers) == ([], ())


def test_a_receiver_may_disconnect_itself_while_it_is_told() -> None:
    signal, told = Signal("shutter"), list[str]()

    def once(**_: object) -> None:
        told.append("once")
        signal.disconnect(once)

    signal.connect(once)
    signal.connect(lambda **_: told.append("always"))

    signal.send()
    signal.send()

    assert told == ["once", "always", "always"]
