"""The program: its commands put together."""

from typing import Any

import typer

from celeriac.cli.beat import beat
from celeriac.cli.call import call
from celeriac.cli.conf import conf
from celeriac.cli.control import control, revoke
from celeriac.cli.elect import elect
from celeriac.cli.events import events
from celeriac.cli.history import history
from celeriac.cli.inspect import inspect
from celeriac.cli.leaders import leaders
from celeriac.cli.log import log
from celeriac.cli.option import add_command, add_common
from celeriac.cli.pipeline import pipeline
from celeriac.cli.record import record
from celeriac.cli.replay import replay
from celeriac.cli.result import result
from celeriac.cli.snapshot import snapshot
from celeriac.cli.status import status
from celeriac.cli.up import up
from celeriac.cli.worker import worker

__all__ = ["app"]

_HELP = """Watch and steer a Celery cluster.

To see it at work, with a broker and a worker of its own: celeriac up
"""
_EXIT_CODES = (
    "Exit codes: 0 done, 1 failed, 2 usage, 69 broker or nodes unavailable, 77 refused by the broker, "
    "78 configuration, 130 interrupted."
)

app = typer.Typer(
    name="celeriac",
    no_args_is_help=True,
    # A trace with the values of all variables could show passwords. --debug shows one without.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)
add_common(app, help=_HELP, epilog=_EXIT_CODES)
_COMMANDS: dict[str, Any] = {
    "up": up,
    "worker": worker,
    "beat": beat,
    "status": status,
    "events": events,
    "inspect": inspect,
    "call": call,
    "result": result,
    "revoke": revoke,
    "elect": elect,
    "leaders": leaders,
    "record": record,
    "replay": replay,
    "snapshot": snapshot,
    "conf": conf,
}
for name, command in _COMMANDS.items():
    add_command(app, name)(command)
app.add_typer(control, name="control")
app.add_typer(log, name="log")
app.add_typer(history, name="history")
app.add_typer(pipeline, name="pipeline")
