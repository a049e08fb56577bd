"""A program whose threads are greenlets, and that uses every way results come and go in them.

``python -m tests.greenlets gevent late REDIS_URL AMQP_URL REDIS_PID RABBIT_PID``: with ``late`` our
modules are imported before the library puts its own in the place of Python's. Whatever waits must
let a greenlet tick, or else what it waits for never comes. Prints what it did; ends with 0 if all is well.
"""

import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

#: How often the greenlet ticks before it lets the waiting end: it must have been let run for that.
TICKS = 20
TICK = 0.005
#: Far more than needed, for a busy machine; not that long if all waits for all.
PATIENCE = 60.0
OURS = ("redis_results", "redis_store", "rpc_results", "amqp", "redis", "connect")

library_name, order, redis_url, amqp_url, redis_pid, rabbit_pid = sys.argv[1:]
if order == "late":
    for module in OURS:
        import_module(f"celeriac.transport.{module}")

library: Any = import_module(library_name)
if library_name == "gevent":
    import_module("gevent.monkey").patch_all()
else:
    library.monkey_patch()

from celeriac.config import Settings  # noqa: E402 - not before what may have to be patched
from celeriac.model.result import ResultMeta  # noqa: E402
from celeriac.transport.connect import connect  # noqa: E402
from celeriac.transport.redis_results import RedisResultLink  # noqa: E402
from celeriac.transport.redis_store import RedisResultStore  # noqa: E402
from celeriac.transport.result_link import Arrived, Confirmed, ResultLink  # noqa: E402
from celeriac.transport.rpc_results import RpcResultLink, RpcResultSender  # noqa: E402

settings = Settings(result_backend=redis_url, broker_url=amqp_url)


def while_ticking(wait: Callable[[], Any], end: Callable[[], object]) -> Any:
    """Return what ``wait`` does, which ``end`` lets go on once a greenlet has ticked beside it."""
    ticks = 0

    def tick() -> None:
        nonlocal ticks
        for _ in range(TICKS):
            library.sleep(TICK)
            ticks += 1
        end()

    ticking = library.spawn(tick)
    done = wait()
    assert ticks == TICKS, f"{wait} ended after {ticks} ticks"
    (ticking.get if library_name == "gevent" else ticking.wait)()
    return done


def together(*calls: Callable[[], Any]) -> list[Any]:
    """Return what calls return that are made at once, in a greenlet each."""
    greenlets = [library.spawn(call) for call in calls]
    return [greenlet.get() if library_name == "gevent" else greenlet.wait() for greenlet in greenlets]


def in_a_thread(call: Callable[[], object]) -> None:
    """Do something in a thread of the system's."""
    if library_name == "gevent":
        library.get_hub().threadpool.apply(call)
    else:
        import_module("eventlet.tpool").execute(call)


def freeze(pid: str) -> None:
    os.kill(int(pid), signal.SIGSTOP)
    state = Path(f"/proc/{pid}/stat")
    while ") T " not in state.read_text():
        library.sleep(TICK)


def thaw(pid: str) -> None:
    os.kill(int(pid), signal.SIGCONT)


def success(task_id: str) -> ResultMeta:
    return ResultMeta(task_id, "SUCCESS", 3)


def check_interrupts(link: ResultLink) -> None:
    assert while_ticking(lambda: link.drain(PATIENCE), link.interrupt) == []
    assert while_ticking(lambda: link.drain(PATIENCE), lambda: in_a_thread(link.interrupt)) == []


def check_redis_link() -> None:
    store, link = RedisResultStore(settings), RedisResultLink(settings)
    link.open()
    link.subscribe(["a"])
    news = link.drain(PATIENCE)
    assert news == [Confirmed(("a",))], news
    check_interrupts(link)

    (told,) = while_ticking(lambda: link.drain(PATIENCE), lambda: store.write(success("a"), timeout=PATIENCE))
    link.read(["a", "absent"])
    (read,) = link.drain(PATIENCE)

    assert isinstance(told, Arrived)
    assert told == read
    assert told.meta == success("a")
    link.close()
    store.close()


def check_store() -> None:
    store = RedisResultStore(settings)
    for name in ("new", "idle"):
        freeze(redis_pid)
        calls = [lambda each=f"{name}-{n}": store.write(success(each), timeout=PATIENCE) for n in range(10)]
        written = while_ticking(lambda calls=calls: together(*calls), lambda: thaw(redis_pid))  # type: ignore[misc]
        assert written == [True] * 10, written
        found = store.read([f"{name}-{number}" for number in range(10)], timeout=PATIENCE)
        assert len(found) == 10, found
    assert len(store._idle) <= 8
    store.close()


def check_messages() -> None:
    link = RpcResultLink(connect(settings), queue_name=f"greenlets.{os.getpid()}", settings=settings)
    sender = RpcResultSender(connect(settings))
    link.open()
    check_interrupts(link)

    def send(task_id: str) -> None:
        sender.send(
            success(task_id),
            reply_to=f"greenlets.{os.getpid()}",
            correlation_id=task_id,
            is_persistent=False,
            timeout=PATIENCE,
        )

    (told,) = while_ticking(lambda: link.drain(PATIENCE), lambda: send("a"))
    assert told.meta == success("a")
    freeze(rabbit_pid)
    while_ticking(lambda: send("b"), lambda: thaw(rabbit_pid))
    (last,) = link.drain(PATIENCE)
    assert isinstance(last, Arrived)
    assert last.meta == success("b")
    together(*(lambda each=str(number): send(each) for number in range(10)))
    came: list[Any] = []
    while len(came) < 10:
        came += link.drain(PATIENCE)
    sender.close()
    link.delete()


for check in (check_redis_link, check_store, check_messages):
    check()
    print(check.__name__, flush=True)
