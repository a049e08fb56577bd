"""How a task ends that never ran: what waits for it gets to know."""

import logging
from collections.abc import Mapping

from celeriac.config import Settings
from celeriac.errors import CeleriacError, PeerError
from celeriac.model.outcome import Outcome
from celeriac.model.states import FAILURE
from celeriac.model.task_request import Arguments, TaskRequest
from celeriac.node.following import Following, after_failure, chain_ids
from celeriac.node.task import Task
from celeriac.wire.failure import failure_json, failure_text
from celeriac.wire.task_request import read_body
from celeriac.wire.value import spell

__all__ = ["unbegun"]

logger = logging.getLogger(__name__)


def unbegun(
    request: TaskRequest, state: str, error: Exception, *, settings: Settings, tasks: Mapping[str, Task]
) -> Outcome:
    """Return how a task ends that was not run, for a reason; never raises.

    The rest of its chain ends with it, and what waits for its group is told. Errbacks are for failures:
    who revokes a task knows that it will not run.
    """
    try:
        arguments = read_body(request.body)
    except PeerError:
        arguments = Arguments()
    following = Following()
    chord = b""
    try:
        if arguments.chord is not None:
            chord = spell(arguments.chord)
        if state == FAILURE:
            following = after_failure(request, arguments, settings=settings, tasks=tasks)
    except CeleriacError as fault:
        logger.error("Cannot send follow-ups of task %s[%s]: %s", request.task, request.id, fault)  # noqa: TRY400
    return Outcome(
        state,
        failure_json(error),
        failure_text(error),
        postings=following.postings,
        children=following.children,
        chord=chord,
        also_failed=chain_ids(arguments),
    )
