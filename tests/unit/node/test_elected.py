"""A function that runs in one process of all that call it."""

from collections.abc import Iterator

import pytest

from celeriac.app import Celeriac
from celeriac.errors import CallerError
from celeriac.node.leadership import Leadership
from celeriac.transport.memory import MemoryBroker


@pytest.fixture
def app() -> Iterator[Celeriac]:
    app = Celeriac(MemoryBroker(), environ={})
    yield app
    app.close()


def test_a_function_runs_where_it_is_elected(app: Celeriac) -> None:
    @app.elected("report", ttl=5)
    def write(leader: Leadership, page: int, *, size: int) -> tuple[bool, int, int, float]:
        """Write a page."""
        return leader.is_leader(), page, size, leader.ttl

    written = write(7, size=3)

    assert written == (True, 7, 3, 5.0)
    assert (write.__name__, write.__doc__) == ("write", "Write a page.")
    assert app.arbiter.leases() == []


def test_a_function_does_not_run_where_another_leads(app: Celeriac) -> None:
    ran: list[str] = []

    @app.elected("report")
    def write(_: Leadership) -> str:
        ran.append("yes")
        return "written"

    with app.leadership("report"):
        written = write()

    assert written is None
    assert ran == []


def test_calls_at_the_same_time_run_one(app: Celeriac) -> None:
    @app.elected("report")
    def write(_: Leadership) -> object:
        return write()

    written = write()

    assert written is None


def test_a_function_that_fails_leads_no_more(app: Celeriac) -> None:
    @app.elected("report")
    def write(_: Leadership) -> None:
        raise LookupError

    with pytest.raises(LookupError):
        write()

    assert app.arbiter.leases() == []


def test_a_function_that_would_run_later_is_refused(app: Celeriac) -> None:
    async def later(_: Leadership) -> None: ...

    def bit_by_bit(_: Leadership) -> Iterator[int]:
        yield 1

    for function in (later, bit_by_bit):
        with pytest.raises(CallerError, match=f"{function.__name__} is a coroutine or generator"):
            app.elected("report")(function)


def test_a_decorator_without_a_name_is_refused(app: Celeriac) -> None:
    def write(_: Leadership) -> None: ...

    with pytest.raises(CallerError, match=r'@app\.elected\("nightly-report"\)'):
        app.elected(write)  # type: ignore[arg-type]  # what @app.elected without a name does
