"""Tables of a warehouse, asked for as they are and in SQL."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from celeriac import history
from celeriac.errors import CallerError, DiskError
from celeriac.history import Warehouse
from celeriac.model.table import TABLES
from celeriac.store.manifest import Manifest, PartFile, read_manifest, write_manifest
from celeriac.store.place import place_for
from tests.warehouses import DAY, MIDNIGHT, attempt, publish, rollup, task

#: A name that would end a text and a statement, and one of another script.
INJECTION = "x'; DROP TABLE tasks; --"
UMLAUT = "büro.köpfe.任务"
TASKS = [
    task("a", seen_at=MIDNIGHT + 10),
    task("b", name=INJECTION, state="FAILURE", seen_at=MIDNIGHT + 20),
    task("c", name=UMLAUT, day="2026-11-15", seen_at=MIDNIGHT + 86_400),
    task("d", name=None, state="STARTED", phase="running", day="2026-11-16", seen_at=MIDNIGHT + 172_900),
]


def published(folder: Path) -> Path:
    """Publish tables in a folder whose name DuckDB could misread."""
    root = folder / "it's a [ware]house ä"
    publish(root, {"tasks": TASKS, "attempts": [attempt("a"), attempt("b", 1)]})
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A warehouse that the test may do anything to."""
    return published(tmp_path)


@pytest.fixture(scope="module")
def shared_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published(tmp_path_factory.mktemp("shared"))


@pytest.fixture(scope="module")
def shared(shared_root: Path) -> Iterator[Warehouse]:
    """A warehouse that stays as it is."""
    with history.open(shared_root) as opened:
        yield opened


@pytest.fixture
def warehouse(root: Path) -> Iterator[Warehouse]:
    with history.open(root) as opened:
        yield opened


def uuids(answer: history.Answer) -> list[str]:
    return sorted(row["uuid"] for row in answer.dicts())


# -- tables


def test_a_warehouse_tells_how_large_each_table_is(shared: Warehouse) -> None:
    tables = shared.tables

    assert list(tables) == list(TABLES)
    assert tables["tasks"].rows == 4
    assert (tables["tasks"].days, tables["tasks"].files) == (3, 3)
    assert (tables["tasks"].first_day, tables["tasks"].last_day) == (DAY, "2026-11-16")
    assert tables["gaps"].rows == tables["gaps"].bytes == 0


def test_a_row_has_every_column_of_its_table_with_the_day_of_its_folder(shared: Warehouse) -> None:
    (row,) = shared.table("tasks", where={"uuid": "c"}).dicts()

    assert list(row) == [column.name for column in TABLES["tasks"].columns]
    assert row["day"] == "2026-11-15"
    assert row["name"] == UMLAUT
    assert row["history"][0]["type"] == "received"


@pytest.mark.parametrize(
    ("since", "until", "found"),
    [
        (None, None, ["a", "b", "c", "d"]),
        (MIDNIGHT + 20, None, ["b", "c", "d"]),
        (None, MIDNIGHT + 20, ["a"]),
        (MIDNIGHT + 20, MIDNIGHT + 86_400, ["b"]),
        (MIDNIGHT + 86_400, MIDNIGHT + 86_401, ["c"]),
        (MIDNIGHT + 400_000, None, []),
    ],
)
def test_a_span_of_time_has_its_beginning_and_not_its_end(
    shared: Warehouse, since: float | None, until: float | None, found: list[str]
) -> None:
    answer = shared.table("tasks", ["uuid"], since, until)

    assert uuids(answer) == found


def test_a_row_that_is_filed_under_an_earlier_day_is_found_by_its_moment(tmp_path: Path) -> None:
    late = attempt("late", counted_at=MIDNIGHT + 900_000)
    publish(tmp_path, {"attempts": [attempt("soon"), late]})

    with history.open(tmp_path) as warehouse:
        answer = warehouse.table("attempts", ["uuid"], since=MIDNIGHT + 800_000)

        assert uuids(answer) == ["late"]


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ({"name": INJECTION}, ["b"]),
        ({"name": UMLAUT}, ["c"]),
        ({"name": None}, ["d"]),
        ({"state": ["SUCCESS", "FAILURE"], "phase": "done"}, ["a", "b", "c"]),
        ({"uuid": []}, []),
        ({"day": "2026-11-16"}, ["d"]),
    ],
)
def test_rows_are_chosen_by_values_that_are_never_taken_for_sql(
    shared: Warehouse, where: dict[str, Any], found: list[str]
) -> None:
    answer = shared.table("tasks", ["uuid"], where=where)

    assert uuids(answer) == found


def test_an_answer_is_a_frame_of_arrow_pandas_or_polars(shared: Warehouse) -> None:
    answer = shared.table("tasks", ["uuid", "state"], where={"uuid": "b"})

    arrow, pandas, polars = answer.arrow(), answer.pandas(), answer.polars()

    assert arrow.to_pylist() == [{"uuid": "b", "state": "FAILURE"}]
    assert pandas.to_dict("records") == polars.to_dicts() == arrow.to_pylist()


@pytest.mark.parametrize("name", ["nothing", "tasks; DROP TABLE tasks", 'tasks" --', ""])
def test_a_table_that_there_is_not_is_refused(shared: Warehouse, name: str) -> None:
    with pytest.raises(CallerError, match="use one of tasks"):
        shared.table(name)


@pytest.mark.parametrize("name", ["nothing", '"uuid"', "uuid, 1", "*"])
def test_a_column_that_there_is_not_is_refused(shared: Warehouse, name: str) -> None:
    with pytest.raises(CallerError, match="has no column"):
        shared.table("tasks", [name])
    with pytest.raises(CallerError, match="has no column"):
        shared.table("tasks", where={name: 1})


def test_a_span_that_ends_before_it_begins_is_refused(shared: Warehouse) -> None:
    with pytest.raises(CallerError, match="swap them"):
        shared.table("tasks", since=2.0, until=1.0)


# -- what is published


def test_a_warehouse_in_which_nothing_is_published_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(CallerError, match="run celeriac pipeline run"):
        history.open(tmp_path / "nothing")


def test_an_empty_warehouse_answers_every_question_with_nothing(tmp_path: Path) -> None:
    publish(tmp_path, {})

    with history.open(tmp_path) as warehouse:
        assert [warehouse.table(name).dicts() for name in TABLES] == [[]] * len(TABLES)
        assert warehouse.sql("SELECT count(*) FROM tasks").fetch().rows == [(0,)]
        assert [warehouse.top(), warehouse.latency(), warehouse.workers()] == [[], [], []]
        assert warehouse.compare("a", "b").left_times.attempts == 0
        with pytest.raises(CallerError, match="no task 'a'"):
            warehouse.task("a")
        with pytest.raises(CallerError, match="no task 'a'"):
            warehouse.workflow("a")


def test_what_is_published_meanwhile_is_seen_by_the_next_question(warehouse: Warehouse, root: Path) -> None:
    before = uuids(warehouse.table("tasks", ["uuid"]))

    publish(root, {"tasks": [task("new")]}, version=2)

    assert before == ["a", "b", "c", "d"]
    assert uuids(warehouse.table("tasks", ["uuid"])) == ["new"]
    assert warehouse.sql("SELECT uuid FROM tasks").fetch().rows == [("new",)]


def test_a_warehouse_that_is_made_anew_is_seen_though_its_versions_begin_again(
    warehouse: Warehouse, root: Path
) -> None:
    before = uuids(warehouse.table("tasks", ["uuid"]))
    shutil.rmtree(root)

    publish(root, {"tasks": [task("anew")]}, version=1, published_at=MIDNIGHT + 60)

    assert before == ["a", "b", "c", "d"]
    assert uuids(warehouse.table("tasks", ["uuid"])) == ["anew"]


def test_tables_of_a_later_version_are_not_read_as_if_they_were_ours(root: Path) -> None:
    manifest = read_manifest(place_for(root))
    assert manifest is not None
    write_manifest(place_for(root), msgspec.structs.replace(manifest, schemas={"tasks": 99}))

    with pytest.raises(DiskError, match="has tasks of version 99, newer than"):
        history.open(root)


class Replaced(Warehouse):
    """A warehouse that is published anew, and whose old files go, just after its manifest was read."""

    replace: Any = None

    def _now(self) -> Any:
        edition = super()._now()
        replace, self.replace = self.replace, None
        if replace is not None:
            replace()
        return edition


@pytest.mark.parametrize("is_sql", [False, True])
def test_files_that_go_between_the_manifest_and_their_reading_are_looked_for_once_more(
    root: Path, is_sql: bool
) -> None:
    def replace() -> None:
        publish(root, {"tasks": [task("new")]}, version=2)
        shutil.rmtree(root / "tables" / "tasks" / "run-1")

    with Replaced(root) as warehouse:
        warehouse.replace = replace

        answer = warehouse.sql("SELECT uuid FROM tasks") if is_sql else warehouse.table("tasks", ["uuid"])

        assert answer.fetch().rows == [("new",)]


def test_files_that_are_gone_for_good_are_told_with_the_fix(warehouse: Warehouse, root: Path) -> None:
    shutil.rmtree(root / "tables" / "tasks" / "run-1" / "day=2026-11-15")

    with pytest.raises(DiskError, match="run celeriac pipeline run to rebuild it"):
        warehouse.table("tasks").dicts()
    with pytest.raises(DiskError, match="lacks files"):
        warehouse.sql("SELECT uuid FROM tasks").fetch()


def test_a_damaged_file_is_told_with_the_fix(warehouse: Warehouse, root: Path) -> None:
    (damaged,) = (root / "tables" / "tasks").glob("*/day=2026-11-15/*")
    damaged.write_bytes(b"not Parquet at all")

    with pytest.raises(DiskError, match="run celeriac pipeline run to rebuild it"):
        warehouse.table("tasks").dicts()


@pytest.mark.parametrize("path", ["../secret.parquet", "/etc/passwd", "tables/../../x.parquet"])
def test_a_manifest_cannot_lead_out_of_its_warehouse(root: Path, path: str) -> None:
    manifest = Manifest(
        version=2,
        published_at=0.0,
        log="",
        recorders=(),
        covered={},
        events=0,
        tables={"tasks": {DAY: (PartFile(path, 1, 1),)}},
        schemas={},
    )
    write_manifest(place_for(root), manifest)

    with history.open(root) as warehouse, pytest.raises(CallerError, match="invalid file name"):
        warehouse.table("tasks").dicts()


def test_an_object_store_answers_as_a_folder_does(root: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    store = fsspec.filesystem("memory")
    for path in root.rglob("*.*"):
        store.pipe_file(f"/bucket/warehouse/{path.relative_to(root)}", path.read_bytes())

    with history.open("memory://bucket/warehouse") as warehouse:
        rows = warehouse.table("tasks", ["uuid", "day"], since=MIDNIGHT + 86_400).dicts()
        counted = warehouse.sql("SELECT count(*), max(day) FROM tasks").fetch().rows

    assert sorted(row["uuid"] for row in rows) == ["c", "d"]
    assert counted == [(4, "2026-11-16")]


def test_a_column_that_a_later_celeriac_added_is_read_from_an_object_store_too(root: Path) -> None:
    import pyarrow.parquet as pq  # noqa: PLC0415

    store = pytest.importorskip("fsspec").filesystem("memory")
    before = publish(root, {"tasks": [task("old")]}, version=2)
    (old,) = root.glob("tables/tasks/run-2/day=2026-11-14/*")
    pq.write_table(pq.read_table(old, partitioning=None).drop(["queue"]), old)
    after = publish(root, {"tasks": [task("new", queue="celery", day="2026-11-16")]}, version=3)
    both = {"tasks": {**before.tables["tasks"], **after.tables["tasks"]}}
    write_manifest(place_for(root), msgspec.structs.replace(after, tables=both))
    for path in root.rglob("*.*"):
        store.pipe_file(f"/bucket/grown/{path.relative_to(root)}", path.read_bytes())

    with history.open("memory://bucket/grown") as warehouse:
        rows = warehouse.table("tasks", ["uuid", "queue"]).dicts()

    assert {row["uuid"]: row["queue"] for row in rows} == {"old": None, "new": "celery"}


# -- SQL


def test_one_select_reads_the_tables_by_their_names(shared: Warehouse) -> None:
    found = shared.sql(
        "SELECT t.uuid, a.retries FROM tasks AS t JOIN attempts AS a USING (uuid) ORDER BY t.uuid"
    ).fetch()

    assert found.columns == ("uuid", "retries")
    assert found.rows == [("a", 0), ("b", 1)]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("SHOW TABLES", sorted((name,) for name in TABLES)),
        ("WITH x AS (FROM tasks) SELECT count(*) FROM x", [(4,)]),
        ("FROM tasks SELECT max(day)", [("2026-11-16",)]),
        ("VALUES (1)", [(1,)]),
        ("SELECT count(*) FROM gaps", [(0,)]),
    ],
)
def test_whatever_only_reads_is_answered(
    shared: Warehouse, text: str, rows: list[tuple[object, ...]]
) -> None:
    found = shared.sql(text).fetch().rows

    assert found == rows


REFUSED = [
    "COPY tasks TO '{out}'",
    "COPY (SELECT 1) TO '{out}' (FORMAT csv, USE_TMP_FILE false)",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{file}' (FORMAT csv, USE_TMP_FILE false)",
    "ATTACH '{out}' AS other",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM read_text('{manifest}')",
    "SELECT * FROM read_parquet('{file}/../../../../../current.json')",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM read_parquet('https://example.org/x.parquet')",
    "PRAGMA database_list",
    "PRAGMA enable_profiling",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET memory_limit = '100GB'",
    "SET enable_external_access = true",
    "RESET ALL",
    "SELECT 1; SELECT 2",
    "SELECT 1; DROP VIEW tasks",
    "DROP VIEW tasks",
    "DELETE FROM tasks",
    "INSERT INTO tasks (uuid) VALUES ('x')",
    "UPDATE tasks SET uuid = 'x'",
    "CREATE TABLE x AS SELECT 1",
    "EXPORT DATABASE '{out}'",
    "CALL pragma_version()",
    "PREPARE p AS SELECT 1",
    "USE memory",
    "SELECT * FROM secret_variable",
    "SELECT * FROM query('DROP VIEW tasks')",
    "SELEC 1",
    "SELECT nothing FROM tasks",
    "SELECT 'x'::BIGINT",
    "",
    "-- nothing",
]


@pytest.mark.parametrize("text", REFUSED)
def test_whatever_does_more_than_read_the_tables_is_refused(
    shared: Warehouse, shared_root: Path, tmp_path: Path, text: str
) -> None:
    secret_variable = shared.table("tasks").arrow()
    (file,) = (shared_root / "tables" / "tasks").glob("*/day=2026-11-15/*")
    before = file.read_bytes()
    out = tmp_path / "out"
    quoted = [str(path).replace("'", "''") for path in (out, file, shared_root / "current.json")]

    with pytest.raises(CallerError, match="invalid query") as refused:
        shared.sql(text.format(out=quoted[0], file=quoted[1], manifest=quoted[2])).fetch()

    assert "a single SELECT over the tables" in str(refused.value)
    assert not out.exists()
    assert file.read_bytes() == before
    assert secret_variable.num_rows == 4


def test_a_statement_that_takes_too_long_is_ended(shared: Warehouse) -> None:
    endless = shared.sql("SELECT count(*) FROM range(1000000000000)", timeout=0.1)

    with pytest.raises(CallerError, match=r"longer than 0\.1 s"):
        endless.fetch()


def test_a_statement_that_takes_too_much_memory_is_ended(shared_root: Path) -> None:
    with history.open(shared_root, memory="50MB") as warehouse:
        greedy = warehouse.sql("SELECT len(list(a)) FROM range(10000000000) AS r(a)")

        with pytest.raises(CallerError, match="more memory than 50MB"):
            greedy.fetch()


def test_columns_that_an_older_file_lacks_are_null(tmp_path: Path) -> None:
    import pyarrow.parquet as pq  # noqa: PLC0415

    publish(tmp_path, {"rollups_hour": [rollup(MIDNIGHT, runs=[1.0]), rollup(MIDNIGHT, day="2026-11-15")]})
    (old,) = tmp_path.glob("tables/rollups_hour/*/day=2026-11-14/*")
    pq.write_table(pq.read_table(old, partitioning=None).drop(["queue"]), old)

    with history.open(tmp_path) as warehouse:
        rows = warehouse.table("rollups_hour", ["day", "queue"]).dicts()

    assert sorted((row["day"], row["queue"]) for row in rows) == [(DAY, None), ("2026-11-15", "celery")]
