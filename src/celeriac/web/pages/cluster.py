"""``/cluster``: logical clocks, who leads, what was said of elections, who records, what was not heard."""

from typing import Any, Final, NamedTuple

from fastapi import Request
from nicegui import ui

from celeriac.views.format import UNKNOWN, format_count, format_duration, format_iso, format_timestamp
from celeriac.views.leader import LeaderRow
from celeriac.views.recorder import RecorderRow
from celeriac.views.worker import LiveWorker
from celeriac.web.api.cluster import ClusterView, ElectionEvent, GapRow, cluster_view
from celeriac.web.board import Leaders
from celeriac.web.pages.frame import frame
from celeriac.web.pages.part import Tile, columns, empty, section, state_class, table
from celeriac.web.pages.visit import Visit, path_of
from celeriac.web.pages.worker_text import ago_text, drift_class, drift_text

__all__ = ["cluster_page"]

#: Seconds between two looks at who leads: the arbiter is asked each time.
_EVERY: Final = 2.0
#: A browser is not sent thousands each second.
_MOST_ROWS: Final = 300
_NO_LEADERS: Final = "Nobody leads anything. A program leads with app.leadership(NAME)."
_LEADERS_OF_NOW: Final = (
    "Who led then is not recorded: a lease is held and renewed at the broker, and no event tells of it. "
    "Go back to live to see who leads now; what workers said of their elections is below."
)
_CLOCKS: Final = columns(
    ("name", "Worker"),
    ("liveness", "State"),
    ("clock", "Logical clock", "right"),
    ("behind", "Behind the highest", "right"),
    ("drift", "Our clock is ahead by", "right"),
    ("seen", "Last heard"),
)
_LEADERS: Final = columns(
    ("name", "What"),
    ("leader", "Leader"),
    ("token", "Token", "right"),
    ("since", "Since"),
    ("ttl", "Lease", "right"),
    ("remaining", "Left of it", "right"),
)
_ELECTIONS: Final = columns(
    ("at", "When"), ("type", "What"), ("node", "Node"), ("clock", "Clock", "right"), ("fields", "Said")
)
_GAPS: Final = columns(("since", "From"), ("until", "To"), ("length", "Length", "right"), ("reason", "Why"))
_RECORDERS: Final = columns(
    ("name", "Recorder"),
    ("health", "How it is"),
    ("lag", "Late by", "right"),
    ("dropped", "Dropped", "right"),
    ("gaps", "Gaps", "right"),
)
_REFUSED: Final = columns(("reason", "Why"), ("count", "Messages", "right"))


class _Told(NamedTuple):
    view: ClusterView
    workers: list[LiveWorker]
    #: What could not be read of the log.
    damage: list[str]


@ui.page("/cluster")
def cluster_page(request: Request, at: float | None = None) -> None:
    """Show the cluster as a whole."""
    with frame(request, "Cluster", at) as visit:
        page = _ClusterPage(visit)

        def load() -> _Told:
            sight = visit.sight()
            return _Told(cluster_view(visit.desk.board, sight), sight.workers, list(sight.damage))

        visit.keep(load, page.show)
        if visit.is_live:
            # Of its own, since the arbiter may take long to answer.
            visit.keep(visit.desk.board.leaders, page.show_leaders, every=_EVERY)


class _ClusterPage:
    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._damage = ui.element("div").classes("alerts").props("data-damage")
        with ui.element("div").classes("tiles"):
            self._tiles = {
                "receiving": Tile("events are received", mark="receiving"),
                "losses": Tile("losses of the link", mark="losses"),
                "gaps": Tile("gaps in the reception", mark="gaps"),
                "refused": Tile("messages refused", mark="refused"),
                "clock": Tile("highest logical clock", mark="clock"),
            }
        with section("Logical clocks"):
            ui.label(
                "Each worker counts what it sends and hears. One that stays far behind hears no others."
            ).classes("faint hint")
            self._clocks = _Rows(
                table(_CLOCKS, label="Logical clocks", links=("name",), states=("liveness", "drift")),
                "No worker was heard of: start one on the same broker.",
                mark="clocks",
            )
        with section("Leaders"):
            self._level = ui.label().classes("faint hint").props("data-level")
            self._leaders = _Rows(
                table(_LEADERS, label="Leaders"),
                _NO_LEADERS if visit.is_live else _LEADERS_OF_NOW,
                mark="leaders",
            )
        with section("Elections"):
            self._elections = _Rows(
                table(_ELECTIONS, label="What was said of elections"),
                _no_elections(visit),
                mark="elections",
            )
        self._make_missing()
        for rows in (self._leaders, self._elections):
            rows.show([])

    def _make_missing(self) -> None:
        with section("Recorders"):
            self._recorders = _Rows(
                table(_RECORDERS, label="Recorders", states=("health",)),
                "No recorder writes a log on this machine: celeriac up has one, celeriac record is one."
                if self._visit.is_live
                else "How recorders were then is not recorded; what they missed is among the gaps.",
                mark="recorders",
            )
        with section("Gaps in the reception"):
            self._gaps = _Rows(
                table(_GAPS, label="Gaps in the reception"),
                "Nothing is missing: no gap is known.",
                mark="gaps",
            )
        with section("Messages refused"):
            self._refused = _Rows(
                table(_REFUSED, label="Messages refused, by reason"),
                "Every message could be read.",
                mark="refused",
            )

    def show(self, told: _Told) -> None:
        """Show what is known of the cluster."""
        view, tiles = told.view, self._tiles
        self._damage.clear()
        with self._damage:
            for each in told.damage:
                ui.label(each).classes("alert is-warning")
        if self._visit.is_live:
            tiles["receiving"].show("yes" if view.is_receiving else "no", is_bad=not view.is_receiving)
            tiles["losses"].show(format_count(view.losses), is_bad=view.losses > 0)
        else:
            tiles["receiving"].show("live only")
            tiles["losses"].show("live only")
        refused = sum(view.refused.values())
        tiles["gaps"].show(format_count(len(view.gaps)), is_bad=bool(view.gaps))
        tiles["refused"].show(format_count(refused), is_bad=refused > 0)
        tiles["clock"].show(format_count(view.clock) if told.workers else UNKNOWN)
        listed = told.workers[:_MOST_ROWS]
        self._clocks.show(
            [self._clock_row(number, each, view) for number, each in enumerate(listed)],
            more=len(told.workers) - len(listed),
        )
        self._recorders.show([_recorder_row(number, each) for number, each in enumerate(view.recorders)])
        self._gaps.show([_gap_row(number, each) for number, each in enumerate(reversed(view.gaps))])
        self._refused.show([
            {"id": number, "reason": reason, "count": format_count(count)}
            for number, (reason, count) in enumerate(view.refused.items())
        ])  # fmt: skip
        self._elections.show(
            [_election_row(number, each) for number, each in enumerate(reversed(view.elections))]
        )

    def show_leaders(self, told: Leaders) -> None:
        """Show who leads what."""
        level = "not known" if told.level is None else told.level
        self._level.set_text(f"Level {level}, at least {told.min_level} is wanted: {told.reason}")
        listed = told.leaders[:_MOST_ROWS]
        self._leaders.show(
            [_leader_row(number, each) for number, each in enumerate(listed)],
            more=len(told.leaders) - len(listed),
        )

    def _clock_row(self, number: int, worker: LiveWorker, view: ClusterView) -> dict[str, Any]:
        return {
            "id": number,
            "name": worker.name,
            "name_to": self._visit.link(path_of("workers", worker.key)),
            "liveness": worker.liveness,
            "liveness_class": state_class(worker.liveness),
            "clock": format_count(worker.clock),
            "behind": UNKNOWN if worker.clock is None else format_count(view.clock - worker.clock),
            "drift": drift_text(worker),
            "drift_class": drift_class(worker),
            "seen": ago_text(worker.seen_at, view.as_of),
        }


class _Rows:
    """A table, or what is said in its place if it has no rows."""

    def __init__(self, table: ui.table, none: str, *, mark: str) -> None:
        self._table = table
        self._more = ui.label().classes("faint")
        self._none = empty(none, mark=mark)
        for part in (self._more, self._none, self._table):
            part.set_visibility(False)

    def show(self, rows: list[dict[str, Any]], *, more: int = 0) -> None:
        self._more.set_text(f"and {more} more, which are not listed")
        self._more.set_visibility(more > 0)
        self._none.set_visibility(not rows)
        self._table.set_visibility(bool(rows))
        if rows != self._table.rows:
            self._table.rows = rows


def _no_elections(visit: Visit) -> str:
    if not visit.is_live:
        return "No election was recorded in the hour before."
    before = ", and none is in the log of the hour before" if visit.desk.board.has_past else ""
    return f"No election was heard of since this dashboard began{before}."


def _recorder_row(number: int, row: RecorderRow) -> dict[str, Any]:
    return {
        "id": number,
        "name": row.name,
        "health": row.ailment or "records",
        "health_class": "is-bad" if row.ailment else "",
        "lag": format_duration(row.lag),
        "dropped": format_count(row.dropped),
        "gaps": format_count(row.gaps),
    }


def _gap_row(number: int, gap: GapRow) -> dict[str, Any]:
    return {
        "id": number,
        "since": format_timestamp(gap.since_at),
        "until": format_timestamp(gap.until_at),
        "length": format_duration(gap.until_at - gap.since_at),
        "reason": gap.reason,
    }


def _election_row(number: int, event: ElectionEvent) -> dict[str, Any]:
    return {
        "id": number,
        "at": format_timestamp(event.at),
        "type": event.type,
        "node": event.node,
        "clock": format_count(event.clock),
        "fields": ", ".join(f"{name}: {value}" for name, value in event.fields.items()),
    }


def _leader_row(number: int, row: LeaderRow) -> dict[str, Any]:
    return {
        "id": number,
        "name": row.name,
        "leader": row.leader,
        "token": UNKNOWN if row.token is None else str(row.token),
        "since": format_iso(row.since),
        "ttl": format_duration(row.ttl),
        "remaining": format_duration(row.remaining),
    }
