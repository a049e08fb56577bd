"""What all pages have: the way to the others, the moment that is shown, and who looks."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from time import time
from typing import Final

from fastapi import Request
from nicegui import app, events, ui

from celeriac.views.format import format_timestamp
from celeriac.web.guard import nonce_of
from celeriac.web.pages.part import heading
from celeriac.web.pages.visit import Visit, address

__all__ = ["PAGES", "frame"]

#: The pages that can be gone to from any other, by their paths; by the key of its number too.
PAGES: Final = {
    "/": "Overview",
    "/tasks": "Tasks",
    "/workers": "Workers",
    "/cluster": "Cluster",
    "/history": "History",
}
#: How far back the slider reaches, in seconds.
_SPANS: Final = {3600: "1 hour", 6 * 3600: "6 hours", 86400: "1 day", 7 * 86400: "7 days"}
#: Places of the slider.
_PLACES: Final = 240
#: Seconds that it has to rest before its moment is gone to.
_REST: Final = 0.7
_STATIC: Final = Path(__file__).parents[1] / "static"
_STYLE: Final = '<link rel="stylesheet" href="/static/celeriac.css">'
_SCRIPT: Final = '<script nonce="{nonce}" src="/static/celeriac.js" defer></script>'
#: Within each page: a browser that is not logged in gets no file.
_LOGIN_SCRIPT: Final = (_STATIC / "login.js").read_text()


@contextmanager
def frame(request: Request, title: str, at: float | None = None) -> Iterator[Visit]:
    """Have a page of a title; what is made within is its content."""
    visit = Visit(app.state.desk, request, at)
    ui.page_title(f"{title} - Celeriac")
    nonce = nonce_of(request)
    login_script = f'<script nonce="{nonce}">{_LOGIN_SCRIPT}</script>'
    ui.add_head_html(login_script + _STYLE + _SCRIPT.format(nonce=nonce))
    _head(visit)
    with ui.element("div").classes("page") as content:
        heading(title, 1)
        visit.notice = ui.label().classes("notice").props("role=alert")
        visit.notice.set_visibility(False)
        # What the history shows is from the tables.
        if not visit.is_live and visit.desk.board.has_past and visit.path != "/history":
            _past_note(visit)
        yield visit
    ui.skip_link("Skip to content", target=content)


def _past_note(visit: Visit) -> None:
    """Say how much of the past is shown, and where the rest is if it is anywhere."""
    with ui.element("p").classes("past-note faint").props("data-past-note"):
        ui.label(
            "From the event log of the hour before this time. Tasks and workers without events are missing."
        )
        more = ui.link("Open History", visit.link("/history"))
        more.set_visibility(False)

    def show(has_tables: bool) -> None:
        more.set_visibility(has_tables)

    visit.keep(lambda: visit.desk.board.has_tables, show)


def _head(visit: Visit) -> None:
    with ui.header(elevated=False).classes("head"):
        with ui.element("div").classes("head-row"):
            ui.link("Celeriac", visit.link("/")).classes("brand")
            with ui.element("nav").props('aria-label="Pages"').classes("pages"):
                for path, name in PAGES.items():
                    link = ui.link(name, visit.link(path)).classes("page-link")
                    if visit.path == path or (path != "/" and visit.path.startswith(f"{path}/")):
                        link.props("aria-current=page")
            ui.element("div").classes("space")
            _keys_button()
            _theme_button()
            _account(visit)
        _time_bar(visit)


def _keys_button() -> None:
    # The script knows which of the two texts holds, and the style sheet shows that one.
    with ui.button().props("flat dense no-caps data-keys").classes("quiet keys"):
        ui.label("Shortcuts on").classes("keys-on")
        ui.label("Shortcuts off").classes("keys-off")
        ui.tooltip("Keys: 1 to 5 open a page, / opens the search")


def _theme_button() -> None:
    # The script keeps what was chosen in the browser: it is nobody else's.
    ui.button(icon="contrast").props('flat round dense aria-label="Light or dark theme" data-theme').classes(
        "quiet"
    )


def _account(visit: Visit) -> None:
    if visit.desk.access.is_open:
        return
    with ui.element("form").props("method=post action=/logout").classes("account"):
        ui.label(f"{visit.user.name} ({visit.user.role.value})").classes("who")
        ui.button("Log out").props("flat dense no-caps type=submit").classes("quiet")


def _time_bar(visit: Visit) -> None:
    """Make the bar that says which moment is shown, with a slider to go to another."""
    with (
        ui.element("div")
        .classes("time-bar" + ("" if visit.is_live else " is-past"))
        .props('role=group aria-label="Time shown"')
    ):
        if visit.is_live:
            ui.label("Live").classes("live-mark").props("data-live")
        else:
            visit.to_live = ui.link("Back to live", _to(visit, None)).classes("to-live")
            ui.label(f"As of {format_timestamp(visit.at)}").classes("as-of").props("data-as-of")
        if not visit.desk.board.has_past:
            ui.label("No event log configured. To view the past, start with --log, or use celeriac up.")
            return
        _slider(visit, time())


def _slider(visit: Visit, now: float) -> None:
    # An address may say any number, also one that is none.
    ago = 0.0 if visit.at is None or not isfinite(visit.at) else max(0.0, now - visit.at)
    span = next((each for each in _SPANS if ago <= each), max(_SPANS))
    chosen = {"span": span}
    place = max(0, _PLACES - round(ago / span * _PLACES))

    waiting: list[ui.timer] = []

    def moment() -> float | None:
        # A page may have been open for hours, and its right end is still now.
        end = time() if visit.is_live else now
        return None if slider.value >= _PLACES else end - (_PLACES - slider.value) / _PLACES * chosen["span"]

    def moved() -> None:
        # By keys it is moved a step at a time, and each would be a page.
        for timer in waiting:
            timer.cancel()
        waiting[:] = [ui.timer(_REST, lambda: ui.navigate.to(_to(visit, moment())), once=True)]

    def slid() -> None:
        at = moment()
        label.set_text("now" if at is None else format_timestamp(at))

    def widened(event: events.ValueChangeEventArguments[int]) -> None:
        chosen["span"] = event.value
        slid()

    slider = ui.slider(min=0, max=_PLACES, value=place, on_change=slid).classes("time-slider")
    slider.props('aria-label="Time shown" data-slider').on("change", moved)
    label = ui.label("now" if visit.is_live else format_timestamp(visit.at)).classes("slid")
    ui.select(_SPANS, value=span, on_change=widened).props(
        'dense borderless options-dense aria-label="Slider range"'
    ).classes("span")
    exact = ui.input().props('dense borderless type=datetime-local step=1 aria-label="Exact time (UTC)"')
    exact.classes("exact")

    def go() -> None:
        try:
            told = datetime.fromisoformat(str(exact.value)).replace(tzinfo=UTC).timestamp()
        except ValueError:
            visit.tell("Incomplete time. Fill in date and time, then choose Go.", of=go)
            return
        ui.navigate.to(_to(visit, told))

    ui.button("Go", on_click=go).props("flat dense no-caps").classes("quiet")


def _to(visit: Visit, at: float | None) -> str:
    """Return the address of the page that is shown, as of another moment."""
    return address(visit.path, at, **visit.query)
