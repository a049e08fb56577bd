"""Which way of waiting is right where we are called from."""

import sys
from asyncio import get_running_loop

__all__ = ["environment"]


def environment() -> str:
    """Return ``asyncio`` in an event loop, ``gevent`` or ``eventlet`` where these rule, else ``default``.

    Looked up at each call: patching may come after our import, and one program may have
    threads and an event loop side by side.
    """
    try:
        get_running_loop()
    except RuntimeError:
        pass
    else:
        return "asyncio"
    # Looked up, not imported: what was never imported has patched nothing.
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None and monkey.is_module_patched("socket") and monkey.is_module_patched("select"):
        return "gevent"
    patcher = sys.modules.get("eventlet.patcher")
    if patcher is not None and patcher.is_monkey_patched("socket") and patcher.is_monkey_patched("select"):
        return "eventlet"
    return "default"
