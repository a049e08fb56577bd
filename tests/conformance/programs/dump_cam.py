"""The camera of Celery's guide: prints the workers and tasks of the state, and clears it."""

import sys
from pprint import pformat

from celery import Celery
from celery.events.snapshot import Polaroid


class DumpCam(Polaroid):
    clear_after = True

    def on_shutter(self, state):
        if not state.event_count:
            return
        print(f"Workers: {pformat(state.workers, indent=4)}")
        print(f"Tasks: {pformat(state.tasks, indent=4)}")
        print(f"Total: {state.event_count} events, {state.task_count} tasks")


def main(app, freq=1.0):
    state = app.events.State()
    with app.connection() as connection:
        recv = app.events.Receiver(connection, handlers={"*": state.event})
        with DumpCam(state, freq=freq):
            recv.capture(limit=None, timeout=None)


if __name__ == "__main__":
    app = Celery(broker=sys.argv[1])
    main(app)
