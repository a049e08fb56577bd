"""Snapshots of a state at regular times, at Celery's import path."""

from celeriac.node.camera import Polaroid, evcam

__all__ = ["Polaroid", "evcam"]
