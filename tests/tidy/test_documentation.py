"""What the documentation says is so."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import httpx
import pytest

from celeriac.cli.crew import Crew
from celeriac.cli.home import Home
from celeriac.cli.sample_cluster import SampleCluster
from celeriac.programs.process import wait_until
from celeriac.testing import sample as sample_app
from tests import cookbook, documented_dashboard
from tests.tidy.repository import ROOT, blocks, named, pages, prose

_LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
_ELSEWHERE = ("http://", "https://", "mailto:", "#")
#: An example with it names no broker, and so is meant for a cluster that runs.
_NO_BROKER = "Celeriac()"
#: Programs that need servers, or a process that they may patch: ``tests/interop`` runs them.
_PROGRAMS = {
    "fastapi_results.py": "test_howto_fastapi.py",
    "gevent_results.py": "test_howto_greenlets.py",
    "eventlet_results.py": "test_howto_greenlets.py",
    "shop.py": "test_tutorial_worker.py",
}
_RUN_ELSEWHERE = {(ROOT / "examples" / program).read_text() for program in _PROGRAMS}
#: An example with it is run by ``tests/spark``, where a Spark runs already.
_SPARK = re.compile(r"\bspark\b")


@pytest.fixture(scope="module")
def sample_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The broker of the sample cluster that ``celeriac up`` starts."""
    home = Home(tmp_path_factory.mktemp("sample"))
    with home.taken():
        sample = SampleCluster(home)
        daemons = sample.daemons()
        crew = Crew(daemons)

        news: list[str] = []

        def is_up() -> bool:
            news.extend(crew.tick(monotonic()))
            return all(daemon.is_up for daemon in daemons)

        try:
            assert wait_until(is_up, patience=120), news
            yield sample.url
        finally:
            crew.close()


@pytest.fixture
def dashboard_url(tmp_path: Path) -> Iterator[str]:
    """A dashboard with a few tasks."""
    with documented_dashboard.serve_dashboard(tmp_path) as url:
        yield url


@pytest.mark.parametrize("page", pages(), ids=named)
def test_every_example_runs_and_prints_what_the_page_shows(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.chdir(ROOT)
    if any(_NO_BROKER in block.code for block in blocks(page.read_text())):
        monkeypatch.setenv("CELERIAC_BROKER_URL", request.getfixturevalue("sample_url"))
    if any(cookbook.MARK in block.code for block in blocks(page.read_text())):
        cookbook.publish_tables(tmp_path)
        monkeypatch.setenv(cookbook.MARK, str(tmp_path))
    if any(documented_dashboard.MARK in block.code for block in blocks(page.read_text())):
        monkeypatch.setenv(documented_dashboard.MARK, request.getfixturevalue("dashboard_url"))
    namespace: dict[str, object] = {"__name__": "__example__"}
    printed: str | None = ""
    capsys.readouterr()

    for block in blocks(page.read_text()):
        if block.code in _RUN_ELSEWHERE or (block.language == "python" and _SPARK.search(block.code)):
            # What it prints is looked at there, too.
            printed = None
        elif block.language == "python":
            # The blank lines give a traceback the line numbers of the page.
            code = compile("\n" * (block.line - 1) + block.code, str(page), "exec")
            exec(code, namespace)  # noqa: S102 - our own pages
            printed = capsys.readouterr().out
        elif block.language == "text" and block.is_adjacent and printed is not None:
            assert block.code == printed, f"{named(page)}:{block.line}"


def test_the_page_of_the_library_shows_the_example_that_make_runs() -> None:
    example = (ROOT / "examples" / "first_tasks.py").read_text()
    page = (ROOT / "docs" / "howto" / "use-the-library.md").read_text()

    shown = [block.code for block in blocks(page) if block.language == "python"]
    makefile = (ROOT / "Makefile").read_text()

    assert shown[0] == example
    assert "python examples/first_tasks.py" in makefile


def test_the_dashboard_answers_every_request_that_a_page_makes_with_curl(dashboard_url: str) -> None:
    page = (ROOT / "docs" / "howto" / "use-the-http-api.md").read_text()
    commands = [
        shlex.split(line)
        for block in blocks(page)
        if block.language == "sh"
        for line in block.code.splitlines()
    ]

    with httpx.Client(base_url=dashboard_url, timeout=60) as client:
        for command in commands:
            assert command[:2] == ["curl", "-s"]
            options = dict(zip(command[2:-1:2], command[3:-1:2], strict=True))
            target = command[-1].removeprefix("http://127.0.0.1:8765")
            if "-d" in options:
                assert options["-H"] == "Content-Type: application/json"
                answer = client.post(target, json=json.loads(options["-d"]))
            else:
                answer = client.get(target)
            assert answer.status_code == 200, command

    assert len(commands) > 5


def test_the_tutorial_shows_every_task_of_the_sample() -> None:
    shown = [
        set(re.findall(r"^  (sample\.\w+)$", block.code, re.MULTILINE))
        for block in blocks((ROOT / "docs" / "tutorial" / "watch-a-cluster.md").read_text())
        if "$ celeriac inspect registered" in block.code
    ]

    assert shown == [{name for name in sample_app.app.tasks if name.startswith("sample.")}]


@pytest.mark.parametrize("program", _PROGRAMS)
def test_a_program_that_runs_elsewhere_is_shown_on_a_page_as_it_is(program: str) -> None:
    example = (ROOT / "examples" / program).read_text()
    test = (ROOT / "tests" / "interop" / _PROGRAMS[program]).read_text()

    shown = [page for page in pages() for block in blocks(page.read_text()) if block.code == example]

    assert len(shown) == 1
    assert f"`examples/{program}`" in shown[0].read_text()
    assert f'"{program}"' in test


def test_the_notebook_runs_from_the_first_cell_to_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cookbook.publish_tables(tmp_path)
    monkeypatch.setenv(cookbook.MARK, str(tmp_path))
    notebook = json.loads((ROOT / "examples" / "history.ipynb").read_text())
    namespace: dict[str, object] = {"__name__": "__example__"}

    for number, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == "code":
            code = compile("".join(cell["source"]), f"history.ipynb cell {number}", "exec")
            exec(code, namespace)  # noqa: S102 - our own notebook

    assert (notebook["nbformat"], notebook["metadata"]["kernelspec"]["name"]) == (4, "python3")
    assert all(cell.get("outputs", []) == [] for cell in notebook["cells"])
    assert "Timeout('card')" in capsys.readouterr().out


def test_every_example_is_run_by_a_test() -> None:
    examples = {path.name for path in (ROOT / "examples").iterdir() if path.is_file()}

    assert examples == {"first_tasks.py", "history.ipynb", *_PROGRAMS}


def test_the_example_prints_tasks() -> None:
    command = [sys.executable, "examples/first_tasks.py"]

    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)  # noqa: S603

    lines = done.stdout.splitlines()
    assert len(lines) == 11
    assert all("SUCCESS" in line for line in lines[:10])
    assert lines[10] == "11619 events, 1796 tasks, 2 workers"


@pytest.mark.parametrize("page", pages(), ids=named)
def test_every_relative_link_leads_to_a_file(page: Path) -> None:
    text = prose(page.read_text())

    targets = [match["target"] for match in _LINK.finditer(text)]
    relative = [target for target in targets if not target.startswith(_ELSEWHERE)]

    assert [target for target in relative if not (page.parent / target.partition("#")[0]).exists()] == []


def test_the_index_leads_to_every_page_below_it() -> None:
    index = ROOT / "docs" / "README.md"

    linked = {(index.parent / match["target"]).resolve() for match in _LINK.finditer(index.read_text())}

    assert {page for page in pages() if index.parent in page.parents and page != index} <= linked
