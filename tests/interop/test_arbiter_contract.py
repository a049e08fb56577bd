"""Every arbiter keeps the contract: in memory, and at real brokers."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from celeriac.config import Settings
from celeriac.transport.arbiter import Arbiter
from celeriac.transport.arbiters import arbiter_for
from celeriac.transport.memory import MemoryBroker
from tests.arbiter_contract import ArbiterContract, NewArbiter

Make = Callable[[], Arbiter]


def in_memory(_: pytest.FixtureRequest) -> Make:
    broker = MemoryBroker()
    return lambda: arbiter_for(Settings(), broker)


def by_redis(request: pytest.FixtureRequest) -> Make:
    settings = Settings(broker_url=request.getfixturevalue("redis_url"))
    return lambda: arbiter_for(settings)


def by_rabbit(request: pytest.FixtureRequest) -> Make:
    settings = Settings(broker_url=request.getfixturevalue("amqp_url"))
    return lambda: arbiter_for(settings)


#: By name, what returns a function that makes arbiters as different processes have them.
MAKERS: dict[str, Callable[[pytest.FixtureRequest], Make]] = {
    "memory": in_memory,
    "redis": by_redis,
    "rabbitmq": by_rabbit,
}


@pytest.fixture(params=list(MAKERS))
def new_arbiter(request: pytest.FixtureRequest) -> Iterator[NewArbiter]:
    """Run the test with each arbiter."""
    make = MAKERS[request.param](request)
    with ExitStack() as ends:

        def new() -> Arbiter:
            arbiter = make()
            ends.callback(arbiter.close)
            return arbiter

        yield new


class TestArbiter(ArbiterContract):
    """All of them."""
