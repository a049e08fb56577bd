"""Results over real links, for tests: places and queues with what reads and writes there."""

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import uuid4

from celeriac.config import Settings
from celeriac.model.result import ResultMeta
from celeriac.programs.process import wait_until
from celeriac.programs.service import Service
from celeriac.transport.connect import connect
from celeriac.transport.redis_results import RedisResultLink
from celeriac.transport.redis_store import RedisResultStore
from celeriac.transport.result_link import Arrived, Confirmed, News, ResultLink
from celeriac.transport.rpc_results import RpcResultLink, RpcResultSender

__all__ = [
    "MIB",
    "PATIENCE",
    "Place",
    "Replies",
    "arrivals",
    "confirm",
    "confirmed",
    "drained",
    "frozen",
    "metas",
    "success",
]

#: Far more than needed, for a busy machine.
PATIENCE = 60.0
MIB = 1024 * 1024


def drained(link: ResultLink, is_enough: Callable[[list[News]], bool]) -> list[News]:
    """Drain until there is enough, and return all of it."""
    news: list[News] = []
    deadline = monotonic() + PATIENCE
    while not is_enough(news):
        assert monotonic() < deadline, news
        news += link.drain(1.0)
    return news


def confirmed(news: list[News]) -> list[str]:
    return [task_id for each in news if isinstance(each, Confirmed) for task_id in each.task_ids]


def metas(news: list[News]) -> list[ResultMeta]:
    return [each.meta for each in news if isinstance(each, Arrived)]


def arrivals(link: ResultLink, count: int) -> list[ResultMeta]:
    """Drain until so many results came, and return them."""
    return metas(drained(link, lambda news: len(metas(news)) >= count))


def confirm(link: ResultLink, *task_ids: str) -> None:
    """Subscribe, and wait until that is confirmed."""
    link.subscribe(task_ids)
    drained(link, lambda news: set(task_ids) <= set(confirmed(news)))


def success(task_id: str, result: object = 3) -> ResultMeta:
    return ResultMeta(task_id, "SUCCESS", result)


class Place:
    """A database of a Redis server, with what reads and writes results there."""

    def __init__(self, url: str, ends: ExitStack, **settings: Any) -> None:
        self.url = url
        self.settings = Settings(result_backend=url, **settings)
        self.ends = ends
        self.store = RedisResultStore(self.settings)
        ends.callback(self.store.close)

    def write(self, meta: ResultMeta) -> None:
        assert self.store.write(meta, timeout=PATIENCE)

    def link(self) -> RedisResultLink:
        """Return a new link, open."""
        link = RedisResultLink(self.settings)
        self.ends.callback(link.close)
        link.open()
        return link


class Replies:
    """A queue of results, and who sends to it."""

    def __init__(self, url: str, ends: ExitStack, **settings: Any) -> None:
        self.settings = Settings(broker_url=url, **settings)
        self.queue_name = f"celeriac.reply.{uuid4().hex}"
        self.sender = RpcResultSender(connect(self.settings))
        ends.callback(self.sender.close)
        self.ends = ends

    def link(self) -> RpcResultLink:
        """Return a new link, open."""
        link = RpcResultLink(connect(self.settings), queue_name=self.queue_name, settings=self.settings)
        return self.opened(link)

    def opened(self, link: RpcResultLink) -> RpcResultLink:
        self.ends.callback(link.delete)
        link.open()
        return link

    def send(self, meta: ResultMeta, *, timeout: float = PATIENCE, is_persistent: bool = False) -> None:
        self.sender.send(
            meta,
            reply_to=self.queue_name,
            correlation_id=meta.task_id,
            is_persistent=is_persistent,
            timeout=timeout,
        )


@contextmanager
def frozen(server: Service) -> Iterator[None]:
    """Let a server, or a worker, hold every link, and answer on none."""
    server.signal(signal.SIGSTOP)
    state = Path(f"/proc/{server.pid}/stat")
    try:
        assert wait_until(lambda: ") T " in state.read_text(), patience=PATIENCE)
        yield
    finally:
        server.signal(signal.SIGCONT)
