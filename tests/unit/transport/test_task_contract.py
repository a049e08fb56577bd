"""The brokers without a socket keep the contract of deliveries that are to be settled."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from celeriac.config import Settings
from celeriac.transport.base import Connection
from celeriac.transport.connect import connect as connect_to
from celeriac.transport.memory import MemoryBroker
from tests.contract import Connect
from tests.contract_tasks import AsideContract, LostLinkContract, OrderContract, TaskContract


class TestMemoryBroker(TaskContract, OrderContract, LostLinkContract, AsideContract):
    """The broker of our own."""

    @pytest.fixture
    def connect(self) -> Connect:
        return MemoryBroker().connect


class TestKombuMemory(TaskContract, LostLinkContract):
    """The one that kombu brings along."""

    @pytest.fixture
    def connect(self) -> Iterator[Connect]:
        with ExitStack() as stack:

            def new() -> Connection:
                return stack.enter_context(connect_to(Settings(broker_url="memory://")))

            yield new
