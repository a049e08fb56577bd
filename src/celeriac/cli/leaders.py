"""``celeriac leaders``: who leads what."""

from celeriac.cli import output
from celeriac.cli.exit import Code
from celeriac.cli.format_option import PLAIN, Format, Output
from celeriac.cli.session import Session
from celeriac.model.election import Level
from celeriac.views.leader import LeaderRow, leader_rows, level_text

__all__ = ["leaders"]


def leaders(session: Session, *, out: Output = PLAIN) -> Code:
    """Show who leads what, since when, and how far the promise of one leader holds.

    Asks the arbiter: the broker, or what the setting election_url names. No worker need run. The token
    of a leader is higher than that of every leader before it. After so many seconds as remain another
    can lead, if the lease is not renewed.

    For example:
      celeriac leaders
      celeriac leaders --json | jq -r '.leaders[].leader'
    """
    app = session.app
    if app.conf.election_url is not None:
        session.place_option = "the setting election_url"
    try:
        level = app.arbiter.look()
        rows = leader_rows(app.arbiter.leases())
        reason = app.arbiter.reason
    finally:
        app.close()
    min_level = Level[app.conf.election_min_level]
    told = {"level": level.name, "min_level": min_level.name, "reason": reason}
    if out.format is Format.JSON:
        output.write_json(told | {"leaders": [row._asdict() for row in rows]}, indent=2)
        return Code.OK
    out.write_rows(
        LeaderRow, rows, empty='No leases held. A program acquires one with app.leadership("name")'
    )
    if out.is_table:
        output.write(level_text(level, reason, min_level=min_level))
    return Code.OK
