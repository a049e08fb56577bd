"""The API as it is described: whatever its description allows is answered as it says."""

from collections.abc import Iterator
from re import sub
from types import SimpleNamespace
from typing import Any, cast

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from celeriac.node.replay import Replay
from celeriac.node.worker_setup import WorkerSetup
from celeriac.store.audit import Audit
from celeriac.store.event_log import EventLog
from celeriac.web import action
from celeriac.web.access import Access
from celeriac.web.action import Actions
from celeriac.web.board import Board
from celeriac.web.server import make_app
from tests.component.web.kit import PATIENCE, Rig, rig, served
from tests.event_logs import received, seal
from tests.property.effort import ON_DISK
from tests.warehouses import MIDNIGHT, publish, rollup, task

#: No other file needs it.
pytest_plugins = ["schemathesis.pytest.plugin"]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("api")
    seal(folder / "log", [received("old")], recorder="rec-1")
    publish(folder / "warehouse", {"tasks": [task("old")], "rollups_hour": [rollup(MIDNIGHT, runs=[1.0])]})

    def replay(since: float, until: float) -> Replay:
        return Replay(EventLog(folder / "log"), since=since, until=until)

    with pytest.MonkeyPatch.context() as patch, rig(folder, replay=replay, ask_setup=said) as running:
        # No worker answers here, and each command would wait for one.
        patch.setattr(action, "_PATIENCE", 0.01)
        fill(running)
        actions = Actions(
            running.board,
            running.app.control,
            Audit(folder / "audit"),
            send=lambda *_, **__: SimpleNamespace(id="new"),
        )
        with served(running, Access(allow_control=True), actions) as client:
            yield str(client.base_url)


def said(_: str) -> WorkerSetup:
    return WorkerSetup(("celery",), 4, "", asked_at=MIDNIGHT)


def fill(running: Rig) -> None:
    for number in range(20):
        running.run_task(f"task-{number}", args="('<script>alert(1)</script>',)")
    running.send("worker-online", freq=2.0)
    running.arrived()


#: All but the stream of events, which has no end. What is described is up to no cluster.
DESCRIBED = make_app(cast("Board", None), Access()).openapi()
OPERATIONS = [
    (method.upper(), path)
    for path, methods in DESCRIBED["paths"].items()
    for method in methods
    if path != "/api/v1/events"
]
api = schemathesis.openapi.from_dict(DESCRIBED)


def asking(method: str, path: str) -> Any:
    """Return a test that whatever the description allows of an operation is answered as it says."""

    @api.include(method=method, path=path).parametrize()
    @settings(
        max_examples=ON_DISK.max_examples,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    def ask(case: "schemathesis.Case[Any]", address: str) -> None:
        # Some of what it allows makes no sense: a time that ends before it begins.
        case.call_and_validate(base_url=address, excluded_checks=[positive_data_acceptance], timeout=PATIENCE)

    return ask


# Each by a name of its own. Schemathesis gives one id to all of them, and of tests with one id a single one
# is run where files of tests are run side by side.
globals().update(
    {f"test_{sub(r'[^a-z0-9]+', '_', f'{method} {path}'.lower())}": asking(method, path)
     for method, path in OPERATIONS}
)  # fmt: skip


def test_every_operation_is_asked() -> None:
    asked = [name for name in globals() if name.startswith(("test_get_api", "test_post_api"))]

    assert len(asked) == len(OPERATIONS) > 20


def test_the_description_names_every_part() -> None:
    parts = [method["tags"] for path in DESCRIBED["paths"].values() for method in path.values()]

    assert {tag for tags in parts for tag in tags} == {"tasks", "cluster", "history", "events", "control"}
