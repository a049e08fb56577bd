"""What all tests of the store share."""

from collections.abc import Iterator

import pytest
from fsspec.implementations.memory import MemoryFileSystem


@pytest.fixture(autouse=True)
def _an_empty_object_store() -> Iterator[None]:
    """Have nothing at ``memory://``, which is one for the whole process."""
    yield
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]
