"""The receiver of events, at Celery's import path."""

from celeriac.node.receiver import CLIENT_CLOCK_SKEW, EventReceiver

__all__ = ["CLIENT_CLOCK_SKEW", "EventReceiver"]
