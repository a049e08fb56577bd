"""One copy of equal values, so that a million tasks fit in memory.

Each decoded event brings its own copy of its task's id, its node's name, the
arguments its task was sent with. Records are frozen, and stay equal to what they
were: only the object behind an equal value is another. It saves a good part of a task.
"""

from sys import intern

from msgspec.structs import force_setattr

from celeriac.core.history import History
from celeriac.model.events import Described, Sent

__all__ = ["share_description"]


def share_description(event: Described, uuid: str, past: History) -> None:
    """Let an event hold the texts that its task and the first event of it hold."""
    if event.root_id == uuid:
        force_setattr(event, "root_id", uuid)
    if type(event) is Sent:
        _share_route(event)
    if past and isinstance(earlier := past[0], Described):
        if event.args == earlier.args:
            force_setattr(event, "args", earlier.args)
        if event.kwargs == earlier.kwargs:
            force_setattr(event, "kwargs", earlier.kwargs)
        if event.root_id == earlier.root_id:
            force_setattr(event, "root_id", earlier.root_id)
        if event.parent_id == earlier.parent_id:
            force_setattr(event, "parent_id", earlier.parent_id)


def _share_route(event: Sent) -> None:
    if event.queue is not None:
        force_setattr(event, "queue", intern(event.queue))
    if event.routing_key is not None:
        force_setattr(event, "routing_key", intern(event.routing_key))
