"""``celeriac probe`` as it is called every few seconds: without Typer and kombu, which load too slowly.

What is not plain here, in the arguments, the settings or the outcome, is left to the command of
:mod:`celeriac.cli.probe`, so that both say the same.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from celeriac.cli import output
from celeriac.cli.exit import Code, code_of, error_line
from celeriac.errors import CeleriacError, NetworkError

__all__ = ["quick_probe"]

_OPTIONS: Final = {
    "--destination": "destination",
    "-d": "destination",
    "--timeout": "timeout",
    "--broker": "broker",
    "-b": "broker",
    "--config": "config",
}
#: That of the command.
_TIMEOUT: Final = 5.0


def quick_probe(arguments: Sequence[str]) -> int | None:
    """Probe a worker, write the line and return the exit code; None if the command itself has to."""
    given = _read(arguments)
    if given is None or not given.get("destination"):
        return None
    try:
        timeout = float(given.get("timeout", _TIMEOUT))
    except ValueError:
        return None
    if not 0 <= timeout < float("inf"):
        return None
    output.prepare()
    try:
        return _probe(given, timeout)
    except NetworkError as error:
        output.say(error_line(error))
        return code_of(error)
    except CeleriacError:
        return None


def _read(arguments: Sequence[str]) -> dict[str, str] | None:
    """Return the values of the options; None if anything but options and values is there."""
    given: dict[str, str] = {}
    words = iter(arguments)
    for word in words:
        option, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if option not in _OPTIONS or (not equals and (value := next(words, "")) == ""):
            return None
        given[_OPTIONS[option]] = value
    return given


def _probe(given: dict[str, str], timeout: float) -> int | None:
    from celeriac.config import Settings  # noqa: PLC0415 - only once the arguments are plain
    from celeriac.node.call import Caller  # noqa: PLC0415
    from celeriac.node.clock import SharedClock  # noqa: PLC0415
    from celeriac.node.identity import anonymous_name, node_name  # noqa: PLC0415
    from celeriac.node.inspect import Inspect  # noqa: PLC0415
    from celeriac.node.probe import probe_worker  # noqa: PLC0415
    from celeriac.transport.quick import quick_connect  # noqa: PLC0415
    from celeriac.views.probe import probe_line  # noqa: PLC0415

    file = Path(given["config"]) if "config" in given else None
    settings = Settings.load({"broker_url": given.get("broker")}, environ=os.environ, file=file)
    connection = quick_connect(settings)
    if connection is None:
        return None
    caller = Caller(lambda: connection, settings=settings, clock=SharedClock(), hostname=anonymous_name())
    name = node_name(given["destination"])
    found = probe_worker(Inspect(caller, [name], timeout), name)
    output.write(probe_line(found, timeout))
    return Code.OK if found.is_healthy else Code.FAILED
