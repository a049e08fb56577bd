"""Which way of waiting is right where we are called from."""

import sys
from asyncio import get_running_loop
from typing import Final, NamedTuple

from celeriac.errors import ImproperlyConfigured

__all__ = ["environment"]


class _Greenlets(NamedTuple):
    """A library of greenlets, and how it says what it has patched."""

    name: str
    module: str
    question: str
    threads: str
    fix: str


_LIBRARIES: Final = (
    _Greenlets("gevent", "gevent.monkey", "is_module_patched", "threading", "gevent.monkey.patch_all()"),
    _Greenlets("eventlet", "eventlet.patcher", "is_monkey_patched", "thread", "eventlet.monkey_patch()"),
)


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
    for library in _LIBRARIES:
        # Looked up, not imported: what was never imported has patched nothing.
        patcher = sys.modules.get(library.module)
        if patcher is None:
            continue
        is_patched = getattr(patcher, library.question)
        if is_patched("socket") and is_patched("select"):
            return library.name
        if is_patched(library.threads):
            raise ImproperlyConfigured(
                f"{library.name} has patched threads but not sockets, so a wait would block all greenlets; "
                f"patch all of them with {library.fix}"
            )
    return "default"
