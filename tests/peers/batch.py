"""A client of a real Celery that sends what it is told to, waits for all of it, and prints what it got.

Reads one JSON object: ``tasks`` is a list of ``[name, arguments, options]``; ``across`` is a list of
queues, over which a chain, a group and chords are spread; ``protocol`` is that of the messages.
Prints one list, with the id and the result of each, or the name of the error in place of that.
"""

import json
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from celery import chain, chord, group

peers = import_module("app")


def spread(queues: list[str]) -> Iterator[tuple[str, Any]]:
    """Yield what a client can compose, each with its tasks on one queue after the other."""
    length = 2 * len(queues)

    def on(number: int, signature: Any) -> Any:
        return signature.set(queue=queues[number % len(queues)])

    def numbers() -> list[Any]:
        return [on(number, peers.add.s(number, number)) for number in range(length)]

    yield "chain", chain(*(on(n, peers.add.s(1) if n else peers.add.s(0, 1)) for n in range(length)))
    yield "group", group(numbers())
    for number, queue in enumerate(queues):
        yield f"chord that ends on {queue}", chord(numbers(), on(number, peers.total.s()))
    yield "group in a chain", chain(group(numbers()), on(1, peers.total.s()), on(2, peers.add.s(1)))
    chains = [
        chain(on(n, peers.add.s(n, n)), on(n + 1, peers.add.s(1)), on(n + 2, peers.add.s(1)))
        for n in range(length)
    ]
    yield "chord of chains", chord(chains, on(3, peers.total.s()))


def value_of(result: Any, patience: float) -> Any:
    """Return what came of something."""
    try:
        return result.get(timeout=patience)
    except Exception as error:  # noqa: BLE001 - the test is to see it
        return f"{type(error).__name__}: {error}"


def main() -> None:
    """Do what the input says."""
    work = json.load(sys.stdin)
    peers.app.conf.task_protocol = work.get("protocol", 2)
    sent = []
    for name, arguments, options in work.get("tasks", ()):
        result = peers.app.send_task(name, arguments, **options)
        sent.append((str(result.id), result))
    if work.get("across"):
        sent += [(name, composed.apply_async()) for name, composed in spread(work["across"])]
    print(json.dumps([(name, value_of(result, work["patience"])) for name, result in sent]))


if __name__ == "__main__":
    main()
