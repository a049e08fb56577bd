"""Raw messages that call elections with tasks outside of ``election_actions``, or with more tasks inside."""

import json
from collections.abc import Iterator
from time import time
from typing import Any, Final

from tests.wires import Raw, Wire

__all__ = [
    "ALLOWED",
    "FAILING",
    "PEER",
    "call",
    "forbidden",
    "loaded",
    "nominate",
    "replace_action",
    "signature",
]

#: The tasks that the workers under attack allow; the second raises an error.
ALLOWED: Final = "peers.echo"
FAILING: Final = "peers.fail"
#: The name of the hostile node.
PEER: Final = "evil@peer"


def signature(task: object, *args: object, **fields: object) -> dict[str, Any]:
    """Return the signature of a task as a client of Celery writes it, with these fields replaced."""
    usual = {"task": task, "args": list(args), "kwargs": {}, "options": {}, "subtask_type": None}
    return {**usual, "immutable": False, **fields}


def forbidden(evil: dict[str, Any]) -> Iterator[object]:
    """Yield actions that no worker may act on, made of a task that is not allowed."""
    good, name = signature(ALLOWED, "x"), evil["task"]
    yield from (evil, [evil], [[evil]], {"task": evil}, name, None)
    yield {field: value for field, value in evil.items() if field in ("task", "args")}
    yield from ({**evil, "subtask_type": kind} for kind in ("", "group", "chain", "chord", 7))
    for odd in (
        f"{ALLOWED}\n{name}",
        f"{ALLOWED}\x00{name}",
        f"{ALLOWED} {name}",
        f"{name}#{ALLOWED}",
        [ALLOWED, name],
    ):
        yield {**evil, "task": odd}
    yield {**evil, "task": "*"}
    yield {**evil, "task": "[!x]*"}
    composed: dict[str, dict[str, Any]] = {
        "celery.group": {"tasks": [good, evil]},
        "celery.chain": {"tasks": [good, evil]},
        "celery.chord": {"header": [good], "body": evil},
        "celery.map": {"task": evil, "it": [[1]]},
        "celery.starmap": {"task": evil, "it": [[1]]},
        "celery.chunks": {"task": evil, "it": [[1]], "n": 1},
        "celery.accumulate": {"index": 0},
        "celery.chord_unlock": {"group_id": "g", "callback": evil},
        "celery.backend_cleanup": {},
    }
    for task, kwargs in composed.items():
        kind = task.partition(".")[2]
        yield signature(task, kwargs=kwargs)
        yield signature(task, kwargs=kwargs, subtask_type=kind)
        yield signature(ALLOWED, kwargs=kwargs, subtask_type=kind)


def loaded(evil: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield signatures of allowed tasks that carry a task which is not allowed, in each place there is."""
    embedded = {"callbacks": [evil], "errbacks": [evil], "chain": [evil], "chord": evil}
    links: dict[str, Any] = {"link": [evil], "link_error": [evil], "chain": [evil], "chord": evil, **embedded}
    for name, value in links.items():
        yield signature(ALLOWED, "x", options={name: value})
        yield signature(FAILING, "planned", options={name: value})
        yield signature(ALLOWED, "x", **{name: value})
    yield signature(ALLOWED, "x", options={"link": evil})
    yield signature(FAILING, "planned", options={"link_error": evil})
    for name in ("task", "name", "task_name", "shadow", "task_type", "sender"):
        yield signature(ALLOWED, "x", options={name: evil["task"]})
    yield signature(ALLOWED, "x", options={"headers": {"task": evil["task"], **embedded}})
    yield signature(ALLOWED, "x", options={"args": evil["args"], "kwargs": {}, "serializer": "pickle"})
    yield signature(ALLOWED, "x", options={"group_id": "g1", "chord": evil, "group_index": 0})
    yield signature(
        ALLOWED, "x", options={"stamped_headers": ["task"], "task": evil["task"], "on_replace": evil}
    )
    yield signature(ALLOWED, evil)
    yield signature(ALLOWED, kwargs={"value": evil})


def call(wire: Wire, id_: str, action: object, *, mode: str | None = None, topic: str = "task") -> None:
    """Call an election by the control command."""
    arguments = {"id": id_, "topic": topic, "action": action} | ({} if mode is None else {"mode": mode})
    request = {
        "method": "election", "arguments": arguments, "destination": None, "pattern": None, "matcher": None
    }  # fmt: skip
    wire.send_request(Raw(json.dumps(request).encode(), headers={"clock": 1, "expires": 0}))


def nominate(wire: Wire, id_: str, action: object, **fields: object) -> None:
    """Stand in an election as a worker of Celery does, or of ours with ``x=2``."""
    told = {
        "type": "worker-elect", "hostname": PEER, "pid": 7, "timestamp": time(), "clock": 1, "utcoffset": 0,
        "id": id_, "topic": "task", "action": action, "cver": 1,
    }  # fmt: skip
    # Celery: by another key it is no election, and the field ``id`` ends the worker.
    wire.send_event(Raw(json.dumps(told | fields).encode()), routing_key="worker.elect")


def replace_action(wire: Wire, id_: str, good: object, evil: object) -> None:
    """Say two things of one election, in each order and by each message; ``id_`` begins their ids."""
    call(wire, f"{id_}-1", good)
    nominate(wire, f"{id_}-1", evil, x=2)
    call(wire, f"{id_}-1", evil)
    nominate(wire, f"{id_}-2", good, x=2, mode="takeover")
    call(wire, f"{id_}-2", evil, mode="takeover")
    nominate(wire, f"{id_}-3", evil)
    call(wire, f"{id_}-3", good)
    call(wire, f"{id_}-4", evil)
    call(wire, f"{id_}-4", good)
    nominate(wire, f"{id_}-4", evil, x=2)
