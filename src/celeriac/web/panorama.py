"""The overview that the API tells and the first page shows."""

from typing import Final

from celeriac.views.alert import Alert, recorder_alerts, table_alerts
from celeriac.views.overview import Overview, overview
from celeriac.views.text import visible
from celeriac.web.board import Board, Sight

__all__ = ["panorama"]

_DEAF: Final = Alert("error", "Disconnected from the broker: no events are received", "cluster")


def panorama(board: Board, sight: Sight) -> Overview:
    """Return how a cluster is, with what keeps us from knowing it, and how long its queues are."""
    told = overview(
        sight.scene,
        as_of=sight.as_of,
        workers=sight.workers,
        queues=board.queues() if sight.is_live else None,
        others=[
            *(_of_now(board, sight.as_of) if sight.is_live else ()),
            *(Alert("warning", each, "cluster") for each in sight.damage),
        ],
    )
    trouble = visible(board.queue_trouble(), 300) if sight.is_live else ""
    return told._replace(queue_trouble=trouble)


def _of_now(board: Board, now: float) -> list[Alert]:
    return [
        *([] if board.watcher.is_receiving else [_DEAF]),
        *recorder_alerts(board.recorders()),
        *table_alerts(board.tables_at(), as_of=now),
    ]
