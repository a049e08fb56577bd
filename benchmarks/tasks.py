"""The app of the Celery worker that the benchmarks run; broker and backend come from the environment.

``python -m benchmarks.tasks`` sends a task for each id in the list of JSON that it reads.
"""

import json
import sys

from celery import Celery

app = Celery("benchmarks", set_as_current=False)
app.conf.update(accept_content=["json"], broker_connection_retry_on_startup=True)


@app.task(name="benchmarks.echo")  # type: ignore[untyped-decorator]
def echo(value: int) -> int:
    """Return what was given."""
    return value


if __name__ == "__main__":
    with app.producer_or_acquire() as producer:
        for number, task_id in enumerate(json.load(sys.stdin)):
            echo.apply_async((number,), task_id=task_id, producer=producer)
