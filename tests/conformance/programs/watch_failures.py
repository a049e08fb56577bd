"""The monitor of Celery's guide: prints each task that fails, by the name that the state knows."""

import sys

from celery import Celery


def my_monitor(app):
    state = app.events.State()

    def announce_failed_tasks(event):
        state.event(event)
        task = state.tasks.get(event["uuid"])
        print(f"TASK FAILED: {task.name}[{task.uuid}] {task.info()}")

    with app.connection() as connection:
        recv = app.events.Receiver(
            connection,
            handlers={
                "task-failed": announce_failed_tasks,
                "*": state.event,
            },
        )
        recv.capture(limit=None, timeout=None, wakeup=True)


if __name__ == "__main__":
    app = Celery(broker=sys.argv[1])
    my_monitor(app)
