"""Run one benchmark: ``python -m benchmarks NAME``."""

import sys
from importlib import import_module

from benchmarks.report import show

NAMES = {
    "fold": "events to cluster state, beside Celery's State",
    "newest": "the newest tasks of a state while events come in, beside Celery's State",
    "receive": "events from broker to cluster state, beside Celery's EventReceiver and State",
    "dispatch": "events from a program to a broker, beside Celery's EventDispatcher",
    "detector": "who is dead, and what it costs to know, beside the fixed window of Celery's gossip",
    "sent": "the place of task-sent among the events of a task, beside Celery's client",
    "worker": "tasks that do nothing, from queue to result, beside Celery's worker",
    "attack": "hostile tasks in front of ordinary ones, beside Celery's worker",
    "election": "who wins an election under any order of messages, beside Celery's Gossip",
    "record": "events from a broker to the disk, and back, beside Celery's receiver and gzip JSON lines",
    "pipeline": "a log to tables on Spark, beside DuckDB, Polars and Celery's State",
    "web": "a dashboard that follows a cluster, beside Flower",
    "probe": "one worker asked whether it works, compared with celery inspect ping -d",
    "drain": "results from a store to those who wait, beside Celery's AsyncResult and ResultSet",
}


def main(arguments: list[str]) -> int:
    """Run the benchmark named in the arguments."""
    if len(arguments) != 1 or arguments[0] not in NAMES:
        print("usage: make bench NAME=…", *(f"  {name:<8} {what}" for name, what in NAMES.items()), sep="\n")
        return 2
    (name,) = arguments
    module = import_module(f"benchmarks.{name}")
    # One that does not end in ratios says itself how it reports.
    getattr(module, "show", show)(name, module.run())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
