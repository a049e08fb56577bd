"""What a node answered, as lines that people read."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from celeriac.views.format import format_time
from celeriac.views.text import visible, visible_lines

__all__ = ["answer_text", "reply_lines", "reply_texts"]

_KEY_CHARS: Final = 100
_NAME_CHARS: Final = 120
_TOLD_CHARS: Final = 200
#: Fields of a task that one line shows, if the node told them.
_TASK_FIELDS: Final = ("eta", "worker_pid", "args", "kwargs")


def reply_lines(value: object) -> list[str]:
    """Return a reply, whatever it is, in lines: tables by their paths, tasks one to a line."""
    return list(_lines(value, ""))


def answer_text(value: object) -> str:
    """Return what a node answered to a command, in a few words."""
    match value:
        case None:
            return "done"
        case {"ok": told, **more} if not more:
            return visible(told)
        case {"error": told, **more} if not more:
            return f"error: {visible(told)}"
        case _:
            return visible(value)


def reply_texts(answers: Iterable[Mapping[str, object]] | None) -> dict[str, str]:
    """Return what nodes answered to a command, by their names, as texts of one line."""
    return {
        visible(name, _NAME_CHARS): visible(told, _TOLD_CHARS)
        for answer in answers or ()
        for name, told in answer.items()
    }


def _lines(value: object, path: str) -> Iterator[str]:
    """Yield the lines of what stands at a path of a reply."""
    match value:
        case {"ok": told, **more} if not path and not more:
            yield from _lines(told, path)
        case {"name": str(name), "id": str(uuid), **more}:
            yield _under(path, _task_line(name, uuid, more))
        case {"request": {"name": str(name), "id": str(uuid), **more}, "eta": eta}:
            yield _under(path, _task_line(name, uuid, {**more, "eta": eta}))
        case {} if value:
            for key, item in value.items():
                yield from _lines(item, f"{path}.{visible(key, _KEY_CHARS)}".lstrip("."))
        case [_, *_]:
            for item in value:
                yield from _lines(item, path)
        case {} | []:
            yield _under(path, "none")
        case str() if "\n" in value:
            yield from ([f"{path}:"] if path else [])
            yield from visible_lines(value)
        case _:
            yield _under(path, visible(value))


def _under(path: str, text: str) -> str:
    return f"{path}: {text}" if path else text


def _task_line(name: str, uuid: str, fields: Mapping[object, object]) -> str:
    began_at = fields.get("time_start")
    parts = [f"{visible(name, 80)}[{visible(uuid, 64)}]"]
    if isinstance(began_at, float):
        parts.append(f"since {format_time(began_at, None)}")
    told = [field for field in _TASK_FIELDS if fields.get(field) not in (None, "", [], {})]
    return "  ".join([*parts, *(f"{field}={visible(fields[field], 80)}" for field in told)])
