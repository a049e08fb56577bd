"""Events from a broker to the cluster state: ours beside Celery's ``EventReceiver`` and ``State``.

A receiver subscribes, and its first event, a marker, makes it wait. While it waits the whole
load is published, so that the broker holds it all; then the receiver goes on, and the time from
there until the last event is in the state counts, with the state of every task in memory read
at the end. So no publisher takes part of the machine from what is measured.

The limit is the bare client of each broker, redis-py with hiredis or py-amqp, which throws away
what it gets.
"""

import json
import logging
import sys
from contextlib import suppress
from itertools import islice
from time import perf_counter
from typing import Any

from benchmarks import brokers, stream
from benchmarks.report import Row
from celeriac.config import Settings
from celeriac.model.message import Exchange
from celeriac.transport.base import Connection
from celeriac.transport.connect import connect
from celeriac.wire.names import event_exchange

EVENTS = {"single": 60_000, "multi": 144_000}
MARKER = b'{"type": "cluster-marker", "hostname": "benchmark", "timestamp": 1, "clock": 1}'
#: The load waits in the queue for as long as it takes to publish it.
QUEUE_TTL = 600.0


def run() -> dict[str, Row]:
    """Measure all rows, all sides in turn."""
    return brokers.measure_rows(_measure, ("ours", "peer", "limit"))


def _measure(side: str, url: str, kind: str) -> float:
    process = brokers.Side("receive", side, url, kind)
    with connect(Settings(broker_url=url)) as link:
        exchange = event_exchange("celeryev", link.driver)
        while not process.has_said("begun", within=0.2):  # markers before the subscription are lost
            _publish(link, exchange, [MARKER])
        if not process.has_said("ready", within=60):
            raise SystemExit(f"{side} did not get ready")
        _publish(link, exchange, _load(kind))
    process.tell("go")
    return process.rate()


def _publish(link: Connection, exchange: Exchange, bodies: list[bytes]) -> None:
    for body in bodies:
        key = "task.multi" if body.startswith(b"[") else "task.any"
        link.publish(exchange, body, routing_key=key, headers={"hostname": "benchmark"})
    if link.unconfirmed(60):
        raise SystemExit("the broker did not take the load")


def _load(kind: str) -> list[bytes]:
    bodies = stream.bodies()
    events = EVENTS[kind]
    if kind == "single":
        return list(islice(bodies, events))
    size = brokers.BATCH
    return [b"[%b]" % b",".join(islice(bodies, size)) for _ in range(events // size)]


# -- one side, in its own process


def _say_begun() -> None:
    """Let the markers end."""
    print("begun", flush=True)


def _wait_for_the_load() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


def _ours(url: str, events: int) -> float:
    from celeriac import Celeriac  # noqa: PLC0415 - neither side loads the other

    app = Celeriac(url, event_queue_ttl=QUEUE_TTL, environ={})
    state = app.events.State()
    receiver = app.events.Receiver(state=state)
    next(receiver.itercapture(wakeup=False))
    _say_begun()
    with suppress(TimeoutError):
        receiver.capture(timeout=1, wakeup=False)
    _wait_for_the_load()
    begun = perf_counter()
    receiver.capture(limit=events, timeout=30, wakeup=False)
    return _rate(state, events, begun)


def _peer(url: str, events: int) -> float:
    from celery import Celery  # noqa: PLC0415

    app = Celery(broker=url)
    app.conf.event_queue_ttl = QUEUE_TTL
    state = app.events.State()
    begun, left = 0.0, events

    def handle(event: dict[str, Any]) -> None:
        nonlocal begun, left
        if event["type"] == "cluster-marker":
            if not begun:
                _say_begun()
                _wait_for_the_load()
                begun = perf_counter()
            return
        state.event(event)
        left -= 1
        receiver.should_stop = left <= 0

    with app.connection() as connection:
        receiver = app.events.Receiver(connection, handlers={"*": handle})
        receiver.capture(limit=None, timeout=30, wakeup=False)
    return _rate(state, events, begun)


def _rate(state: Any, events: int, begun: float) -> float:
    for _, task in state.itertasks():
        task.state  # noqa: B018 - to read it is part of the work
    return events / (perf_counter() - begun)


def _limit(url: str, events: int, kind: str) -> float:
    messages = events if kind == "single" else events // brokers.BATCH
    return events / (_redis_seconds if url.startswith("redis") else _amqp_seconds)(url, messages)


def _redis_seconds(url: str, messages: int) -> float:
    import redis  # noqa: PLC0415

    client: Any = redis.Redis.from_url(url)
    topics = client.pubsub(ignore_subscribe_messages=True)
    topics.psubscribe("/0.celeryev/*")
    while topics.get_message(timeout=1.0) is None:
        pass
    _say_begun()
    while topics.get_message(timeout=1.0) is not None:
        pass
    _wait_for_the_load()
    begun = perf_counter()
    for _ in range(messages):
        topics.parse_response()
    return perf_counter() - begun


def _amqp_seconds(url: str, messages: int) -> float:
    from kombu import Connection as KombuConnection  # noqa: PLC0415

    left, begun = messages, 0.0
    with KombuConnection(url) as connection:
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).queue
        channel.exchange_declare("celeryev", "topic", durable=True, auto_delete=False)
        channel.queue_bind(queue, "celeryev", "#")

        def receive(message: Any) -> None:
            nonlocal left, begun
            if message.body == MARKER.decode() and not begun:
                _say_begun()
                _wait_for_the_load()
                begun = perf_counter()
            elif message.body != MARKER.decode():
                left -= 1

        channel.basic_consume(queue, no_ack=True, callback=receive)
        while left:
            connection.drain_events(timeout=30)
        return perf_counter() - begun


if __name__ == "__main__":
    side, url, kind = sys.argv[1:]
    logging.disable()  # both warn of the stream's times, which are long past
    measured = {"ours": _ours, "peer": _peer}
    rate = _limit(url, EVENTS[kind], kind) if side == "limit" else measured[side](url, EVENTS[kind])
    print(json.dumps(rate))
