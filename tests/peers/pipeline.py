"""A job of the pipeline that kills itself at the n-th visit of a point, as JSON in ``PIPELINE`` says.

A stream ends by itself once so many events are in the tables.
"""

import json
import os
from threading import Event, Thread

from celeriac.pipeline.job import Pipeline
from celeriac.pipeline.session import open_session
from celeriac.programs.process import wait_until
from celeriac.store.manifest import read_manifest
from celeriac.store.place import place_for
from tests.peers.recording import Fate

_PATIENCE = 600.0


def main() -> None:
    told = json.loads(os.environ["PIPELINE"])
    with open_session(master=told["master"], remote=told["remote"], conf=told["conf"]) as spark:
        job = Pipeline(
            spark,
            told["log"],
            told["warehouse"],
            chunk_events=told["chunk_events"],
            at=Fate(told["point"], told["visit"]),
        )
        if told["mode"] == "run":
            job.run()
        else:
            _follow(job, told["warehouse"], told["events"])


def _follow(job: Pipeline, warehouse: str, events: int) -> None:
    stop = Event()

    def is_done() -> bool:
        manifest = read_manifest(place_for(warehouse))
        return manifest is not None and manifest.events >= events

    def watch() -> None:
        wait_until(is_done, patience=_PATIENCE)
        stop.set()

    watcher = Thread(target=watch, daemon=True)
    watcher.start()
    job.follow(0.2, stop)


if __name__ == "__main__":
    main()
