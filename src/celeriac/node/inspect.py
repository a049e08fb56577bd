"""Questions to the nodes of a cluster: who answered, and who kept silent."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final

from celeriac.errors import PeerError
from celeriac.node.call import Call, Caller, Destination
from celeriac.wire.control import Request, is_addressed
from celeriac.wire.hello import encode_revoked

__all__ = ["Inspect", "Replies"]

logger = logging.getLogger(__name__)

#: Reasons to refuse a reply because of its length, and the text for users.
_LENGTHS: Final = ("size", "items")
_TOO_LONG: Final = "reply too long: use stats, which has counts, or query_task for single tasks"


class Replies(dict[str, Any]):
    """Replies of nodes by name, and the silent nodes.

    Celery returns None if no node answers; here the result is empty, which is false too.
    Nodes that answered with an error are in ``errors`` and not among the values, so all values have
    the type of the query.
    """

    def __init__(self) -> None:
        super().__init__()
        #: Asked and known to be alive, by a heartbeat or from the caller, but did not answer in time.
        #: Empty when ``limit`` ended the wait.
        self.silent: list[str] = []
        #: Named in ``destination``, but neither heard nor known, and did not answer in time.
        self.absent: list[str] = []
        #: What the nodes said that could not do what was asked, or why we could not take their reply.
        self.errors: dict[str, str] = {}


class Inspect:
    """Queries nodes. Queries do not change the nodes.

    Every query waits ``timeout`` seconds in total, or for replies of ``limit`` nodes, or of all nodes in
    ``destination``. ``known`` are the names of nodes that the caller knows to be alive.
    """

    def __init__(
        self,
        caller: Caller,
        destination: Destination = None,
        timeout: float = 1.0,
        *,
        limit: int | None = None,
        pattern: str | None = None,
        matcher: str | None = None,
        known: Iterable[str] = (),
    ) -> None:
        self.destination = destination if isinstance(destination, str | None) else tuple(destination)
        self.timeout = timeout
        self.limit = limit
        self.pattern = pattern
        self.matcher = matcher
        self.known = frozenset(known)
        self._caller = caller

    def ping(self, destination: Destination = None) -> Replies:
        """Ping nodes: ``{"ok": "pong"}``."""
        return self._ask("ping", destination=destination)

    def hello(self, from_node: str, revoked: Iterable[str] | None = None) -> Replies:
        """Exchange revoked ids and clocks with nodes, as ``from_node``."""
        return self._ask("hello", from_node=from_node, revoked=encode_revoked(revoked or ()))

    def clock(self) -> Replies:
        """Ask for the Lamport clocks: ``{"clock": 12}``."""
        return self._ask("clock")

    def stats(self) -> Replies:
        """Ask for counts of tasks, the pool, the broker and the use of resources."""
        return self._ask("stats")

    def active(self, safe: bool | None = True) -> Replies:
        """Return the running tasks.

        Celery: unless ``safe``, tasks show their arguments, including passwords. Therefore ``safe`` is on
        here, and ``args`` and ``kwargs`` are strings that their sender may have masked.
        """
        return self._ask("active", safe=safe)

    def reserved(self, safe: bool | None = True) -> Replies:
        """Ask which tasks wait in the nodes. Celery's nodes ignore ``safe`` and show all; ours must not."""
        return self._ask("reserved", safe=safe)

    def scheduled(self, safe: bool | None = True) -> Replies:
        """Ask which tasks wait for their time. Celery's nodes ignore ``safe`` and show all; ours must not."""
        return self._ask("scheduled", safe=safe)

    def revoked(self) -> Replies:
        """Ask for the ids of revoked tasks."""
        return self._ask("revoked")

    def registered(self, *taskinfoitems: str) -> Replies:
        """Ask which tasks the nodes can run; with the named attributes of each."""
        return self._ask("registered", taskinfoitems=taskinfoitems)

    registered_tasks = registered

    def active_queues(self) -> Replies:
        """Ask which queues the nodes take tasks from."""
        return self._ask("active_queues")

    def query_task(self, *ids: str | Sequence[str]) -> Replies:
        """Return the states of some tasks: ``{id: [state, description]}``."""
        flat = [task_id for item in ids for task_id in ([item] if isinstance(item, str) else item)]
        return self._ask("query_task", ids=flat)

    def conf(self, with_defaults: bool = False) -> Replies:
        """Return the settings of the nodes. Nodes mask secrets by setting names."""
        return self._ask("conf", with_defaults=with_defaults)

    def report(self) -> Replies:
        """Ask for a text on the software of each node, for reports of bugs."""
        return self._ask("report")

    def _ask(self, command: str, *, destination: Destination = None, **arguments: object) -> Replies:
        request = self._caller.request(
            command,
            arguments,
            destination=destination or self.destination,
            pattern=self.pattern,
            matcher=self.matcher,
        )
        call = self._caller.ask(request, timeout=self.timeout, limit=self.limit, is_listening=True)
        return _sorted_out(call, known=self.known, own_name=self._caller.hostname)


def _sorted_out(call: Call, *, known: frozenset[str], own_name: str) -> Replies:
    replies = Replies()
    for answer in call.replies:
        for node, value in answer.items():
            if node in replies or node in replies.errors:
                logger.warning("inspect: two nodes are named %r; give each node a unique name", node)
            if isinstance(value, dict) and value.keys() == {"error"}:
                replies.errors[node] = str(value["error"])
            else:
                replies[node] = value
    for node, reason in call.refusals.items():
        replies.errors[node] = _TOO_LONG if reason in _LENGTHS else f"invalid reply: {reason}"
    if call.has_timed_out:
        named = set(call.request.destination)
        alive = {node for node in call.heard | known if _is_meant(call.request, node)}
        if own_name not in named:
            alive.discard(own_name)  # who asks may have no hand free to answer itself
        replies.silent = sorted(alive - call.answered)
        replies.absent = sorted(named - alive - call.answered)
    return replies


def _is_meant(request: Request, node: str) -> bool:
    try:
        return is_addressed(request, node)
    except PeerError:  # its name is so long that the pattern might take for ever
        return False
