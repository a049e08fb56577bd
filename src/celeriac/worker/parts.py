"""The parts of a worker, put together."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from celeriac.config import Settings
from celeriac.model.signature import TaskSignature
from celeriac.node.backend import Backend
from celeriac.node.clock import SharedClock
from celeriac.node.control import Control
from celeriac.node.dispatcher import EventDispatcher
from celeriac.node.election import TASK_TOPIC
from celeriac.node.mailbox import TASK_QUESTIONS, Mailbox
from celeriac.node.posting import posting_for
from celeriac.node.revoked import SharedRevokedSet
from celeriac.node.sender import TaskSender
from celeriac.node.task import Task
from celeriac.transport.arbiter import Arbiter
from celeriac.transport.base import Connection
from celeriac.worker.answers import Answers
from celeriac.worker.assignment import Desk
from celeriac.worker.chord import Chords
from celeriac.worker.commands import OPEN_COMMANDS, Commands
from celeriac.worker.election_task import ElectedTask
from celeriac.worker.elector import Elector
from celeriac.worker.finisher import Finisher
from celeriac.worker.graph import Graph
from celeriac.worker.intake import Intake
from celeriac.worker.pool.base import Pool
from celeriac.worker.report import TaskReport
from celeriac.worker.steps.connection import ConnectionStep
from celeriac.worker.steps.control import ControlStep
from celeriac.worker.steps.events import EventsStep
from celeriac.worker.steps.gossip import GossipStep
from celeriac.worker.steps.heart import HeartStep
from celeriac.worker.steps.mingle import MingleStep
from celeriac.worker.steps.pool import FinisherStep, PoolStep
from celeriac.worker.steps.tasks import TasksStep
from celeriac.worker.teller import Teller

__all__ = ["Choices", "Parts", "Surroundings"]

#: Events of workers and of the cluster are always sent; those of tasks if somebody wants them.
_QUIET_GROUPS: Final = frozenset({"worker", "cluster"})


class Surroundings(NamedTuple):
    """What a worker works with, which is not its own."""

    settings: Settings
    clock: SharedClock
    hostname: str
    #: Of this program, as heartbeats tell it.
    version: str
    connect: Callable[[], Connection]
    control: Control
    #: The worker's alone: it says which events are sent.
    dispatcher: EventDispatcher
    sender: TaskSender
    #: None keeps no results.
    backend: Backend | None
    tasks: Mapping[str, Task]
    #: Who decides elections.
    arbiter: Callable[[], Arbiter]


class Choices(NamedTuple):
    """What an operator chooses for one worker."""

    #: Queues to take tasks from; none for the default one.
    queues: Sequence[str] = ()
    #: Whether events of tasks are sent; None for what the settings say.
    task_events: bool | None = None
    without_mingle: bool = False
    without_gossip: bool = False
    without_heartbeat: bool = False


class Parts:
    """Everything a worker consists of; ``stop`` is what a command to shut down calls."""

    def __init__(
        self, place: Surroundings, choices: Choices, pool: Pool, *, stop: Callable[[], object]
    ) -> None:
        self._place = place
        settings = place.settings
        self.pool = pool
        self.desk = Desk()
        self.revoked = SharedRevokedSet()
        sends_all = settings.worker_send_task_events if choices.task_events is None else choices.task_events
        place.dispatcher.groups = set() if sends_all else set(_QUIET_GROUPS)
        self.connection = ConnectionStep(place.connect)
        self.events = EventsStep(place.dispatcher)
        self.mingle, self.gossip, self.heart = self._cluster_steps(choices)
        self.elector = self.gossip.elector = self._elector()
        self.tasks = TasksStep(
            place.connect,
            settings=settings,
            queues=choices.queues or (settings.task_default_queue,),
            pool=pool,
            desk=self.desk,
        )
        self.report = report = TaskReport(place.dispatcher)
        self.finisher = Finisher(
            settings=settings,
            desk=self.desk,
            sender=place.sender,
            backend=place.backend,
            chords=self._chords(),
            report=report,
            settle=self.tasks.settle_many,
        )
        self.tasks.intake = self._intake(report)
        self.graph = Graph(
            [
                FinisherStep(self.finisher),
                PoolStep(pool, self.tasks.intake),
                self.connection,
                self.events,
                self.mingle,
                self.gossip,
                self.heart,
                self.tasks,
                ControlStep(self.connection, self._mailbox(stop), on_ready=self.mingle.greet_again),
            ]
        )

    def _cluster_steps(self, choices: Choices) -> tuple[MingleStep, GossipStep, HeartStep]:
        place, settings = self._place, self._place.settings
        driver = place.connect().driver
        mingle = MingleStep(
            place.control,
            hostname=self._place.hostname,
            clock=self._place.clock,
            revoked=self.revoked,
            driver=driver,
            timeout=settings.worker_mingle_timeout,
            is_enabled=not choices.without_mingle,
        )
        gossip = GossipStep(
            self.connection,
            settings=settings,
            clock=self._place.clock,
            hostname=self._place.hostname,
            pid=os.getpid(),
            dispatcher=place.dispatcher,
            driver=driver,
            interval=settings.worker_gossip_interval,
            heartbeat_interval=settings.worker_heartbeat_interval,
            is_enabled=not choices.without_gossip,
        )
        heart = HeartStep(
            place.dispatcher,
            self.desk,
            version=place.version,
            interval=settings.worker_heartbeat_interval,
            is_enabled=not choices.without_heartbeat,
            on_beat=gossip.beat,
        )
        return mingle, gossip, heart

    def _elector(self) -> Elector:
        place, gossip = self._place, self.gossip
        elected = ElectedTask(self._post, actions=place.settings.election_actions)
        gossip.election_handlers[TASK_TOPIC] = elected.send
        return Elector(
            settings=place.settings,
            hostname=place.hostname,
            pid=os.getpid(),
            arbiter=place.arbiter,
            teller=Teller(place.dispatcher),
            wake=self.connection.wake,
            alive=gossip.peers,
            has_celery=gossip.has_celery,
            handlers=gossip.election_handlers,
            refusal=elected.refusal,
            is_enabled=gossip.is_enabled,
        )

    def _post(self, signature: TaskSignature) -> None:
        place = self._place
        options: Any = signature.options
        posting = posting_for(
            signature.task,
            signature.args,
            signature.kwargs,
            options,
            settings=place.settings,
            task=place.tasks.get(signature.task),
            origin=place.hostname,
        )
        place.sender.post([posting])

    def _chords(self) -> Chords | None:
        place = self._place
        if place.backend is None:
            return None
        return Chords(place.backend, place.sender, settings=place.settings, tasks=place.tasks)

    def _intake(self, report: TaskReport) -> Intake:
        return Intake(
            settings=self._place.settings,
            hostname=self._place.hostname,
            tasks=self._place.tasks,
            pool=self.pool,
            desk=self.desk,
            revoked=self.revoked,
            finisher=self.finisher,
            report=report,
            settle=self.tasks.settle,
            settle_now=self.tasks.settle_now,
            write_settlements=self.tasks.write_settlements,
            wake=self.tasks.wake,
            set_aside=self.tasks.set_aside,
        )

    def _mailbox(self, stop: Callable[[], object]) -> Mailbox:
        answers = Answers(
            settings=self._place.settings,
            hostname=self._place.hostname,
            desk=self.desk,
            revoked=self.revoked,
            pool=self.pool,
            tasks=self.tasks,
            gossip=self.gossip,
            elector=self.elector,
            registered=self._place.tasks,
        )
        commands = Commands(
            stop=stop,
            settings=self._place.settings,
            desk=self.desk,
            revoked=self.revoked,
            pool=self.pool,
            intake=self.tasks.intake,
            tasks=self.tasks,
            heart=self.heart,
            events=self.events,
            elector=self.elector,
            registered=self._place.tasks,
        )
        return Mailbox(
            self._place.hostname,
            settings=self._place.settings,
            clock=self._place.clock,
            handlers=answers.handlers() | commands.handlers(),
            revoked=self.revoked,
            open_commands=TASK_QUESTIONS | OPEN_COMMANDS,
            more_stats=answers.stats,
        )
