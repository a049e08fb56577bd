"""Calls tasks by their names."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from celeriac.config import Settings
from celeriac.errors import NetworkError
from celeriac.model.result import ResultTree
from celeriac.model.task_request import Posting
from celeriac.node.call_options import CALL_OPTIONS, CallOptions
from celeriac.node.context import current_context
from celeriac.node.dispatcher import EventDispatcher
from celeriac.node.posting import posting_for, sent_fields
from celeriac.node.sender import TaskSender
from celeriac.node.task import Task
from celeriac.node.task_options import check_names

if TYPE_CHECKING:
    from celeriac.node.result import AsyncResult

__all__ = ["TaskClient"]

logger = logging.getLogger(__name__)


class TaskClient:
    """Makes the message of each call, sends it, and gives out the result to wait for.

    ``reply_to`` tells the queue where results come, empty if they are stored; ``result`` makes
    the result of an id, and ``dispatcher`` who tells of what was sent, if the settings want that told.
    """

    def __init__(
        self,
        sender: TaskSender,
        *,
        settings: Settings,
        tasks: Mapping[str, Task],
        origin: str,
        reply_to: Callable[[], str],
        result: "Callable[[str], AsyncResult]",
        dispatcher: Callable[[], EventDispatcher],
    ) -> None:
        self._sender = sender
        self._settings = settings
        self._tasks = tasks
        self._origin = origin
        self._reply_to = reply_to
        self._result = result
        self._dispatcher = dispatcher

    def send_task(
        self,
        name: str,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[CallOptions],
    ) -> "AsyncResult":
        """Send a task, known here or not; on return the broker has it."""
        check_names(options, CALL_OPTIONS, of="a call")
        task = self._tasks.get(name)
        context = current_context()
        posting = posting_for(
            name,
            args,
            kwargs,
            options,
            settings=self._settings,
            task=task,
            context=context,
            origin=self._origin,
        )
        request = posting.request
        if not request.reply_to and not request.ignore_result:
            posting = posting._replace(request=request._replace(reply_to=self._reply_to()))
        self._sender.post([posting])
        if context is not None:
            context.children.append(ResultTree(request.id))
        if self._settings.task_send_sent_event and (task is None or task.send_events):
            self._tell(posting)
        return self._result(request.id)

    def _tell(self, posting: Posting) -> None:
        try:
            fields = {"uuid": posting.request.id, **sent_fields(posting)}
            self._dispatcher().publish("task-sent", fields)
        except NetworkError as error:
            # The task is sent, whoever hears of it.
            logger.warning("That task %s was sent could not be told: %s", posting.request.id, error)
