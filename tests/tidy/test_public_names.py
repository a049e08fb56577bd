"""The public names are true, documented and light to import."""

import inspect
import re
import subprocess
import sys
from dataclasses import fields
from types import ModuleType

import pytest

import celeriac
from celeriac import (
    Celeriac,
    Drainer,
    Gate,
    LamportClock,
    Limits,
    Mandate,
    MemoryBroker,
    Polaroid,
    RemoteError,
    Replies,
    ResultMeta,
    RevokedSet,
    Settings,
    State,
    Task,
    Worker,
)
from celeriac.history import Answer, Warehouse
from celeriac.model.election import Election, Level
from tests.tidy.repository import ROOT

REFERENCE = (ROOT / "docs" / "reference" / "api.md").read_text()
APP = Celeriac(MemoryBroker(), "rpc://", environ={})
INSTANCES: list[object] = [
    APP,
    APP.events,
    APP.history,
    APP.history.replay("nowhere"),
    APP.history.Recorder("nowhere"),
    Warehouse("nowhere"),
    Answer(lambda _: None),
    Polaroid(State()),
    APP.events.Dispatcher(),
    APP.events.Receiver(),
    APP.events.AsyncReceiver(),
    APP.control,
    APP.control.inspect(),
    Replies(),
    APP.mailbox(),
    APP.arbiter,
    APP.leadership("nightly-report"),
    Mandate(Election("e1", "task"), 7, Level.L3, lambda: 0.0),
    APP.AsyncResult("t1"),
    APP.ResultSet(),
    APP.backend,
    APP.backend.consumer,
    Drainer(APP.backend.consumer),
    RemoteError("failed", task_id="t1"),
    ResultMeta("t1", "SUCCESS"),
    MemoryBroker(),
    Settings(),
    State(),
    Task("t1", State()),
    Worker("w1@web", now=lambda: 0.0),
    Gate(),
    Limits(),
    LamportClock(),
    RevokedSet(),
]
#: Of a dict, a tuple and an exception every reader knows these; settings have a page of their own. Only
#: the arbiter in memory serves several namespaces.
TOLD_ELSEWHERE = {
    "Arbiter": {"seen_by"},
    "Replies": set(dir(dict)),
    "RemoteError": set(dir(Exception)),
    "ResultMeta": set(dir(tuple)),
    "Settings": {each.name for each in fields(Settings)},
}
#: The kind of backend with the most names speaks for all of them, and the arbiter that needs no broker.
TITLES = {"RpcBackend": "Backend", "MemoryArbiter": "Arbiter"}


def rows(title: str) -> set[str]:
    """Return the names that begin the rows of one section of the reference."""
    _, _, rest = f"\n{REFERENCE}".partition(f"\n{title}\n")
    section, _, _ = rest.partition("\n## ")
    return set(re.findall(r"^\| `(\w+)", section, re.MULTILINE))


@pytest.mark.parametrize("name", celeriac.__all__)
def test_every_public_name_exists_and_says_what_it_is(name: str) -> None:
    public = getattr(celeriac, name)

    own_docstring = public.__dict__.get("__doc__") if inspect.isclass(public) else public.__doc__

    assert inspect.isclass(public) or inspect.isfunction(public) or isinstance(public, ModuleType)
    assert own_docstring


def test_the_list_of_public_names_is_sorted_and_without_repeats() -> None:
    names = celeriac.__all__

    ordered = sorted(set(names))

    assert names == ordered


def test_the_reference_lists_the_public_names_and_no_others() -> None:
    names = set(celeriac.__all__)

    listed = rows("# Public names")

    assert listed == names


@pytest.mark.parametrize("instance", INSTANCES, ids=lambda instance: type(instance).__name__)
def test_the_reference_lists_every_public_attribute_and_no_others(instance: object) -> None:
    kind = type(instance).__name__
    title = TITLES.get(kind, kind)
    public = {name for name in dir(instance) if not name.startswith("_")} - TOLD_ELSEWHERE.get(title, set())

    listed = rows(f"## {title}")

    assert listed == public


def test_to_import_celeriac_loads_no_heavy_package() -> None:
    heavy = {
        *("celery", "datasketches", "deltalake", "duckdb", "eventlet", "fastapi", "gevent", "kombu"),
        *("nicegui", "numpy", "pandas", "polars", "psycopg", "pyarrow", "pyspark", "redis", "textual"),
    }
    program = "import sys, celeriac.events.snapshot, celeriac.states; print(*sys.modules)"
    command = [sys.executable, "-c", program]

    loaded = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()  # noqa: S603

    assert "celeriac" in loaded
    assert heavy.isdisjoint(loaded)
