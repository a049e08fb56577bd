"""Calls tasks by their names."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Unpack

from celeriac.config import Settings
from celeriac.errors import NetworkError
from celeriac.model.result import ResultTree
from celeriac.model.task_request import Posting
from celeriac.node.call_options import CALL_OPTIONS, CallOptions
from celeriac.node.context import current_context
from celeriac.node.dispatcher import EventDispatcher
from celeriac.node.posting import posting_for, sent_fields
from celeriac.node.rate_limited_log import RateLimitedLog
from celeriac.node.sender import TaskSender
from celeriac.node.task import Task
from celeriac.node.task_options import check_names

if TYPE_CHECKING:
    from celeriac.node.result import AsyncResult

__all__ = ["TaskClient"]

logger = logging.getLogger(__name__)


class TaskClient:
    """Makes the message of each call, sends it, and gives out the result to wait for.

    ``reply_to`` returns the queue where results arrive, empty if they are stored; ``result`` makes
    the result of an id, and ``dispatcher`` what publishes ``task-sent``, if the settings want these events.
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
        self._log = RateLimitedLog(logger)

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
        if self._settings.task_send_sent_event and (task is None or task.send_events):
            self._post_with_event(posting)
        else:
            self._sender.post([posting])
        if context is not None:
            context.children.append(ResultTree(request.id))
        return self._result(request.id)

    def _post_with_event(self, posting: Posting) -> None:
        """Send a task, and publish ``task-sent`` right behind it.

        The event leaves before the broker confirms the task, over a connection that is made first: receivers
        stamp it on arrival, so a late one would seem to follow the worker's events.
        """
        task_id = posting.request.id
        dispatcher = self._dispatcher()
        fields = {"uuid": task_id, **sent_fields(posting)}

        def publish() -> None:
            with self._logging_lost_event(task_id):
                dispatcher.publish("task-sent", fields)

        with self._logging_lost_event(task_id):
            dispatcher.open()
        self._sender.post([posting], on_published=publish)

    @contextmanager
    def _logging_lost_event(self, task_id: str) -> Iterator[None]:
        try:
            yield
        except NetworkError as error:  # the task is sent all the same
            text = "Could not publish the task-sent event for %s: %s"
            self._log.write(logging.WARNING, type(error).__name__, text, task_id, error)
