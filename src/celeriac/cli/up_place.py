"""Where ``celeriac up`` keeps the history of a cluster."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from celeriac.store.place import place_for

if TYPE_CHECKING:
    from celeriac.app import Celeriac
    from celeriac.cli.home import Home

__all__ = ["Places", "places_of"]


class Places(NamedTuple):
    """Where the log is, the tables, and what is not in the log yet."""

    log: str
    warehouse: str
    spool: Path

    @property
    def log_folder(self) -> Path | None:
        """The folder of the log, if it is one of this machine."""
        place = place_for(self.log)
        return Path(place.url) if place.is_local else None


def places_of(app: "Celeriac", home: "Home", *, is_sample: bool) -> Places:
    """Return where the settings say, else in the folder of ``up``.

    The sample has all in that folder: what the settings name is for a cluster of the user's.
    """
    if is_sample:
        return Places(str(home.log), str(home.warehouse), home.log / "spool")
    sources = app.conf.sources()
    log = app.conf.log_url if sources["log_url"] != "default" else str(home.log)
    tables = app.conf.warehouse_url if sources["warehouse_url"] != "default" else str(home.warehouse)
    return Places(log, tables, app.history.spool(log))
