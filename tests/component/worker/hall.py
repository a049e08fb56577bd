"""Several workers on the broker in this process, in elections that a test calls."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Lock
from typing import Any, Final, NamedTuple, Self

from celeriac.errors import CallerError
from celeriac.node.per_process import PerProcess
from celeriac.wire.names import event_exchange
from celeriac.worker.mandate import Mandate
from celeriac.worker.worker import Worker
from tests.builders import worker as worker_event
from tests.component.worker.kit import HandPool, Site, come_true
from tests.fickle import Fickle

__all__ = ["TIMEOUTS", "TOPIC", "Acted", "Hall", "refusal"]

TOPIC = "note"
#: Seconds that a call waits for answers: first few, then more, for a busy machine.
TIMEOUTS: Final = (1.0, 5.0, 15.0, 45.0)


class Acted(NamedTuple):
    """A node acted."""

    node: str
    action: object
    mandate: Mandate


def refusal(call: Callable[[float], object]) -> str:
    """Return the reason why an election is refused, once all workers have answered in time."""
    for timeout in TIMEOUTS:
        try:
            call(timeout)
        except CallerError as error:
            if "no worker can stand in the election" in str(error):
                return str(error)
    raise AssertionError("the election was not refused")


class Hall:
    """Workers that know each other, and note who acts on the topic ``note``."""

    def __init__(
        self, size: int = 3, *, act: Callable[[Acted], object] | None = None, **settings: Any
    ) -> None:
        self.site = Site(**settings)
        #: Who decides, asked through somebody who can fail.
        self.arbiter = Fickle(self.site.broker.arbiter.seen_by(namespace="celeriac", retain=3600.0))
        self.site.app.__dict__["_arbiters"] = PerProcess(lambda: self.arbiter)
        self.acted: list[Acted] = []
        self._act = act or (lambda _: None)
        self._noting = Lock()
        self.workers = [self.worker(f"w{number}@lab") for number in range(1, size + 1)]

    def worker(self, hostname: str, **choices: Any) -> Worker:
        """Return one more worker, not yet started."""
        worker = self.site.worker(HandPool(), hostname=hostname, **choices)

        def note(action: object, mandate: Mandate) -> None:
            acted = Acted(hostname, action, mandate)
            with self._noting:
                self.acted.append(acted)
            self._act(acted)

        worker.gossip.election_handlers[TOPIC] = note
        return worker

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Have the workers running, and know each other."""
        with ExitStack() as stack:
            for worker in self.workers:
                stack.enter_context(worker)
            # Who came first was not heard by those who came later; its next heartbeat is seconds away.
            for worker in self.workers:
                worker.parts.heart.announce()
            assert come_true(self._know_each_other), "they did not meet"
            yield self

    def _know_each_other(self) -> bool:
        return all(len(each.gossip.peers()) >= len(self.workers) - 1 for each in self.workers)

    def call(self, id_: str, topic: str = TOPIC, action: object = None, **options: Any) -> None:
        """Call an election, of workers that are known to be there."""
        self.site.app.control.election(id_, topic, action, force=True, **options)

    def say(self, subject: str, hostname: str, **fields: Any) -> None:
        """Send an event of another node."""
        event = worker_event(subject, hostname=hostname, **fields)
        with self.site.app.connection() as link:
            link.publish(
                event_exchange("celeryev", "memory"),
                json.dumps(event).encode(),
                routing_key=f"worker.{subject.replace('-', '.')}",
            )

    def phases(self, id_: str) -> list[str]:
        """Return where each worker is in an election; empty for one that has not heard of it."""
        known = [each.parts.elector.elections.all.get(id_) for each in self.workers]
        return ["" if each is None else each.phase.value for each in known]

    def is_over(self, *ids: str) -> bool:
        """Tell whether these are over for every worker."""
        ends = {"following", "done", "failed"}
        return all(ends.issuperset(self.phases(id_)) for id_ in ids)

    def winners(self, id_: str) -> list[str]:
        """Return who acted in an election."""
        return [each.node for each in list(self.acted) if each.mandate.id == id_]
