"""A story of a small cluster in causal order, as a receiver hands its events out."""

from collections.abc import Iterable

from tests.builders import CLIENT, Fields, task, worker

__all__ = ["FRESH", "GONE", "LEFT", "ONE", "STORY", "TASKS", "TWO", "WORKERS", "as_received"]

# What came in 2096 is fresh, and what came in 2001 is old, for any monitor that looks at its watch.
FRESH, OLD = 4_000_000_000.0, 1_000_000_000.0
ONE, TWO, GONE, LEFT = "one@h", "two@h", "gone@h", "left@h"


def as_received(events: Iterable[Fields], *, begin: float = FRESH) -> list[Fields]:
    """Return events that were sent a second after each other, and received a little later."""
    return [
        {**event, "clock": 10 + number, "timestamp": begin + number, "local_received": begin + number + 0.25}
        for number, event in enumerate(events)
    ]


def _story() -> list[Fields]:
    about: Fields = {"args": "(1,)", "kwargs": "{}", "root_id": "root", "retries": 0}
    about |= {"eta": None, "expires": None}
    pay, ship = {"name": "shop.pay", **about}, {"name": "shop.ship", **about}
    route = {"queue": "fast", "exchange": "shop", "routing_key": "shop.fast"}
    later = "2096-10-02T07:06:40+00:00"
    on_one, on_two = {"hostname": ONE, "pid": 11}, {"hostname": TWO, "pid": 22}
    return [
        worker("online", **on_one),
        worker("online", **on_two, sw_ver="5.6.2"),
        worker("online", hostname=LEFT, pid=33),
        task("sent", "root", hostname=CLIENT, pid=77, parent_id=None, **pay, **route),
        task("received", "root", **on_one, parent_id=None, **pay),
        task("started", "root", **on_one),
        task("received", "child", **on_two, parent_id="root", **ship),
        task("started", "child", **on_two),
        task("succeeded", "root", **on_one, result="42", runtime=0.5),
        task("received", "again", **on_one, parent_id="root", **ship),
        task("failed", "child", **on_two, exception="ValueError('x')", traceback="Traceback: x"),
        task("started", "again", **on_one),
        task("retried", "again", **on_one, exception="OSError('y')", traceback="Traceback: y"),
        task("received", "again", **on_two, parent_id="root", **{**ship, "retries": 1}),
        task("started", "again", **on_two),
        task("succeeded", "again", **on_two, result="'ok'", runtime=1.5),
        task("received", "cancelled", **on_one, parent_id=None, **{**pay, "root_id": "cancelled"}),
        task("revoked", "cancelled", **on_one, terminated=True, signum=15, expired=False),
        task("received", "custom", **on_two, parent_id="never-seen", **{**ship, "eta": later}),
        task("started", "custom", **on_two),
        task("progress", "custom", **on_two, done=3),
        task("rejected", "refused", **on_two, requeue=True),
        task("received", "waits", **on_one, parent_id="child", **{**pay, "expires": later}),
        worker("offline", hostname=LEFT, pid=33),
        worker("heartbeat", **on_one, active=3, processed=9),
        worker("heartbeat", **on_two, freq=30.0, loadavg=[0.5, 0.25, 0.125]),
    ]


#: Every way a task can go, a retry that hops, a worker that left and one that fell silent.
STORY = [
    *as_received([worker("online", hostname=GONE), worker("heartbeat", hostname=GONE)], begin=OLD),
    *as_received(_story()),
]
TASKS = ["root", "child", "again", "cancelled", "custom", "refused", "waits"]
WORKERS = [ONE, TWO, GONE, LEFT]
