"""A task is revoked where that is allowed, and only after a yes."""

import json
from collections.abc import Sequence

import pytest

from celeriac.errors import ConnectionLost
from tests.event_logs import received
from tests.tui.kit import Person, past, rig, sit_down


def test_a_revoke_is_sent_after_a_yes_and_not_before() -> None:
    with rig() as cluster:

        async def revokes(person: Person) -> None:
            cluster.send("task-received", uuid="a", name="shop.pay", args="()", kwargs="{}")
            await person.sees("shop.pay")
            await person.press("r")
            await person.sees("Revoke shop.pay", "y  yes")
            assert cluster.commands() == []
            await person.press("y")
            await person.sees("revoked a; no worker answered")

        sit_down(cluster.sight, revokes, revoke=cluster.revoke)

        (command,) = cluster.commands()
        assert b'"method":"revoke"' in command
        assert b'"task_id":"a"' in command
        assert b'"terminate":false' in command


@pytest.mark.parametrize("chosen", ["evil\n", "evil\\n"])
def test_of_two_tasks_whose_ids_are_shown_alike_the_chosen_one_is_revoked(chosen: str) -> None:
    (other,) = {"evil\n", "evil\\n"} - {chosen}
    with rig() as cluster:

        async def revokes(person: Person) -> None:
            cluster.send("task-received", uuid=other, name="shop.other", args="()", kwargs="{}")
            cluster.send("task-received", uuid=chosen, name="shop.pay", args="()", kwargs="{}")
            await person.sees("shop.pay", "shop.other")
            # The one heard of last is the first.
            await person.press("enter")
            await person.sees("EVENT HISTORY")
            await person.press("r")
            await person.sees("Revoke shop.pay")
            await person.press("y")
            await person.sees("revoked evil\\n; no worker answered")

        sit_down(cluster.sight, revokes, revoke=cluster.revoke)

        (command,) = cluster.commands()
        assert b'"task_id":%s' % json.dumps(chosen).encode() in command


@pytest.mark.parametrize("key", ["n", "escape"])
def test_a_no_sends_nothing(key: str) -> None:
    with rig() as cluster:

        async def hesitates(person: Person) -> None:
            cluster.send("task-received", uuid="a", name="shop.pay", args="()", kwargs="{}")
            await person.sees("shop.pay")
            await person.press("enter")
            await person.sees("EVENT HISTORY")
            await person.press("r")
            await person.sees("Revoke shop.pay")
            await person.press("enter", "x", key)
            await person.sees_no("Revoke shop.pay")
            await person.sees("EVENT HISTORY")

        sit_down(cluster.sight, hesitates, revoke=cluster.revoke)

        assert cluster.commands() == []


def test_without_leave_nothing_is_asked_and_it_says_how_to_get_it() -> None:
    with rig() as cluster:

        async def tries(person: Person) -> None:
            cluster.send("task-received", uuid="a", name="shop.pay", args="()", kwargs="{}")
            await person.sees("shop.pay")
            await person.press("r")
            await person.sees("--allow-control")
            await person.press("y")
            assert "Revoke shop.pay" not in person.text

        sit_down(cluster.sight, tries)

        assert cluster.commands() == []


def test_what_has_ended_is_not_revoked() -> None:
    with rig() as cluster:

        async def tries(person: Person) -> None:
            cluster.send("task-succeeded", uuid="a", result="1", runtime=0.5)
            await person.sees("SUCCESS")
            await person.press("r")
            await person.sees("The task has ended: SUCCESS")

        sit_down(cluster.sight, tries, revoke=cluster.revoke)

        assert cluster.commands() == []


def test_nothing_of_a_log_is_revoked_whatever_is_allowed() -> None:
    sent: list[str] = []

    def note(uuid: str) -> None:
        sent.append(uuid)

    async def tries(person: Person) -> None:
        await person.sees("shop.pay")
        await person.press("r")
        await person.sees("nothing to revoke")
        await person.press("y")

    sit_down(past(received("t1")), tries, revoke=note)

    assert sent == []


def test_a_revoke_that_fails_says_why_and_the_screen_goes_on() -> None:
    def fail(_: str) -> Sequence[object] | None:
        raise ConnectionLost("the broker is away")

    with rig() as cluster:

        async def revokes(person: Person) -> None:
            cluster.send("task-received", uuid="a", name="shop.pay", args="()", kwargs="{}")
            await person.sees("shop.pay")
            await person.press("r")
            await person.sees("Revoke shop.pay")
            await person.press("y")
            await person.sees("not revoked: the broker is away", "shop.pay")

        sit_down(cluster.sight, revokes, revoke=fail)
