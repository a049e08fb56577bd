"""Commands of ours as programs of their own, beside the one that watches over them."""

import http.client
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

from celeriac.cli.home import Home
from celeriac.cli.web import shown
from celeriac.errors import DiskError
from celeriac.node.record_health import ailment
from celeriac.programs.service import Ailment, Service
from celeriac.store.disk import failed
from celeriac.store.recorder_status import read_status
from celeriac.views.format import format_duration

__all__ = ["Dashboard", "OwnProgram", "PipelineRun", "RecorderProgram", "Surroundings"]

#: Of this machine, and so soon or not at all.
_ASK_PATIENCE: Final = 2.0
#: It has much to do at times.
_MOST_UNANSWERED: Final = 3
#: Looks, about a second apart, at a recorder that tells of itself every two seconds. Time that passed by a
#: clock would count against one that slept as long as we did, with the machine.
_SILENT, _HUNG = 15, 60
_RECOVERY: Final = 10
_PROBE_BYTES: Final = 4096
#: Where a server that listens everywhere is asked from its own machine.
_HERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - is compared
_NEWS: Final = re.compile(r"^(?:[\d,]+ events? of .*|no new events: .*)$", re.MULTILINE)


@dataclass(frozen=True)
class Surroundings:
    """What all commands have in common."""

    home: Home
    #: With the broker in it: a URL may hold a password, and arguments are for everybody to read.
    environment: Mapping[str, str]
    #: The folder that the user is in: paths in settings are relative to it.
    folder: Path
    config: Path | None = None


class OwnProgram(Service):
    """A command of ours, in the user's folder."""

    def __init__(self, name: str, arguments: Sequence[str], around: Surroundings) -> None:
        self.name = name
        super().__init__(home=around.home.run, log=around.home.output / f"{name}.log")
        self._around = around
        self._arguments = [
            *arguments,
            *([] if around.config is None else ["--config", str(around.config.absolute())]),
        ]

    def _cwd(self) -> Path:
        return self._around.folder

    def _environment(self) -> dict[str, str]:
        # What it leaves among the temporary files, if it is killed, goes with its folder.
        return {**self._around.environment, "TMPDIR": str(self.folder)}

    def _command(self) -> list[str]:
        # Nothing is imported from the user's folder: a file of any name may be there.
        return [sys.executable, "-P", "-m", "celeriac", *self._arguments]

    def _is_ready(self) -> bool:
        return True


class RecorderProgram(OwnProgram):
    """``celeriac record``; it tells how it is in ``spool``."""

    def __init__(self, around: Surroundings, spool: Path) -> None:
        super().__init__("recorder", ["record"], around)
        self._spool = spool
        #: When it last told of itself, for how many looks it has not since, and what the disk said meanwhile.
        self._told_at: float | None = None
        self._silent = 0
        self._full: Ailment | None = None

    def begin(self) -> None:
        """Start it, and wait for nothing."""
        self._told_at, self._silent, self._full = None, 0, None
        super().begin()

    def ailment(self) -> Ailment | None:
        """Return why it does not record, by what it tells, or that it tells nothing any more."""
        try:
            status = read_status(self._spool)
            # How long it is silent is counted here.
            told = ailment(self._spool, now=lambda: 0.0)
        except DiskError as error:
            return Ailment("unreadable", str(error))
        told_at = None if status is None else status.updated_at
        if told_at == self._told_at:
            self._silent += 1
        else:
            self._told_at, self._silent, self._full = told_at, 0, None
        if self._silent < _SILENT:
            return Ailment(told.partition(":")[0], told) if told else None
        return self._silence()

    def _silence(self) -> Ailment:
        """Return why it tells nothing: it cannot, as the disk is full, or it hangs.

        Who hangs is to be ended. What one that cannot write has in memory would be lost with it.
        """
        trouble = self._disk_trouble()
        if trouble:
            self._silent, self._full = _SILENT, Ailment("disk", trouble)
        # When there is room again it takes a moment to say so.
        if self._full is not None and self._silent < _SILENT + _RECOVERY:
            return self._full
        is_hung = self._silent >= _HUNG
        text = f"no status update for {format_duration(self._silent)}"
        return Ailment("hung" if is_hung else "silent", text, is_hung)

    def _disk_trouble(self) -> str:
        """Return what keeps anybody from writing where it tells of itself."""
        try:
            with TemporaryFile(dir=self._spool) as file:
                file.write(bytes(_PROBE_BYTES))
        except OSError as error:
            return str(failed("disk full or read-only", error))
        return ""

    def _is_ready(self) -> bool:
        try:
            status = read_status(self._spool)
        except DiskError:
            return False
        return status is not None and status.pid == self.pid and status.state == "recording"


class Dashboard(OwnProgram):
    """``celeriac web``, at a port of its own."""

    #: Those who look on are given a moment.
    stop_patience = 10.0
    look_every = 5.0

    def __init__(self, around: Surroundings, options: Sequence[str], *, host: str, port: int) -> None:
        place = ["--host", host, "--port", str(port), "--audit", str(around.home.audit)]
        super().__init__("dashboard", ["web", *place, *options], around)
        self.address = f"http://{shown(host)}:{port}"
        self._asked = (_HERE.get(host, host), port)
        self._unanswered = 0
        self._is_deaf = False

    def ailment(self) -> Ailment | None:
        """Return what it says of itself, or that it says nothing."""
        answer = self._answer()
        if answer is None:
            self._unanswered += 1
        else:
            self._unanswered, self._is_deaf = 0, answer != http.HTTPStatus.OK
        if self._unanswered >= _MOST_UNANSWERED:
            return Ailment("mute", "no answer")
        return Ailment("deaf", "receives no events") if self._is_deaf else None

    def _is_ready(self) -> bool:
        return self._answer() == http.HTTPStatus.OK

    def _answer(self) -> int | None:
        link = http.client.HTTPConnection(*self._asked, timeout=_ASK_PATIENCE)
        try:
            link.request("GET", "/healthz")
            return link.getresponse().status
        except (OSError, http.client.HTTPException):  # not yet there, or not any more
            return None
        finally:
            link.close()


class PipelineRun(OwnProgram):
    """``celeriac pipeline run``: it may be killed at any moment, and goes on from there the next time."""

    stop_patience = 5.0

    def __init__(self, around: Surroundings) -> None:
        super().__init__("pipeline", ["pipeline", "run"], around)

    def begin(self) -> None:
        """Start it, and wait for nothing."""
        # Of a run before that was killed.
        for left in self.folder.iterdir():
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)
        super().begin()

    @staticmethod
    def news(printed: str) -> str:
        """Return what a run has taken in, by what it printed."""
        found = _NEWS.findall(printed)
        return found[-1] if found else ""

    def _environment(self) -> dict[str, str]:
        environment = super()._environment()
        folder = str(self.folder)
        # Java does not ask there.
        java = [environment.get("JAVA_TOOL_OPTIONS", ""), f'"-Djava.io.tmpdir={folder}"', "-XX:-UsePerfData"]
        return environment | {
            "SPARK_LOCAL_DIRS": folder,
            "JAVA_TOOL_OPTIONS": " ".join(filter(None, java)),
        }
