"""What jobs of the pipeline did, or would do."""

from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["Compacted", "Difference", "Estimate", "Report", "Verified"]


@dataclass
class Report:
    """What a job did."""

    #: Events that were taken into the tables, and tasks that there was news of.
    events: int = 0
    tasks: int = 0
    #: Times that something was published, and segments that were read.
    chunks: int = 0
    segments: int = 0
    #: What could not be used: segments, in words.
    faults: list[str] = field(default_factory=list)
    #: The days of which tasks were written.
    days: set[str] = field(default_factory=set)
    #: Seconds of each phase: check, tasks, tables, publish.
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        """Seconds in all."""
        return sum(self.seconds.values())

    @property
    def rate(self) -> float:
        """Events in each second."""
        return self.events / self.total if self.total else 0.0

    def add(self, other: "Report") -> None:
        """Take in what another job did."""
        self.events += other.events
        self.tasks += other.tasks
        self.chunks += other.chunks
        self.segments += other.segments
        self.faults += [each for each in other.faults if each not in self.faults]
        self.days |= other.days
        for phase, seconds in other.seconds.items():
            self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds


class Compacted(NamedTuple):
    """What became of many small files."""

    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int


class Difference(NamedTuple):
    """A task that is in the table otherwise than its events say."""

    uuid: str
    column: str
    table: object
    memory: object


class Verified(NamedTuple):
    """How a sample of tasks compares with the same events folded in memory."""

    tasks: int
    events: int
    #: Tasks of the sample some of whose events the log does not keep any more.
    expired: int
    differences: list[Difference]


class Estimate(NamedTuple):
    """What a run would read, and how."""

    segments: int
    events: int
    bytes: int
    #: By the rate of earlier runs; None if there were none.
    seconds: float | None
    plan: str
