"""Which event log a command reads where no option names one."""

from pathlib import Path

import pytest

from celeriac.app import Celeriac
from celeriac.cli.home import SAMPLE, claim_log
from celeriac.cli.log_reading import find_log
from tests.component.cli.kit import lines
from tests.program import own_environment, run_here

ONE, TWO = "redis://127.0.0.1:1/0", "redis://127.0.0.1:1/1"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def app(broker: str, **settings: str) -> Celeriac:
    return Celeriac(broker, environ={}, **settings)


def test_without_a_log_a_live_view_reads_none() -> None:
    assert find_log(app(ONE)) is None


def test_a_live_view_reads_the_log_of_its_cluster_alone(capsys: pytest.CaptureFixture[str]) -> None:
    claim_log(Path(".celeriac/log"), ONE)

    assert find_log(app(ONE)) == ".celeriac/log"
    assert find_log(app(TWO)) is None
    assert lines(capsys.readouterr().err) == [
        f".celeriac/log is not read: it is the event log of {ONE}. To read it, name it with --log"
    ]


def test_a_log_that_is_named_is_read_whoever_owns_it() -> None:
    claim_log(Path(".celeriac/log"), ONE)

    assert find_log(app(TWO), ".celeriac/log") == ".celeriac/log"
    assert find_log(app(TWO, log_url=str(Path(".celeriac/log")) + "/")) == ".celeriac/log/"


def test_the_log_of_the_sample_cluster_is_read(folder: Path) -> None:
    (folder / ".celeriac" / "log").mkdir(parents=True)
    (folder / ".celeriac" / "log" / ".cluster").write_text(SAMPLE)

    assert find_log(app(ONE)) == ".celeriac/log"


def test_record_refuses_to_mix_two_clusters_in_the_default_log() -> None:
    claim_log(Path(".celeriac/log"), ONE)

    result = run_here("record", "-b", TWO, env=own_environment())

    assert result.returncode == 2
    assert f"has the history of {ONE}, and two clusters cannot share it".encode() in result.stderr
