"""What people do to a cluster by the dashboard: each action is noted, and says whom it concerns first."""

from ast import literal_eval
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from celeriac.core.task import Task
from celeriac.errors import CallerError, CeleriacError
from celeriac.masking import MASK
from celeriac.node.control import Control
from celeriac.store.audit import Audit
from celeriac.views.reply import reply_texts
from celeriac.views.task_list import TaskFilter, fitting_tasks
from celeriac.views.text import visible
from celeriac.web.access import User
from celeriac.web.board import Board

__all__ = ["MAX_TASKS", "Actions", "Done", "Refusal"]

#: The most tasks of one action: a filter that fits more is narrowed, or the action repeated.
MAX_TASKS: Final = 1000
#: How long the answers of workers are waited for.
_PATIENCE: Final = 2.0
#: Celery: a text of arguments that was cut ends like this, or has it inside.
_CUT: Final = ("...", "…")


class Refusal(NamedTuple):
    """Why something is not done to a task."""

    uuid: str
    reason: str


class Done(NamedTuple):
    """What an action did, or would do."""

    action: str
    is_dry_run: bool
    #: The tasks or workers that it concerns; none means all workers.
    targets: list[str]
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
            return [task for uuid in ids if (task := state.tasks.get(uuid)) is not None]
        found = fitting_tasks(state, wanted, most=MAX_TASKS + 1)
        if len(found) > MAX_TASKS:
            raise CallerError(f"more than {MAX_TASKS} tasks fit, which is the most of one action: narrow it")
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
        open_ = [task.uuid for task in tasks if not task.ready]
        refused = [
            Refusal(visible(task.uuid, 120), f"it has ended: {task.state}") for task in tasks if task.ready
        ]
        # One that is named need not be in memory: it may wait in a queue since yesterday.
        targets = [*open_, *(uuid for uuid in ids if uuid not in known)]
        action = "terminate" if terminate else "revoke"

        def act() -> Any:
            return self._control.revoke(
                targets, terminate=terminate, signal=signal, reply=True, timeout=_PATIENCE
            )

        return self._done(
            user, action, targets, act, refused=refused, dry_run=dry_run or not targets, signal=signal
        )

    def retry(
        self, user: User, ids: Sequence[str], wanted: TaskFilter | None = None, *, dry_run: bool = False
    ) -> Done:
        """Send tasks once more, each under a new id, with the arguments that its events told."""
        refused: list[Refusal] = []
        calls: dict[str, Callable[[], Any]] = {}
        for task in self.chosen(ids, wanted):
            try:
                calls[task.uuid] = self._call(task)
            except CallerError as error:
                refused.append(Refusal(visible(task.uuid, 120), str(error)))
        missing = [uuid for uuid in ids if uuid not in self._board.watcher.state.tasks]
        refused += [Refusal(visible(uuid, 120), "it is not in memory") for uuid in missing]

        def act() -> list[dict[str, object]]:
            answers: list[dict[str, object]] = []
            for uuid, call in calls.items():
                try:
                    answers.append({uuid: f"sent as {call().id}"})
                except CeleriacError as error:
                    # Those before it are sent, which whoever asks again has to know.
                    refused.append(Refusal(visible(uuid, 120), f"it could not be sent: {error}"))
            return answers

        return self._done(user, "retry", list(calls), act, refused=refused, dry_run=dry_run or not calls)

    def _call(self, task: Task) -> Callable[[], Any]:
        name, queue = task.name, task.queue
        if name is None:
            raise CallerError("its name is not known")
        args, kwargs = _read(task.args), _read(task.kwargs)
        if not isinstance(args, tuple | list) or not isinstance(kwargs, dict):
            raise CallerError("its events do not tell its arguments as such")
        return lambda: self._send(name, list(args), kwargs, queue=queue)

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
        dry_run: bool,
        **fields: object,
    ) -> Done:
        replies: dict[str, str] = {}
        if not dry_run:
            who = {"user": user.name, "role": user.role.value}
            self._audit.note(action, **who, targets=targets, **fields)
            replies = reply_texts(act())
            self._audit.note_end(action, **who, replies=replies)
        return Done(action, dry_run, [visible(each, 120) for each in targets], list(refused), replies)


#: The actions on workers, and the commands that they are.
WORKER_ACTIONS: Final = {
    "rate-limit": "rate_limit",
    "pool-grow": "pool_grow",
    "pool-shrink": "pool_shrink",
    "add-consumer": "add_consumer",
    "cancel-consumer": "cancel_consumer",
    "shutdown": "shutdown",
}


def _read(text: str | None) -> object:
    """Return the value that a text shows. Only literals are read, and nothing that was cut or masked."""
    if text is None:
        raise CallerError("its events do not tell its arguments")
    if any(mark in text for mark in _CUT):
        raise CallerError("its events tell its arguments in part only")
    if MASK in text:
        raise CallerError("what is secret in its arguments was masked")
    try:
        return literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise CallerError("its events do not tell its arguments as such") from None
