"""``celeriac doctor``: whether a cluster is set up so that it can be monitored, and what to do if not."""

from typing import Annotated

import typer

from celeriac.cli import output
from celeriac.cli.exit import Code
from celeriac.cli.format_option import PLAIN, Output
from celeriac.cli.session import Session

__all__ = ["doctor"]

Listen = Annotated[
    float,
    typer.Option(
        "--listen", min=0.0, metavar="SECONDS", help="Time to listen for heartbeats and task events."
    ),
]
Timeout = Annotated[
    float, typer.Option("--timeout", min=0.0, metavar="SECONDS", help="Time to wait for replies of workers.")
]


def doctor(session: Session, *, listen: Listen = 3.0, timeout: Timeout = 2.0, out: Output = PLAIN) -> Code:
    """Check a cluster and this installation; name each problem with its reason and its fix.

    Checks the broker, permissions of its user, workers that answer, task events, sent events, clock skew,
    durability, the result backend, extras, the disk of the log and the age of the tables. Nothing is
    changed. The exit code is 0 if all required checks pass, 1 if one fails, 69 if the broker cannot be
    reached, 77 if it refuses the user. Extras, sent events and tables are not required.

    For example:
      celeriac doctor
      celeriac doctor --broker redis://127.0.0.1:6379/0 --listen 10
      celeriac doctor --json | jq '.[] | select(.status == "failed")'
    """
    from celeriac.cli.doctor_facts import collect_facts  # noqa: PLC0415 - not for the help
    from celeriac.views.doctor import Finding, are_fine, finding_lines, findings  # noqa: PLC0415

    facts = collect_facts(session.app, listen=listen, timeout=timeout)
    found = findings(facts)
    if not out.is_table:
        out.write_rows(Finding, found)
    else:
        for each in found:
            for line in finding_lines(each):
                output.write(line)
    if facts.broker.error:
        return Code.REFUSED if facts.broker.is_refused else Code.UNAVAILABLE
    return Code.OK if are_fine(found) else Code.FAILED
