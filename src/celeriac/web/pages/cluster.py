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
_NO_LEADERS: Final = "No leases held. Acquire one in a program with app.leadership(NAME)."
_LEADERS_OF_NOW: Final = (
    "Past leaders are not recorded: leases are renewed at the broker without events. Go back to live for the "
    "current leaders. The election events of workers are below."
)
_CLOCKS: Final = columns(
    ("name", "Worker"),
    ("liveness", "Status"),
    ("clock", "Lamport clock", "right"),
    ("behind", "Behind highest", "right"),
    ("drift", "Clock offset", "right"),
    ("seen", "Last seen"),
)
_LEADERS: Final = columns(
    ("name", "Lease"),
    ("leader", "Leader"),
    ("token", "Token", "right"),
    ("since", "Since"),
    ("ttl", "Duration", "right"),
    ("remaining", "Remaining", "right"),
)
_ELECTIONS: Final = columns(
    ("at", "Time (UTC)"),
    ("type", "Event"),
    ("node", "Node"),
    ("clock", "Clock", "right"),
    ("fields", "Message"),
)
_GAPS: Final = columns(
    ("since", "From"), ("until", "To"), ("length", "Length", "right"), ("reason", "Reason")
)
_RECORDERS: Final = columns(
    ("name", "Recorder"),
    ("health", "Status"),
    ("lag", "Lag", "right"),
    ("dropped", "Dropped", "right"),
    ("gaps", "Gaps", "right"),
)
_REFUSED: Final = columns(("reason", "Reason"), ("count", "Messages", "right"))


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
                "receiving": Tile("Event stream", mark="receiving"),
                "losses": Tile("Disconnects", mark="losses"),
                "gaps": Tile("Event gaps", mark="gaps"),
                "refused": Tile("Rejected messages", mark="refused"),
                "clock": Tile("Highest Lamport clock", mark="clock"),
            }
        with section("Lamport clocks"):
            ui.label("A worker that stays far behind is not receiving events from its peers.").classes(
                "faint hint"
            )
            self._clocks = _Rows(
                table(_CLOCKS, label="Lamport clocks", links=("name",), states=("liveness", "drift")),
                "No workers yet. Start one on this broker: celery -A PROJECT worker -E",
                mark="clocks",
            )
        with section("Leaders"):
            self._level = ui.label().classes("faint hint").props("data-level")
            self._leaders = _Rows(
                table(_LEADERS, label="Leaders"),
                _NO_LEADERS if visit.is_live else _LEADERS_OF_NOW,
                mark="leaders",
            )
        with section("Election events"):
            self._elections = _Rows(
                table(_ELECTIONS, label="Election events"),
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
                "No recorder on this machine. Start one: celeriac record"
                if self._visit.is_live
                else "Past recorder status is not recorded. Events that recorders missed are listed as gaps.",
                mark="recorders",
            )
        with section("Event gaps"):
            self._gaps = _Rows(
                table(_GAPS, label="Event gaps"),
                "No event gaps.",
                mark="gaps",
            )
        with section("Rejected messages"):
            self._refused = _Rows(
                table(_REFUSED, label="Rejected messages by reason"),
                "No rejected messages.",
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
            tiles["receiving"].show(
                "Connected" if view.is_receiving else "Disconnected", is_bad=not view.is_receiving
            )
            tiles["losses"].show(format_count(view.losses), is_bad=view.losses > 0)
        else:
            tiles["receiving"].show("Live only")
            tiles["losses"].show("Live only")
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
        level = "unknown" if told.level is None else told.level
        reason = told.reason[:1].upper() + told.reason[1:]
        self._level.set_text(f"Guarantee level {level} (required: {told.min_level}). {reason}")
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
        self._more.set_text(f"{more} more not listed")
        self._more.set_visibility(more > 0)
        self._none.set_visibility(not rows)
        self._table.set_visibility(bool(rows))
        if rows != self._table.rows:
            self._table.rows = rows


def _no_elections(visit: Visit) -> str:
    if not visit.is_live:
        return "No election events in the hour before."
    before = " or in the hour before that" if visit.desk.board.has_past else ""
    return f"No election events since the dashboard started{before}."


def _recorder_row(number: int, row: RecorderRow) -> dict[str, Any]:
    return {
        "id": number,
        "name": row.name,
        "health": row.ailment[:1].upper() + row.ailment[1:] or "Recording",
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
