"""Results as messages to the client that sent the task."""

from collections.abc import Callable, Sequence
from uuid import uuid4

from celeriac.config import Settings
from celeriac.errors import CallerError, ConnectionLost
from celeriac.model.result import ResultMeta, StoredResult
from celeriac.node.backend import Backend
from celeriac.node.drainer import AsyncioDrainer
from celeriac.node.per_process import PerProcess
from celeriac.transport.base import Connection
from celeriac.transport.result_link import ResultLink
from celeriac.transport.rpc_results import RpcResultLink, RpcResultSender

__all__ = ["RpcBackend"]


class RpcBackend(Backend):
    """Results that come as messages to one queue of this process, each but once.

    A task is sent with :attr:`reply_to` in its message; only who sent it so can get its result.
    """

    def __init__(self, settings: Settings, connect: Callable[[], Connection]) -> None:
        super().__init__(settings)
        self._connect = connect
        # One of another process, or of an earlier start, is another.
        self._queue_name = PerProcess(lambda: f"celeriac.reply.{uuid4().hex}")
        self._sender = PerProcess(lambda: RpcResultSender(connect()))

    @property
    def reply_to(self) -> str:
        """The queue of this process, declared: what is sent there from now on arrives.

        Raises ConnectionLost if the broker cannot be reached now.
        """
        drainer = self.drainer()
        patience = self.settings.broker_connection_timeout
        if isinstance(drainer, AsyncioDrainer) and not self.consumer.is_up:
            raise CallerError(
                "the reply queue is not declared yet, and cannot be declared synchronously in an event "
                "loop; access it before the loop starts, or: await asyncio.to_thread(getattr, "
                "app.backend, 'reply_to')"
            )
        if not self.consumer.wait_until_up(drainer.runtime.flag(), patience):
            error = self.consumer.health().last_error
            raise ConnectionLost(error or f"no connection to the broker within {patience:g} s")
        return self._queue_name.get()

    def read(self, task_ids: Sequence[str], *, timeout: float) -> dict[str, ResultMeta]:
        """Return what has come of these tasks."""
        drainer = self.drainer()
        self.consumer.wait_until_up(drainer.runtime.flag(), timeout)
        found = {task_id: self.consumer.recall(task_id) for task_id in task_ids}
        return {task_id: meta for task_id, meta in found.items() if meta is not None}

    def forget(self, task_id: str) -> None:
        """Remember nothing more of a task."""
        self.consumer.forget(task_id)

    def close(self, *, tells: bool = True) -> None:
        """End the links and the queue; to wait again starts with an empty one."""
        super().close(tells=tells)
        # The next queue is another: who ends the old one late must not end the new one.
        self._queue_name.pop()
        sender = self._sender.pop()
        if sender is not None:
            sender.close()

    def _new_link(self) -> ResultLink:
        return RpcResultLink(self._connect(), queue_name=self._queue_name.get(), settings=self.settings)

    def _write(self, meta: ResultMeta, *, reply_to: str, correlation_id: str, timeout: float) -> bool:
        if not reply_to:
            return False
        self._sender.get().send(
            meta,
            reply_to=reply_to,
            correlation_id=correlation_id,
            is_persistent=self.settings.result_persistent,
            timeout=timeout,
        )
        return True

    def _write_many(self, results: Sequence[StoredResult], *, timeout: float) -> None:
        awaited = [each for each in results if each.reply_to]
        if awaited:
            self._sender.get().send_many(
                awaited, is_persistent=self.settings.result_persistent, timeout=timeout
            )
