"""Where tests keep the pictures that ``make pictures`` puts into the docs."""

from pathlib import Path
from typing import Final

__all__ = ["PICTURES"]

PICTURES: Final = Path("build/pictures")
