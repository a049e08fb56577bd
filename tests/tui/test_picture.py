"""A picture of the first screen, for the docs."""

import re
from typing import Any

from celeriac.tui.sight import LiveSight
from tests.pictures import PICTURES
from tests.tui.kit import Person, Rig, rig, sit_down

#: Fonts that a browser would fetch from elsewhere; it has one of its own.
_FONT = re.compile(r"@font-face \{.*?\}", re.DOTALL)
_LOADS = {"w1@shop": (0.42, 0.5, 0.61), "w2@shop": (1.73, 1.2, 0.9)}


def have_happened(cluster: Rig) -> None:
    """Have two workers do a few tasks of a shop."""
    nodes = {name: cluster.app.events.Dispatcher(hostname=name) for name in _LOADS}

    def send(node: str, kind: str, **fields: Any) -> None:
        nodes[node].send(kind, **fields)

    for number in range(24):
        node = ("w1@shop", "w2@shop")[number % 2]
        name = ("shop.pay", "shop.pack", "mail.send", "shop.ship")[number % 4]
        uuid = f"{97 * number % 256:02x}e5ff95-2212-42cb-8152-9e980b6fbf45"
        send(node, "task-received", uuid=uuid, name=name, args=f"({number},)", kwargs="{}")
        send(node, "task-started", uuid=uuid)
        if number == 21:
            send(node, "task-failed", uuid=uuid, exception="OSError('no route')", traceback="")
        elif number == 18:
            send(node, "task-retried", uuid=uuid, exception="OSError('busy')", traceback="")
        elif number < 23:
            send(node, "task-succeeded", uuid=uuid, result=f"'order {number}'", runtime=0.02 * (number + 1))
    for name, load in _LOADS.items():
        send(name, "worker-heartbeat", freq=60.0, active=0, processed=12, loadavg=load, sw_ident="py-celery")
        nodes[name].close()


def test_the_first_screen_is_kept_as_a_picture_that_fetches_nothing() -> None:
    with rig() as cluster:
        have_happened(cluster)

        async def looks(person: Person) -> None:
            await person.sees("24 tasks", "STARTED", "OSError('no route')", "w1@shop", "1.73", "q Quit")
            PICTURES.mkdir(parents=True, exist_ok=True)
            drawn = _FONT.sub("", person.top.export_screenshot(title="celeriac top"))
            (PICTURES / "top.svg").write_text(drawn)

        sit_down(LiveSight(cluster.watcher, place="redis://127.0.0.1:6379/0"), looks)

    kept = (PICTURES / "top.svg").read_text()
    assert "shop.pay" in kept
    assert "Quit" in kept
    assert "url(" not in kept.replace("url(#", "")
