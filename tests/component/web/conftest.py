from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.component.web.kit import Rig, served
from tests.component.web.kit import rig as made


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with made(tmp_path) as running:
        yield running


@pytest.fixture
def ask(rig: Rig) -> Iterator[httpx.Client]:
    with served(rig) as client:
        yield client
