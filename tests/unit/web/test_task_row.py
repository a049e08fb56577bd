"""The rows of the list of tasks, which a browser sends back when they are chosen."""

import json
from types import SimpleNamespace
from typing import Any

from celeriac import State
from celeriac.views.task_list import listed
from celeriac.web.pages.tasks import PAGE_ROWS, format_row
from celeriac.web.server import MAX_MESSAGE_BYTES

WIDE = "\N{CJK UNIFIED IDEOGRAPH-4E00}"


def test_choice_of_all_rows_of_a_page_fits_into_one_message() -> None:
    visit: Any = SimpleNamespace(link=lambda path: path)
    state = State()
    state.event(
        {
            "type": "task-received",
            "uuid": WIDE * 120,
            "name": WIDE * 1000,
            "args": WIDE * 10_000,
            "kwargs": WIDE * 10_000,
            "hostname": WIDE * 200,
            "pid": 1,
            "clock": 1,
            "timestamp": 1790000000.0,
        }
    )
    (task,) = state.tasks.values()

    row = {"key": 10**9, **format_row(visit, listed(task), 1790000000.0), "outcome": WIDE * 200}

    message = {"added": True, "rows": [row] * PAGE_ROWS, "keys": [row["key"]] * PAGE_ROWS}
    assert row["args"] == f"{WIDE * 199}… {WIDE * 199}…"
    assert len(json.dumps(message, ensure_ascii=False).encode()) < MAX_MESSAGE_BYTES
