"""Pages under a flood of events: what is shown changes at a pace that people can read."""

from collections.abc import Iterator

import pytest

from celeriac.programs.process import wait_until
from tests.browser.conftest import Visit
from tests.browser.kit import PATIENCE, Cluster, Dashboard

PAGES = ["/", "/tasks", "/tasks/t1", "/workflows/t1", "/workers", "/workers/w1@lab", "/cluster"]
#: Updates that a page may get in a second.
MOST = 2
#: What comes at once when a page is opened: its parts, and what is in them.
AT_FIRST = 6
#: Far more events than updates.
FLOOD = 500
#: For how long pages are watched at least, in seconds.
WATCHED = 8.0
#: Writes down when each message of the live link came, in seconds since the page was asked for. "42" is how
#: those begin that change something; others say that the link lives.
METER = """
window.cameAt = [];
window.WebSocket = class extends WebSocket {
  constructor(...given) {
    super(...given);
    this.addEventListener("message", (message) => {
      if (message.data.startsWith("42")) window.cameAt.push(performance.now() / 1000);
    });
  }
};
"""


@pytest.fixture
def flooded(cluster: Cluster, served: Dashboard) -> Iterator[Dashboard]:
    cluster.run_task("t1")
    cluster.arrived(served)
    with cluster.flood():
        yield served


def test_no_page_is_changed_more_than_twice_a_second_however_many_events_come(
    flooded: Dashboard, visit: Visit
) -> None:
    before = flooded.api("overview")["events"]
    pages = {}
    for path in PAGES:
        visitor = visit(flooded)
        visitor.page.add_init_script(METER)
        pages[path] = visitor.go(path)

    def came_at(path: str) -> list[float]:
        told: list[float] = pages[path].evaluate("window.cameAt")
        return told

    def is_watched() -> bool:
        return all(len(told) > 4 and told[-1] > WATCHED for told in map(came_at, PAGES))

    assert wait_until(is_watched, patience=PATIENCE), {path: came_at(path) for path in PAGES}
    assert wait_until(lambda: flooded.api("overview")["events"] > before + FLOOD, patience=PATIENCE)
    told = {path: came_at(path) for path in PAGES}

    # They are counted from when the page was asked for, before the first could be sent: on a slow machine
    # they come later than that, and there are never more of them.
    too_many = {
        path: moments
        for path, moments in told.items()
        if any(number > AT_FIRST + MOST * moment for number, moment in enumerate(moments, 1))
    }
    assert too_many == {}
