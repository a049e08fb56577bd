"""A small run of the pipeline: as its Java ends it archives all classes that such a run needs."""

from pathlib import Path
from tempfile import TemporaryDirectory

from celeriac.pipeline.job import Pipeline
from celeriac.pipeline.session import open_session
from tests.spark.published import INTERPRETED, TASKS, events_of, write_log


def main() -> None:
    with TemporaryDirectory() as folder, open_session(master="local[2]", conf=INTERPRETED) as spark:
        log, warehouse = Path(folder, "log"), Path(folder, "warehouse")
        write_log(log, events_of(TASKS))
        Pipeline(spark, log, warehouse).run()


if __name__ == "__main__":
    main()
