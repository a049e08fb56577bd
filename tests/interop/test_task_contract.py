"""The links to real brokers keep the contract of deliveries that are to be settled."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from celeriac.config import Settings
from celeriac.testing.rabbit import RabbitNode
from celeriac.transport.connect import connect as connect_to
from tests.contract import Connect
from tests.contract_tasks import AsideContract, LostLinkContract, OrderContract, TaskContract


@pytest.fixture
def links() -> Iterator[ExitStack]:
    """What is entered here is closed at the end of the test."""
    with ExitStack() as stack:
        yield stack


class TestRedis(TaskContract, OrderContract, AsideContract):
    """Redis, by its sockets."""

    @pytest.fixture
    def connect(self, redis_url: str, links: ExitStack) -> Connect:
        return lambda: links.enter_context(connect_to(Settings(broker_url=redis_url)))


class TestRabbitMQ(TaskContract, OrderContract, LostLinkContract, AsideContract):
    """RabbitMQ, by the batches of its socket."""

    @pytest.fixture
    def connect(self, rabbit_server: RabbitNode, links: ExitStack) -> Connect:
        return lambda: links.enter_context(connect_to(Settings(broker_url=rabbit_server.url)))


class TestKombuFiles(TaskContract, LostLinkContract):
    """Files, by what all transports of kombu share."""

    @pytest.fixture
    def connect(self, tmp_path: Path, links: ExitStack) -> Connect:
        folders = {
            "data_folder_in": str(tmp_path),
            "data_folder_out": str(tmp_path),
            "control_folder": str(tmp_path / "control"),
        }
        settings = Settings(broker_url="filesystem://", broker_transport_options=folders)
        return lambda: links.enter_context(connect_to(settings))
