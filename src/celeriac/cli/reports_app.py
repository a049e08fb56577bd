"""The app of ours in the sample cluster: ``celeriac worker --app celeriac.cli.reports_app:app``.

:mod:`celeriac.testing.sample` sends its tasks.
"""

import time
from typing import Any

from celeriac import Celeriac

__all__ = ["app"]

app = Celeriac(task_default_queue="reports", task_send_sent_event=True)


@app.task(name="reports.count")
def count(text: str) -> int:
    """Count words, a little slowly."""
    time.sleep(0.1)
    return len(text.split())


@app.task(name="reports.total")
def total(counts: list[int]) -> int:
    """Add up what several have counted."""
    return sum(counts)


@app.task(name="reports.fetch", bind=True, max_retries=3)
def fetch(self: Any) -> int:
    """Succeed at the second attempt."""
    retries: int = self.request.retries
    if retries < 1:
        raise self.retry(countdown=0.5, exc=TimeoutError("no answer yet"))
    return retries


@app.task(name="reports.render")
def render(pages: int) -> int:
    """Take a fifth of a second for each page; there is no page zero."""
    if pages <= 0:
        raise ValueError("nothing to render")
    time.sleep(0.2 * pages)
    return pages
