"""The rights that the page about security names are enough for monitoring, and give nothing else."""

import os
import re
import shlex
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import NamedTuple

import amqp
import httpx
import kombu
import pytest
import redis

from celeriac.programs.process import wait_until
from celeriac.testing.brokers import RedisServer
from celeriac.testing.rabbit import RabbitNode
from tests.live import StartWorker, new_vhost, peer
from tests.program import Program, own_environment, run_program
from tests.tidy.repository import ROOT, blocks

PATIENCE = 60.0
PAGE = ROOT / "docs" / "explanation" / "security.md"
#: What the clients of both brokers raise for a right that is missing.
ERRORS = (amqp.AccessRefused, redis.ResponseError)
#: Each ends by itself.
MONITORING = ("status", "inspect active", "events --limit 1", "control enable-events --yes")
RECORDING = ("record log --limit 1", "leaders")


class Urls(NamedTuple):
    """A broker with all rights, and with those of each login of the page."""

    all: str
    monitor: str
    recorder: str
    operator: str


def command(program: str, *words: str) -> list[str]:
    """Return the arguments of the one command of the page that begins so."""
    lines = [
        shlex.split(line)
        for block in blocks(PAGE.read_text())
        for line in block.code.replace("\\\n", " ").splitlines()
    ]
    (found,) = [line[1:] for line in lines if line[: len(words) + 1] == [program, *words]]
    return found


@pytest.fixture
def on_redis(own_redis: RedisServer) -> Urls:
    words = command("redis-cli", "ACL", "SETUSER", "celeriac", "reset")
    (password,) = [word[1:] for word in words if word.startswith(">")]
    further = command("redis-cli", "ACL", "SETUSER", "celeriac", "+lpush")
    with own_redis.client() as client:
        client.execute_command(*words)
        # Another user, so that the first one keeps the rights it has.
        client.execute_command(*("operator" if word == "celeriac" else word for word in words))
        client.execute_command(*("operator" if word == "celeriac" else word for word in further))
    limited, more = (
        own_redis.url.replace("://", f"://{user}:{password}@") for user in ("celeriac", "operator")
    )
    return Urls(own_redis.url, limited, limited, more)


@pytest.fixture
def on_rabbit(rabbit_server: RabbitNode) -> Iterator[Urls]:
    with new_vhost(rabbit_server) as url:
        vhost = url.rpartition("/")[2]
        logins = {}
        for user in ("monitor", "recorder", "operator"):
            password = command("rabbitmqctl", "add_user", user)[-1]
            rights = command("rabbitmqctl", "set_permissions", "--vhost", "/", user)[-3:]
            # The server is shared with other processes, and so are its users.
            name = f"{user}-{os.getpid()}"
            logins[name] = url.replace("guest:guest", f"{name}:{password}")
            rabbit_server.evaluate(
                f'ok = rabbit_auth_backend_internal:add_user({erlang(name, password)}, <<"guest">>), '
                "ok = rabbit_auth_backend_internal:set_permissions("
                f'{erlang(name, vhost, *rights)}, <<"guest">>)'
            )
        yield Urls(url, *logins.values())
        for name in logins:
            rabbit_server.evaluate(f'rabbit_auth_backend_internal:delete_user({erlang(name)}, <<"guest">>)')


def erlang(*texts: str) -> str:
    """Return texts as arguments in Erlang."""
    return ", ".join(f"<<{','.join(map(str, text.encode()))}>>" for text in texts)


@pytest.fixture(params=["on_redis", "on_rabbit"])
def urls(request: pytest.FixtureRequest) -> Urls:
    """A broker of each kind."""
    found: Urls = request.getfixturevalue(request.param)
    return found


def test_the_rights_of_the_page_are_enough_for_its_commands(
    urls: Urls, celery_worker: StartWorker, tmp_path: Path
) -> None:
    worker = celery_worker(peer("5.7"), urls.all)

    ends = {
        line: run_program(*line.split(), cwd=tmp_path, env=own_environment(CELERIAC_BROKER_URL=url))
        for lines, url in ((MONITORING, urls.monitor), (RECORDING, urls.recorder))
        for line in lines
    }
    queues = shown_queues(tmp_path, own_environment(CELERIAC_BROKER_URL=urls.monitor))

    assert {line: end.stderr for line, end in ends.items() if end.returncode} == {}
    assert worker.hostname in ends["status"].stdout
    assert worker.hostname in ends["inspect active"].stdout
    assert queues == {"celery": 0}


def shown_queues(folder: Path, environment: dict[str, str]) -> dict[str, int]:
    """Return the lengths of queues that a dashboard shows."""
    told = folder / "told"
    with (
        told.open("wb") as stderr,
        Program("web", "--port", "0", cwd=folder, env=environment, stderr=stderr) as process,
    ):
        assert wait_until(lambda: "served at" in told.read_text(), patience=PATIENCE), told.read_text()
        (address,) = re.findall(r"served at (http://\S+)", told.read_text())
        with httpx.Client(base_url=address, timeout=PATIENCE) as client:
            queues: dict[str, int] = {}

            def are_known() -> bool:
                queues.update(client.get("/api/v1/overview").json()["queues"] or {})
                return bool(queues)

            assert wait_until(are_known, patience=PATIENCE), told.read_text()
        process.terminate()
        process.wait()
    return queues


def test_a_login_of_the_page_for_monitoring_neither_reads_nor_sends_tasks(urls: Urls) -> None:
    for url, errors in ((urls.all, ()), (urls.monitor, ERRORS)):
        with closing(kombu.Connection(url)) as connection, refusing(*errors):
            queue = connection.SimpleQueue("celery")
            queue.put({"id": "one"})
            queue.get(timeout=PATIENCE).ack()


def test_the_further_rights_of_the_page_are_enough_to_send_a_task(urls: Urls, tmp_path: Path) -> None:
    sent, refused = (
        run_program("call", "shop.price", "[1]", cwd=tmp_path, env=own_environment(CELERIAC_BROKER_URL=url))
        for url in (urls.operator, urls.monitor)
    )

    assert sent.returncode == 0, sent.stderr
    assert refused.returncode == 77, refused.stderr
    with closing(kombu.Connection(urls.all)) as connection:
        message = connection.SimpleQueue("celery").get(timeout=PATIENCE)
        assert message.headers["task"] == "shop.price"
        message.ack()


def refusing(*errors: type[Exception]) -> AbstractContextManager[object]:
    """Expect one of some errors, or none."""
    return pytest.raises(errors) if errors else nullcontext()
