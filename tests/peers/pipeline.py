"""A job of the pipeline that kills itself at the n-th visit of a point, as JSON in ``PIPELINE`` says.

A stream ends by itself once so many events are in the tables.
"""

import json
import os
from pathlib import Path

from celeriac.pipeline.job import Pipeline
from celeriac.pipeline.session import open_session
from tests.peers.recording import Fate
from tests.spark.published import follow_until


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
            follow_until(job, Path(told["warehouse"]), told["events"])


if __name__ == "__main__":
    main()
