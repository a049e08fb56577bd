"""The tutorial of the worker, as its reader would follow it: beside a real Redis, on the command line."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from celeriac.testing.brokers import RedisServer
from celeriac.testing.peers import CeleriacWorker
from tests.program import own_environment, run_program
from tests.tidy.repository import ROOT

PROGRAM = ROOT / "examples" / "shop.py"

Run = Callable[..., str]


@pytest.fixture(scope="module")
def run(redis_server: RedisServer) -> Iterator[Run]:
    """Run a command in the folder of the example, beside its worker, and return what it printed."""
    url = redis_server.url_of(62)
    with redis_server.client(62) as client:
        client.flushdb()
    place = {"CELERIAC_BROKER_URL": url, "CELERIAC_RESULT_BACKEND": url}

    def run(program: str, *arguments: str) -> str:
        if program == "celeriac":
            done = run_program(*arguments, cwd=PROGRAM.parent, env=own_environment(**place))
        else:
            done = subprocess.run(  # noqa: S603
                [program, *arguments],
                cwd=PROGRAM.parent,
                env=own_environment(**place),
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
        assert done.returncode == 0, done.stderr
        return done.stdout

    with CeleriacWorker(PROGRAM, url=url, backend=url, hostname="shop@localhost"):
        yield run


def celeriac(run: Run, *arguments: str) -> str:
    return run("celeriac", *arguments)


def test_a_task_is_called_from_the_command_line(run: Run) -> None:
    printed = celeriac(run, "call", "shop.price", "[3, 2.5]", "--wait", "--timeout", "30", "--json")

    told = json.loads(printed)
    assert told["state"] == "SUCCESS"
    assert told["result"] == 7.5


def test_a_task_that_fails_at_first_is_tried_again(run: Run) -> None:
    printed = celeriac(run, "call", "shop.pay", '["A17"]', "--wait", "--timeout", "60", "--json")

    assert json.loads(printed)["result"] == "A17 paid at try 3"


def test_a_task_is_called_from_python(run: Run) -> None:
    program = 'from shop import pack; print(pack.delay("A17").get(timeout=30))'

    printed = run(sys.executable, "-c", program)

    assert printed == "A17: 3 parts packed\n"


def test_a_celery_client_calls_the_same_worker(run: Run, redis_server: RedisServer) -> None:
    url = redis_server.url_of(62)
    program = (
        "from celery import Celery\n"
        f"app = Celery(broker={url!r}, backend={url!r})\n"
        "print(app.send_task('shop.price', (3, 2.5)).get(timeout=30))"
    )

    printed = run(sys.executable, "-c", program)

    assert printed == "7.5\n"


def test_the_worker_is_seen_and_tells_its_tasks(run: Run) -> None:
    seen = celeriac(run, "status")
    told = celeriac(run, "inspect", "registered")

    assert "shop@localhost  online" in seen
    assert told.split() == ["shop@localhost:", "shop.pack", "shop.pay", "shop.price"]


def test_the_page_names_the_program_that_is_run(run: Run) -> None:
    page = Path(ROOT, "docs", "tutorial", "a-worker-in-five-minutes.md").read_text()

    listed = celeriac(run, "worker", "-A", "shop:app", "--graph")

    assert "`examples/shop.py`" in page
    assert '"shop.py"' in Path(__file__).read_text()
    assert listed in (ROOT / "docs" / "explanation" / "mingle-and-gossip.md").read_text()
