"""A crew starts its programs as soon as they can be, again if they end, and ends them in order."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from celeriac.cli.crew import Chore, Crew, Daemon, Stage
from celeriac.cli.exit import Code
from celeriac.cli.rhythm import Turns
from celeriac.errors import CallerError, CeleriacError, DiskError
from celeriac.programs.service import Ailment, Service


class Puppet(Service):
    """A program that does what the test says."""

    stop_patience = 0.0

    def __init__(self, name: str, folder: Path, told: list[str]) -> None:
        self.name = name
        super().__init__(home=folder, log=folder / f"{name}.log")
        self.code: int | None = 0
        self.says_ready = True
        self.ails: Ailment | None = None
        self.is_stubborn = False
        self.fault: OSError | None = None
        self._told = told

    @property
    def is_alive(self) -> bool:
        return self.code is None

    @property
    def exit_code(self) -> int | None:
        return self.code

    def begin(self) -> None:
        self._told.append(f"begin {self.name}")
        if self.fault is not None:
            raise self.fault
        self.code = None

    def ask_to_end(self) -> None:
        self._told.append(f"end {self.name}")
        if not self.is_stubborn:
            self.code = 0

    def kill(self) -> None:
        if self.code is None:
            self._told.append(f"kill {self.name}")
            self.code = 137

    def signal(self, number: int) -> None:
        self._told.append(f"signal {self.name} {number}")

    def ailment(self) -> Ailment | None:
        self._told.append(f"look at {self.name}")
        return self.ails

    def _command(self) -> list[str]:
        return []

    def _is_ready(self) -> bool:
        if self.fault is not None:
            raise self.fault
        return self.says_ready


Make = Callable[[str], Puppet]


@pytest.fixture
def told() -> list[str]:
    """What was done to programs, in order."""
    return []


@pytest.fixture
def make(tmp_path: Path, told: list[str]) -> Make:
    return lambda name: Puppet(name, tmp_path, told)


def test_a_program_begins_once_those_it_needs_are_ready(make: Make, told: list[str]) -> None:
    broker, web = make("broker"), make("web")
    crew = Crew(
        [
            Daemon("broker", broker, stage=Stage.BROKER),
            Daemon("web", web, stage=Stage.WITNESS, needs=("broker",)),
        ]
    )
    broker.says_ready = False

    for now in (0.0, 0.1, 0.2):
        crew.tick(now)
    before = list(told)
    broker.says_ready = True
    for now in (0.3, 0.4):
        crew.tick(now)

    assert before == ["begin broker"]
    assert told == ["begin broker", "begin web"]
    assert crew.has_begun


def test_one_that_ends_by_itself_is_started_again_after_a_pause_and_told(make: Make, told: list[str]) -> None:
    worker = make("worker")
    crew = Crew([Daemon("worker", worker, stage=Stage.WORKER)])
    crew.tick(0.0)
    worker.code = 137

    (news,) = crew.tick(5.0)
    quiet = [crew.tick(now) for now in (5.5, 5.9, 6.1)]

    assert news.startswith("worker: ended with code 137, restart in 1 s; log in")
    assert news.endswith("worker.log")
    assert quiet == [[], [], []]
    assert told == ["begin worker", "begin worker"]


def ends(crew: Crew, puppet: Puppet, code: int, times: int) -> None:
    """Have a program end soon after each start."""
    for turn in range(times):
        crew.tick(100.0 * turn)
        puppet.code = code
        crew.tick(100.0 * turn + 1)


def test_the_fifth_end_in_a_row_of_a_vital_one_shows_the_end_of_its_log(make: Make, told: list[str]) -> None:
    web = make("web")
    crew = Crew([Daemon("web", web, stage=Stage.WITNESS, is_vital=True)])
    web.log_file.write_text("first\nlast words\n")

    with pytest.raises(CeleriacError, match=r"(?s)web: ends at each start.*\nlast words"):
        ends(crew, web, 1, 5)

    assert told == ["begin web"] * 5


def test_one_that_has_been_up_is_started_for_ever_and_that_is_said(make: Make, told: list[str]) -> None:
    recorder = make("recorder")
    crew = Crew([Daemon("recorder", recorder, stage=Stage.WITNESS, is_vital=True)])
    for now in (0.0, 0.5):
        crew.tick(now)

    ends(crew, recorder, Code.UNAVAILABLE, 11)
    crew.tick(1200.0)
    recorder.code = Code.USAGE
    (news,) = crew.tick(1201.0)

    assert told == ["begin recorder"] * 12
    assert "ended with code 2, restart in 30 s, repeatedly; log in" in news


def test_one_that_does_not_get_ready_is_told_once_for_each_start(make: Make) -> None:
    web = make("web")
    web.says_ready = False
    crew = Crew([Daemon("web", web, stage=Stage.WITNESS, is_vital=True)])
    crew.tick(0.0)

    news = [crew.tick(now) for now in (59.0, 60.0, 61.0)]

    assert news == [[], [f"web: not ready after 1 min; log in {web.log_file}"], []]
    assert crew.start_patience == 60.0


FULL = OSError(errno.ENOSPC, "No space left on device")


def test_one_of_which_nobody_can_tell_is_not_ready_yet(make: Make) -> None:
    worker = make("worker")
    crew = Crew([Daemon("worker", worker, stage=Stage.WORKER)])
    crew.tick(0.0)
    worker.fault = FileNotFoundError(errno.ENOENT, "its log is gone")

    quiet = crew.tick(1.0)
    was_up = crew.is_up("worker")
    (late,) = crew.tick(60.0)
    worker.fault = None
    crew.tick(61.0)

    assert (quiet, was_up) == ([], False)
    assert late.startswith("worker: not ready after 1 min")
    assert crew.is_up("worker")


def test_what_ails_one_is_told_once_and_that_it_is_well_again(make: Make) -> None:
    recorder = make("recorder")
    crew = Crew([Daemon("recorder", recorder, stage=Stage.WITNESS)])
    no_link, slow = Ailment("link", "no link: refused"), Ailment("disk", "the disk is slow")
    course = [None, no_link, Ailment("link", "no link: timed out"), slow, None, None]
    for now in (0.0, 0.5):
        crew.tick(now)

    news = []
    for number, each in enumerate(course):
        recorder.ails = each
        news += crew.tick(2.0 + number)

    assert news == [
        "recorder: unhealthy: no link: refused",
        "recorder: unhealthy: the disk is slow",
        "recorder: healthy again",
    ]
    assert crew.is_up("recorder")


def test_one_that_is_up_is_looked_at_once_a_second(make: Make, told: list[str]) -> None:
    crew = Crew([Daemon("recorder", make("recorder"), stage=Stage.WITNESS)])

    for tenth in range(40):
        crew.tick(tenth / 10)

    assert told.count("look at recorder") == 3


def test_one_that_hangs_is_killed_and_started_again(make: Make, told: list[str]) -> None:
    recorder = make("recorder")
    crew = Crew([Daemon("recorder", recorder, stage=Stage.WITNESS, is_vital=True)])
    for now in (0.0, 0.5):
        crew.tick(now)
    recorder.ails = Ailment("hung", "no sign of life", is_hung=True)

    news = [*crew.tick(100.0), *crew.tick(101.5)]
    was_told = list(told)
    recorder.code, recorder.ails = 137, None
    news += [line for now in (102.0, 103.1, 103.2, 104.5) for line in crew.tick(now)]

    assert was_told.count("signal recorder 9") == 2
    assert news[0] == "recorder: unhealthy, killed: no sign of life"
    assert news[1].startswith("recorder: ended with code 137, restart in 1 s")
    assert len(news) == 2
    assert crew.is_up("recorder")


def test_one_that_cannot_be_started_is_tried_again_after_a_pause(make: Make, told: list[str]) -> None:
    web = make("web")
    web.fault = FULL
    crew = Crew([Daemon("web", web, stage=Stage.WITNESS, is_vital=True)])

    (news,) = crew.tick(0.0)
    crew.tick(0.5)
    web.fault = None
    for now in (1.0, 1.1):
        crew.tick(now)

    assert news.startswith("web: cannot start: No space left on device; free disk space")
    assert news.endswith("; retry in 1 s")
    assert told == ["begin web"] * 2
    assert crew.is_up("web")


def test_a_vital_one_that_can_never_be_started_ends_all_with_the_reason(make: Make, told: list[str]) -> None:
    web = make("web")
    web.fault = FULL
    crew = Crew([Daemon("web", web, stage=Stage.WITNESS, is_vital=True)])

    for turn in range(4):
        crew.tick(100.0 * turn)
    with pytest.raises(DiskError, match="web: cannot start: No space left"):
        crew.tick(400.0)

    assert told == ["begin web"] * 5
    assert not crew.has_begun


def test_one_that_is_not_vital_is_started_for_ever(make: Make, told: list[str]) -> None:
    worker = make("worker")
    crew = Crew([Daemon("worker", worker, stage=Stage.WORKER)])

    ends(crew, worker, 1, 12)

    assert told == ["begin worker"] * 12


def test_a_vital_one_that_was_told_nonsense_is_not_started_twice(make: Make, told: list[str]) -> None:
    web = make("web")
    web.says_ready = False
    web.log_file.write_text("error: accounts.json names nobody\n")
    crew = Crew([Daemon("web", web, stage=Stage.WITNESS, is_vital=True)])

    with pytest.raises(CallerError, match=r"^web: cannot start: accounts\.json names nobody$"):
        ends(crew, web, 2, 1)

    assert told == ["begin web"]


def test_programs_end_in_the_order_of_their_stages(make: Make, told: list[str]) -> None:
    stages = {"broker": Stage.BROKER, "web": Stage.WITNESS, "worker": Stage.WORKER, "load": Stage.SOURCE}
    crew = Crew([Daemon(name, make(name), stage=stage) for name, stage in stages.items()])
    crew.tick(0.0)
    told.clear()

    crew.close()

    assert [each for each in told if "end" in each][:4] == ["end load", "end worker", "end web", "end broker"]


def test_one_that_does_not_end_is_killed(make: Make, told: list[str]) -> None:
    web = make("web")
    web.is_stubborn = True
    crew = Crew([Daemon("web", web, stage=Stage.WITNESS)])
    crew.tick(0.0)

    crew.close()

    assert "kill web" in told
    assert not web.folder.exists()


def test_who_is_in_a_hurry_waits_for_nothing(make: Make, told: list[str]) -> None:
    web = make("web")
    web.is_stubborn, web.stop_patience = True, 1e9
    crew = Crew([Daemon("web", web, stage=Stage.WITNESS)])
    crew.tick(0.0)

    crew.close(is_hurried=lambda: True)

    assert "kill web" in told


def chore(puppet: Puppet) -> Crew:
    return Crew([Chore("pipeline", puppet, Turns(first=45, every=600, now=0), tell=str.strip)])


def test_a_chore_runs_when_it_is_due_and_what_it_printed_is_told(make: Make, told: list[str]) -> None:
    run = make("run")
    crew = chore(run)
    early = crew.tick(44.0)
    begun = crew.tick(45.0)
    run.log_file.write_text("7 events\n")
    meanwhile = crew.tick(300.0)
    run.code = 0

    news = [crew.tick(now) for now in (301.0, 644.0, 645.0)]

    assert (early, begun, meanwhile) == ([], [], [])
    assert news == [["pipeline: 7 events"], [], []]
    assert told == ["begin run", "begin run"]


def test_a_chore_that_failed_is_told_and_tried_again_at_its_next_turn(make: Make, told: list[str]) -> None:
    run = make("run")
    crew = chore(run)
    crew.tick(45.0)
    run.log_file.write_text("starting Spark\nerror: no Java\n")
    run.code = 78

    (news,) = crew.tick(50.0)
    crew.tick(645.0)

    assert news.startswith("pipeline: failed, no Java; retry in 9 min 55 s; log in ")
    assert told == ["begin run", "begin run"]


def test_a_chore_that_cannot_be_started_is_told_and_tried_again(make: Make, told: list[str]) -> None:
    run = make("run")
    run.fault = FULL
    crew = chore(run)

    (news,) = crew.tick(45.0)
    quiet = crew.tick(600.0)
    run.fault = None
    crew.tick(645.0)

    assert news.startswith("pipeline: cannot start: No space left on device")
    assert news.endswith("; retry in 10 min")
    assert quiet == []
    assert told == ["begin run", "begin run"]


def test_what_a_chore_prints_is_trimmed_while_it_runs(make: Make) -> None:
    run = make("run")
    crew = chore(run)
    crew.tick(45.0)
    run.log_file.write_bytes(b"again\n" * 1_000_000)

    crew.tick(46.0)

    assert run.log_file.stat().st_size < 100_000


def test_a_chore_is_never_run_twice_at_once(make: Make, told: list[str]) -> None:
    run = make("run")
    crew = chore(run)

    for now in (45.0, 645.0, 1245.0):
        crew.tick(now)

    assert told == ["begin run"]
