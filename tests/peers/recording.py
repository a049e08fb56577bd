"""A recorder that kills itself when it comes to a point for the n-th time.

It sends its progress each time, so that a test knows what it had promised when it died.
"""

import os
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock
from typing import Any

from celeriac import Celeriac
from celeriac.model.message import Delivery
from celeriac.node.history import redactor_of
from celeriac.node.record_source import RecordSource
from celeriac.node.recorder import Progress, Recorder
from celeriac.store.log_writer import LogWriter
from celeriac.store.place import place_for
from celeriac.store.redacting import BatchRedactor


class Fate:
    """Ends the process at one visit of one point."""

    def __init__(self, point: str, visit: int) -> None:
        self._point = point
        self._left = visit
        self._lock = Lock()

    def __call__(self, point: str) -> None:
        if point != self._point:
            return
        with self._lock:  # segments are sealed by a thread of their own
            self._left -= 1
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)


def run(told: dict[str, Any], said: Connection, errors: Connection) -> None:
    """Record until SIGTERM; send the progress of each turn, and write what fails to the pipe of errors."""
    os.dup2(errors.fileno(), sys.stderr.fileno())
    if told["clock"]:
        # Imported already by the process that this one is a fork of.
        from tests.peers.skewed_clock import follow  # noqa: PLC0415

        follow(told["clock"])

    def say(progress: Progress) -> None:
        said.send(progress._asdict())

    at = Fate(told["point"], told["visit"])
    app = Celeriac(told["url"], log_url=told["log"], environ={}, **told["settings"])
    settings = app.conf
    accept = RecordSource.accept

    def accept_or_die(source: RecordSource, deliveries: list[Delivery]) -> None:
        at("ack-before-accept")
        accept(source, deliveries)
        at("ack-after-accept")

    setattr(RecordSource, "accept", accept_or_die)  # noqa: B010 - for every recorder of this process
    writer = LogWriter(
        place_for(told["log"], at=lambda point: at(f"seal-{point}")),
        spool=Path(told["log"]) / "spool",
        name=told["name"],
        redact=BatchRedactor(redactor_of(settings)),
        segment_bytes=settings.log_segment_bytes,
        segment_age=settings.log_segment_age,
        at=at,
    )
    recorder = Recorder(
        app.connection(), writer, settings=settings, clock=app.clock, name=told["name"], on_turn=say
    )
    recorder.run()
    say(recorder.progress)
