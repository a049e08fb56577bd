"""Commands of ours as programs of their own, beside the one that watches over them."""

import http.client
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from celeriac.cli.home import Home
from celeriac.cli.web import shown
from celeriac.errors import DiskError
from celeriac.programs.service import Service
from celeriac.store.recorder_status import read_status

__all__ = ["Dashboard", "OwnProgram", "PipelineRun", "RecorderProgram", "Surroundings"]

#: Of this machine, and so soon or not at all.
_ASK_PATIENCE: Final = 2.0
#: Where a server that listens everywhere is asked from its own machine.
_HERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - is compared
_NEWS: Final = re.compile(r"^(?:[\d,]+ events? of .*|nothing is new: .*)$", re.MULTILINE)


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

    def __init__(self, around: Surroundings, options: Sequence[str], *, host: str, port: int) -> None:
        place = ["--host", host, "--port", str(port), "--audit", str(around.home.audit)]
        super().__init__("dashboard", ["web", *place, *options], around)
        self.address = f"http://{shown(host)}:{port}"
        self._asked = (_HERE.get(host, host), port)

    def _is_ready(self) -> bool:
        link = http.client.HTTPConnection(*self._asked, timeout=_ASK_PATIENCE)
        try:
            link.request("GET", "/healthz")
            return link.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):  # not yet there
            return False
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
