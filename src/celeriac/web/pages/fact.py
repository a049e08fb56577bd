"""What is known of one thing: names on the left, values on the right."""

from collections.abc import Mapping
from typing import Final

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from celeriac.views.format import UNKNOWN

__all__ = ["Facts"]

_VALUE: Final = "fact-value"


class Facts:
    """Values under names of ours, which are known when the page is made. Values may be what a peer said."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._values: dict[str, TextElement] = {}
        with ui.element("dl").classes("facts"):
            for mark, name in names.items():
                TextElement(tag="dt", text=name).classes("fact-name")
                self._values[mark] = TextElement(tag="dd", text=UNKNOWN).props(f"data-fact={mark}")
                self._values[mark].classes(_VALUE)

    def show(self, mark: str, text: str, *, kind: str = "") -> None:
        """Show another value, with a class of the style sheet."""
        self._values[mark].set_text(text)
        self._values[mark].classes(replace=f"{_VALUE} {kind}".strip())
