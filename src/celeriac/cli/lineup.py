"""The programs of ``celeriac up``: which there are, what they are told, and what is said of them."""

import os
import shlex
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from time import monotonic, time
from typing import TYPE_CHECKING, Final

from celeriac.cli import output
from celeriac.cli.crew import Chore, Crew, Daemon, Stage
from celeriac.cli.home import Home
from celeriac.cli.own_program import Dashboard, OwnProgram, PipelineRun, RecorderProgram, Surroundings
from celeriac.cli.rhythm import Turns
from celeriac.config.celery_app import SHARED
from celeriac.config.settings import DATA_FOLDER
from celeriac.config.source import FILE_VARIABLE, variables
from celeriac.errors import DiskError
from celeriac.masking import sanitize_place, sanitize_url
from celeriac.node.stop_signals import stop_command
from celeriac.store.spool import Spool

if TYPE_CHECKING:
    from celeriac.app import Celeriac
    from celeriac.cli.crew import Part
    from celeriac.cli.sample_cluster import SampleCluster
    from celeriac.cli.up_option import Served
    from celeriac.cli.up_place import Places

__all__ = ["Lineup"]

#: The first tables come soon, from what is sealed by then; later ones as often as was asked for.
_FIRST_RUN: Final = 45.0
_SEGMENT_AGE: Final = 30.0
#: Many small segments become few as often as ``celeriac log compact`` wants to be run, counted over starts;
#: and not while all else starts.
_COMPACT_EVERY: Final = 86_400.0
_COMPACT_FIRST: Final = 180.0


class Lineup:
    """All programs beside one broker: that of ``sample``, or the one that the app's settings name."""

    def __init__(
        self,
        app: "Celeriac",
        home: Home,
        places: "Places",
        *,
        sample: "SampleCluster | None",
        served: "Served",
        port: int,
        pipeline_every: float,
        config: Path | None,
        app_name: str | None = None,
    ) -> None:
        self._sample = sample
        self._home = home
        self._places = places
        self._pipeline_every = pipeline_every
        sources = app.conf.sources()
        self._url = app.conf.broker_url if sample is None else sample.url
        #: A file is read again by who is in its folder, or names it; a variable may be of one command alone.
        self._is_named_again = sample is not None or not sources["broker_url"].startswith("file ")
        named = config or os.environ.get(FILE_VARIABLE)
        self._app = f" -A {shlex.quote(app_name)}" if app_name else ""
        self._config = f" --config {shlex.quote(_short(Path(named).absolute()))}" if named else ""
        # Those of an app, which the programs do not load.
        of_app = {name: getattr(app.conf, name) for name in SHARED if not _is_read_again(sources[name])}
        settings = variables(of_app) | {
            "CELERIAC_BROKER_URL": self._url,
            "CELERIAC_LOG_URL": places.log,
            "CELERIAC_WAREHOUSE_URL": places.warehouse,
        }
        if sources["log_segment_age"] == "default":
            settings["CELERIAC_LOG_SEGMENT_AGE"] = str(_SEGMENT_AGE)
        if sample is not None:
            settings["CELERIAC_LOG_SPOOL"] = str(places.spool)
            settings["CELERIAC_RESULT_BACKEND"] = sample.backend
            settings["CELERIAC_ELECTION_URL"] = sample.url
        self._around = Surroundings(home, {**os.environ, **settings}, Path.cwd(), config)
        self._dashboard = Dashboard(self._around, served.options(), host=served.host, port=port)
        home.note_address(self._dashboard.address)
        self._recorder = RecorderProgram(self._around, Spool(places.spool, app.history.recorder_name).folder)
        self.crew = Crew([*self._daemons(), *self._chores()])

    @property
    def is_served(self) -> bool:
        """The dashboard answers."""
        return self.crew.is_up("dashboard")

    @property
    def is_up(self) -> bool:
        """The dashboard answers, and every other program was started."""
        return self.is_served and self.crew.has_begun

    def close(self, *, is_hurried: Callable[[], bool]) -> None:
        """End every program."""
        self.crew.close(is_hurried=is_hurried)

    def address(self) -> str:
        """Return the first line: where the dashboard is."""
        return f"{'dashboard':<10} {self._dashboard.address}  pid {self._dashboard.pid}"

    def heading(self) -> list[str]:
        """Return what else runs where, and what can be done next."""
        rows = self._broker_rows()
        rows.append(("recorder", f"pid {self._recorder.pid}, event log in {_short(self._places.log)}"))
        if self._makes_tables:
            often = f"every {self._pipeline_every / 60:g} min, first run soon"
            rows.append(("pipeline", f"{often}; tables in {_short(self._places.warehouse)}"))
        rows.append(("logs", f"in {_short(self._home.output)}"))
        lines = [f"{name:<10} {text}" for name, text in rows]
        tries = [f"{'':<10} {each}" for each in self._tries()]
        return [
            *lines,
            f"{'try':<10} in another terminal, in this folder:",
            *tries,
            f"{'end':<10} with {stop_command()}",
        ]

    @property
    def _makes_tables(self) -> bool:
        return bool(self._pipeline_every) and _has_spark()

    def _broker_rows(self) -> list[tuple[str, str]]:
        if self._sample is None:
            return [("broker", sanitize_url(self._url))]
        pids = {
            name: self.crew.service(name).pid
            for name in ("broker", "Celery worker", "Celeriac worker", "load")
        }
        data = _short(self._home.valkey)
        return [
            ("broker", f"{self._url}  Valkey, pid {pids['broker']}, data in {data}"),
            ("worker", f"sample@localhost  Celery, pid {pids['Celery worker']}"),
            ("worker", f"reports@localhost  Celeriac, pid {pids['Celeriac worker']}"),
            ("load", f"about 2.5 tasks/s, pid {pids['load']}"),
        ]

    def _tries(self) -> list[str]:
        own = _own_name()
        broker, hint = _named_again(self._url) if self._is_named_again else ("", "")
        if self._app:
            broker, hint = self._app, ""
        again = f"{broker}{self._config}"
        # Commands in this folder find the default places by themselves.
        log = tables = ""
        if not self._is_default:
            log = f" {shlex.quote(_short(self._places.log))}"
            tables = f" --warehouse {shlex.quote(_short(self._places.warehouse))}"
        tables += self._config
        shown = {
            f"{own} top{again}{hint}": _has_package("textual"),
            f"{own} status{again}": True,
            # Two at once would be in each other's way.
            f"{own} pipeline run{log}{tables}": _has_spark() and not self._makes_tables,
            f"{own} history latency{tables} --since 1h --by minute": _has_spark(),
        }
        return [command for command, is_installed in shown.items() if is_installed]

    @property
    def _is_default(self) -> bool:
        """The data is where every command looks in this folder."""
        return (
            self._home.folder == Path(DATA_FOLDER).absolute()
            and Path(self._places.warehouse) == self._home.warehouse
        )

    def _daemons(self) -> list[Daemon]:
        needs = () if self._sample is None else ("broker",)
        own = [
            Daemon("dashboard", self._dashboard, stage=Stage.WITNESS, needs=needs, is_vital=True),
            Daemon("recorder", self._recorder, stage=Stage.WITNESS, needs=needs, is_vital=True),
        ]
        if self._sample is None:
            return own
        broker, *others = self._sample.daemons(load_needs="recorder")
        return [broker, *own, *others]

    def _chores(self) -> "list[Part]":
        now = monotonic()
        compact = OwnProgram("compaction", ["log", "compact"], self._around)
        left = self._home.compacted_at + _COMPACT_EVERY - time()
        first = min(max(_COMPACT_FIRST, left), _COMPACT_EVERY)
        turns = Turns(first=first, every=_COMPACT_EVERY, now=now)
        chores: list[Part] = [Chore("compaction", compact, turns, tell=self._note_compaction)]
        if self._pipeline_every and not _has_spark():
            output.say("no tables: Spark is not installed. To have history, pip install 'celeriac[pipeline]'")
        elif self._pipeline_every:
            first = min(_FIRST_RUN, self._pipeline_every)
            turns = Turns(first=first, every=self._pipeline_every, now=now)
            chores.append(Chore("pipeline", PipelineRun(self._around), turns, tell=PipelineRun.news))
        return chores

    def _note_compaction(self, _printed: str) -> str:
        with suppress(DiskError):  # it is then done once more, by the next start
            self._home.compacted_at = int(time())
        return ""


def _is_read_again(source: str) -> bool:
    """Tell whether a program that is started finds a setting by itself."""
    return source.startswith(("default", "variable ", "file "))


def _named_again(url: str) -> tuple[str, str]:
    """Return the option that names a broker, and what is to be known of it: what is shown can be pasted."""
    shown = sanitize_url(url)
    if shown == url:
        return f" -b {shlex.quote(url)}", ""
    return ' -b "$CELERIAC_BROKER_URL"', "  # set it to the URL of the broker, with its password"


def _has_spark() -> bool:
    return _has_package("pyspark")


def _has_package(name: str) -> bool:
    return find_spec(name) is not None


def _short(place: Path | str) -> str:
    """Return a place for people: from where they are, if that is shorter."""
    path = Path(place)
    if "://" not in str(place) and path.is_relative_to(Path.cwd()):
        return str(path.relative_to(Path.cwd()))
    return sanitize_place(str(place))


def _own_name() -> str:
    """Return what has to be typed to run a command of ours."""
    if which("celeriac"):
        return "celeriac"
    called = Path(sys.argv[0])
    return _short(called.absolute()) if called.name == "celeriac" else "python -m celeriac"
