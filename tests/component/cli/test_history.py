"""``celeriac history`` on small warehouses."""

import csv
import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from celeriac.app import Celeriac
from celeriac.cli.root import app
from celeriac.cli.session import Session
from celeriac.transport.memory import MemoryBroker
from tests.component.cli.kit import HOSTILE, is_harmless, lines
from tests.event_logs import received, seal, succeeded
from tests.warehouses import MIDNIGHT, attempt, publish, rollup, task

HOUR = 3600.0
UMLAUT = "büro.köpfe"


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three hours of two names, a task with its log, a workflow of two, a worker; one name is hostile."""
    root = tmp_path_factory.mktemp("warehouse")
    log = tmp_path_factory.mktemp("log")
    seal(log, [received("t1", args="(1, 'ä')", kwargs="{}"), succeeded("t1", result="=1+1")])
    hours = [
        rollup(MIDNIGHT, runs=[1.0, 3.0], waits=[0.5], failed=1),
        rollup(MIDNIGHT + HOUR, runs=[2.0], waits=[1.5]),
        rollup(MIDNIGHT + 2 * HOUR, UMLAUT, runs=[8.0], retried=1),
        rollup(MIDNIGHT + 2 * HOUR, f"={HOSTILE}", runs=[0.25]),
    ]
    publish(
        root,
        {
            "tasks": [
                task("t1", description_row=1, result_row=2, error_row=77),
                task("child", root_id="t1", parent_id="t1", first_at=MIDNIGHT + 2),
                task("+cmd", name=HOSTILE),
            ],
            "attempts": [attempt("t1", ended_at=MIDNIGHT + 3)],
            "failures": [{"uuid": "t1", "raised_at": MIDNIGHT + 3, "exception": f"E({HOSTILE})"}],
            "rollups_hour": hours,
            "rollups_minute": hours,
            "workers": [
                {
                    "worker": "w1@lab",
                    "pid": 7,
                    "begin_at": MIDNIGHT,
                    "end_at": MIDNIGHT + 90,
                    "ending": "lost",
                    "is_restart": True,
                }
            ],
            "workflows": [
                {
                    "root_id": "t1",
                    "name": "shop.pay",
                    "tasks": 2,
                    "succeeded": 2,
                    "failed": 0,
                    "open": 0,
                    "begin_at": MIDNIGHT + 1,
                    "end_at": MIDNIGHT + 3,
                    "critical_path": ["t1", "child"],
                    "critical_run": 2.0,
                }
            ],
        },
        log=str(log),
        recorders=("a",),
    )
    return root


def run(warehouse: Path | str, *arguments: str) -> Result:
    def assemble(**_: object) -> Celeriac:
        return Celeriac(MemoryBroker(), environ={}, warehouse_url=str(warehouse))

    return CliRunner().invoke(app, ["history", *arguments], obj=Session(assemble=assemble))


def told(warehouse: Path, *arguments: str) -> Any:
    result = run(warehouse, *arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def sheet(warehouse: Path, *arguments: str) -> list[dict[str, str]]:
    result = run(warehouse, *arguments, "-o", "csv")
    assert result.exit_code == 0, result.stderr
    return list(csv.DictReader(StringIO(result.stdout)))


# -- each question


def test_tables_are_listed_with_their_size(warehouse: Path) -> None:
    result = run(warehouse, "tables")
    rows = {row["table"]: row for row in told(warehouse, "tables")}

    assert lines(result.stdout)[0].split() == ["TABLE", "ROWS", "DAYS", "FIRST", "LAST", "FILES", "BYTES"]
    assert "published 2026-11-14T00:00:00Z, version 1, from 4,711 events of " in result.stderr
    assert (rows["tasks"]["rows"], rows["tasks"]["first"], rows["gaps"]["rows"]) == (3, "2026-11-14", 0)


def test_top_shows_the_slowest_names_first(warehouse: Path) -> None:
    rows = told(warehouse, "top")

    assert [row["name"] for row in rows[:2]] == [UMLAUT, "shop.pay"]
    assert rows[1] == {
        "name": "shop.pay",
        "attempts": 3,
        "failed": 1,
        "failed_share": pytest.approx(1 / 3),
        "retried": 0,
        "run_mean": 2.0,
        "run_p50": 2.0,
        "run_p95": 3.0,
        "run_p99": 3.0,
        "run_max": 3.0,
    }
    assert [row["name"] for row in told(warehouse, "top", "--by", "failing")] == ["shop.pay"]
    assert [row["name"] for row in told(warehouse, "top", "--by", "retried")] == [UMLAUT]
    assert len(told(warehouse, "top", "--limit", "1")) == 1


def test_latency_is_shown_by_the_hour_and_for_a_span(warehouse: Path) -> None:
    rows = told(warehouse, "latency", "--task", "shop.*", "--by", "hour")
    late = told(warehouse, "latency", "--since", "2026-11-14T01:00Z", "--until", "2026-11-14T02:00Z")

    assert [(row["at"], row["attempts"], row["run_p95"]) for row in rows] == [
        ("2026-11-14T00:00:00Z", 2, 3.0),
        ("2026-11-14T01:00:00Z", 1, 2.0),
    ]
    assert [(row["attempts"], row["wait_p50"]) for row in late] == [(1, 1.5)]


def test_latency_is_shown_per_task_worker_or_queue(warehouse: Path) -> None:
    tasks = told(warehouse, "latency", "--per", "task")
    early = told(
        warehouse, "latency", "--per", "worker", "--task", "shop.pay", "--until", "2026-11-14T01:00Z"
    )

    assert (tasks[0]["name"], tasks[0]["attempts"], tasks[0]["run_p95"]) == ("shop.pay", 3, 3.0)
    assert sum(row["attempts"] for row in tasks) == 5
    assert told(warehouse, "latency", "--per", "task", "--limit", "1") == tasks[:1]
    assert [(row["name"], row["attempts"]) for row in early] == [("w1@lab", 2)]


def test_a_moment_may_be_so_long_ago(warehouse: Path) -> None:
    ever = told(warehouse, "latency", "--since", "40y")
    never = run(warehouse, "latency", "--since", "40y", "--until", "30y")

    assert [row["attempts"] for row in ever] == [5]
    assert never.exit_code == 0
    assert never.stdout == ""
    assert "No attempts match." in never.stderr


def test_a_plot_is_drawn_of_blocks(warehouse: Path) -> None:
    latency = run(warehouse, "latency", "--plot", "--task", "shop.pay")
    top = run(warehouse, "top", "--plot")

    assert "run time p95, up to 3 s" in latency.stdout
    assert "▕█" in latency.stdout
    assert lines(latency.stdout)[-1] == "2026-11-14T00:00:00Z to 2026-11-14T02:00:00Z"
    first = lines(top.stdout)[0]
    assert first.startswith(UMLAUT)
    assert first.endswith("█ 8 s")


def test_a_task_is_shown_with_what_it_was_given_and_what_it_returned(warehouse: Path) -> None:
    result = run(warehouse, "task", "t1")
    document = told(warehouse, "task", "t1")

    shown = lines(result.stdout)
    assert "args        (1, 'ä')" in shown
    assert "result      =1+1" in shown
    assert "the event with exception and traceback was removed from the log" in result.stderr
    assert is_harmless(result.stdout)
    assert (document["uuid"], document["result"], document["state"]) == ("t1", "=1+1", "SUCCESS")
    assert document["tries"][0]["outcome"] == "SUCCESS"
    # What the tables keep of it is told, though its place in the log is empty.
    assert [line.split() for line in shown if "task-received" in line] == [
        ["2026-11-14T00:00:01Z", "task-received"]
    ]
    assert "Details of 1 of 1 events are missing" in result.stderr
    assert [(each["type"], each["at"]) for each in document["events"]] == [("task-received", MIDNIGHT + 1)]
    assert document["unread"] == 1


def test_a_workflow_is_shown_as_a_tree(warehouse: Path) -> None:
    result = run(warehouse, "workflow", "child")
    document = told(warehouse, "workflow", "t1")

    shown = lines(result.stdout)
    assert "tasks          2: 2 succeeded, 0 failed, 0 open" in shown
    assert [line.split("SUCCESS")[0].rstrip() for line in shown[-2:]] == ["shop.pay", "  shop.pay"]
    assert [(each["uuid"], each["depth"]) for each in document["tasks"]] == [("t1", 0), ("child", 1)]
    assert [each["kind"] for each in document["tasks"]] == [None, "chain"]
    assert document["makespan"] == 2.0


def test_workers_are_shown_with_how_they_ended(warehouse: Path) -> None:
    (row,) = told(warehouse, "workers")

    assert (row["worker"], row["begin"], row["ending"], row["restart"]) == (
        "w1@lab",
        "2026-11-14T00:00:00Z",
        "lost",
        "yes",
    )


def test_names_and_spans_are_compared(warehouse: Path) -> None:
    names = {row["measure"]: row for row in told(warehouse, "compare", "shop.pay", UMLAUT)}
    spans = {
        row["measure"]: row
        for row in told(
            warehouse, "compare", "..2026-11-14T01:00Z", "2026-11-14T01:00Z..", "--task", "shop.*"
        )
    }
    shown = run(warehouse, "compare", "shop.pay", UMLAUT)

    assert names["attempts"] == {"measure": "attempts", "left": 3, "right": 1, "ratio": pytest.approx(1 / 3)}
    assert names["run max"]["ratio"] == pytest.approx(8 / 3)
    assert (spans["attempts"]["left"], spans["attempts"]["right"]) == (2, 1)
    assert lines(shown.stdout)[0].split() == ["MEASURE", "shop.pay", UMLAUT, "RATIO"]


@pytest.mark.parametrize(("option", "name"), [("--worker", "w2@*"), ("--queue", "mail")])
def test_a_comparison_is_narrowed_by_worker_and_queue(warehouse: Path, option: str, name: str) -> None:
    every, none = (
        told(warehouse, "compare", "..2026-11-14T01:00Z", "2026-11-14T01:00Z..", *narrow)[0]
        for narrow in ([], [option, name])
    )

    assert (every["measure"], every["left"], every["right"]) == ("attempts", 2, 3)
    assert (none["left"], none["right"]) == (0, 0)


def test_one_select_is_answered_as_text_json_and_csv(warehouse: Path) -> None:
    text = "SELECT uuid, name, runtime, history FROM tasks ORDER BY uuid"

    shown = run(warehouse, "sql", text)
    rows = told(warehouse, "sql", text)
    cells = sheet(warehouse, "sql", text)

    assert lines(shown.stdout)[0].split() == ["uuid", "name", "runtime", "history"]
    assert is_harmless(shown.stdout)
    assert [row["uuid"] for row in rows] == ["+cmd", "child", "t1"]
    assert rows[0]["name"] == HOSTILE
    assert [cell["uuid"] for cell in cells] == ["'+cmd", "child", "t1"]
    assert cells[1]["runtime"] == "1.0"


def test_more_rows_than_are_shown_are_mentioned(warehouse: Path) -> None:
    result = run(warehouse, "sql", "SELECT uuid FROM tasks", "--limit", "2")

    assert len(lines(result.stdout)) == 3
    assert "First 2 rows. --limit 0 shows all" in result.stderr


@pytest.mark.parametrize(
    "text", ["DROP VIEW tasks", "SELECT 1; SELECT 2", "SELECT * FROM read_csv('/etc/passwd')"]
)
def test_a_statement_that_does_more_is_refused_with_code_2(warehouse: Path, text: str) -> None:
    result = run(warehouse, "sql", text)

    assert result.exit_code == 2
    assert "a single SELECT over the tables" in result.stderr


# -- what all have in common


def test_a_cell_that_a_spreadsheet_would_run_has_an_apostrophe(warehouse: Path) -> None:
    names = [row["name"] for row in sheet(warehouse, "top")]

    (hostile,) = [name for name in names if name.startswith("'")]
    assert hostile.startswith("'=\\x1b[31m")
    assert is_harmless(hostile)


def test_nothing_that_a_peer_named_does_anything_to_a_terminal(warehouse: Path) -> None:
    for question in (
        ["top"],
        ["top", "--plot"],
        ["task", "+cmd"],
        ["workflow", "+cmd"],
        ["compare", HOSTILE, "x"],
    ):
        result = run(warehouse, *question)

        assert result.exit_code == 0, result.stderr
        assert is_harmless(result.stdout)


@pytest.mark.parametrize(
    "question",
    [
        ["tables"],
        ["top"],
        ["latency"],
        ["task", "t1"],
        ["workflow", "t1"],
        ["workers"],
        ["compare", "a", "b"],
        ["sql", "SELECT 1"],
        ["export", "tasks", "--to", "x.parquet"],
    ],
)
def test_without_a_warehouse_every_question_says_what_to_run(tmp_path: Path, question: list[str]) -> None:
    result = run(tmp_path / "none", *question)

    assert result.exit_code == 2
    assert "without it, run celeriac pipeline run" in result.stderr


def test_the_option_names_another_warehouse(warehouse: Path, tmp_path: Path) -> None:
    result = run(tmp_path, "top", "--warehouse", str(warehouse), "--json")

    assert result.exit_code == 0
    assert json.loads(result.stdout)


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        (["compare", "a", "1d..now"], "two task names or two time ranges"),
        (["compare", "2d..1d", "1d..now", "--since", "1d"], "Leave them out with time ranges"),
        (["compare", "a", "b", "--task", "c"], "Leave it out with task names"),
        (["compare", "soon..now", "1d..now"], "Invalid start of a time range 'soon'. Use 7d, 2h"),
        (["top", "--since", "1d", "--until", "2d"], "Swap them"),
        (["latency", "--per", "task", "--by", "hour"], "--per excludes --by and --plot"),
        (["top", "--plot", "--json"], "--plot draws for people"),
        (["task", "nobody"], "no task 'nobody'"),
        (["workflow", "nobody"], "no task 'nobody'"),
        (["export", "nothing", "--to", "x.csv"], "unknown table"),
        (["export", "tasks", "--to", "x.xlsx"], "cannot export to 'x.xlsx': use"),
        (
            ["export", "tasks", "--to", "x.csv", "--name", "y"],
            "--name applies to PostgreSQL only: remove it, or give another file or",
        ),
    ],
)
def test_what_cannot_be_answered_is_told_with_the_fix(
    warehouse: Path, question: list[str], reason: str
) -> None:
    result = run(warehouse, *question)

    assert result.exit_code == 2
    assert reason in result.stderr


def test_a_table_is_exported_to_a_file(warehouse: Path, tmp_path: Path) -> None:
    target = tmp_path / "tasks.csv"

    result = run(warehouse, "export", "tasks", "--to", str(target))

    assert lines(result.stdout) == [f"3 rows of tasks written to {target}"]
    assert sorted(row["uuid"] for row in csv.DictReader(StringIO(target.read_text()))) == [
        "'+cmd",
        "child",
        "t1",
    ]
