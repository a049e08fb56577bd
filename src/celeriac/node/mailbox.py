"""The side of a node that answers control requests."""

import logging
import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from resource import RUSAGE_SELF, getrusage
from time import monotonic, time
from typing import Final, NamedTuple

from celeriac.config import Limits, Settings
from celeriac.core.revoked import RevokedSet
from celeriac.errors import AccessRefused, CallerError, PeerError
from celeriac.model.message import Message
from celeriac.node.clock import SharedClock
from celeriac.node.rate_limited_log import RateLimitedLog
from celeriac.node.revoked import SharedRevokedSet
from celeriac.transport.base import Connection
from celeriac.wire.control import Reply, Request, Spelled, decode_request, encode_reply, is_addressed
from celeriac.wire.field import is_name
from celeriac.wire.hello import decode_revoked, encode_revoked
from celeriac.wire.names import node_queue, reply_exchange
from celeriac.wire.text import clean_text

__all__ = ["TASK_QUESTIONS", "Handler", "Later", "Mailbox"]

#: Called with the arguments of a request, by name; returns what JSON can hold, or :class:`Later`.
Handler = Callable[..., object]

#: Of the name of a peer that ids of revoked tasks are counted by.
_MAX_PEER_CHARS: Final = 255
#: Whoever reaches the broker may ask these: they tell little, and stop no node.
_OPEN: Final = frozenset({"ping", "hello", "clock", "stats"})
#: Every monitor asks for it, us included: a node that does not send any need not speak of it.
_ROUTINE: Final = "heartbeat"
#: How late a command that changes something may be. Beyond it Celery speaks of clocks that drift.
_LATE: Final = 16.0
#: What an exception may say in a reply.
_ERROR_TEXT: Final = Limits(text_chars=1000)
#: Replies to refused commands, by reason. Other refusals have no reply: the sender waits no more, or waits
#: elsewhere, or sent no request.
_REFUSALS: Final = {
    "not-allowed": "command {!r} is not allowed on this node: add it to control_allow",
    "unknown": "unknown command {!r}",
}
#: Questions about tasks, which every worker answers. A node that runs no tasks sends no reply, not even an
#: error: Celery's monitors read a list of tasks from each.
TASK_QUESTIONS: Final = frozenset(
    {
        *("active", "dump_active", "reserved", "dump_reserved", "scheduled", "dump_schedule"),
        *("revoked", "dump_revoked", "registered", "dump_tasks", "active_queues", "query_task"),
    }
)
#: Requests name no sender. They count as one peer, so that no flood of them makes a majority.
_ANY_CLIENT: Final = "(control)"

logger = logging.getLogger(__name__)


class Later(NamedTuple):
    """Has a request answered after its handler has returned."""

    #: Called with the function that sends the answer, which is for the thread of the mailbox.
    begin: Callable[[Callable[[object], None]], object]


class Mailbox:
    """Answers the control requests to one node.

    ``ping``, ``hello``, ``clock``, ``stats`` and the commands in ``open_commands`` are always answered.
    Other commands are accepted only if ``handlers`` has them and the setting
    ``control_allow`` lists them; otherwise the reply is an error. A node that runs no tasks sends this
    error only if the request names the node, because commands to all are meant for workers. Invalid requests
    never raise: :attr:`refused` counts them by reason.

    A ``hello`` has ids of revoked tasks, which are added to ``revoked``: nodes exchange these ids,
    so any sender of a hello can revoke tasks. For one thread at a time.
    """

    def __init__(
        self,
        hostname: str,
        *,
        settings: Settings,
        clock: SharedClock,
        handlers: Mapping[str, Handler] | None = None,
        revoked: RevokedSet | None = None,
        open_commands: Collection[str] = (),
        more_stats: Callable[[], Mapping[str, object]] = dict,
        now: Callable[[], float] = monotonic,
        wall_time: Callable[[], float] = time,
    ) -> None:
        if not is_name(hostname):
            raise CallerError(f"invalid node name {hostname!r}: use up to 255 printable bytes")
        self.hostname = hostname
        self.settings = settings
        self.clock = clock
        self.revoked = SharedRevokedSet() if revoked is None else revoked
        self.handlers: dict[str, Handler] = {
            "ping": self._ping,
            "clock": self._clock,
            "hello": self._hello,
            "stats": self._stats,
            **(handlers or {}),
        }
        self._more_stats = more_stats
        self._open = _OPEN | frozenset(open_commands)
        #: Requests and replies that came to nothing, by reason.
        self.refused: Counter[str] = Counter()
        #: Commands whose handler raised, by name.
        self.failed: Counter[str] = Counter()
        self._now = now
        self._wall_time = wall_time
        self._started_at = now()
        self._limited_log = RateLimitedLog(logger, now=now)
        self._reply_exchange = reply_exchange(settings)
        self._connection: Connection | None = None

    def attach(self, connection: Connection) -> None:
        """Receive requests from a connection that another object drains, and reply on it.

        Does nothing if the setting ``worker_enable_remote_control`` is off.
        """
        if self.settings.worker_enable_remote_control:
            self._connection = connection
            connection.subscribe(node_queue(self.settings, self.hostname), self.receive)

    def receive(self, message: Message) -> None:
        """Take one request, obey it if it is for us and allowed, and reply if it asks for that.

        Raises only :class:`~celeriac.errors.ConnectionLost`, when the reply cannot be sent.
        """
        self.clock.forward()
        try:
            request = decode_request(message)
            self.clock.receive(request.clock, peer=_ANY_CLIENT)
            is_for_us = is_addressed(request, self.hostname)
        except PeerError as error:
            self._refuse(str(error))
            return
        if not is_for_us:
            return
        refusal = self._refusal(request)
        if refusal is None:
            self._obey(request)
        else:
            self._refuse(refusal, request.method)
            if refusal in _REFUSALS and self._is_meant(request):
                text = _REFUSALS[refusal].format(request.method)
                self._send(request, self._encode(request, {"error": text}))

    def _refusal(self, request: Request) -> str | None:
        """Return why a request is not obeyed, None if it is."""
        # Celery: replies to any exchange that the request names, also to queues of tasks.
        if request.reply_to is not None and request.reply_to.exchange != self._reply_exchange.name:
            return "reply-exchange"
        if request.method not in self.handlers:
            return "unknown"
        if request.method not in self._open:
            if request.method not in self.settings.control_allow:
                return "not-allowed"
            # Celery: never looks at it, so that a command obeyed too late does what nobody wants any more.
            # What only tells something may be late: the reply finds nobody, and that is all.
            if 0 < request.expires_at < self._wall_time() - _LATE:
                return "expired"
        return None

    def _is_meant(self, request: Request) -> bool:
        """Return whether a request that this node refuses was meant for nodes of its kind."""
        if not TASK_QUESTIONS.isdisjoint(self.handlers) or request.method in self.handlers:
            return True
        return bool(request.destination) and request.method not in TASK_QUESTIONS

    def _obey(self, request: Request) -> None:
        try:
            value = self.handlers[request.method](**request.arguments)
            if isinstance(value, Later):
                value.begin(lambda answer: self._send(request, self._encode(request, answer)))
                return
            reply = self._encode(request, value) if request.reply_to is not None else None
        except Exception as error:  # whatever it is, who asked gets to know
            self.failed[request.method] += 1
            text = _describe(error)
            self._log(f"failed {request.method}", "control: command %r failed: %s", request.method, text)
            logger.debug("control: command %r failed", request.method, exc_info=True)
            reply = self._encode(request, {"error": text})
        if reply is not None:
            self._send(request, reply)

    def _encode(self, request: Request, value: object) -> Spelled:
        return encode_reply(Reply(self.hostname, value, request.ticket, self.clock.forward()))

    def _send(self, request: Request, reply: Spelled) -> None:
        if request.reply_to is None:
            return
        if self._connection is None:
            self._refuse("not-attached", request.method)
            return
        try:
            self._connection.publish(
                self._reply_exchange,
                reply.body,
                routing_key=request.reply_to.routing_key,
                headers=reply.headers,
            )
        except AccessRefused:
            self._refuse("reply-access", request.method)

    def _refuse(self, reason: str, method: str = "?") -> None:
        if method == _ROUTINE:
            self.refused[method] += 1
            return
        self.refused[reason] += 1
        self._log(
            reason,
            "control: refused a request, command=%r, reason=%r, refused=%d.%s",
            method,
            reason,
            self.refused[reason],
            " Add the command to control_allow to accept it." if reason == "not-allowed" else "",
        )

    def _log(self, key: str, text: str, *values: object) -> None:
        self._limited_log.write(logging.WARNING, key, text, *values)

    # -- what every node can tell

    def _ping(self, **_: object) -> object:
        return {"ok": "pong"}

    def _clock(self, **_: object) -> object:
        return {"clock": self.clock.value}

    def _hello(self, from_node: object, revoked: object = None, **_: object) -> object:
        if not isinstance(from_node, str):
            raise TypeError("from_node must be a node name")
        if from_node == self.hostname:
            return None
        self.revoked.merge(decode_revoked(revoked), now=self._now(), peer=from_node[:_MAX_PEER_CHARS])
        return {"revoked": encode_revoked(self.revoked), "clock": self.clock.forward()}

    def _stats(self, **_: object) -> object:
        usage = getrusage(RUSAGE_SELF)
        return {
            "total": {},
            "pid": os.getpid(),
            # Celery: a text, though it is a number everywhere else.
            "clock": str(self.clock.value),
            "uptime": round(self._now() - self._started_at),
            # Nothing more: addresses of brokers may hold passwords, and anyone can ask.
            "broker": {} if self._connection is None else {"transport": self._connection.driver},
            "rusage": {name[3:]: getattr(usage, name) for name in dir(usage) if name.startswith("ru_")},
            **self._more_stats(),
        }


def _describe(error: Exception) -> str:
    """Return an exception as Celery's nodes tell of it, but bounded."""
    try:
        text = repr(error)
    except Exception:  # noqa: BLE001  (an exception may hold anything, and show it badly)
        text = type(error).__name__
    return clean_text(text, _ERROR_TEXT)
