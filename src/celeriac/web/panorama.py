"""The overview that the API tells and the first page shows."""

from typing import Final

from celeriac.views.overview import Alert, Overview, overview
from celeriac.views.text import visible
from celeriac.web.board import Board, Sight

__all__ = ["panorama"]

_DEAF: Final = Alert("error", "no events are received: the link to the broker is lost", "cluster")


def panorama(board: Board, sight: Sight) -> Overview:
    """Return how a cluster is, with what keeps us from knowing it, and how long its queues are."""
    told = overview(sight.scene, as_of=sight.as_of, workers=sight.workers)
    alerts = [*told.alerts, *(Alert("warning", each, "cluster") for each in sight.damage)]
    if sight.is_live and not board.watcher.is_receiving:
        alerts.insert(0, _DEAF)
    queues = board.queues() if sight.is_live else None
    named = None if queues is None else {visible(name, 120): length for name, length in queues.items()}
    return told._replace(alerts=alerts, queues=named)
