"""The state of a cluster, at Celery's import path."""

from celeriac.core.task import Task
from celeriac.core.worker import HEARTBEAT_DRIFT_MAX, HEARTBEAT_EXPIRE_WINDOW, Worker, heartbeat_expires
from celeriac.node.state import State

__all__ = ["HEARTBEAT_DRIFT_MAX", "HEARTBEAT_EXPIRE_WINDOW", "State", "Task", "Worker", "heartbeat_expires"]
