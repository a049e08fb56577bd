"""A hundred greenlets of eventlet wait for a result each, over one link."""

import eventlet

eventlet.monkey_patch()  # before anything else is imported

import os
from uuid import uuid4

from celeriac import Celeriac, ResultTimeout

app = Celeriac(backend=os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0"))
ids = [uuid4().hex for _ in range(100)]


def work() -> None:
    """Play the workers: end the tasks, the last one first."""
    for number, task_id in reversed(list(enumerate(ids))):
        app.backend.store_result(task_id, number)


waiting = [eventlet.spawn(app.AsyncResult(task_id).get, timeout=10) for task_id in ids]
eventlet.spawn(work)
print(sum(greenlet.wait() for greenlet in waiting))

results = app.ResultSet(ids[:3])
print(results.join(timeout=10), results.successful())

try:
    app.AsyncResult("nobody-sent-it").get(timeout=0.1)
except ResultTimeout as error:
    print(error)
app.close()
