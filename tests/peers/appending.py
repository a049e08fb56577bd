"""Records numbered events, and says which are recorded; ends as ``kill -9`` does, where it is told to.

Takes ``root`` of the log, ``run`` that the ids begin with, ``groups`` of ``size`` events, the ``point``
and which ``visit`` of it is the last, and the ``limit`` in bytes of each file, lifted once it was met.
Prints the ids of a group when they are recorded, and ``failed`` when they were not.
"""

import os
import resource
import signal
from pathlib import Path
from typing import Any

from celeriac.errors import DiskError
from celeriac.store.place import place_for
from tests.recorded import numbered, writer_for


def append_groups(told: dict[str, Any]) -> None:
    """Record what the input says."""
    visits = 0

    def at(point: str) -> None:
        nonlocal visits
        visits += point == told.get("point")
        if point == told.get("point") and visits == told["visit"]:
            os.kill(os.getpid(), signal.SIGKILL)

    root = Path(told["root"])
    place = place_for(root, at=lambda point: at(f"seal-{point}"))
    # Some groups fill a file.
    with writer_for(root, place, at=at, segment_bytes=told.get("segment_bytes", 20_000)) as writer:
        if "limit" in told:
            resource.setrlimit(resource.RLIMIT_FSIZE, (told["limit"], resource.RLIM_INFINITY))
        for group in range(told["groups"]):
            events = numbered(range(group * told["size"], (group + 1) * told["size"]), run=told["run"])
            try:
                writer.append(events)
            except DiskError as error:
                print("failed", error.errno, flush=True)
                resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
                writer.append(events)
            writer.sync()
            print(*(event["uuid"] for event in events), flush=True)
            writer.tick()
