"""The screen of a task tells all that is known of it, but no secrets."""

from typing import Any

from celeriac.model.events import Retried
from celeriac.tui.workflow import branches
from tests.event_logs import HOUR_AT, failed, received, started, succeeded
from tests.tui.kit import Person, past, rig, sit_down


def event(made: Any, clock: int) -> Any:
    """Return an event with a clock."""
    return type(made)(**({name: getattr(made, name) for name in made.__struct_fields__} | {"clock": clock}))


def retried(uuid: str, at: float) -> Retried:
    moment = HOUR_AT + at
    return Retried(
        uuid=uuid, exception="OSError('again')", traceback="Traceback:\n  OSError: again",
        timestamp=moment, clock=3, hostname="celery@web1", local_received=moment,
    )  # fmt: skip


TWICE = (
    event(received("t1", 1.0, args="('Lovelace',)", kwargs="{'password': 'hunter2'}"), 1),
    event(started("t1", 2.0), 2),
    retried("t1", 3.0),
    event(received("t1", 4.0, retries=1, args="('Lovelace',)", kwargs="{'password': 'hunter2'}"), 4),
    event(started("t1", 5.0), 5),
    event(succeeded("t1", 6.5, result="{'token': 'abcdefgh12345678'}", runtime=1.5), 6),
)


def test_its_events_are_told_in_logical_order_and_its_attempts_one_by_one() -> None:
    async def reads(person: Person) -> None:
        await person.sees("shop.pay")
        await person.press("enter")
        await person.sees("ATTEMPTS", "TRACEBACK", "OSError: again", "2 deliveries, 2 executions")
        told = [line.split()[2] for line in person.lines if "task-" in line]
        attempts = [line.split()[-1] for line in person.lines if line.startswith(("1  ", "2  "))]

        assert told == [f"task-{each}" for each in ("received", "started", "retried")] + [
            f"task-{each}" for each in ("received", "started", "succeeded")
        ]
        assert attempts == ["RETRY", "SUCCESS"]

    sit_down(past(*reversed(TWICE)), reads, size=(100, 50))


def test_what_is_secret_is_masked() -> None:
    with rig() as cluster:

        async def reads(person: Person) -> None:
            told = {"name": "shop.pay", "args": "('Lovelace',)", "kwargs": "{'password': 'hunter2'}"}
            cluster.send("task-received", uuid="a", **told)
            cluster.send("task-succeeded", uuid="a", result="{'token': 'abcdefgh12345678'}", runtime=1.0)
            await person.sees("shop.pay", "SUCCESS")
            assert "abcdefgh12345678" not in person.text
            await person.press("enter")
            await person.sees("ATTEMPTS", "Lovelace", "{'password': '**'}", "'token': '**'")
            assert "hunter2" not in person.text
            assert "abcdefgh12345678" not in person.text

        sit_down(cluster.sight, reads, size=(160, 50))


def test_a_task_changes_on_its_screen_as_it_goes_on() -> None:
    with rig() as cluster:

        async def reads(person: Person) -> None:
            cluster.send("task-received", uuid="a", name="shop.pay", args="()", kwargs="{}")
            await person.sees("shop.pay")
            await person.press("enter")
            await person.sees("phase", "received")
            cluster.send("task-failed", uuid="a", exception="OSError('late')", traceback="Traceback: late")
            await person.sees("FAILURE", "TRACEBACK", "Traceback: late")
            await person.press("escape")
            await person.sees("WORKER", "shop.pay")

        sit_down(cluster.sight, reads)


FAMILY = (
    received("root", 1.0, name="shop.order", root_id="root"),
    succeeded("root", 2.0),
    received("pay", 3.0, name="shop.pay", root_id="root", parent_id="root"),
    received("ship", 4.0, name="shop.ship", root_id="root", parent_id="root"),
    received("mail", 5.0, name="shop.mail", root_id="root", parent_id="pay"),
    failed("mail", 6.0, exception="OSError('x')"),
)


def test_relatives_can_be_opened_and_escape_goes_back() -> None:
    async def visits(person: Person) -> None:
        await person.sees("shop.order")
        await person.press("enter")
        await person.sees(" task   shop.mail", "ancestor   SUCCESS       shop.order (sent 1 more, not shown)")
        await person.sees("parent     RECEIVED      └─shop.pay", "self       FAILURE         └─shop.mail")
        await person.press("p")
        await person.sees(" task   shop.pay", "parent     SUCCESS       shop.order")
        await person.sees("child      FAILURE       │ └─shop.mail", "sibling    RECEIVED      └─shop.ship")
        await person.press("tab", "down", "enter")
        await person.sees(" task   shop.mail")
        await person.press("escape", "escape", "escape")
        await person.sees("6 events", "shop.order")

    sit_down(past(*FAMILY), visits)


def test_how_many_relatives_are_not_shown_is_told() -> None:
    many = [received(f"c{number}", 2.0 + number / 100, parent_id="root") for number in range(103)]

    async def reads(person: Person) -> None:
        await person.sees("shop.pay")
        await person.press("slash")
        await person.type("shop.order")
        await person.press("enter", "enter")
        await person.sees(
            " task   shop.order", "self       RECEIVED      shop.order (sent 3 more, not shown)"
        )

    sit_down(past(received("root", 1.0, name="shop.order", root_id="root"), *many), reads)


def test_a_workflow_says_how_its_tasks_were_sent() -> None:
    async def looks(person: Person) -> None:
        await person.sees("shop.order")
        await person.press("w")
        await person.sees("KIND", "├─shop.pay", "group of 2", "chain link")

    sit_down(past(*FAMILY), looks, size=(120, 30))


def test_a_parent_that_nobody_heard_of_is_told_and_not_opened() -> None:
    async def visits(person: Person) -> None:
        await person.sees("shop.pay")
        await person.press("enter")
        await person.sees("parent     not in memory", "long-gone")
        await person.press("p")
        await person.sees("long-gone is not in memory")

    sit_down(past(received("t1", parent_id="long-gone", root_id="long-gone")), visits)


def test_a_task_that_is_forgotten_meanwhile_says_so() -> None:
    sight = past(received("t1"))

    async def reads(person: Person) -> None:
        await person.sees("shop.pay")
        await person.press("enter")
        await person.sees(" task   shop.pay")
        sight.scene.state.clear_tasks(ready=False)
        await person.sees("Task not in memory")

    sit_down(sight, reads)


def test_a_workflow_is_a_tree_whose_tasks_can_be_opened() -> None:
    async def looks(person: Person) -> None:
        await person.sees("shop.order")
        await person.press("w")
        await person.sees("4: 1 succeeded, 1 failed, 2 open")
        rows = [line.split()[0] for line in person.lines if "shop." in line and "RECEIVED" in line]
        assert rows == ["├─shop.pay", "└─shop.ship"]
        assert any(line.startswith("│ └─shop.mail") for line in person.lines)
        await person.press("home", "down", "down", "down", "enter")
        await person.sees(" task   shop.ship")

    sit_down(past(*FAMILY), looks)


def test_branches_lead_from_each_row_to_the_one_above() -> None:
    assert branches([0, 1, 2, 2, 1, 2]) == ["", "├─", "│ ├─", "│ └─", "└─", "  └─"]
    assert branches([0, 0, 1]) == ["", "", "└─"]
    assert branches([]) == []
