"""``celeriac history`` as people run it: the real program, on tables that are published beneath it."""

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from threading import Event, Thread

from celeriac.history import Warehouse
from celeriac.programs.process import wait_until
from tests.warehouses import MIDNIGHT, publish, rollup, task

PATIENCE = 120.0
CELERIAC = [sys.executable, "-c", "from celeriac.cli import main; main()"]


def run(*arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end, in a folder of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CELERIAC_")}
    return subprocess.run(  # noqa: S603
        [*CELERIAC, "history", *arguments],
        capture_output=True,
        timeout=PATIENCE,
        check=False,
        cwd=folder,
        env=kept | environment,
    )


def test_a_question_is_answered_from_the_folder_that_the_settings_name(tmp_path: Path) -> None:
    publish(tmp_path / ".celeriac" / "warehouse", {"rollups_hour": [rollup(MIDNIGHT, runs=[1.0, 2.0])]})
    publish(tmp_path / "other", {"rollups_hour": [rollup(MIDNIGHT, "büro", runs=[5.0])]})

    usual = run("top", "--json", folder=tmp_path)
    other = run("top", "-o", "csv", folder=tmp_path, CELERIAC_WAREHOUSE_URL="other", PYTHONIOENCODING="ascii")

    assert [row["name"] for row in json.loads(usual.stdout)] == ["shop.pay"]
    assert other.stdout.decode().splitlines()[1].startswith("büro,1,0,0.0,0,5.0,")


def test_without_tables_the_program_says_what_to_run_and_ends_with_code_2(tmp_path: Path) -> None:
    result = run("latency", "--since", "7d", folder=tmp_path)

    assert result.returncode == 2
    assert b"without it, run celeriac pipeline run" in result.stderr
    assert result.stdout == b""


def test_to_ask_for_help_loads_nothing_that_only_answers_need(tmp_path: Path) -> None:
    heavy = {
        "datasketches",
        "deltalake",
        "duckdb",
        "numpy",
        "pandas",
        "polars",
        "psycopg",
        "pyarrow",
        "pyspark",
    }
    told = "import sys, celeriac.cli.root; print(*sys.modules)"

    loaded = subprocess.run(  # noqa: S603
        [sys.executable, "-c", told], check=True, capture_output=True, text=True, cwd=tmp_path
    ).stdout.split()

    assert "celeriac.cli.history" in loaded
    assert heavy.isdisjoint(loaded)


def test_a_reader_never_sees_half_of_what_is_published_beneath_it(tmp_path: Path) -> None:
    def tables(version: int) -> dict[str, list[dict[str, object]]]:
        rows = [{"retries": version, "day": day} for day in ("2026-11-14", "2026-11-15")]
        return {
            "tasks": [task(f"{version}-{row['day']}", **row) for row in rows],
            "failures": [{"uuid": str(version)}],
        }

    def publish_on() -> None:
        for version in count(2):
            publish(tmp_path, tables(version), version=version)
            if is_enough.is_set():
                return

    is_enough = Event()
    publish(tmp_path, tables(1))
    writer = Thread(target=publish_on)
    writer.start()
    seen: list[tuple[int, int, str]] = []
    with ExitStack() as ends, Warehouse(tmp_path) as warehouse:
        ends.callback(writer.join)
        ends.callback(is_enough.set)
        question = warehouse.sql(
            "SELECT retries, count(*), min(f.uuid) FROM tasks, failures AS f GROUP BY retries"
        )

        def has_seen_two() -> bool:
            seen.extend(question.fetch().rows)
            return len(seen) >= 20 and len({version for version, _, _ in seen}) > 1

        is_seen = wait_until(has_seen_two, patience=PATIENCE)

    assert is_seen
    assert all(rows == 2 and uuid == str(version) for version, rows, uuid in seen)
