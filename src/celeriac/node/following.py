"""What follows a task that has ended: its callbacks, the rest of its chain, or who is told that it failed.

All of it comes from peers: signatures, in dicts, with options of any kind.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, cast
from uuid import uuid4

from celeriac.config import Settings
from celeriac.errors import CallerError, PeerError
from celeriac.model.result import ResultTree
from celeriac.model.signature import TaskSignature
from celeriac.model.task_request import Arguments, Posting, TaskRequest
from celeriac.node.call_options import CALL_OPTIONS, CallOptions, read_signatures
from celeriac.node.posting import posting_for
from celeriac.node.task_options import TaskOptions
from celeriac.wire.field import is_name
from celeriac.wire.signature import members_of, read_signature, spell_signature
from celeriac.wire.task_request import PROTOCOL_HEADERS, is_task_id

__all__ = ["Following", "after_failure", "after_success", "chain_ids", "postings_of"]

#: Celery: of a signature these stay as they are, whatever else it is sent with.
_FIXED: Final = ("group_id", "stamped_headers")
#: What a signature of several tasks says of itself.
_GROUP: Final = "group"
#: Of a chain these are said of its last task: only that is waited for.
_OF_LAST: Final = ("link", "chord", "group_id", "group_index")
#: Groups in groups, and chains in chains.
_MAX_NESTING: Final = 20
_NONE_KNOWN: Final[Mapping[str, TaskOptions]] = {}


class Following(NamedTuple):
    """Messages to send, and the results that they make."""

    postings: tuple[Posting, ...] = ()
    children: tuple[ResultTree, ...] = ()


def after_success(
    request: TaskRequest,
    arguments: Arguments,
    result: object,
    *,
    settings: Settings,
    tasks: Mapping[str, TaskOptions] = _NONE_KNOWN,
) -> Following:
    """Return what follows a task that returned ``result``: its callbacks, and the next task of its chain.

    ``tasks`` are those that are known here, for what they say of themselves. Raises CallerError for
    what cannot be sent, and for what cannot be started from here, such as a chord.
    """
    if not arguments.callbacks and not arguments.chain:
        return Following()
    start = _Start(settings, tasks, {"root_id": request.root_id or request.id, "parent_id": request.id})
    callbacks = [_read(each, "a callback") for each in arguments.callbacks]
    single = [each for each in callbacks if each.subtask_type != _GROUP]
    # Celery: several callbacks are sent as a group; groups among them by themselves.
    if len(callbacks) > 1:
        for each in callbacks:
            if each.subtask_type == _GROUP:
                start.add(each, (result,), {})
        if single:
            start.add(_group_of(single), (result,), {})
    elif callbacks:
        start.add(callbacks[0], (result,), {})
    if arguments.chain:
        start.add(
            _read(arguments.chain[-1], "the next task of a chain"), (result,), {"chain": arguments.chain[:-1]}
        )
    return start.made()


def after_failure(
    request: TaskRequest,
    arguments: Arguments,
    *,
    settings: Settings,
    tasks: Mapping[str, TaskOptions] = _NONE_KNOWN,
) -> Following:
    """Return what follows a task that failed: its errbacks, called with its id.

    Those that are to be called where the task failed are no part of it; see
    :func:`celeriac.node.errback.call_errbacks`.
    """
    if not arguments.errbacks:
        return Following()
    start = _Start(settings, tasks, {"root_id": request.root_id or request.id, "parent_id": request.id})
    errbacks = [_read(each, "an errback") for each in arguments.errbacks]
    # Celery: one is sent as a group, too.
    start.add(_group_of(errbacks), (request.id,), {})
    return start.made()


def postings_of(
    signature: Mapping[str, Any],
    args: Sequence[Any] = (),
    *,
    settings: Settings,
    tasks: Mapping[str, TaskOptions] = _NONE_KNOWN,
    root_id: str | None = None,
    parent_id: str | None = None,
    group_id: str | None = None,
) -> Following:
    """Return the messages that a signature stands for; ``args`` go before its own unless it is immutable."""
    options = {"root_id": root_id, "parent_id": parent_id, "group_id": group_id}
    start = _Start(settings, tasks, {name: value for name, value in options.items() if value is not None})
    start.add(_read(dict(signature), "the signature"), tuple(args), {})
    return start.made()


def chain_ids(arguments: Arguments) -> tuple[str, ...]:
    """Return the ids of the tasks after it in its chain: if a task fails, they fail with it."""
    found = (each.get("options") for each in arguments.chain)
    ids = (options.get("task_id") for options in found if isinstance(options, dict))
    return tuple(each for each in ids if is_task_id(each))


def _read(value: dict[str, Any], what: str) -> TaskSignature:
    try:
        return read_signature(value)
    except PeerError:
        raise CallerError(f"{what} is not a valid signature: send the task as Celery does") from None


def _group_of(members: Sequence[TaskSignature]) -> TaskSignature:
    spelled = [spell_signature(each) for each in members]
    return TaskSignature("celery.group", (), {"tasks": spelled}, {}, _GROUP)


class _Start:
    """Gathers the messages that some signatures stand for."""

    def __init__(self, settings: Settings, tasks: Mapping[str, TaskOptions], options: dict[str, Any]) -> None:
        self._settings = settings
        self._tasks = tasks
        self._options = options
        self._postings: list[Posting] = []
        self._children: list[ResultTree] = []

    def made(self) -> Following:
        return Following(tuple(self._postings), tuple(self._children))

    def add(self, signature: TaskSignature, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        self._children.append(self._add(signature, args, self._options | options, _MAX_NESTING))

    def _add(
        self, signature: TaskSignature, args: tuple[Any, ...], options: dict[str, Any], levels: int
    ) -> ResultTree:
        fixed = {name: signature.options[name] for name in _FIXED if signature.options.get(name)}
        options = {**signature.options, **options, **fixed}
        match signature.subtask_type:
            case "group" if levels > 0:
                return self._add_group(_members(signature), args, options, levels - 1)
            case "chain" if levels > 0:
                return self._add_chain(_members(signature), args, options, levels - 1)
            case "group" | "chain" | "chord" | "chunks" as kind:
                raise CallerError(
                    f"cannot start a {kind} after a task has ended in this worker: call it inside a task, "
                    "or run the task in a Celery worker"
                )
            case _:
                return self._add_task(signature, args, options)

    def _add_task(
        self, signature: TaskSignature, args: tuple[Any, ...], options: dict[str, Any]
    ) -> ResultTree:
        headers = options.get("headers")
        if isinstance(headers, Mapping):
            options["headers"] = {k: v for k, v in headers.items() if k not in PROTOCOL_HEADERS}
        # What else is there is for the publisher of Celery, and says nothing about the task.
        known = {name: value for name, value in options.items() if name in CALL_OPTIONS}
        # Celery: a priority is that of the task, not of the message that brought the signature.
        posting = posting_for(
            signature.task,
            signature.args if signature.is_immutable else (*args, *signature.args),
            signature.kwargs,
            cast("CallOptions", known),
            settings=self._settings,
            task=self._tasks.get(signature.task),
            stamps=_stamps(options),
        )
        self._postings.append(posting)
        return ResultTree(posting.request.id)

    def _add_group(
        self,
        members: Sequence[TaskSignature],
        args: tuple[Any, ...],
        options: dict[str, Any],
        levels: int,
    ) -> ResultTree:
        if options.get("chord") or any(each.options.get("chord") for each in members):
            raise CallerError(
                "cannot start a group that is part of a chord after a task has ended in this worker"
            )
        group_id = options.pop("task_id", None) or options.get("group_id") or str(uuid4())
        if not is_name(group_id):
            raise CallerError(f"invalid group id {group_id!r:.80}: send the group as Celery does")
        trees = []
        for index, member in enumerate(members):
            of_member = options | {"group_id": group_id, "group_index": index}
            trees.append(self._add(member, args, of_member, levels))
        return ResultTree(group_id, members=tuple(trees))

    def _add_chain(
        self,
        members: Sequence[TaskSignature],
        args: tuple[Any, ...],
        options: dict[str, Any],
        levels: int,
    ) -> ResultTree:
        if not members or any(each.subtask_type for each in members[:-1]):
            raise CallerError("cannot start a chain that has groups or chains before its end")
        last_too: dict[str, Any] = {name: options.pop(name) for name in _OF_LAST if name in options}
        errbacks = read_signatures("link_error", options.pop("link_error", None))
        line: ResultTree | None = None
        steps: list[dict[str, Any]] = []
        for number, each in enumerate(members):
            more: dict[str, Any] = {"task_id": each.options.get("task_id") or str(uuid4())}
            if errbacks:
                own = read_signatures("link_error", each.options.get("link_error"))
                more["link_error"] = (*own, *errbacks)
            if number == len(members) - 1:
                more |= last_too
            steps.append(spell_signature(each._replace(options={**each.options, **more})))
            line = ResultTree(str(more["task_id"]), line)
        rest = tuple(reversed(steps[1:])) + read_signatures("chain", options.get("chain"))
        options |= {"chain": rest, "task_id": steps[0]["options"]["task_id"]}
        self._add(_read(steps[0], "the first task of a chain"), args, options, levels)
        return line or ResultTree("")


def _members(signature: TaskSignature) -> tuple[TaskSignature, ...]:
    try:
        return members_of(signature)
    except PeerError:
        raise CallerError(
            f"the tasks of a {signature.subtask_type} are not valid signatures, or too many"
        ) from None


def _stamps(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the headers that Celery calls stamps: a list of names, and what each says."""
    names = options.get("stamped_headers")
    if not isinstance(names, list | tuple):
        return {}
    stamps = {name: options[name] for name in names if isinstance(name, str) and name in options}
    return {"stamped_headers": list(stamps), "stamps": stamps} if stamps else {}
