"""Facts about a cluster become findings; each problem has its reason and its fix."""

from typing import Any

import pytest

from celeriac.model.election import Level
from celeriac.views.doctor import (
    BrokerState,
    DiskState,
    Durability,
    Facts,
    Finding,
    Refusal,
    Status,
    TablesState,
    WorkerState,
    are_fine,
    finding_lines,
    findings,
)

GIB = 1024**3
URL = "redis://127.0.0.1:6379/0"
HEALTHY = Facts(
    now=1_000_000.0,
    broker=BrokerState(URL, "redis", "Redis 7.0.15", skew=0.01, has_log=True),
    timeout=2.0,
    listened=3.0,
    workers=[WorkerState("w1@lab", events_setting=True, sent_setting=True, task_events=4, begun=2, skew=0.2)],
    sent_events=2,
    durability=Durability(Level.L3, Level.L2, "a single Redis writes each grant to disk before it answers"),
    extras={"web": True, "tui": False},
    disk=DiskState("log", 40 * GIB, 100 * GIB),
    tables=TablesState("warehouse", 1_000_000.0 - 3600 * 3),
    backend="redis://127.0.0.1:6379/1",
)


def found(name: str, **changes: Any) -> Finding:
    """Return the first finding of a name, by facts that differ from those of a healthy cluster."""
    return next(each for each in findings(HEALTHY._replace(**changes)) if each.name == name)


def worker(**changes: Any) -> list[WorkerState]:
    return [HEALTHY.workers[0]._replace(**changes)]


def test_a_healthy_cluster_passes_every_check() -> None:
    report = findings(HEALTHY)

    assert {each.status for each in report} == {Status.OK}
    assert are_fine(report)
    assert [each.name for each in report] == [
        "broker", "permissions", "workers", "task events", "sent events", "clock skew", "durability",
        "result backend", "extras", "disk", "tables",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "changes", "fix"),
    [
        ("workers", {"workers": ()}, "celery -A PROJECT worker -E"),
        ("workers", {"silent": ["w2@lab"]}, "celeriac doctor --timeout 5"),
        ("task events", {"workers": worker(task_events=0)}, "celeriac control enable-events -d w1@lab"),
        ("clock skew", {"workers": worker(skew=-75.0)}, "timedatectl set-ntp true"),
        ("clock skew", {"broker": HEALTHY.broker._replace(skew=60.0)}, "timedatectl set-ntp true"),
        (
            "durability",
            {"durability": Durability(Level.L1, Level.L2, "all is lost: set appendonly to yes")},
            "set appendonly to yes",
        ),
        ("result backend", {"backend_error": "lost it"}, "CELERIAC_RESULT_BACKEND=URL"),
        ("permissions", {"refusals": [Refusal("EVAL", "NOPERM")]}, "redis-cli ACL SETUSER"),
        ("disk", {"disk": DiskState("log", GIB // 2, 2 * GIB)}, "CELERIAC_LOG_MAX_BYTES"),
        ("disk", {"disk": DiskState("log", 4 * GIB, 100 * GIB)}, "CELERIAC_LOG_MAX_BYTES"),
    ],
)
def test_a_required_check_that_fails_names_its_fix(name: str, changes: dict[str, Any], fix: str) -> None:
    finding = found(name, **changes)

    assert finding.status is Status.FAILED
    assert finding.reason
    assert finding.fix.startswith(fix)
    assert not are_fine(findings(HEALTHY._replace(**changes)))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("sent events", {"sent_events": 0, "workers": worker(sent_setting=False)}),
        ("tables", {"tables": TablesState("warehouse", 1_000_000.0 - 27 * 3600)}),
    ],
)
def test_a_check_that_is_not_required_fails_alone(name: str, changes: dict[str, Any]) -> None:
    finding = found(name, **changes)

    assert finding.status is Status.FAILED
    assert finding.fix
    assert are_fine(findings(HEALTHY._replace(**changes)))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("task events", {"workers": worker(task_events=0, begun=0, events_setting=False)}),
        ("task events", {"workers": worker(task_events=0, begun=None, events_setting=None)}),
        ("task events", {"workers": ()}),
        ("sent events", {"sent_events": 0, "workers": worker(sent_setting=None)}),
        ("clock skew", {"workers": worker(skew=None), "broker": HEALTHY.broker._replace(skew=None)}),
        (
            "durability",
            {
                "durability": Durability(
                    None, Level.L2, "cannot decide elections: name a Redis or RabbitMQ in election_url"
                )
            },
        ),
        ("result backend", {"backend": ""}),
        ("disk", {"disk": DiskState("s3://b/log", reason="the log is in an object store")}),
        ("tables", {"tables": TablesState("warehouse")}),
        ("tables", {"tables": TablesState("warehouse", error="cannot be read")}),
    ],
)
def test_a_check_that_cannot_know_says_so(name: str, changes: dict[str, Any]) -> None:
    assert found(name, **changes).status is Status.UNKNOWN


def test_task_events_are_on_by_the_setting_while_no_task_runs() -> None:
    finding = found("task events", workers=worker(task_events=0, begun=0, events_setting=True))

    assert (finding.status, finding.nodes) == (Status.OK, ("w1@lab",))


def test_task_events_that_a_command_turned_off_are_off_whatever_the_setting() -> None:
    finding = found("task events", workers=worker(task_events=0, begun=3, events_setting=True))

    assert finding.status is Status.FAILED


def test_each_worker_is_judged_by_its_own_events() -> None:
    on, off = HEALTHY.workers[0], WorkerState("w2@lab", begun=1)

    report = [each for each in findings(HEALTHY._replace(workers=[on, off])) if each.name == "task events"]

    assert [(each.status, each.nodes) for each in report] == [
        (Status.OK, ("w1@lab",)),
        (Status.FAILED, ("w2@lab",)),
    ]


def test_a_wrong_number_of_a_database_is_named_with_the_right_one() -> None:
    broker = BrokerState("redis://127.0.0.1:6379/5", "redis", other_databases=(0, 3))

    finding = found("workers", workers=(), broker=broker)

    assert "workers are in database 0, 3 of this Redis" in finding.reason
    assert finding.fix == "celeriac doctor --broker redis://127.0.0.1:6379/0"


def test_redis_without_a_log_is_fixed_by_one_command() -> None:
    broker = HEALTHY.broker._replace(has_log=False)
    durability = Durability(Level.L1, Level.L2, "Redis stores nothing on disk: set appendonly to yes")

    finding = found("durability", broker=broker, durability=durability)

    assert finding.reason == "Redis stores nothing on disk"
    assert finding.fix == f"redis-cli -u {URL} CONFIG SET appendonly yes"


def test_of_a_broker_that_is_not_there_nothing_else_is_judged() -> None:
    report = findings(HEALTHY._replace(broker=BrokerState(URL, error="refused")))

    assert [each.name for each in report] == ["broker", "extras", "disk", "tables"]
    assert report[0].fix == f"start it, or name another: celeriac doctor --broker {URL}"
    assert not are_fine(report)


def test_a_fix_does_not_name_dozens_of_workers() -> None:
    many = [WorkerState(f"w{number}@lab", begun=1) for number in range(40)]

    finding = found("task events", workers=many)

    assert finding.fix.startswith("celeriac control enable-events  #")
    assert finding.value.endswith("and 30 more")
    assert len(finding.nodes) == 40


def test_names_in_a_fix_are_quoted_for_the_shell() -> None:
    finding = found("task events", workers=[WorkerState("w1@lab; reboot", begun=1)])

    assert "-d 'w1@lab; reboot'" in finding.fix


def test_a_finding_is_a_line_with_reason_and_fix_below() -> None:
    finding = Finding("disk", Status.FAILED, "1 GB free", "below 1 GiB", "make room")

    assert finding_lines(finding) == [
        "✗ disk           1 GB free",
        "                 below 1 GiB",
        "                 fix: make room",
    ]
    assert finding_lines(Finding("disk", Status.OK, "1 GB free"))[0].startswith("✓ ")
    assert finding_lines(Finding("disk", Status.UNKNOWN, "no log"))[0].startswith("– ")  # noqa: RUF001


def test_hostile_texts_are_made_safe_to_show() -> None:
    hostile = "\x1b[31m\r\nroot# \u202ex"
    facts = HEALTHY._replace(
        broker=BrokerState(hostile, "redis", hostile),
        workers=[WorkerState(hostile, begun=1, skew=99.0)],
        silent=[hostile],
        refusals=[Refusal("EVAL", hostile)],
        durability=Durability(Level.L1, Level.L2, hostile),
        disk=DiskState(hostile, 1, 2),
        tables=TablesState(hostile, 0.0),
        backend=hostile,
        backend_error=hostile,
    )

    lines = [line for each in findings(facts) for line in finding_lines(each)]

    assert all(line.isprintable() for line in lines)
