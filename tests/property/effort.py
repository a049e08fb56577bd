"""How many examples a law is tried with that costs more than most."""

from typing import Final

from hypothesis import settings

__all__ = ["ON_DISK"]

#: What writes and reads files takes ten times as long as what does not: a sixth of the examples.
ON_DISK: Final = settings(max_examples=settings().max_examples // 6)
