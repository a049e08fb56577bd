from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import httpx
import pytest

from celeriac.web import access
from tests.component.web.kit import CHEAP_HASHES, Rig, served
from tests.component.web.kit import rig as made


@pytest.fixture(scope="module", autouse=True)
def cost_of_hashes() -> Iterator[dict[str, int]]:
    """Let secrets be hashed without effort; return the effort outside of tests."""
    cost = dict(access._COST)
    with patch.dict(access._COST, CHEAP_HASHES):
        yield cost


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with made(tmp_path) as running:
        yield running


@pytest.fixture
def ask(rig: Rig) -> Iterator[httpx.Client]:
    with served(rig) as client:
        yield client
