"""A web service that hands work to Celery and awaits the results.

Run a worker and the service, each in a terminal of its own, beside a Redis:

    celery --app fastapi_results worker
    uvicorn fastapi_results:web
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from celery import Celery
from fastapi import FastAPI, HTTPException, Request, Response

from celeriac import AsyncResult, Celeriac, RemoteError, ResultTimeout

REDIS = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0")

celery = Celery("shop", broker=REDIS, backend=REDIS)
results = Celeriac(REDIS, backend=REDIS)


@celery.task(name="shop.report")
def report(pages: int) -> dict[str, int]:
    """Run in a worker."""
    if pages < 1:
        raise ValueError("a report has at least one page")
    return {"pages": pages, "words": pages * 300}


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """End the link to the results with the service."""
    yield
    await asyncio.to_thread(results.close)


web = FastAPI(lifespan=lifespan)


@web.post("/reports")
async def order(pages: int, request: Request, response: Response, patience: float = 5.0) -> Any:
    """Send the task; answer with its result, or with where to ask for it later."""
    # Celery's client waits for a socket, so it gets a thread.
    sent = await asyncio.to_thread(report.delay, pages)
    try:
        return await outcome(sent.id, request, patience)
    except ResultTimeout:
        response.status_code = 202
        response.headers["Location"] = f"/reports/{sent.id}"
        return {"task_id": sent.id}


@web.get("/reports/{task_id}")
async def look(task_id: str, request: Request, patience: float = 5.0) -> Any:
    """Answer with the result of a task that was sent before."""
    try:
        return await outcome(task_id, request, patience)
    except ResultTimeout as error:
        raise HTTPException(504, str(error)) from error


@web.get("/health")
async def health() -> dict[str, Any]:
    """Tell how the way to results is, and how many wait."""
    return results.backend.health()._asdict()


async def outcome(task_id: str, request: Request, patience: float) -> Any:
    """Await a result, but no longer than the client does."""
    waiting = asyncio.create_task(value_of(results.AsyncResult(task_id), patience))
    gone = asyncio.create_task(disconnect(request))
    try:
        await asyncio.wait({waiting, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            raise HTTPException(499, "the client has gone")  # nobody reads this
        return waiting.result()
    finally:
        waiting.cancel()
        gone.cancel()


async def value_of(result: AsyncResult, patience: float) -> Any:
    """Await a result; a task that failed is a bad gateway to us."""
    try:
        return await result.get(timeout=patience)
    except RemoteError as error:
        raise HTTPException(502, str(error)) from error


async def disconnect(request: Request) -> None:
    """Return once the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
