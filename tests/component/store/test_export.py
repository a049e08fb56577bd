"""What is exported is what is in the log, in a form that other programs read, and that none of them runs."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from celeriac.errors import CallerError
from celeriac.model.events import Custom, Event, Extra, Revoked
from celeriac.store import export as export_module
from celeriac.store.columns import SCHEMA, to_events
from celeriac.store.event_log import EventLog
from celeriac.store.upkeep import export
from tests.event_logs import HOUR_AT, heartbeat, received, seal, started, succeeded, unsealed

COMMON: dict[str, Any] = {
    "timestamp": HOUR_AT + 4,
    "clock": 1,
    "hostname": "w",
    "local_received": HOUR_AT + 4,
}
EVENTS: list[Event] = [
    received(at=1, args="(1, 'é\n\"x\",')"),
    heartbeat(at=2, loadavg=(0.5, 1.0, 1.5)),
    succeeded(at=3, result="=HYPERLINK(1)", runtime=0.25),
    Revoked(uuid="t1", signum=15, terminated=True, **COMMON),
    Custom(uuid="t1", subject="progress", extra=Extra(done=3, of=[1, None]), **COMMON),
]


@pytest.fixture
def log(tmp_path: Path) -> EventLog:
    root = tmp_path / "log"
    seal(root, EVENTS[:3])
    unsealed(root, [EVENTS[3:]], first=4)
    return EventLog(root)


def test_json_lines_say_what_events_say_and_no_more(log: EventLog) -> None:
    lines = [json.loads(line) for line in b"".join(export(log, "jsonl")).splitlines()]

    assert [line["sequence"] for line in lines] == [1, 2, 3, 4, 5]
    assert lines[0]["args"] == "(1, 'é\n\"x\",')"
    assert "result" not in lines[0]
    assert lines[1]["loadavg"] == [0.5, 1.0, 1.5]
    assert (lines[3]["signum"], lines[3]["terminated"]) == (15, True)
    assert lines[4]["rest"] == {"done": 3, "of": [1, None]}
    assert {line["recorder"] for line in lines} == {"a"}


def test_csv_has_a_column_for_each_field_and_no_formulas(log: EventLog) -> None:
    rows = list(csv.DictReader(io.StringIO(b"".join(export(log, "csv")).decode(), newline="")))

    assert list(rows[0]) == SCHEMA.names
    assert [row["type"] for row in rows] == [event.type for event in EVENTS]
    assert rows[0]["args"] == "(1, 'é\n\"x\",')"
    assert rows[1]["loadavg"] == "[0.5, 1.0, 1.5]"
    assert rows[2]["result"] == "'=HYPERLINK(1)"
    assert rows[2]["args"] == ""
    assert float(rows[2]["runtime"]) == 0.25


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@x", "\t=1", "\r=1"])
def test_what_a_spreadsheet_would_run_is_made_text(tmp_path: Path, text: str) -> None:
    seal(tmp_path, [succeeded(result=text), succeeded(result=f"x{text}"), succeeded(result="")])

    rows = list(csv.DictReader(io.StringIO(b"".join(export(EventLog(tmp_path), "csv")).decode(), newline="")))

    assert [row["result"] for row in rows] == [f"'{text}", f"x{text}", ""]


def test_parquet_is_one_file_with_the_columns_of_the_log(log: EventLog) -> None:
    table = pq.read_table(pa.BufferReader(b"".join(export(log, "parquet"))))

    assert table.schema.equals(SCHEMA)
    assert [event for batch in table.to_batches() for event in to_events(batch)] == EVENTS


@pytest.mark.parametrize("form", export_module.FORMATS)
def test_an_export_of_nothing_can_be_read(tmp_path: Path, form: export_module.Format) -> None:
    content = b"".join(export(EventLog(tmp_path), form))

    if form == "parquet":
        assert pq.read_table(pa.BufferReader(content)).num_rows == 0
    else:
        assert len(content.splitlines()) == (form == "csv")


def test_only_what_is_selected_is_exported_and_progress_is_told(log: EventLog) -> None:
    told: list[tuple[int, int]] = []

    content = b"".join(export(log, "jsonl", types=("worker-*",), progress=lambda *each: told.append(each)))

    assert [json.loads(line)["type"] for line in content.splitlines()] == ["worker-heartbeat"]
    assert told[-1] == (5, 5)


@pytest.mark.parametrize("form", export_module.FORMATS)
def test_an_export_comes_in_parts_and_is_whole(
    tmp_path: Path, form: export_module.Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_module, "_ROWS", 10)
    monkeypatch.setattr(export_module, "_GROUP_ROWS", 30)
    for number in range(5):
        seal(tmp_path, [started(at=number * 20 + at) for at in range(20)], first=1 + number * 20)

    parts = list(export(EventLog(tmp_path), form))

    content = b"".join(parts)
    assert len([part for part in parts if part]) >= 3
    if form == "parquet":
        assert pq.read_table(pa.BufferReader(content))["sequence"].to_pylist() == list(range(1, 101))
    else:
        assert len(content.splitlines()) == 100 + (form == "csv")


def test_an_unknown_format_is_refused_by_the_names_of_those_there_are(log: EventLog) -> None:
    with pytest.raises(CallerError, match="jsonl, csv, parquet"):
        export(log, "xml")  # type: ignore[arg-type]
