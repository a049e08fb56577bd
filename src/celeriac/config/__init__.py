"""Limits and settings, each beside its reason."""

from celeriac.config.limits import DAY, KIB, MIB, Limits
from celeriac.config.settings import Settings

__all__ = ["DAY", "KIB", "MIB", "Limits", "Settings"]
