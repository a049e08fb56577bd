"""A program written against the stock monitor works with its import changed.

Both monitors are fed the same dicts in causal order, as a receiver hands them out,
and asked the same questions.
"""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from celery.events import state as stock

import celeriac
from celeriac.core.worker import heartbeat_expires
from tests.builders import CLIENT, Fields, task, worker
from tests.story import FRESH, GONE, LEFT, ONE, STORY, TASKS, TWO, WORKERS, as_received

#: A monitor of either make: the point is that a program cannot tell.
Monitor = Any


def tell(monitor: Monitor, events: Iterable[Fields]) -> Monitor:
    """Feed a monitor copies: the stock one writes into what it is given."""
    for event in events:
        monitor.event(dict(event))
    return monitor


@pytest.fixture(params=[stock.State, celeriac.State], ids=["stock", "celeriac"])
def make(request: pytest.FixtureRequest) -> Callable[..., Monitor]:
    """The class that the program imports."""
    imported: Callable[..., Monitor] = request.param
    return imported


@pytest.fixture
def monitor(make: Callable[..., Monitor]) -> Monitor:
    return tell(make(), STORY)


@pytest.fixture(scope="module")
def theirs() -> Monitor:
    return tell(stock.State(), STORY)


@pytest.fixture(scope="module")
def ours() -> Monitor:
    return tell(celeriac.State(), STORY)


def plain(value: Any) -> Any:
    """Return a value with workers by name, tasks by id, the load as a list and relatives as a sorted one."""
    if hasattr(value, "uuid"):  # Celery: its tasks have a hostname too
        return value.uuid
    if hasattr(value, "hostname"):
        return value.hostname
    if isinstance(value, str | int | float | dict | None):
        return value
    return list(value) if all(isinstance(item, float) for item in value) else sorted(map(plain, value))


def uuids(pairs: Iterable[tuple[str, Any]]) -> list[str]:
    """Return the ids of ``(uuid, task)`` pairs, which must fit each other."""
    return [uuid for uuid, task in pairs if task.uuid == uuid]


# -- tasks


def test_a_task_has_the_fields_of_the_stock_one() -> None:
    fields = set(celeriac.Task._fields)

    missing = set(stock.Task._fields) - fields

    assert not missing


@pytest.mark.parametrize("name", stock.Task._fields)
def test_a_field_of_a_task_is_the_same(name: str, ours: Monitor, theirs: Monitor) -> None:
    told = {uuid: plain(getattr(ours.tasks[uuid], name)) for uuid in TASKS}

    expected = {uuid: plain(getattr(theirs.tasks[uuid], name)) for uuid in TASKS}

    assert told == expected
    assert len(set(map(str, expected.values()))) > 1


@pytest.mark.parametrize("name", ["id", "ready", "origin"])
def test_a_property_of_a_task_is_the_same(name: str, ours: Monitor, theirs: Monitor) -> None:
    told = {uuid: getattr(ours.tasks[uuid], name) for uuid in TASKS}

    expected = {uuid: getattr(theirs.tasks[uuid], name) for uuid in TASKS}

    assert told == expected


@pytest.mark.parametrize("uuid", TASKS)
def test_the_dict_of_a_task_is_the_same(uuid: str, ours: Monitor, theirs: Monitor) -> None:
    told = ours.tasks[uuid].as_dict()

    expected = theirs.tasks[uuid].as_dict()

    assert {name: plain(told[name]) for name in told} == {name: plain(expected[name]) for name in expected}


@pytest.mark.parametrize("uuid", TASKS)
def test_the_info_on_a_task_is_the_same(uuid: str, ours: Monitor, theirs: Monitor) -> None:
    told = ours.tasks[uuid].info()

    expected = theirs.tasks[uuid].info()

    assert told == expected
    assert list(told) == list(expected)


@pytest.mark.parametrize("uuid", TASKS)
def test_the_info_on_chosen_fields_is_the_same(uuid: str, ours: Monitor, theirs: Monitor) -> None:
    told = ours.tasks[uuid].info(["name", "state", "nonsense"], ["clock", "received"])

    expected = theirs.tasks[uuid].info(["name", "state", "nonsense"], ["clock", "received"])

    assert told == expected


def test_a_task_that_was_only_sent_is_the_same() -> None:
    sent = as_received(
        [task("sent", "s", hostname=CLIENT, name="shop.pay", args="()", retries=0, routing_key="k")]
    )

    told, expected = tell(celeriac.State(), sent).tasks["s"], tell(stock.State(), sent).tasks["s"]

    assert told.as_dict() == expected.as_dict()
    assert told.origin == expected.origin == CLIENT


def test_every_state_on_the_way_is_the_same() -> None:
    ours, theirs = celeriac.State(), stock.State()

    ways: list[list[tuple[str, str]]] = [[], []]
    for event in STORY:
        for monitor, way in zip((ours, theirs), ways, strict=True):
            tell(monitor, [event])
            way.append((event["type"], monitor.tasks[event["uuid"]].state if "uuid" in event else ""))

    assert ways[0] == ways[1]


def test_a_task_knows_its_relatives(monitor: Monitor) -> None:
    child = monitor.tasks["child"]

    relatives = child.parent, child.root, set(child.children)

    assert relatives == (monitor.tasks["root"], monitor.tasks["root"], {monitor.tasks["waits"]})


def test_a_retry_makes_no_task_its_own_child() -> None:
    # Celery: a retry names the task as its own parent, and the stock monitor takes its word.
    events = as_received([task("received", "r"), task("retried", "r"), task("received", "r", parent_id="r")])

    ours, theirs = tell(celeriac.State(), events), tell(stock.State(), events)

    assert set(ours.tasks["r"].children) == set()
    assert set(theirs.tasks["r"].children) == {theirs.tasks["r"]}


# -- workers


def test_a_worker_has_the_fields_of_the_stock_one() -> None:
    fields = set(celeriac.Worker._fields)

    missing = set(stock.Worker._fields) - fields

    assert not missing


@pytest.mark.parametrize("name", [name for name in stock.Worker._fields if name != "heartbeats"])
def test_a_field_of_a_worker_is_the_same(name: str, ours: Monitor, theirs: Monitor) -> None:
    told = {host: plain(getattr(ours.workers[host], name)) for host in WORKERS}

    expected = {host: plain(getattr(theirs.workers[host], name)) for host in WORKERS}

    assert told == expected


# Celery: for a task event it stores the time of sending among those of receipt, so workers with tasks differ.
@pytest.mark.parametrize("host", [GONE, LEFT])
def test_the_heartbeats_of_a_worker_are_the_same(host: str, ours: Monitor, theirs: Monitor) -> None:
    told = ours.workers[host].heartbeats

    expected = theirs.workers[host].heartbeats

    assert told == expected


def test_the_last_four_heartbeats_are_kept(make: Callable[..., Monitor]) -> None:
    monitor = make()

    tell(monitor, as_received([worker("heartbeat", hostname=ONE)] * 7))

    assert monitor.workers[ONE].heartbeats == [FRESH + 3.25, FRESH + 4.25, FRESH + 5.25, FRESH + 6.25]


@pytest.mark.parametrize("name", ["id", "alive", "status_string"])
def test_a_property_of_a_worker_is_the_same(name: str, ours: Monitor, theirs: Monitor) -> None:
    told = {host: getattr(ours.workers[host], name) for host in WORKERS}

    expected = {host: getattr(theirs.workers[host], name) for host in WORKERS}

    assert told == expected


@pytest.mark.parametrize("host", [ONE, TWO, GONE])
def test_a_worker_expires_at_the_same_time(host: str, ours: Monitor, theirs: Monitor) -> None:
    told = ours.workers[host].heartbeat_expires

    expected = theirs.workers[host].heartbeat_expires

    assert told == expected


@pytest.mark.parametrize("given", [(FRESH,), (FRESH, 2.0), (FRESH, 2, 150)])
def test_the_function_for_expiry_is_the_same(given: tuple[float, ...]) -> None:
    told = heartbeat_expires(*given)

    expected = stock.heartbeat_expires(*given)

    assert told == expected


def test_a_worker_is_alive_until_it_leaves_or_falls_silent(monitor: Monitor) -> None:
    alive = {known.hostname for known in monitor.alive_workers()}

    status = {host: monitor.workers[host].status_string for host in WORKERS}

    assert alive == {ONE, TWO}
    assert status == {ONE: "ONLINE", TWO: "ONLINE", GONE: "OFFLINE", LEFT: "OFFLINE"}


# -- the whole


@pytest.mark.parametrize("name", ["tasks_by_time", "tasks_by_timestamp"])
def test_tasks_come_newest_first(name: str, monitor: Monitor) -> None:
    newest_first = uuids(getattr(monitor, name)())

    assert newest_first == ["waits", "refused", "custom", "cancelled", "again", "child", "root"]


def test_tasks_come_oldest_first_if_asked(make: Callable[..., Monitor]) -> None:
    monitor = tell(
        make(), as_received([task(subject, uuid) for uuid in "cab" for subject in ("received", "started")])
    )

    oldest_first = uuids(monitor.tasks_by_time(reverse=False))

    assert oldest_first == ["c", "a", "b"]


def test_tasks_of_a_type_come_newest_first(monitor: Monitor) -> None:
    of_type = uuids(monitor.tasks_by_type("shop.pay"))

    assert of_type == ["waits", "cancelled", "root"]


def test_tasks_of_a_type_may_be_limited(monitor: Monitor) -> None:
    of_type = uuids(monitor.tasks_by_type("shop.pay", limit=2))

    assert of_type == ["waits", "cancelled"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("shop.pay", {"root", "cancelled", "waits"}),
        ("shop.ship", {"child", "again", "custom"}),
        ("never.seen", set()),
    ],
)
def test_tasks_are_found_by_type(name: str, expected: set[str], monitor: Monitor) -> None:
    found = {known.uuid for known in monitor.tasks_by_type[name]}

    assert found == expected


def test_tasks_of_a_worker_come_newest_first(monitor: Monitor) -> None:
    of_worker = uuids(monitor.tasks_by_worker(TWO))

    assert of_worker == ["refused", "custom", "again", "child"]


def test_tasks_are_found_by_worker(make: Callable[..., Monitor]) -> None:
    events = [task("received", uuid, hostname=f"{uuid[0]}@h", name="n") for uuid in ("a1", "b1", "a2")]
    monitor = tell(make(), as_received(events))

    found = {known.uuid for known in monitor.tasks_by_worker["a@h"]}

    assert found == {"a1", "a2"}


def test_the_types_are_sorted_names(monitor: Monitor) -> None:
    types = monitor.task_types()

    assert types == ["shop.pay", "shop.ship"]


def test_all_tasks_can_be_walked_through(monitor: Monitor) -> None:
    walked = uuids(monitor.itertasks())

    assert sorted(walked) == sorted(TASKS)


def test_a_walk_may_be_limited(monitor: Monitor) -> None:
    walked = uuids(monitor.itertasks(limit=3))

    assert len(walked) == 3


def test_events_and_received_tasks_are_counted(monitor: Monitor) -> None:
    counts = monitor.event_count, monitor.task_count

    assert counts == (len(STORY), 7)


def test_tasks_and_workers_are_mappings_by_name(monitor: Monitor) -> None:
    known = set(monitor.tasks), set(monitor.workers)

    assert known == (set(TASKS), set(WORKERS))
    assert monitor.tasks.get("never-seen") is None
    assert ONE in monitor.workers


# -- what people see


def test_a_state_looks_the_same(ours: Monitor, theirs: Monitor) -> None:
    seen = repr(ours)

    assert seen == repr(theirs) == f"<State: events={len(STORY)} tasks=7>"


@pytest.mark.parametrize("uuid", TASKS)
def test_a_task_looks_the_same(uuid: str, ours: Monitor, theirs: Monitor) -> None:
    seen = repr(ours.tasks[uuid])

    assert seen == repr(theirs.tasks[uuid])


# Celery: it forgets the last bracket.
@pytest.mark.parametrize("host", WORKERS)
def test_a_worker_looks_the_same_but_for_the_bracket(host: str, ours: Monitor, theirs: Monitor) -> None:
    seen = repr(ours.workers[host])

    assert seen.removesuffix(">") == repr(theirs.workers[host])


# -- what a program does


def test_what_an_event_returns_is_the_same() -> None:
    ours, theirs = celeriac.State(), stock.State()

    def returned(monitor: Monitor) -> list[tuple[str, bool, str]]:
        answers = [monitor.event(dict(event)) for event in STORY]
        return [(plain(about), created, subject) for (about, created), subject in answers]

    assert returned(ours) == returned(theirs)


def test_an_event_of_another_group_returns_none(make: Callable[..., Monitor]) -> None:
    monitor = make()

    returned = monitor.event({**STORY[0], "type": "deploy-done"})

    assert returned is None


def test_the_callback_is_the_first_argument(make: Callable[..., Monitor]) -> None:
    types: list[str] = []
    monitor = make(lambda _, event: types.append(event["type"]))

    tell(monitor, STORY)

    assert types == [event["type"] for event in STORY]


def test_listeners_are_told_who_joins_and_leaves(make: Callable[..., Monitor]) -> None:
    told: list[tuple[str, str]] = []
    monitor = make(
        on_node_join=lambda node: told.append(("join", node.hostname)),
        on_node_leave=lambda node: told.append(("leave", node.hostname)),
    )

    tell(
        monitor,
        as_received([worker(subject, hostname=ONE) for subject in ("online", "heartbeat", "offline")]),
    )

    assert told == [("join", ONE), ("leave", ONE)]


def test_the_number_of_tasks_may_be_limited(make: Callable[..., Monitor]) -> None:
    monitor = make(max_tasks_in_memory=3)

    tell(monitor, as_received([task("received", f"t{number}") for number in range(5)]))

    assert set(monitor.tasks) == {"t2", "t3", "t4"}


def test_the_number_of_workers_may_be_limited(make: Callable[..., Monitor]) -> None:
    monitor = make(max_workers_in_memory=3)

    tell(monitor, as_received([worker("online", hostname=f"w{number}") for number in range(5)]))

    assert set(monitor.workers) == {"w2", "w3", "w4"}


@pytest.mark.parametrize(("ready", "left"), [(True, {"custom", "refused", "waits"}), (False, set())])
def test_tasks_can_be_cleared(ready: bool, left: set[str], monitor: Monitor) -> None:
    monitor.clear_tasks(ready=ready)

    known = set(monitor.tasks), set(monitor.workers)

    assert known == (left, set(WORKERS))


def test_everything_can_be_cleared_after_a_frozen_look(monitor: Monitor) -> None:
    seen = monitor.freeze_while(lambda: len(monitor.tasks), clear_after=True)

    known = set(monitor.tasks), set(monitor.workers), monitor.event_count

    assert seen == 7
    assert known == ({"custom", "refused", "waits"}, set(), 0)
