"""The fields of the page of the history: what is asked, of which time."""

from collections.abc import Callable
from typing import Final

from nicegui import ui

from celeriac.errors import CallerError
from celeriac.web.pages.history_query import AGAINST, BY, EXACT, RANGES, HistoryQuery, input_text, moment_of

__all__ = ["HistoryForm"]

#: The fields that narrow what is shown, and the tabs that have them.
_LABELS: Final = {"task": "Task (glob)", "worker": "Worker (glob)", "queue": "Queue (glob)"}
_NARROWED: Final = ("latency", "compare")


class HistoryForm:
    """Fields with what was asked; ``ask`` is told what is asked next, ``tell`` what is wrong with it."""

    def __init__(
        self, query: HistoryQuery, ask: Callable[[HistoryQuery], object], tell: Callable[[str], object]
    ) -> None:
        self._query = query
        self._ask = ask
        self._tell = tell
        self._texts: dict[str, ui.input] = {}
        self._by: ui.select | None = None
        self._against: ui.select | None = None
        with ui.element("div").classes("filters").props('role=search aria-label="History query"'):
            self._range = _select("Time range", RANGES, query.range)
            self._since, self._until = self._moments("Start (UTC)", "End (UTC)", query.since, query.until)
            _only_for(self._range, EXACT, self._since, self._until)
            for name, label in _LABELS.items() if query.tab in _NARROWED else ():
                self._texts[name] = self._text(label, getattr(query, name))
            if query.tab == "latency":
                self._by = _select("Interval", BY, query.by)
            if query.tab == "compare":
                self._make_other()
            ui.button("Run", on_click=self._submit, color=None).props("unelevated no-caps data-ask").classes(
                "main-button"
            )

    def _make_other(self) -> None:
        query = self._query
        self._against = _select("Compare with", AGAINST, query.against)
        self._other = self._moments(
            "Baseline start (UTC)", "Baseline end (UTC)", query.other_since, query.other_until
        )
        _only_for(self._against, EXACT, *self._other)

    def _text(self, label: str, value: str) -> ui.input:
        made = ui.input(label, value=value).props(f'dense outlined maxlength=200 aria-label="{label}"')
        made.on("keydown.enter", self._submit)
        return made

    def _moments(
        self, first: str, last: str, since: float | None, until: float | None
    ) -> tuple[ui.input, ui.input]:
        made = [
            ui.input(label, value=input_text(at)).props(
                f'dense outlined stack-label type=datetime-local step=1 aria-label="{label}"'
            )
            for label, at in ((first, since), (last, until))
        ]
        for each in made:
            each.on("keydown.enter", self._submit)
        return made[0], made[1]

    def _submit(self) -> None:
        try:
            asked = self._asked()
        except CallerError as error:
            self._tell(str(error))
            return
        self._ask(asked)

    def _asked(self) -> HistoryQuery:
        is_exact = self._range.value == EXACT
        asked = self._query._replace(
            range=self._range.value,
            since=moment_of(self._since.value) if is_exact else None,
            until=moment_of(self._until.value) if is_exact else None,
        )
        texts = {name: (field.value or "").strip() for name, field in self._texts.items()}
        asked = HistoryQuery(**(asked._asdict() | texts))
        if is_exact and asked.since is None and asked.until is None:
            raise CallerError("Custom range needs a start or an end.")
        if self._by is not None:
            asked = asked._replace(by=self._by.value)
        if self._against is not None:
            is_exact = self._against.value == EXACT
            since, until = (moment_of(field.value) if is_exact else None for field in self._other)
            asked = asked._replace(against=self._against.value, other_since=since, other_until=until)
        return asked


def _select(label: str, options: dict[str, str], value: str) -> ui.select:
    made = ui.select(options, label=label, value=value)
    made.props(f'dense outlined options-dense aria-label="{label}"')
    return made


def _only_for(select: ui.select, value: str, *fields: ui.input) -> None:
    """Have fields there while a value is chosen."""
    for field in fields:
        field.bind_visibility_from(select, "value", value=value)
