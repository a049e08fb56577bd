"""Parts of programs that wait for results, for tests that run them in processes of their own."""

__all__ = ["EVENTLET", "GEVENT", "MANY", "MANY_WENT_WELL", "REPORT", "SPAWN", "START"]

#: What each begins with; a program of greenlets patches before.
START = """
import json, os, sys
from threading import Thread
from celeriac import Celeriac
from celeriac.programs.process import wait_until
broker, backend = sys.argv[1:3]
options = {"broker_retry_base": 0.01, "broker_retry_cap": 0.05}
app = Celeriac(broker, backend=backend, environ={}, **options)

def settled(condition):
    assert wait_until(condition, patience=30)

def wait_in_thread(task_id, values):
    thread = Thread(target=lambda: values.append(app.AsyncResult(task_id).get(timeout=30)), daemon=True)
    thread.start()
    return thread
"""

GEVENT = "from gevent import monkey\nmonkey.patch_all()\n"
EVENTLET = "import warnings\nwarnings.simplefilter('ignore')\nimport eventlet\neventlet.monkey_patch()\n"
SPAWN = {
    GEVENT: "from gevent import spawn, sleep",
    EVENTLET: "from eventlet import spawn as run, sleep\nspawn = run",
}
#: Many greenlets wait, one stores what they wait for, and one shows that the rest go on.
MANY = """
ids = [str(number) for number in range(50)]
values, woken, ticks, called = [], [], [0], []

def tick():
    while len(values) < len(ids):
        ticks[0] += 1
        sleep(0)

def wait(task_id):
    result = app.AsyncResult(task_id)
    values.append(result.get(timeout=30, interval=30, on_interval=lambda: woken.append(task_id)))

def store():
    reply_to = getattr(app.backend, "reply_to", "")
    while app.backend.health().waiters < len(ids) + 1:
        sleep(0.001)
    for task_id in [*ids, "then"]:
        app.backend.store_result(task_id, task_id, reply_to=reply_to)

app.AsyncResult("then").then(lambda result: called.append(app.AsyncResult("0").get(timeout=30)))
greenlets = [spawn(wait, task_id) for task_id in ids] + [spawn(tick), spawn(store)]
deadline = [10000]
while (len(values) < len(ids) or not called) and deadline[0]:
    deadline[0] -= 1
    sleep(0.002)
late = ""
try:
    app.AsyncResult("never").get(timeout=0.01)
except TimeoutError as error:
    late = str(error)
for _ in range(1000):
    if app.backend.health().waiters:
        sleep(0.01)
report = {
    "drainer": type(app.backend.drainer()).__name__,
    "right": sorted(values, key=int) == ids,
    "woken once": sorted(woken, key=int) == ids,
    "ticked": ticks[0] > 10,
    "called": called,
    "late": late,
    "waiters": app.backend.health().waiters,
}
"""
#: What each ends with.
REPORT = """
print(json.dumps(report))
app.close()
"""
#: Its report, but for the drainer.
MANY_WENT_WELL: dict[str, object] = {
    "right": True,
    "woken once": True,
    "ticked": True,
    "called": ["0"],
    "late": "no result of task never within 0.01 s",
    "waiters": 0,
}
