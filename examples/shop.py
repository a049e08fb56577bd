"""A small shop: an app, and the tasks that its workers run."""

import time
from typing import Any

from celeriac import Celeriac

app = Celeriac()  # CELERIAC_BROKER_URL and CELERIAC_RESULT_BACKEND say where to


@app.task
def price(amount: int, each: float) -> float:
    """Return what a number of things costs."""
    return amount * each


@app.task(bind=True, autoretry_for=(ConnectionError,), retry_backoff=True, max_retries=5)
def pay(self: Any, order: str) -> str:
    """Pay an order; while the bank cannot be reached it is tried again, each time a little later."""
    if self.request.retries < 2:
        raise ConnectionError("the bank does not answer")
    return f"{order} paid at try {self.request.retries + 1}"


@app.task(bind=True, acks_late=True, soft_time_limit=60)
def pack(self: Any, order: str, parts: int = 3) -> str:
    """Pack an order, and tell how far it is; if the worker dies, another one packs it."""
    for part in range(1, parts + 1):
        time.sleep(0.2)
        self.update_state("PROGRESS", {"part": part, "parts": parts})
    return f"{order}: {parts} parts packed"
