"""What a worker and its processes say to each other arrives as it was said."""

from types import MappingProxyType
from typing import Any

import pytest

from celeriac.errors import CallerError
from celeriac.model.outcome import Outcome
from celeriac.model.result import ResultTree
from celeriac.model.task_request import Posting, TaskRequest
from celeriac.worker.pool.base import Job
from celeriac.worker.pool.frame import Assembly, FromChild, ToChild, decode, frame

REQUEST = TaskRequest("id", "add", b"[[1],{},{}]", retries=2, headers={"mine": [1, {"deep": None}]})
OUTCOME = Outcome(
    "SUCCESS",
    b"3",
    "3",
    "Traceback",
    1.5,
    (Posting(REQUEST, "celery", priority=3),),
    (ResultTree("group", ResultTree("parent"), (ResultTree("a"), ResultTree("b"))),),
    b"{}",
    requeue=True,
    cause="lost",
)


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (ToChild.JOB, Job(1, REQUEST, "w@h", time_limit=2.5)),
        (ToChild.WARN, 7),
        (ToChild.LEAVE, None),
        (FromChild.STARTED, (1, 2.5)),
        (FromChild.ENDED, (1, OUTCOME)),
        (FromChild.PROGRESSED, (1, "PROGRESS", b"{}")),
        (FromChild.TOLD, (1, "task-halfway", {"step": 1})),
        (FromChild.RETURNED, [1, 2]),
    ],
)
def test_what_is_said_arrives(kind: Any, content: Any) -> None:
    (arrived,) = Assembly().add(frame(kind, content))

    assert arrived[0] == kind
    assert decode(*arrived) == content


def test_headers_that_cannot_be_changed_arrive_as_a_dict() -> None:
    request = REQUEST._replace(headers=MappingProxyType({"a": 1}))

    (arrived,) = Assembly().add(frame(ToChild.JOB, Job(1, request, "w@h")))

    assert decode(*arrived).request.headers == {"a": 1}


def test_frames_are_put_together_from_any_pieces() -> None:
    said = frame(ToChild.WARN, 1) + frame(ToChild.LEAVE) + frame(ToChild.WARN, 3)
    assembly = Assembly()

    arrived = [each for number in range(len(said)) for each in assembly.add(said[number : number + 1])]

    assert [(kind, decode(kind, body)) for kind, body in arrived] == [
        (ToChild.WARN, 1),
        (ToChild.LEAVE, None),
        (ToChild.WARN, 3),
    ]


@pytest.mark.parametrize("value", [object(), 2**70, "\ud800"])
def test_what_cannot_cross_is_refused(value: object) -> None:
    with pytest.raises(CallerError, match="cannot send it to another process"):
        frame(FromChild.TOLD, (1, "task-mine", {"value": value}))
