"""Task states and their precedence; :class:`state` is a state with an order."""

from celeriac.model import states as _states
from celeriac.model.states import *  # noqa: F403

__all__: list[str] = []
__all__ += _states.__all__
