"""What people do to a cluster by the dashboard: each action is noted, and says whom it concerns first."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from celeriac.core.task import Task
from celeriac.errors import CallerError, CeleriacError
from celeriac.node.control import Control
from celeriac.store.audit import Actor, Audit
from celeriac.views.reply import reply_texts
from celeriac.views.task_list import TaskFilter, fitting_tasks
from celeriac.views.text import visible
from celeriac.web.access import User
from celeriac.web.board import Board
from celeriac.web.resend import Plan, plan_resends

__all__ = ["MAX_TASKS", "Actions", "Done", "Refusal"]

#: The most tasks of one action: a filter that fits more is narrowed, or the action repeated.
MAX_TASKS: Final = 1000
#: How long the answers of workers are waited for.
_PATIENCE: Final = 2.0
#: In place of the state of a task that is named by its id alone.
_NOT_IN_MEMORY: Final = "not in memory"


class Refusal(NamedTuple):
    """Why something is not done to a task."""

    uuid: str
    reason: str


class Done(NamedTuple):
    """The result of an action, or its targets if it is a dry run."""

    action: str
    is_dry_run: bool
    #: The tasks or workers that it concerns; none means all workers.
    targets: list[str]
    #: How many of the tasks are in which state.
    states: dict[str, int]
    #: Where tasks are sent: the queue of each target, in their order.
    queues: list[str]
    refused: list[Refusal]
    #: What workers answered, by their names.
    replies: dict[str, str]


class _Sender(Protocol):
    def __call__(
        self, name: str, args: Sequence[Any] | None, kwargs: dict[str, Any] | None, /, *, queue: str | None
    ) -> Any: ...


class Actions:
    """Carries out what somebody may do. With ``dry_run`` it only says whom an action would concern."""

    def __init__(self, board: Board, control: Control, audit: Audit, *, send: _Sender) -> None:
        self._board = board
        self._control = control
        self._audit = audit
        self._send = send

    # -- tasks

    def chosen(self, ids: Sequence[str], wanted: TaskFilter | None) -> list[Task]:
        """Return the tasks that are named, or that fit. Raises CallerError if there are too many."""
        state = self._board.watcher.state
        if wanted is None:
            return [task for uuid in dict.fromkeys(ids) if (task := state.tasks.get(uuid)) is not None]
        found = fitting_tasks(state, wanted, most=MAX_TASKS + 1)
        if len(found) > MAX_TASKS:
            raise CallerError(
                f"More than {MAX_TASKS} tasks match, the limit of one action. Narrow the filter."
            )
        return found

    def revoke(
        self,
        user: User,
        ids: Sequence[str],
        wanted: TaskFilter | None = None,
        *,
        terminate: bool = False,
        signal: str = "SIGTERM",
        dry_run: bool = False,
    ) -> Done:
        """Have workers skip tasks that have not begun; with ``terminate`` also stop those that have."""
        tasks = self.chosen(ids, wanted)
        known = {task.uuid for task in tasks}
        open_ = [task for task in tasks if not task.ready]
        refused = [
            Refusal(visible(task.uuid, 120), f"already finished: {visible(task.state, 40)}")
            for task in tasks
            if task.ready
        ]
        # One that is named need not be in memory: it may wait in a queue since yesterday.
        unknown = [uuid for uuid in dict.fromkeys(ids) if uuid not in known]
        targets = [*(task.uuid for task in open_), *unknown]
        action = "terminate" if terminate else "revoke"

        def act() -> Any:
            return self._control.revoke(
                targets, terminate=terminate, signal=signal, reply=True, timeout=_PATIENCE
            )

        return self._done(
            user,
            action,
            targets,
            act,
            refused=refused,
            states=_states(open_, unknown=len(unknown)),
            dry_run=dry_run or not targets,
            signal=signal,
        )

    def plan_retry(
        self, ids: Sequence[str], wanted: TaskFilter | None = None, *, queue: str | None = None
    ) -> Plan:
        """Look which tasks can be sent once more, and where to: to ``queue``, else each to its own."""
        tasks = self.chosen(ids, wanted)
        plan = plan_resends(tasks, self._control, queue=queue, patience=_PATIENCE)
        known = {task.uuid for task in tasks}
        plan.refused.update((uuid, "not in memory") for uuid in ids if uuid not in known)
        return plan

    def retry(self, user: User, plan: Plan, *, dry_run: bool = False) -> Done:
        """Send tasks once more, each under a new id, with the arguments that its events told."""
        resends = plan.resends
        refused = [Refusal(visible(uuid, 120), reason) for uuid, reason in plan.refused.items()]

        def act() -> list[dict[str, object]]:
            answers: list[dict[str, object]] = []
            for each in resends:
                try:
                    sent = self._send(each.name, each.args, each.kwargs, queue=each.queue)
                    answers.append({each.task.uuid: f"sent as {sent.id} to {each.queue}"})
                except CeleriacError as error:
                    # Those before it are sent, which whoever asks again has to know.
                    refused.append(Refusal(visible(each.task.uuid, 120), f"cannot be sent: {error}"))
            return answers

        return self._done(
            user,
            "retry",
            [each.task.uuid for each in resends],
            act,
            refused=refused,
            states=_states([each.task for each in resends]),
            queues=[each.queue for each in resends],
            dry_run=dry_run or not resends,
        )

    # -- workers

    def on_workers(
        self,
        user: User,
        action: str,
        workers: Sequence[str],
        arguments: dict[str, Any],
        *,
        dry_run: bool = False,
    ) -> Done:
        """Have workers do something: see :data:`WORKER_ACTIONS`."""
        command = getattr(self._control, WORKER_ACTIONS[action])
        targets = list(workers)

        def act() -> Any:
            return command(**arguments, destination=targets or None, reply=True, timeout=_PATIENCE)

        return self._done(user, action, targets, act, dry_run=dry_run, **arguments)

    def _done(
        self,
        user: User,
        action: str,
        targets: list[str],
        act: Callable[[], Any],
        *,
        refused: Sequence[Refusal] = (),
        states: Mapping[str, int] | None = None,
        queues: Sequence[str] = (),
        dry_run: bool,
        **fields: object,
    ) -> Done:
        replies: dict[str, str] = {}
        if not dry_run:
            actor = Actor(user.name, user.role.value)
            where = {"queues": queues} if queues else {}
            self._audit.note(actor, action, targets=targets, **where, **fields)
            replies = reply_texts(act())
            # With what could not be done after all, though it was among the targets.
            left = {"refused": {each.uuid: each.reason for each in refused}} if refused else {}
            self._audit.note_end(actor, action, replies=replies, **left)
        return Done(
            action,
            dry_run,
            [visible(each, 120) for each in targets],
            dict(states or {}),
            [visible(each, 120) for each in queues],
            list(refused),
            replies,
        )


#: The actions on workers, and the commands that they are.
WORKER_ACTIONS: Final = {
    "rate-limit": "rate_limit",
    "pool-grow": "pool_grow",
    "pool-shrink": "pool_shrink",
    "add-consumer": "add_consumer",
    "cancel-consumer": "cancel_consumer",
    "enable-events": "enable_events",
    "shutdown": "shutdown",
}


def _states(tasks: Iterable[Task], *, unknown: int = 0) -> dict[str, int]:
    """Return how many tasks are in which state, most first."""
    counted = Counter(sorted(visible(task.state, 40) for task in tasks))
    return dict(counted.most_common()) | ({_NOT_IN_MEMORY: unknown} if unknown else {})
