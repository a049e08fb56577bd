"""A cluster in memory for every test of a command."""

from collections.abc import Iterator

import pytest

from tests.component.cli.kit import Cluster


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as started:
        yield started
