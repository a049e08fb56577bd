"""Tables written to a real PostgreSQL, as Delta tables and as files, and read back."""

import csv
from collections.abc import Iterator
from itertools import count
from math import inf, isnan, nan
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from psycopg.rows import dict_row

from celeriac import history
from celeriac.errors import AccessRefused, CallerError, ConnectionLost, DiskError, ImproperlyConfigured
from celeriac.model.table import INNER_COLUMNS, TABLES
from celeriac.testing.postgres import PostgresServer
from tests.warehouses import MIDNIGHT, attempt, publish, rollup, sketch, task

DAY = 86_400.0
#: Ends a text and a statement, holds what COPY escapes, the character that PostgreSQL refuses, and others.
ODD = "x'); DROP TABLE y; -- \"\\N\t\n\\.\0 ä 任务 🌱"
SAFE = ODD.replace("\0", "␀")
_numbers = count()


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as started:
        yield started


@pytest.fixture
def url(server: PostgresServer) -> str:
    """An empty database."""
    return server.add_database(f"export_{next(_numbers)}")


def stored(url: str, table: str, order: str) -> list[dict[str, Any]]:
    with psycopg.connect(url, row_factory=dict_row) as connection:
        return connection.execute(f"SELECT * FROM {table} ORDER BY {order}").fetchall()  # noqa: S608


def exported(root: Path, table: str, to: str, **options: Any) -> history.Exported:
    with history.open(root) as warehouse:
        return warehouse.export(table, to, **options)


def columns_of(table: str, *left_out: str) -> list[str]:
    return [column.name for column in TABLES[table].columns if column.name not in left_out]


# -- PostgreSQL


def test_tasks_are_stored_by_their_ids_and_what_is_newer_replaces_them(tmp_path: Path, url: str) -> None:
    publish(tmp_path, {"tasks": [task("a", name=ODD, runtime=nan), task("b", state="STARTED")]})
    progress: list[tuple[int, int]] = []

    first = exported(tmp_path, "tasks", url, progress=lambda *told: progress.append(told))
    publish(tmp_path, {"tasks": [task("b", retries=3), task("c", runtime=inf, day="2026-11-15")]}, version=2)
    exported(tmp_path, "tasks", url)

    rows = stored(url, "history_tasks", "uuid")
    assert first.rows == 2
    assert progress[-1] == (2, 2)
    assert list(rows[0]) == columns_of("tasks", *INNER_COLUMNS)
    assert [(row["uuid"], row["state"], row["retries"]) for row in rows] == [
        ("a", "SUCCESS", 0),
        ("b", "SUCCESS", 3),
        ("c", "SUCCESS", 0),
    ]
    assert rows[0]["name"] == SAFE
    assert isnan(rows[0]["runtime"])
    assert rows[2]["runtime"] == inf
    assert rows[2]["day"] == "2026-11-15"


def test_the_attempts_of_a_task_are_replaced_together_and_those_of_others_stay(
    tmp_path: Path, url: str
) -> None:
    # The number of the first attempt was not known then: it was taken for another one.
    publish(tmp_path, {"attempts": [attempt("a", outcome=None), attempt("b")]})
    exported(tmp_path, "attempts", url)
    publish(tmp_path, {"attempts": [attempt("a", 1), attempt("a", 2)]}, version=2)

    exported(tmp_path, "attempts", url)

    rows = stored(url, "history_attempts", "uuid, retries")
    assert [(row["uuid"], row["retries"]) for row in rows] == [("a", 1), ("a", 2), ("b", 0)]


def test_a_day_of_which_nothing_is_left_is_gone_there_too(tmp_path: Path, url: str) -> None:
    hours = [rollup(MIDNIGHT, runs=[1.0]), rollup(MIDNIGHT + DAY, runs=[2.0], day="2026-11-15")]
    publish(tmp_path, {"rollups_hour": hours})
    exported(tmp_path, "rollups_hour", url)
    publish(tmp_path, {"rollups_hour": hours[:1]}, version=2)

    exported(tmp_path, "rollups_hour", url)

    assert [row["begin_at"] for row in stored(url, "history_rollups_hour", "begin_at")] == [MIDNIGHT]


def test_of_other_tables_the_days_that_are_written_are_replaced_and_the_rest_stays(
    tmp_path: Path, url: str
) -> None:
    hours = [rollup(MIDNIGHT, runs=[1.0]), rollup(MIDNIGHT + DAY, runs=[2.0], day="2026-11-15")]
    publish(tmp_path, {"rollups_hour": hours})
    exported(tmp_path, "rollups_hour", url)
    hours = [rollup(MIDNIGHT, "old", runs=[3.0]), rollup(MIDNIGHT + DAY, "new", runs=[4.0], day="2026-11-15")]
    publish(tmp_path, {"rollups_hour": hours}, version=2)

    done = exported(tmp_path, "rollups_hour", url, since=MIDNIGHT + DAY + 5)

    rows = stored(url, "history_rollups_hour", "begin_at")
    assert done.rows == 1
    assert [(row["name"], row["run_sum"]) for row in rows] == [("shop.pay", 1.0), ("new", 4.0)]
    assert rows[1]["run_sketch"] == sketch([4.0])


def test_every_table_can_be_stored_also_with_lists_and_without_rows(tmp_path: Path, url: str) -> None:
    publish(tmp_path, {"workflows": [{"root_id": "r", "critical_path": [ODD, "b"]}]})

    for table in TABLES:
        exported(tmp_path, table, url)

    (row,) = stored(url, "history_workflows", "root_id")
    assert row["critical_path"] == [SAFE, "b"]
    assert list(row) == columns_of("workflows")
    assert stored(url, "history_gaps", "day") == []


@pytest.mark.parametrize("name", ["Reports", 'odd "name"; DROP', "ä", "ops.tasks"])
def test_a_name_is_a_name_whatever_is_in_it(tmp_path: Path, url: str, name: str) -> None:
    publish(tmp_path, {"tasks": [task("a")]})
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA ops")

    done = exported(tmp_path, "tasks", url, name=name)

    quoted = '"."'.join(part.replace('"', '""') for part in name.split("."))
    assert [row["uuid"] for row in stored(url, f'"{quoted}"', "uuid")] == ["a"]
    assert done.target.endswith(f" as {name}")


@pytest.mark.parametrize("name", ["", "a.b.c", "x" * 64, "a."])
def test_what_cannot_be_a_name_is_refused(tmp_path: Path, url: str, name: str) -> None:
    publish(tmp_path, {"tasks": [task("a")]})

    with pytest.raises(CallerError, match="invalid table name"):
        exported(tmp_path, "tasks", url, name=name or ".")


def test_an_export_that_fails_leaves_what_was_there(tmp_path: Path, url: str) -> None:
    publish(tmp_path, {"failures": [{"uuid": "a"}]})
    exported(tmp_path, "failures", url)
    publish(tmp_path, {"failures": [{"uuid": "b"}, {"uuid": "c"}]}, version=2)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ALTER TABLE history_failures ADD CONSTRAINT x CHECK (uuid <> 'c')")

    with pytest.raises(DiskError, match="rejected the table"):
        exported(tmp_path, "failures", url)

    assert [row["uuid"] for row in stored(url, "history_failures", "uuid")] == ["a"]


def test_what_the_server_says_is_told_without_the_password(
    tmp_path: Path, url: str, server: PostgresServer
) -> None:
    publish(tmp_path, {"tasks": [task("a")]})
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE other (x int)")
    cases = [
        (url.replace(server.password, "wr0ng-word"), "history_tasks", AccessRefused),
        (server.url_of("no_such_database"), "history_tasks", AccessRefused),
        ("postgresql://u:wr0ng-word@127.0.0.1:1/x", "history_tasks", ConnectionLost),
        (url, "other", ImproperlyConfigured),
    ]

    for target, name, kind in cases:
        with pytest.raises(kind) as failed:
            exported(tmp_path, "tasks", target, name=name)

        assert "wr0ng-word" not in str(failed.value)
        assert server.password not in str(failed.value)


# -- Delta


def test_a_delta_table_has_all_columns_and_is_replaced_by_one_commit(tmp_path: Path) -> None:
    root, folder = tmp_path / "warehouse", str(tmp_path / "lake")
    publish(root, {"tasks": [task("a", name=ODD), task("b", day="2026-11-15")]})

    first = exported(root, "tasks", f"delta:{folder}")
    assert first.target == str(folder)
    publish(root, {"tasks": [task("c")]}, version=2)
    exported(root, "tasks", f"delta:{folder}")

    was = DeltaTable(folder, version=0).to_pyarrow_table().sort_by("uuid").to_pylist()
    table = DeltaTable(folder)
    assert first.rows == 2
    assert [(row["uuid"], row["day"]) for row in was] == [("a", "2026-11-14"), ("b", "2026-11-15")]
    assert was[0]["name"] == ODD
    assert was[0]["history"][0]["row"] == 7
    assert set(was[0]) == set(columns_of("tasks"))
    assert table.version() == 1
    assert table.metadata().partition_columns == ["day"]
    assert [row["uuid"] for row in table.to_pyarrow_table().to_pylist()] == ["c"]


def test_of_a_delta_table_only_the_chosen_days_are_replaced(tmp_path: Path) -> None:
    root, folder = tmp_path / "warehouse", str(tmp_path / "lake")
    days = ["2026-11-13", "2026-11-14", "2026-11-15"]
    publish(root, {"failures": [{"uuid": f"old-{day}", "day": day} for day in days]})
    exported(root, "failures", f"delta:{folder}")
    publish(root, {"failures": [{"uuid": f"new-{day}", "day": day} for day in days]}, version=2)

    exported(root, "failures", f"delta:{folder}", since=MIDNIGHT, until=MIDNIGHT + 1)

    rows = DeltaTable(folder).to_pyarrow_table().to_pylist()
    assert sorted(row["uuid"] for row in rows) == ["new-2026-11-14", "old-2026-11-13", "old-2026-11-15"]


def test_a_delta_table_that_is_none_of_ours_is_left_alone(tmp_path: Path) -> None:
    import pyarrow as pa  # noqa: PLC0415

    root, folder = tmp_path / "warehouse", str(tmp_path / "lake")
    write_deltalake(folder, pa.table({"mine": [1]}))
    publish(root, {"failures": [{"uuid": "a"}]})

    with pytest.raises(DiskError, match="cannot write the table"):
        exported(root, "failures", f"delta:{folder}")

    assert DeltaTable(folder).to_pyarrow_table().to_pylist() == [{"mine": 1}]


# -- files


def test_one_parquet_file_has_all_rows_and_columns(tmp_path: Path) -> None:
    publish(tmp_path, {"tasks": [task("a", name=ODD), task("b", day="2026-11-15")]})
    target = tmp_path / "out.parquet"

    done = exported(tmp_path, "tasks", str(target))

    table = pq.read_table(target)
    assert done == (2, str(target))
    assert table.schema.names == columns_of("tasks")
    assert sorted((row["uuid"], row["day"]) for row in table.to_pylist()) == [
        ("a", "2026-11-14"),
        ("b", "2026-11-15"),
    ]
    assert target.stat().st_mode & 0o777 == 0o600


def test_csv_has_no_formula_no_bytes_and_no_history(tmp_path: Path) -> None:
    publish(tmp_path, {"rollups_hour": [rollup(MIDNIGHT, "=1+1", runs=[1.0], worker="@w", queue="-5")]})
    target = tmp_path / "out.csv"

    exported(tmp_path, "rollups_hour", str(target))

    with target.open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["name"], row["worker"], row["queue"]) == ("'=1+1", "'@w", "'-5")
    assert list(row) == columns_of("rollups_hour", "wait_sketch", "run_sketch")


def test_a_file_that_cannot_be_written_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    publish(tmp_path / "warehouse", {"tasks": [task("a")]})

    with pytest.raises(DiskError, match="use another file"):
        exported(tmp_path / "warehouse", "tasks", str(tmp_path / "no folder" / "out.csv"))

    assert [path.name for path in tmp_path.iterdir()] == ["warehouse"]
