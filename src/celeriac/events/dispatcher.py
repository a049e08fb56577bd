"""The dispatcher of events, at Celery's import path."""

from celeriac.node.dispatcher import EventDispatcher

__all__ = ["EventDispatcher"]
