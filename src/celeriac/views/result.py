"""What is known of a task's result, as people read it, and as programs do."""

import json
from math import isfinite
from typing import Final, NamedTuple

from celeriac.errors import CallerError
from celeriac.model.result import Failure, ResultMeta, ResultTree
from celeriac.model.states import PENDING
from celeriac.views.text import CUT_MARK, json_text, visible
from celeriac.wire.value import spell

__all__ = ["UNKNOWN", "ResultRow", "result_dict", "result_rows", "state_text"]

#: What PENDING means, where it is told to people.
UNKNOWN: Final = (
    "no result stored for this id: the task may be queued or running, its result may have expired, or the id "
    "may be wrong"
)
#: A value that is longer fills more than a screen.
_VALUE_LINES: Final = 50
_VALUE_CHARS: Final = 200
#: A value up to here is told in one line.
_SHORT_CHARS: Final = 80
_TRACEBACK_LINES: Final = 200
_MOST_CHILDREN: Final = 20
_ID_CHARS: Final = 64
#: What workers store beside the result and the name, if they are told to (``result_extended``).
_EXTENDED: Final = ("args", "kwargs", "worker", "queue", "retries")


class ResultRow(NamedTuple):
    """One thing that is known of a result; every line is safe to show."""

    name: str
    lines: list[str]

    def text(self, width: int) -> str:
        """Return the row: what fits in one line beside its name, and more than that below it."""
        if len(self.lines) == 1:
            return f"{self.name:<{width}}  {self.lines[0]}"
        return "\n".join([self.name, *(f"  {line}" for line in self.lines)])


def result_rows(meta: ResultMeta, *, how_to_see_all: str) -> list[ResultRow]:
    """Return what is known of a task, a row each; what is cut ends with how to see all of it."""
    rows = {
        "task": [visible(meta.task_id, _ID_CHARS)],
        "name": [visible(meta.name)] if meta.name else [],
        "state": [state_text(meta)],
        **_outcome(meta, how_to_see_all),
        "ended": [visible(meta.date_done)] if meta.date_done else [],
        **{name: _field_lines(getattr(meta, name)) for name in _EXTENDED},
        "parent": [visible(meta.parent_id, _ID_CHARS)] if meta.parent_id else [],
        "group": [visible(meta.group_id, _ID_CHARS)] if meta.group_id else [],
        "children": _cut([_tree_text(tree) for tree in meta.children], how_to_see_all, most=_MOST_CHILDREN),
        "traceback": _cut(_lines(meta.traceback or ""), how_to_see_all, most=_TRACEBACK_LINES),
    }
    return [ResultRow(name, lines) for name, lines in rows.items() if lines]


def result_dict(meta: ResultMeta) -> dict[str, object]:
    """Return what is known of a task, for JSON: values are exact.

    An exception is as Celery stores it: ``exc_type``, ``exc_message`` (its arguments) and
    ``exc_module``. What JSON cannot hold is as kombu spells it; infinities and NaN are texts.
    """
    result = meta.result
    if isinstance(result, Failure):
        result = {
            "exc_type": result.exc_type,
            "exc_message": list(result.exc_args),
            "exc_module": result.exc_module,
        }
    told = {
        "task_id": meta.task_id,
        "state": meta.status or None,
        "ready": meta.is_ready,
        "result": _exact(result),
        "traceback": meta.traceback,
        "date_done": meta.date_done,
        "children": [_tree_dict(tree) for tree in meta.children],
        "parent_id": meta.parent_id,
        "group_id": meta.group_id,
        "fault": meta.fault or None,
    }
    extended = {name: getattr(meta, name) for name in ("name", *_EXTENDED)}
    return told | {name: _exact(value) for name, value in extended.items() if value is not None}


def state_text(meta: ResultMeta) -> str:
    """Return the state of a task, with what it means where that is not plain."""
    if meta.fault:
        return "unreadable result"
    if meta.status == PENDING:
        return f"{PENDING}: {UNKNOWN}"
    return visible(meta.status)


def _outcome(meta: ResultMeta, how_to_see_all: str) -> dict[str, list[str]]:
    if meta.fault:
        return {"reason": [visible(meta.fault)]}
    if isinstance(meta.result, Failure):
        message = _cut(_lines(_message(meta.result)), how_to_see_all)
        return {"error": [_class_text(meta.result)], "message": message}
    if meta.status == PENDING:
        return {}
    short = json_text(meta.result)
    lines = [short] if len(short) <= _SHORT_CHARS else json_text(meta.result, indent=2).split("\n")
    return {"value": _cut(lines, how_to_see_all)}


def _field_lines(value: object) -> list[str]:
    if value is None:
        return []
    return [visible(value if isinstance(value, str) else json_text(value))]


def _class_text(failure: Failure) -> str:
    module = failure.exc_module
    return visible(failure.exc_type if module in (None, "builtins") else f"{module}.{failure.exc_type}")


def _message(failure: Failure) -> str:
    return ", ".join(arg if isinstance(arg, str) else json_text(arg) for arg in failure.exc_args)


def _tree_text(tree: ResultTree) -> str:
    task_id = visible(tree.id, _ID_CHARS)
    return task_id if tree.members is None else f"{task_id}, a group of {len(tree.members)}"


def _tree_dict(tree: ResultTree) -> dict[str, object]:
    told: dict[str, object] = {"id": tree.id}
    # By recursion: whoever read the tree has seen to it that it is not deep.
    if tree.parent is not None:
        told["parent"] = _tree_dict(tree.parent)
    if tree.members is not None:
        told["members"] = [_tree_dict(member) for member in tree.members]
    return told


def _lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").expandtabs().rstrip("\n").split("\n") if text else []


def _cut(lines: list[str], how_to_see_all: str, *, most: int = _VALUE_LINES) -> list[str]:
    """Return lines of a length that can be read, and say so if something is left out."""
    shown = [visible(line, _VALUE_CHARS) for line in lines[:most]]
    left = len(lines) - len(shown)
    if left:
        return [*shown, f"{CUT_MARK} and {left:,} lines more; {how_to_see_all}"]
    is_cut = any(len(line) > _VALUE_CHARS for line in lines)
    return [*shown, f"{CUT_MARK} cut; {how_to_see_all}"] if is_cut else shown


def _exact(value: object) -> object:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if isfinite(value) else str(value)
        case dict():
            return {str(key): _exact(item) for key, item in value.items()}
        case list() | tuple():
            return [_exact(item) for item in value]
        case _:
            try:
                return json.loads(spell(value))
            except CallerError:
                return str(value)
