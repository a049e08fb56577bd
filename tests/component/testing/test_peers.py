"""A worker is ready when its latest start says so."""

from pathlib import Path

import pytest

from celeriac.cli.home import trim
from celeriac.programs.service import Service
from celeriac.testing.peers import CeleriacWorker


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CeleriacWorker:
    monkeypatch.setattr(Service, "begin", lambda _: None)
    log = tmp_path / "log"
    return CeleriacWorker("shop", url="redis://x", hostname="w1@lab", home=tmp_path, log=log)


def prints(worker: CeleriacWorker, text: str) -> None:
    with worker.log_file.open("a") as file:
        file.write(text)


def test_what_a_start_before_has_said_does_not_count(worker: CeleriacWorker) -> None:
    prints(worker, "w1@lab ready.\n")
    worker.begin()
    before = worker._is_ready()

    prints(worker, "w1@lab ready.\n")

    assert (before, worker._is_ready()) == (False, True)


@pytest.mark.parametrize("earlier", ["of a start before\n", "of a start before\n" * 10_000])
def test_one_whose_log_is_cut_down_while_it_starts_gets_ready(worker: CeleriacWorker, earlier: str) -> None:
    prints(worker, earlier)
    worker.begin()
    prints(worker, "of this one\n" * 500_000)
    before = worker._is_ready()

    trim(worker.log_file)
    cut = worker._is_ready()
    prints(worker, "w1@lab ready.\n" + "and on\n" * 10)

    assert (before, cut, worker._is_ready()) == (False, False, True)
