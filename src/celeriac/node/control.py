"""Commands to the nodes of a cluster."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypedDict, Unpack

from celeriac.config import Limits, Settings
from celeriac.errors import CallerError
from celeriac.model.election import Election, Mode
from celeriac.node.call import Call, Callback, Caller, Destination
from celeriac.node.clock import SharedClock
from celeriac.node.inspect import Inspect
from celeriac.transport.base import AnyConnection, Connection
from celeriac.wire.election import check_election, worker_mode
from celeriac.wire.text import clean_text

__all__ = ["Control", "Options", "Selection"]

Answers = list[dict[str, object]] | None

#: Celery: with fewer an election stops the workers that take part in it.
MIN_ELECTORS: Final = 3
_PONG: Final = {"ok": "pong"}
#: Reasons of workers that an error quotes, names that it lists for each, and how much of a reason.
_MOST_REASONS: Final = 3
_MOST_NAMES: Final = 5
_REASON: Final = Limits(text_chars=300)


class Selection(TypedDict, total=False):
    """Whom a command is for, and whose replies end the wait."""

    pattern: str | None
    matcher: str | None
    limit: int | None
    callback: Callback | None


class Options(Selection, total=False):
    """What every command takes; see :meth:`Control.broadcast`."""

    reply: bool
    timeout: float


class Control:
    """Sends commands to nodes, with the names and meanings of Celery.

    A command goes to all nodes, to those in ``destination``, or to those whose names
    match ``pattern``. It returns None, or with ``reply=True`` a list of ``{node: value}``.
    Several threads may share one object. Invalid replies never raise: :attr:`refused` counts them.
    """

    def __init__(
        self, connect: Callable[[], Connection], *, settings: Settings, clock: SharedClock, hostname: str
    ) -> None:
        self.hostname = hostname
        self._caller = Caller(connect, settings=settings, clock=clock, hostname=hostname)

    @property
    def refused(self) -> Counter[str]:
        """How many replies and events were not taken, by reason."""
        return self._caller.refused

    def inspect(
        self,
        destination: Destination = None,
        timeout: float = 1.0,
        *,
        limit: int | None = None,
        pattern: str | None = None,
        matcher: str | None = None,
        known: Iterable[str] = (),
        connection: "AnyConnection | None" = None,
    ) -> Inspect:
        """Return an object to query nodes; ``connection`` is as in :meth:`broadcast`."""
        return Inspect(
            self._caller.at(connection),
            destination,
            timeout,
            limit=limit,
            pattern=pattern,
            matcher=matcher,
            known=known,
        )

    def broadcast(
        self,
        command: str,
        arguments: Mapping[str, object] | None = None,
        destination: Destination = None,
        *,
        reply: bool = False,
        timeout: float = 1.0,
        limit: int | None = None,
        pattern: str | None = None,
        matcher: str | None = None,
        callback: Callback | None = None,
        connection: "AnyConnection | None" = None,
    ) -> Answers:
        """Send any command, and with ``reply`` return the replies of the nodes.

        The wait ends after ``timeout`` seconds in total (Celery restarts the timeout after each reply), or
        after replies of ``limit`` nodes, by default as many as in ``destination``. ``matcher`` is the
        language of ``pattern``: ``glob``, the default, or ``pcre``. ``callback`` is called with each ``{node:
        value}``. A disconnect raises :class:`~celeriac.errors.ConnectionLost`. Celeriac nodes that refuse the
        command reply ``{"error": reason}``; without ``reply`` refusals are not visible. ``connection``, of
        Celeriac or kombu, selects the broker, by default that of the app; each command uses a separate
        connection.
        """
        caller = self._caller.at(connection)
        request = caller.request(
            command, arguments, destination=destination, pattern=pattern, matcher=matcher
        )
        if reply:
            return caller.ask(request, timeout=timeout, limit=limit, callback=callback).replies
        caller.send(request, timeout=timeout)
        return None

    def ping(
        self, destination: Destination = None, timeout: float = 1.0, **selection: Unpack[Selection]
    ) -> list[dict[str, object]]:
        """Ping nodes."""
        return self.broadcast("ping", {}, destination, reply=True, timeout=timeout, **selection) or []

    def heartbeat(self, destination: Destination = None, **options: Unpack[Options]) -> Answers:
        """Have nodes send a heartbeat event now."""
        return self.broadcast("heartbeat", {}, destination, **options)

    def shutdown(self, destination: Destination = None, **options: Unpack[Options]) -> Answers:
        """Shut down nodes after their running tasks have finished."""
        return self.broadcast("shutdown", {}, destination, **options)

    # -- tasks

    def revoke(
        self,
        task_id: str | Sequence[str],
        destination: Destination = None,
        terminate: bool = False,
        signal: str = "SIGTERM",
        **options: Unpack[Options],
    ) -> Answers:
        """Have nodes skip tasks that have not begun; with ``terminate`` also stop those that have."""
        arguments = {"task_id": task_id, "terminate": terminate, "signal": signal}
        return self.broadcast("revoke", arguments, destination, **options)

    def terminate(
        self,
        task_id: str | Sequence[str],
        destination: Destination = None,
        signal: str = "SIGTERM",
        **options: Unpack[Options],
    ) -> Answers:
        """Revoke tasks, and stop those that have begun."""
        return self.revoke(task_id, destination, terminate=True, signal=signal, **options)

    def revoke_by_stamped_headers(
        self,
        headers: Mapping[str, str | Sequence[str]],
        destination: Destination = None,
        terminate: bool = False,
        signal: str = "SIGTERM",
        **options: Unpack[Options],
    ) -> Answers:
        """Revoke the tasks that carry one of these stamps."""
        arguments = {"headers": headers, "terminate": terminate, "signal": signal}
        return self.broadcast("revoke_by_stamped_headers", arguments, destination, **options)

    def rate_limit(
        self,
        task_name: str,
        rate_limit: str | float,
        destination: Destination = None,
        **options: Unpack[Options],
    ) -> Answers:
        """Limit the start rate of a task: ``"5/m"``, or a number per second; 0 removes the limit."""
        arguments = {"task_name": task_name, "rate_limit": rate_limit}
        return self.broadcast("rate_limit", arguments, destination, **options)

    def time_limit(
        self,
        task_name: str,
        soft: float | None = None,
        hard: float | None = None,
        destination: Destination = None,
        **options: Unpack[Options],
    ) -> Answers:
        """Limit how many seconds tasks of one name may take."""
        arguments = {"task_name": task_name, "hard": hard, "soft": soft}
        return self.broadcast("time_limit", arguments, destination, **options)

    # -- pools, queues, events

    def pool_grow(self, n: int = 1, destination: Destination = None, **options: Unpack[Options]) -> Answers:
        """Add ``n`` processes or threads to the pools."""
        return self.broadcast("pool_grow", {"n": n}, destination, **options)

    def pool_shrink(self, n: int = 1, destination: Destination = None, **options: Unpack[Options]) -> Answers:
        """Take ``n`` processes or threads from the pools."""
        return self.broadcast("pool_shrink", {"n": n}, destination, **options)

    def pool_restart(
        self,
        modules: Sequence[str] | None = None,
        reload: bool = False,
        reloader: object = None,
        destination: Destination = None,
        **options: Unpack[Options],
    ) -> Answers:
        """Restart the pools, with modules imported or reloaded."""
        arguments = {"modules": modules, "reload": reload, "reloader": reloader}
        return self.broadcast("pool_restart", arguments, destination, **options)

    def autoscale(
        self,
        max: int,  # noqa: A002  (Celery's name)
        min: int,  # noqa: A002  (Celery's name)
        destination: Destination = None,
        **options: Unpack[Options],
    ) -> Answers:
        """Set between which sizes the pools grow and shrink by themselves."""
        return self.broadcast("autoscale", {"max": max, "min": min}, destination, **options)

    def add_consumer(
        self,
        queue: str,
        exchange: str | None = None,
        exchange_type: str = "direct",
        routing_key: str | None = None,
        *,
        options: Mapping[str, object] | None = None,
        destination: Destination = None,
        **more: Unpack[Options],
    ) -> Answers:
        """Have nodes take tasks from one more queue; ``options`` are further ones of the queue."""
        arguments = {
            "queue": queue,
            "exchange": exchange,
            "exchange_type": exchange_type,
            "routing_key": routing_key,
            **(options or {}),
        }
        return self.broadcast("add_consumer", arguments, destination, **more)

    def cancel_consumer(
        self, queue: str, destination: Destination = None, **options: Unpack[Options]
    ) -> Answers:
        """Have nodes take no more tasks from a queue."""
        return self.broadcast("cancel_consumer", {"queue": queue}, destination, **options)

    def enable_events(self, destination: Destination = None, **options: Unpack[Options]) -> Answers:
        """Have nodes send events of tasks."""
        return self.broadcast("enable_events", {}, destination, **options)

    def disable_events(self, destination: Destination = None, **options: Unpack[Options]) -> Answers:
        """Have nodes send no events of tasks."""
        # Celery: a node that was started to send all events answers that they are off, and sends on.
        return self.broadcast("disable_events", {}, destination, **options)

    def election(
        self,
        id: str,  # noqa: A002  (Celery's name)
        topic: str,
        action: object = None,
        connection: "AnyConnection | None" = None,
        *,
        mode: str = Mode.ONCE,
        force: bool = False,
        timeout: float = 1.0,
    ) -> None:
        """Let the workers elect one of them, which then runs ``action``: JSON, or a signature.

        ``mode`` is ``once``, for one winner, or ``takeover``, where another worker acts if the winner dies
        before it has acted. For a lasting leadership use ``app.leadership``.

        Celery: an election among one or two Celery workers can crash all of them. Therefore the workers are
        counted first, for ``timeout`` seconds, and CallerError is raised if there is no worker, or one or two
        Celery workers. Only workers that answer and send a heartbeat are counted: other
        nodes answer too, and cannot elect. Celeriac workers then report whether they may act. The first
        positive report ends the wait. CallerError is raised with the reasons if all refuse within ``timeout``
        seconds, and also if none answers. ``force`` skips both. ``connection`` is as in :meth:`broadcast`.
        """
        election = Election(id, topic, _as_json(action), worker_mode(mode))
        check_election(election)
        # Celery: it knows no modes, and its nodes need not be told of the usual one.
        more = {} if election.mode is Mode.ONCE else {"mode": election.mode.value}
        arguments = {"id": id, "topic": topic, "action": election.action, **more}
        caller = self._caller.at(connection)
        request = caller.request("election", arguments)
        ours = frozenset() if force else _check_electors(caller, timeout)
        if not ours:
            caller.send(request, timeout=timeout)
            return
        call = caller.ask(request, timeout=timeout, is_enough=_is_accepted)
        if not _is_accepted(call):
            _check_refusals(election.id, ours, call)


def _as_json(action: object) -> object:
    """Return an action as JSON: a signature, of ours or Celery's, as its dict."""
    to_json = getattr(action, "__json__", None)
    return action if to_json is None else to_json()


def _check_electors(caller: Caller, timeout: float) -> frozenset[str]:
    """Return the workers that can elect one of them; none where workers of Celery are among them."""
    call = caller.ask(caller.request("ping"), timeout=timeout, is_listening=True)
    answered = {node for answer in call.replies for node in answer if answer[node] == _PONG} & call.heard
    celery = answered - call.ours
    if not answered:
        raise CallerError(
            "no worker with gossip answered, so no worker can be elected: start one, or use force "
            "(force=True, --force)"
        )
    if celery and len(celery) < MIN_ELECTORS:
        raise CallerError(
            f"an election among fewer than {MIN_ELECTORS} Celery workers can crash them, and {len(celery)} "
            "answered: start more Celery workers, or use force (force=True, --force)"
        )
    return frozenset() if celery else frozenset(answered)


def _is_refusal(value: object) -> bool:
    return isinstance(value, dict) and "error" in value


def _is_accepted(call: Call) -> bool:
    """Return whether a worker may act: any, since one that missed the count gets the command all the same."""
    return any(not _is_refusal(value) for reply in call.replies for value in reply.values())


def _check_refusals(id: str, ours: frozenset[str], call: Call) -> None:  # noqa: A002
    """Raise CallerError if no worker answered, or if all did and none of them may act."""
    if ours.isdisjoint(call.answered):
        raise CallerError(
            f"no worker answered the election {id!r:.100}, so its outcome is unknown: retry with a longer "
            "timeout (timeout=)"
        )
    refused: dict[str, list[str]] = {}
    for reply in call.replies:
        for node, value in reply.items():
            if node in ours and isinstance(value, dict):
                refused.setdefault(clean_text(str(value["error"]), _REASON), []).append(node)
    if not ours.issubset(node for nodes in refused.values() for node in nodes):
        return  # one whose answer is missing may act
    reasons = [f"{reason} ({_join_names(named)})" for reason, named in list(refused.items())[:_MOST_REASONS]]
    more = len(refused) - len(reasons)
    raise CallerError(
        f"no worker can stand in the election {id!r:.100}: "
        f"{'; '.join(reasons)}{f'; and {more} more reasons' if more else ''}"
    )


def _join_names(nodes: list[str]) -> str:
    shown = sorted(set(nodes))
    more = len(shown) - _MOST_NAMES
    return ", ".join(shown[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
