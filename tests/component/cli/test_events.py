"""``celeriac events`` shows what was asked for, and nothing that a terminal would obey."""

import json
from io import StringIO

import pytest
from rich.console import Console

from celeriac.cli.painter import painted
from celeriac.views.event import EventLine, event_line
from celeriac.wire.event import decode
from tests.builders import WIRE_EVENTS, body, task, worker
from tests.component.cli.kit import HOSTILE, Cluster, heartbeat, is_harmless


def test_events_are_shown_a_line_each_with_the_names_of_their_tasks(cluster: Cluster) -> None:
    cluster.add_speaker(task("received", "t1", name="shop.pay"), task("started", "t1"), heartbeat())

    result = cluster.run("events", "--limit", "3")

    assert result.exit_code == 0
    received, started, beat = result.stdout.splitlines()
    assert "task-received     celery@web1  shop.pay[t1]" in received
    assert "task-started      celery@web1  shop.pay[t1]" in started
    assert "worker-heartbeat  celery@web1  1 active" in beat
    assert result.stderr == "3 events seen, 3 shown; 0 refused by the gate; 0 gaps\n"


def test_json_goes_to_standard_output_a_line_each_and_nothing_else_does(cluster: Cluster) -> None:
    cluster.add_speaker(*WIRE_EVENTS.values())

    result = cluster.run("events", "--json", "--limit", str(len(WIRE_EVENTS)))

    told = [json.loads(line) for line in result.stdout.splitlines()]
    assert [event["type"] for event in told] == list(WIRE_EVENTS)
    assert told[3]["runtime"] == 0.125
    assert "events seen" in result.stderr


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["--type", "task-failed"], ["t2"]),
        (["-t", "task-f*", "-t", "task-started"], ["t1", "t2"]),
        (["--task", "shop.*"], ["t1", "t1"]),
        (["--task", "t2"], ["t2"]),
        (["--worker", "*@web2"], ["t2"]),
        (["--worker", "celery@web1", "--type", "*-started"], ["t1"]),
    ],
)
def test_only_events_that_fit_are_shown(cluster: Cluster, options: list[str], shown: list[str]) -> None:
    cluster.add_speaker(
        task("received", "t1", name="shop.pay"),
        task("started", "t1"),
        task("failed", "t2", hostname="celery@web2"),
        worker("heartbeat"),
    )

    result = cluster.run("events", "--json", "--limit", str(len(shown)), "--timeout", "5", *options)

    assert [json.loads(line)["uuid"] for line in result.stdout.splitlines()] == shown
    assert result.exit_code == 0


def test_a_cluster_where_nothing_fits_ends_the_command_when_the_time_is_up(cluster: Cluster) -> None:
    cluster.add_speaker(heartbeat())

    result = cluster.run("events", "--type", "task-*", "--timeout", "2")

    assert result.exit_code == 69
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        "1 events seen, 0 shown; 0 refused by the gate; 0 gaps",
        "no event for 2 s",
    ]


def test_without_wakeup_no_worker_is_asked_to_announce_itself(cluster: Cluster) -> None:
    cluster.run("events", "--no-wakeup", "--timeout", "0.1")

    assert not cluster.has_sent("heartbeat")


def test_what_the_gate_refuses_is_counted_in_the_summary(cluster: Cluster) -> None:
    cluster.add_speaker(b"{", b'{"type": 1}', task("started"))

    result = cluster.run("events", "--limit", "1")

    assert "2 refused by the gate (" in result.stderr


def test_a_gap_is_told_loudly_whatever_was_asked_for(cluster: Cluster) -> None:
    cuts = iter([cluster.broker.cut])

    def speak() -> None:
        cluster.publish(task("started"))
        for cut in cuts:
            cut()

    cluster.add_node("a@1")
    node = cluster.app(control_allow=("heartbeat",))
    mailbox = node.mailbox("b@1")
    mailbox.handlers["heartbeat"] = speak
    connection = node.connection()
    mailbox.attach(connection)
    cluster.follow(connection)

    result = cluster.run("events", "--type", "nothing", "--timeout", "4")

    assert "*** GAP: events from " in result.stdout
    assert "GAP: events from " not in result.stderr
    assert "1 gaps" in result.stderr


def test_a_gap_that_a_peer_made_up_is_an_event_like_others(cluster: Cluster) -> None:
    forged = {**worker("x"), "type": "cluster-gap", "reason": HOSTILE}
    cluster.add_speaker(forged)

    result = cluster.run("events", "--limit", "1")

    assert "***" not in result.stdout
    assert "0 gaps" in result.stderr
    assert is_harmless(result.output)


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_hostile_text_in_events_emits_no_escape_code(cluster: Cluster, options: list[str]) -> None:
    fields = ("uuid", "name", "args", "kwargs", "result", "exception", "traceback", "queue", "hostname", "x")
    hostile = [
        {**event, **{name: HOSTILE for name in fields if name in event or name == "x"}}
        for event in (*WIRE_EVENTS.values(), task(HOSTILE), {**worker("x"), "type": HOSTILE})
    ]
    cluster.add_speaker(*hostile)

    result = cluster.run("events", "--limit", str(len(hostile)), *options)

    assert len(result.stdout.splitlines()) == len(hostile)
    assert is_harmless(result.output)


def test_in_colour_the_only_escape_codes_are_ours() -> None:
    (event,) = decode(body(task("failed", HOSTILE, exception=HOSTILE, hostname=HOSTILE)))
    written = StringIO()
    console = Console(file=written, force_terminal=True, color_system="standard", width=1000, no_color=True)

    console.print(painted(event_line(event, HOSTILE)))

    assert is_harmless(
        written.getvalue().replace("\x1b[0m", "").replace("\x1b[1m", "").replace("\x1b[2m", "")
    )


def test_a_line_is_the_same_in_colour() -> None:
    line = EventLine("12:00:00.000", "task-failed", "a@1", "shop.pay[t1]", "ValueError('x')")

    assert painted(line).plain == str(line)


def test_a_broker_that_cannot_be_reached_is_told_in_one_line_that_names_the_fix(cluster: Cluster) -> None:
    cluster.broker.stop()

    result = cluster.run("events")

    assert result.exit_code == 69
    assert result.stdout == ""
    assert result.stderr == (
        "error: the connection to memory broker 'default' is cut. "
        "Start it, or name another with --broker URL\n"
    )
