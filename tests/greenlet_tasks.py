"""A program whose threads are greenlets, and that waits for tasks in one of them.

``python -m tests.greenlet_tasks gevent late URL``: with ``late`` our modules are imported before the
library puts its own in the place of Python's. Ends with 0 if all is well.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

TICKS = 20
TICK = 0.005
#: Far more than needed, for a busy machine.
PATIENCE = 60.0

library_name, order, url = sys.argv[1:]
if order == "late":
    import_module("celeriac.transport.amqp")

library: Any = import_module(library_name)
if library_name == "gevent":
    import_module("gevent.monkey").patch_all()
else:
    library.monkey_patch()

from celeriac.config import Settings  # noqa: E402 - not before what may have to be patched
from celeriac.model.message import Delivery, Exchange, Queue  # noqa: E402
from celeriac.transport.connect import connect  # noqa: E402

settings = Settings(broker_url=url)
link, sender = connect(settings), connect(settings)
name = f"greenlets-{library_name}-{order}"
queue = Queue(name, Exchange(name, "direct"), name)
taken: list[Delivery] = []


def drained_while_ticking(end: Callable[[], object]) -> int:
    """Drain until ``end`` is called, which is when a greenlet has ticked beside it."""
    ticks = 0

    def tick() -> None:
        nonlocal ticks
        for _ in range(TICKS):
            library.sleep(TICK)
            ticks += 1
        end()

    ticking = library.spawn(tick)
    drained = link.drain(PATIENCE)
    assert ticks == TICKS, f"the drain ended after {ticks} ticks"
    (ticking.get if library_name == "gevent" else ticking.wait)()
    return drained


def wake_in_a_thread() -> None:
    """Wake from a thread of the system's."""
    if library_name == "gevent":
        library.get_hub().threadpool.apply(link.wake)
    else:
        import_module("eventlet.tpool").execute(link.wake)


link.consume(queue, taken.append, prefetch=10)
for wake in (link.wake, wake_in_a_thread):
    assert drained_while_ticking(wake) == 0
    print("woken", flush=True)
drained = drained_while_ticking(lambda: sender.publish(Exchange("", "direct"), b"{}", routing_key=queue.name))
assert (drained, len(taken)) == (1, 1)
link.accept(taken[0])
print("taken", flush=True)
link.close()
sender.close()
