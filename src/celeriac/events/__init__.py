"""Records of events, and what sends and receives them; its modules have the names of Celery's."""

from celeriac.model import events as _records
from celeriac.model.events import *  # noqa: F403
from celeriac.node.dispatcher import EventDispatcher
from celeriac.node.receiver import EventReceiver

__all__ = ["EventDispatcher", "EventReceiver"]
__all__ += _records.__all__
