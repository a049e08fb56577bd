"""What nodes say to each other in an election, as fields of events.

Celery: ``worker-elect`` and ``worker-elect-ack`` are its own, with fields of ours beside them that it does
not read; ``cluster-elected`` and ``cluster-resign`` are only heard by our nodes.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from celeriac.config import Limits
from celeriac.errors import CallerError, PeerError
from celeriac.model.clock import NO_CLOCK
from celeriac.model.election import Ack, Candidate, Elect, Elected, Election, Message, Mode, Resigned
from celeriac.model.events import Event
from celeriac.wire.field import is_name
from celeriac.wire.text import clean_value

__all__ = [
    "ELECTED_EVENT",
    "ELECTION_EVENTS",
    "MAX_ACTION_BYTES",
    "RESIGN_EVENT",
    "ack_fields",
    "candidate_name",
    "check_election",
    "elect_fields",
    "elected_fields",
    "read_election",
    "read_message",
    "resign_fields",
    "worker_mode",
]

#: The events by which a node tells that it was elected, and that it has given up a lease.
ELECTED_EVENT, RESIGN_EVENT = "cluster-elected", "cluster-resign"
ELECT_EVENT, ACK_EVENT = "worker-elect", "worker-elect-ack"
ELECTION_EVENTS: Final = frozenset({ELECT_EVENT, ACK_EVENT, ELECTED_EVENT, RESIGN_EVENT})

#: Of an action, as JSON. It is kept by every node, for every election.
MAX_ACTION_BYTES: Final = 16 * 1024
#: What an event carries as it is, with room for its other fields: a cut action must not be acted on.
_ACTION: Final = Limits(items=1000, depth=30)
#: A key of an arbiter is made of it.
_MAX_ID_CHARS: Final = 180
#: Celery: the version of what candidates say.
_CELERY_VERSION: Final = 1
#: By this our nodes know each other.
_OUR_VERSION: Final = 2
_LONGEST: Final = 1e9


def candidate_name(hostname: str, pid: int | None) -> str:
    """Return what a candidate is called: equal clocks are told apart by it."""
    return f"{hostname}.{pid or 0}"


def read_election(fields: Mapping[str, Any]) -> Election:
    """Read what an election is about, as a command or a candidate says; raises PeerError."""
    id_, topic, action = fields.get("id"), fields.get("topic"), fields.get("action")
    if not is_name(id_) or len(id_) > _MAX_ID_CHARS or not is_name(topic):
        raise PeerError("election")
    if _size(action) > MAX_ACTION_BYTES:
        raise PeerError("election")
    mode = fields.get("mode", Mode.ONCE)
    if mode not in tuple(Mode):
        raise PeerError("election")
    return Election(id_, topic, action, Mode(mode))


def worker_mode(mode: str) -> Mode:
    """Return the mode of an election of workers; raises CallerError, with the fix, if it is none."""
    if mode not in (Mode.ONCE, Mode.TAKEOVER):
        raise CallerError(
            f"invalid election mode {mode!r:.40}: use once or takeover; for a lasting leadership use "
            "app.leadership()"
        )
    return Mode(mode)


def check_election(election: Election) -> None:
    """Raise CallerError, with the fix, for an election that no node would take part in."""
    if not is_name(election.id) or len(election.id) > _MAX_ID_CHARS:
        raise CallerError(f"an election id has up to {_MAX_ID_CHARS} printable characters")
    if not is_name(election.topic):
        raise CallerError("an election topic is a printable string, such as 'task'")
    try:
        size = _size(election.action)
    except PeerError:
        raise CallerError(
            "an election action is JSON: strings, numbers of up to 64 bits, lists and dicts, of up to "
            f"{_ACTION.items:,} items and {_ACTION.depth} levels"
        ) from None
    if size > MAX_ACTION_BYTES:
        raise CallerError(
            f"the action has {size:,} bytes, more than the limit of {MAX_ACTION_BYTES:,}: store it "
            "elsewhere and send a reference"
        )


def read_message(event: Event) -> Message:
    """Read an event that belongs to an election; raises PeerError for one that cannot be read."""
    match event.type:
        case "worker-elect":
            candidate = Candidate(
                event.clock if event.clock != NO_CLOCK else 0, candidate_name(event.hostname, event.pid)
            )
            fields = {name: event.get(name) for name in ("id", "topic", "action")}
            is_ours = event.get("x") == _OUR_VERSION
            mode = event.get("mode") if is_ours else Mode.ONCE
            return Elect(read_election({**fields, "mode": mode}), candidate, is_ours)
        case "worker-elect-ack":
            candidate_text = event.get("cand") if event.get("x") == _OUR_VERSION else ""
            return Ack(
                _name(event.get("id")),
                candidate_name(event.hostname, event.pid),
                candidate_text if isinstance(candidate_text, str) else "",
            )
        case "cluster-elected":
            return Elected(
                _name(event.get("eid")),
                _name(event.get("inc")),
                _token(event.get("token")),
                _seconds(event.get("expires_in")),
            )
        case "cluster-resign":
            return Resigned(
                _name(event.get("resource")), _name(event.get("owner")), _token(event.get("token"))
            )
        case _:
            raise PeerError("election")


def elect_fields(election: Election, *, owner: str) -> dict[str, Any]:
    """Return the fields of ``worker-elect``."""
    return {
        "id": election.id,
        "topic": election.topic,
        "action": election.action,
        "cver": _CELERY_VERSION,
        "x": _OUR_VERSION,
        "inc": owner,
        "mode": election.mode.value,
    }


def ack_fields(id: str, *, candidate: str, known: int) -> dict[str, Any]:  # noqa: A002
    """Return the fields of ``worker-elect-ack``."""
    return {"id": id, "x": _OUR_VERSION, "cand": candidate, "known": known}


def elected_fields(elected: Elected, *, winner: str) -> dict[str, Any]:
    """Return the fields of ``cluster-elected``; ``winner`` is a node, for people."""
    return {
        "eid": elected.id,
        "winner": winner,
        "inc": elected.owner,
        "token": elected.token,
        "expires_in": elected.expires_in,
    }


def resign_fields(resigned: Resigned) -> dict[str, Any]:
    """Return the fields of ``cluster-resign``."""
    return {"resource": resigned.id, "token": resigned.token, "owner": resigned.owner}


def _name(value: object) -> str:
    if not is_name(value):
        raise PeerError("election")
    return value


def _token(value: object) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise PeerError("election")
    return value


def _seconds(value: object) -> float:
    if not isinstance(value, int | float) or not 0 <= value < _LONGEST:
        raise PeerError("election")
    return float(value)


def _size(action: object) -> int:
    """Return how many bytes an action takes; raises PeerError for one that would not arrive as it is."""
    try:
        spelled = json.dumps(action, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise PeerError("election") from None
    if len(spelled) <= MAX_ACTION_BYTES and clean_value(action, _ACTION) != json.loads(spelled):
        raise PeerError("election")
    return len(spelled)
