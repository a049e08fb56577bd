"""How many examples a law is tried with that costs more than most."""

import os
from typing import Final

from hypothesis import settings

__all__ = ["COSTLY", "ON_DISK"]

_ALL = settings().max_examples
_IS_LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"

#: What writes and reads files takes ten times as long as what does not.
ON_DISK: Final = settings(max_examples=_ALL // (6 if _IS_LONG else 10))
#: What takes seconds for all examples is tried with a third of them; with all where there is time.
COSTLY: Final = settings(max_examples=_ALL if _IS_LONG else _ALL // 3)
