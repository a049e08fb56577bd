"""``celeriac leaders``: the leases that are held."""

from celeriac.cli import output
from celeriac.cli.exit import Code
from celeriac.cli.format_option import PLAIN, Format, Output
from celeriac.cli.session import Session
from celeriac.model.election import Level
from celeriac.views.leader import LeaderRow, leader_rows, level_text

__all__ = ["leaders"]


def leaders(session: Session, *, out: Output = PLAIN) -> Code:
    """Show the current leaders, their leases, and the guarantee level.

    Reads the arbiter: the broker, or election_url. No worker has to run. The fencing token of a leader is
    higher than those of all leaders before it. After REMAINING another node can lead, unless the lease is
    renewed.

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
