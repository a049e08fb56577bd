"""The dashboard that the examples of the page about the HTTP API ask."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from celeriac.store.audit import Audit
from celeriac.web.access import Access
from celeriac.web.action import Actions
from tests.component.web.kit import rig, served

__all__ = ["MARK", "serve_dashboard"]

#: An example with it asks a dashboard.
MARK = "DASHBOARD_URL"
#: Seconds between heartbeats: whoever begins to listen waits for one.
_INTERVAL = 0.1


@contextmanager
def serve_dashboard(folder: Path) -> Iterator[str]:
    """Serve five tasks, two of which failed, and a worker that sends heartbeats; yield the URL."""
    has_ended = Event()
    with rig(folder) as cluster:
        for number in range(5):
            uuid = f"t-{number}"
            cluster.send("task-sent", uuid=uuid, name="shop.pay", queue="celery", args="(1,)", kwargs="{}")
            if number in (1, 3):
                cluster.send("task-received", uuid=uuid, name="shop.pay", args="(1,)", kwargs="{}")
                cluster.send("task-started", uuid=uuid)
                cluster.send("task-failed", uuid=uuid, exception="Timeout('card')", traceback="")
            else:
                cluster.run_task(uuid, args="(1,)", kwargs="{}")
        cluster.arrived()

        def send_heartbeats() -> None:
            while not has_ended.wait(_INTERVAL):
                cluster.send("worker-heartbeat", freq=2.0)

        heart = Thread(target=send_heartbeats)
        actions = Actions(
            cluster.board, cluster.app.control, Audit(folder / "audit"), send=cluster.app.send_task
        )
        with served(cluster, Access(allow_control=True), actions) as client:
            heart.start()
            try:
                yield str(client.base_url).rstrip("/")
            finally:
                has_ended.set()
                heart.join()
