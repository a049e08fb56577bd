"""Every command writes its rows as a table for people, or with raw values for programs."""

import csv
import json
from io import StringIO
from typing import Any, NamedTuple

import pytest
from typer.main import get_command

from celeriac.cli.format_option import Format, Output
from celeriac.cli.root import app
from celeriac.errors import CallerError
from celeriac.views.unit import Bytes, Count, Seconds, Share, Timestamp
from tests.component.cli.kit import lines


class Row(NamedTuple):
    name: str
    at: Timestamp | None
    tasks: Count
    size: Bytes
    wait_p95: Seconds | None
    failed: Share
    pid: int


ROWS = [
    Row("a", "2026-11-14T10:00:00Z", 12_345, 2048, 0.097, 0.5, 12_345),
    Row("b", None, 7, 100, None, 0.0, 1),
]


def test_a_table_has_units_and_numbers_at_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    Output().write_rows(Row, ROWS)

    assert lines(capsys.readouterr().out) == [
        "NAME  AT                        TASKS   SIZE  WAIT P95  FAILED    PID",
        "a     2026-11-14 10:00:00 UTC  12,345  2 KiB     97 ms  50.0 %  12345",
        "b                                   7  100 B             0.0 %      1",
    ]


def test_programs_get_raw_values(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = [row._asdict() for row in ROWS]

    Output(Format.JSON).write_rows(Row, ROWS)
    assert json.loads(capsys.readouterr().out) == wanted
    Output(is_json=True).write_rows(Row, ROWS)
    assert json.loads(capsys.readouterr().out) == wanted
    Output(Format.JSONL).write_rows(Row, ROWS)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == wanted
    Output(Format.CSV).write_rows(Row, ROWS)
    first, second = csv.DictReader(StringIO(capsys.readouterr().out))
    assert (first["wait_p95"], first["size"], second["at"]) == ("0.097", "2048", "")


def test_without_rows_a_table_says_why_and_programs_get_an_empty_list(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Output().write_rows(Row, [], empty="No rows.")
    Output(Format.JSON).write_rows(Row, [], empty="No rows.")

    told = capsys.readouterr()
    assert (told.out, told.err) == ("[]\n", "No rows.\n")


def test_one_value_is_no_csv(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CallerError, match="Cannot write this as CSV"):
        Output(Format.CSV).write_object({})

    assert Output(Format.JSONL).write_object({"a": [1]})
    assert not Output().write_object({})
    assert capsys.readouterr().out == '{"a": [1]}\n'


def _commands(command: Any, path: str = "celeriac") -> Any:
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from _commands(below, f"{path} {name}")


def test_options_that_commands_share_mean_the_same() -> None:
    meanings: dict[str, set[str]] = {}
    for _, command in _commands(get_command(app)):
        for each in command.params:
            for name in each.opts:
                meanings.setdefault(name, set()).add(max(each.opts, key=len))

    assert meanings["-o"] == {"--format"}
    assert meanings["-A"] == {"--app"}
    assert not {"--csv", "--from"} & meanings.keys()
