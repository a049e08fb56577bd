"""A process that stands in elections and wants to lead, until it is killed.

It is a worker of ours, in whose elections on the topic ``effect`` the winner writes to a fenced sink, and
beside it a thread that contends for a lease and writes as its leader. ``CANDIDATE`` is JSON: the ``name`` of
the node, the socket of the ``sink``, the ``journal`` of what it believes, and the ``ttl`` of the lease.
"""

import json
import logging
import os
import socket
from random import uniform
from threading import Lock, Thread
from time import monotonic, sleep
from typing import Any
from uuid import uuid4

from celeriac import Celeriac
from celeriac.errors import CeleriacError
from celeriac.node.leadership import Leadership

logger = logging.getLogger(__name__)

LEASE = "lease"
#: How often a leader asks whether it still is, and after how many times it writes, which takes longer.
ASK_EVERY, WRITE_AFTER, WORK = 0.01, 4, 0.1
#: How long a leader leads until it resigns, at the most.
LONGEST = 8.0


class Sink:
    """The way to the sink: no fault is between."""

    def __init__(self, path: str, boot: str) -> None:
        self._boot = boot
        self._lock = Lock()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._answers = self._socket.makefile("rb")

    def begin(self, key: str, token: int, *, owner: str, entered_at: float) -> None:
        """Say that we act by a token, which was granted after a moment."""
        self._say(key, token, owner, entered_at, is_begin=True)

    def write(self, key: str, token: int, *, owner: str, entered_at: float) -> None:
        """Write by a token."""
        self._say(key, token, owner, entered_at, is_begin=False)

    def _say(self, key: str, token: int, owner: str, entered_at: float, *, is_begin: bool) -> None:
        told = {"key": key, "token": token, "owner": owner, "boot": self._boot}
        line = json.dumps(told | {"entered_at": entered_at, "is_begin": is_begin})
        with self._lock:
            self._socket.sendall(f"{line}\n".encode())
            self._answers.readline()


def lead_again_and_again(app: Celeriac, sink: Sink, journal: int, boot: str, ttl: float) -> None:
    while True:
        leader = app.leadership(LEASE, ttl=ttl)
        entered_at = monotonic()
        try:
            if leader.elect():
                lead(leader, sink, journal, boot, entered_at)
        except CeleriacError:
            logger.exception("The leadership failed.")
        leader.resign()
        sleep(uniform(0.0, 0.2))


def lead(leader: Leadership, sink: Sink, journal: int, boot: str, entered_at: float) -> None:
    """Write as the leader while it is one. What it believes is on file before anything else happens."""
    sink.begin(LEASE, leader.token, owner=leader.hostname, entered_at=entered_at)
    until, asked = monotonic() + uniform(LONGEST / 8, LONGEST), 0
    while monotonic() < until:
        token, before = leader.token, monotonic()
        is_leader = leader.is_leader()
        after = monotonic()
        if not is_leader:
            return
        os.write(journal, f"{json.dumps([token, boot, before, after])}\n".encode())
        asked += 1
        sleep(ASK_EVERY)
        if asked % WRITE_AFTER == 0:
            sleep(WORK)  # who is paused in it writes late
            sink.write(LEASE, token, owner=leader.hostname, entered_at=entered_at)


def main() -> None:
    logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s %(message)s", level=logging.INFO)
    told: dict[str, Any] = json.loads(os.environ["CANDIDATE"])
    boot = f"{told['name']}/{uuid4().hex[:8]}"
    app = Celeriac(hostname=told["name"])
    sink = Sink(told["sink"], boot)
    journal = os.open(told["journal"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    worker = app.Worker(told["name"], concurrency=1)

    def act(action: Any, mandate: Any) -> None:
        owner, entered_at = worker.parts.elector.owner, action["called_at"]
        sink.begin(mandate.id, mandate.token, owner=owner, entered_at=entered_at)
        sleep(action["seconds"])  # in which it can be killed, or paused
        sink.write(mandate.id, mandate.token, owner=owner, entered_at=entered_at)

    worker.gossip.election_handlers["effect"] = act
    Thread(target=lead_again_and_again, args=(app, sink, journal, boot, told["ttl"]), daemon=True).start()
    print(f"{told['name']} is up as {boot}", flush=True)
    worker.run()


if __name__ == "__main__":
    main()
