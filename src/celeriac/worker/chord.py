"""Counts the tasks of groups that something waits for, and sends that when the last has ended."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from celeriac.config import Settings
from celeriac.errors import CallerError
from celeriac.model.chord import ChordEnd
from celeriac.model.outcome import Outcome
from celeriac.model.result import Json
from celeriac.model.task_request import Posting, TaskRequest
from celeriac.node.backend import Backend
from celeriac.node.following import postings_of
from celeriac.node.sender import TaskSender
from celeriac.node.task import Task
from celeriac.wire.value import revive

__all__ = ["Chords"]

_decode = msgspec.json.Decoder().decode


class Chords:
    """The chords that tasks of this worker are part of."""

    def __init__(
        self, backend: Backend, sender: TaskSender, *, settings: Settings, tasks: Mapping[str, Task]
    ) -> None:
        self._backend = backend
        self._sender = sender
        self._settings = settings
        self._tasks = tasks

    def end_part(self, request: TaskRequest, outcome: Outcome) -> None:
        """Count a task that has ended and is stored; if it was the last of its group, send what waits.

        Raises what keeps the rest from being sent: CeleriacError. To do it again does no harm.
        """
        if request.group_id is None:
            raise CallerError(
                "the task is part of a chord but has no group id; send the chord as Celery does"
            )
        end = self._backend.end_chord_part(
            group_id=request.group_id,
            group_index=request.group_index,
            task_id=request.id,
            state=outcome.state,
            result=Json(outcome.result),
            chord=_decode(outcome.chord),
        )
        if end is not None:
            self._sender.post(self._following(request, end))
            self._backend.close_chord(end)

    def _following(self, request: TaskRequest, end: ChordEnd) -> list[Posting]:
        if end.error is None:
            results = revive(_decode(end.results.text))
            return self._postings(request, end.body, (results,))
        options = end.body.get("options")
        errbacks = options.get("link_error") if isinstance(options, dict) else None
        body_id = options.get("task_id") if isinstance(options, dict) else None
        return [
            posting
            for errback in (errbacks if isinstance(errbacks, list) else [errbacks] if errbacks else [])
            for posting in self._postings(request, errback, (body_id,))
        ]

    def _postings(self, request: TaskRequest, signature: Any, args: Sequence[Any]) -> list[Posting]:
        following = postings_of(
            signature,
            args,
            settings=self._settings,
            tasks=self._tasks,
            root_id=request.root_id,
            parent_id=request.id,
        )
        return list(following.postings)
