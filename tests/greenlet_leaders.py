"""A program whose threads are greenlets, and that leads in them.

``python -m tests.greenlet_leaders gevent late URL``: with ``late`` our modules are imported before the
library puts its own in the place of Python's. Prints what it did; ends with 0 if all is well.
"""

import sys
from importlib import import_module
from typing import Any

TICK = 0.005
TICKS = 20
#: Far more than needed, for a busy machine; not that long if all waits for all.
PATIENCE = 60.0

library_name, order, url = sys.argv[1:]
if order == "late":
    for module in ("node.leadership", "transport.redis_arbiter", "transport.amqp_arbiter"):
        import_module(f"celeriac.{module}")

library: Any = import_module(library_name)
if library_name == "gevent":
    import_module("gevent.monkey").patch_all()
else:
    library.monkey_patch()

from celeriac.app import Celeriac  # noqa: E402 - not before what may have to be patched

app = Celeriac(url, environ={})
ticks = 0


def tick() -> None:
    global ticks  # noqa: PLW0603 - a program of one purpose
    for _ in range(TICKS):
        library.sleep(TICK)
        ticks += 1


def check_waiting() -> None:
    first, second = app.leadership("greenlets"), app.leadership("greenlets")
    assert first.elect(timeout=PATIENCE)
    assert not second.elect(timeout=0)

    def resign() -> None:
        tick()
        first.resign()

    library.spawn(resign)
    assert second.elect(timeout=PATIENCE)  # which lets the other greenlet run
    assert ticks == TICKS, ticks
    assert second.token > first.token
    second.resign()


def check_renewing() -> None:
    with app.leadership("greenlets", ttl=6) as leader:
        left = leader.time_left()
        while leader.time_left() <= left:
            left = leader.time_left()
            assert leader.is_leader()
            library.sleep(TICK)
        assert leader.leave_note(b"x")
    assert not leader.is_leader()


def check_elected() -> None:
    @app.elected("greenlets")
    def write(_: object) -> str:
        return "written"

    assert write() == "written"
    assert app.arbiter.leases() == []


for check in (check_waiting, check_renewing, check_elected):
    check()
    print(check.__name__, flush=True)
app.close()
