"""Queues of RabbitMQ in which messages wait aside, and return by themselves to the queue they came from.

A message leaves a queue of RabbitMQ, once it has expired, only from the head, so there is a queue for each
length of time. Nobody consumes from it: what has expired there is dead-lettered to the end of its own queue.
There is no ``x-expires``, because RabbitMQ deletes such a queue with its messages.

A delivery is settled once the broker has confirmed its copy. If the link is lost between the two, both are
there: the task is delivered at least once.
"""

import logging
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

from celeriac.errors import AccessRefused
from celeriac.model.message import Message, Queue
from celeriac.transport.amqp_frames import spell_properties
from celeriac.transport.kombu_tasks import Ticket

__all__ = ["AsideQueues", "properties_aside"]

logger = logging.getLogger(__name__)

#: Headers that RabbitMQ writes when a message expires: of no use, and longer each time.
_DEATH: Final = ("x-death", "x-first-death-", "x-last-death-")


class AsideQueues:
    """The queues aside that a link has declared, and the deliveries whose copies are on their way there.

    ``new_channel`` opens a channel of the link; ``translated`` turns errors of its library into ours.
    """

    def __init__(
        self, new_channel: Callable[[], Any], translated: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._new_channel = new_channel
        self._translated = translated
        #: By queue and seconds, the name of its queue aside; None if the broker refused it.
        self._names: dict[tuple[str, float], str | None] = {}
        #: The number of each copy, as publisher confirms count, and the delivery to settle.
        self._moving: deque[tuple[int, Ticket]] = deque()

    @property
    def is_moving(self) -> bool:
        """Whether copies are not confirmed yet."""
        return bool(self._moving)

    def name_of(self, queue: Queue, seconds: float) -> str | None:
        """Return the queue in which messages of another wait for so many seconds; None if it is refused.

        It is declared once for each link.
        """
        key = (queue.name, seconds)
        if key not in self._names:
            self._names[key] = None
            try:
                with self._translated():
                    # One of its own: a refusal ends it.
                    channel = self._new_channel()
                    self._names[key] = _declare(channel, queue, seconds)
                    channel.close()
            except AccessRefused as error:
                logger.warning("broker: cannot return tasks of queue %r with a delay: %s", queue.name, error)
        return self._names[key]

    def move(self, number: int, ticket: Ticket) -> None:
        """Note that the copy of a delivery was published."""
        self._moving.append((number, ticket))

    def settle(self, confirmed: int) -> None:
        """Accept the deliveries whose copies the broker has, up to a number."""
        while self._moving and self._moving[0][0] <= confirmed:
            _, ticket = self._moving.popleft()
            ticket.consumer.accept(ticket.number)


def properties_aside(message: Message) -> bytes:
    """Return the properties of a copy: without what RabbitMQ wrote when the message returned before."""
    headers = {name: value for name, value in message.headers.items() if not name.startswith(_DEATH)}
    return spell_properties(
        headers,
        is_persistent=True,
        correlation_id=message.correlation_id,
        reply_to=message.reply_to,
        priority=message.priority,
    )


def _declare(channel: Any, queue: Queue, seconds: float) -> str:
    name = f"celeriac.aside.{queue.name}.{seconds:.0f}"
    arguments: dict[str, object] = {
        "x-message-ttl": int(seconds * 1000),
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": queue.name,
    }
    if queue.type == "quorum":
        # Without these RabbitMQ may lose a message on its way back, if a node of the cluster ends.
        arguments |= {
            "x-queue-type": "quorum",
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
        }
    # RabbitMQ lets only those declare it who may publish to the default exchange, as copies are.
    channel.queue_declare(name, durable=True, auto_delete=False, arguments=arguments)
    return name
