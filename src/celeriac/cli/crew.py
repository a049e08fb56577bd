"""Programs that run side by side: started as soon as they can be, again if they end, and ended in order."""

import signal
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from time import monotonic
from typing import Final, Protocol

from celeriac.cli.exit import Code
from celeriac.cli.home import trim
from celeriac.cli.rhythm import Restarts, Turns
from celeriac.errors import AccessRefused, CallerError, CeleriacError, ImproperlyConfigured
from celeriac.programs.process import wait_until
from celeriac.programs.service import Ailment, Service
from celeriac.store.disk import failed
from celeriac.views.format import format_duration

__all__ = ["Chore", "Crew", "Daemon", "Stage"]

#: How a program ends that would end so again: what it was told is wrong.
_LASTING: Final[dict[int, type[CeleriacError]]] = {
    Code.USAGE: CallerError,
    Code.REFUSED: AccessRefused,
    Code.CONFIGURATION: ImproperlyConfigured,
}


class Stage(IntEnum):
    """When a program is ended: those who make work first, and what all others need last."""

    SOURCE = 0
    WORKER = 1
    WITNESS = 2
    BROKER = 3


class Part(Protocol):
    """A program of a crew."""

    name: str
    service: Service
    stage: Stage
    needs: Sequence[str]

    @property
    def is_up(self) -> bool:
        """Those who need it can begin."""

    def tick(self, now: float) -> str:
        """Do what is due, and return what is worth telling."""


class Daemon:
    """A program that is to run all the time. Without one that is ``is_vital`` the others are of no use."""

    def __init__(
        self,
        name: str,
        service: Service,
        *,
        stage: Stage,
        needs: Sequence[str] = (),
        is_vital: bool = False,
    ) -> None:
        self.name = name
        self.service = service
        self.stage = stage
        self.needs = needs
        #: It was ready once, and runs.
        self.is_up = False
        self.has_begun = False
        self._is_vital = is_vital
        self._has_been_up = False
        self._restarts = Restarts()
        self._begun_at: float | None = None
        self._is_late = False
        self._due_at = 0.0
        self._ailment: Ailment | None = None
        self._look_at = 0.0

    def tick(self, now: float) -> str:
        """Begin it if it does not run, see whether it is ready and well; return what is worth telling."""
        trim(self.service.log_file)
        if self._begun_at is None:
            return self._begin(now) if now >= self._due_at else ""
        if not self.service.is_alive:
            return self._take_end(now - self._begun_at, now)
        if self.is_up:
            return self._look(now) if now >= self._look_at else ""
        if self._is_ready():
            self.is_up = self._has_been_up = True
            self._ailment, self._look_at = None, now + self.service.look_every
            return ""
        return self._lateness(now - self._begun_at)

    def _is_ready(self) -> bool:
        try:
            return self.service.is_ready
        except OSError:  # what tells it cannot be read now; it may be later
            return False

    def _look(self, now: float) -> str:
        """Tell once of what ails it, and once that it is well again; end it if nothing else helps."""
        self._look_at = now + self.service.look_every
        before, self._ailment = self._ailment, self.service.ailment()
        if self._ailment is None:
            return "" if before is None else f"{self.name}: healthy again"
        if self._ailment.is_hung:
            self.service.signal(signal.SIGKILL)  # and wait for nothing: its disk may keep it
        if before is not None and before.kind == self._ailment.kind:
            return ""
        fate = ", killed" if self._ailment.is_hung else ""
        return f"{self.name}: unhealthy{fate}: {self._ailment.text}"

    def _begin(self, now: float) -> str:
        try:
            self.service.begin()
        except OSError as error:  # a full disk, or no room for another process: that may pass
            pause = self._rest(now, lasted=0.0)
            reason = failed(f"{self.name}: cannot start", error)
            if self._is_needed_to_begin and self._restarts.is_hopeless:
                raise reason from error
            return f"{reason}; retry in {format_duration(pause)}{self._outlook}"
        self._begun_at, self._is_late, self.has_begun = now, False, True
        return ""

    def _lateness(self, lasted: float) -> str:
        """Tell once of each start that it takes longer than it should: it may never get ready."""
        patience = self.service.start_patience
        if self._is_late or lasted < patience:
            return ""
        self._is_late = True
        return f"{self.name}: not ready after {format_duration(patience)}; log in {self.service.log_file}"

    def _take_end(self, lasted: float, now: float) -> str:
        code = self.service.exit_code
        self._begun_at, self.is_up = None, False
        pause = self._rest(now, lasted=lasted)
        if self._is_needed_to_begin:
            self._give_up_on(code)
        told = f"{self.name}: ended with code {code}, restart in {format_duration(pause)}"
        return f"{told}{self._outlook}; log in {self.service.log_file}"

    def _rest(self, now: float, *, lasted: float) -> float:
        """Leave it alone for some seconds, and return how many."""
        pause = self._restarts.ended(after=lasted)
        self._due_at = now + pause
        return pause

    @property
    def _is_needed_to_begin(self) -> bool:
        """Without it all is in vain.

        One that has worked will work again, once the broker is back or the disk has room. That may take
        hours, and who records for months wants it to go on by itself.
        """
        return self._is_vital and not self._has_been_up

    @property
    def _outlook(self) -> str:
        return ", repeatedly" if self._restarts.is_hopeless else ""

    def _give_up_on(self, code: int | None) -> None:
        """Raise what is wrong with it, if to start it again would not help."""
        if code in _LASTING:
            raise _LASTING[code](f"{self.name}: cannot start: {_reason(self.service)}")
        if self._restarts.is_hopeless:
            last = self.service.last_lines()
            raise CeleriacError(
                f"{self.name}: ends at each start; the end of {self.service.log_file}:\n{last}"
            )


class Chore:
    """A program that is run from time to time, to its end; ``tell`` makes a line of what it printed."""

    needs: Sequence[str] = ()
    is_up = False

    def __init__(self, name: str, service: Service, turns: Turns, *, tell: Callable[[str], str]) -> None:
        self.name = name
        self.service = service
        self.stage = Stage.SOURCE
        self._turns = turns
        self._tell = tell
        self._is_running = False

    def tick(self, now: float) -> str:
        """Begin it if it is due; return how it ended, if it has."""
        trim(self.service.log_file)
        if self._is_running:
            if self.service.is_alive:
                return ""
            self._is_running = False
            return self._outcome(now)
        if self._turns.is_due(now):
            self._turns.begin(now)
            return self._begin(now)
        return ""

    def _begin(self, now: float) -> str:
        try:
            # What a run before has said is not of this one.
            self.service.log_file.unlink(missing_ok=True)
            self.service.begin()
        except OSError as error:
            reason = failed(f"{self.name}: cannot start", error)
            return f"{reason}; retry in {format_duration(round(self._turns.due_at - now))}"
        self._is_running = True
        return ""

    def _outcome(self, now: float) -> str:
        if self.service.exit_code == Code.OK:
            told = self._tell(self.service.log())
            return f"{self.name}: {told}" if told else ""
        again = max(0.0, self._turns.due_at - now)
        reason = _reason(self.service)
        when = format_duration(round(again))
        return f"{self.name}: failed, {reason}; retry in {when}; log in {self.service.log_file}"


class Crew:
    """Programs, by name. They run while :meth:`tick` is called again and again, until :meth:`close`."""

    def __init__(self, parts: Iterable[Part]) -> None:
        self._parts = {part.name: part for part in parts}

    @property
    def has_begun(self) -> bool:
        """Every program that is to run all the time was started."""
        return all(part.has_begun for part in self._parts.values() if isinstance(part, Daemon))

    @property
    def start_patience(self) -> float:
        """How long the slowest of those programs may take to get ready."""
        members = [part for part in self._parts.values() if isinstance(part, Daemon)]
        return max((part.service.start_patience for part in members), default=0.0)

    def is_up(self, name: str) -> bool:
        """Say whether a program does what it is there for."""
        return self._parts[name].is_up

    def service(self, name: str) -> Service:
        """Return the program behind a name."""
        return self._parts[name].service

    def tick(self, now: float) -> list[str]:
        """Do what is due, and return what is worth telling. Raises CeleriacError if all is in vain."""
        news = [part.tick(now) for part in self._parts.values() if all(map(self.is_up, part.needs))]
        return [each for each in news if each]

    def close(self, *, is_hurried: Callable[[], bool] = lambda: False) -> None:
        """End every program, one stage after the other; at once as soon as somebody is in a hurry."""
        for stage in Stage:
            services = [part.service for part in self._parts.values() if part.stage is stage]
            begun_at = monotonic()
            for service in services:
                service.ask_to_end()
            for service in services:
                left = begun_at + service.stop_patience - monotonic()
                _await_end(service, patience=left, is_hurried=is_hurried)
                service.kill()
                service.close()


def _await_end(service: Service, *, patience: float, is_hurried: Callable[[], bool]) -> None:
    wait_until(lambda: is_hurried() or not service.is_alive, patience=patience)


def _reason(service: Service) -> str:
    """Return the last that a program said."""
    lines = [line for line in service.last_lines().splitlines() if line.strip()]
    return lines[-1].removeprefix("error: ") if lines else f"code {service.exit_code}"
