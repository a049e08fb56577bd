"""Beats on three hosts: whoever is killed or paused, each tick is sent once at the most, and none waits long.

``HYPOTHESIS_PROFILE=long`` goes on with each for ten minutes.
"""

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count, pairwise
from threading import Event, Thread
from time import monotonic
from typing import Self

import pytest

from celeriac.app import Celeriac
from celeriac.errors import CeleriacError
from celeriac.model.election import Record
from celeriac.model.message import Delivery
from celeriac.node.term import lease_key
from celeriac.programs.process import wait_until
from celeriac.programs.service import Service
from celeriac.testing.brokers import RedisServer
from celeriac.wire.names import task_queue
from tests.fleet import PATIENCE, run_all
from tests.interop.conftest import BROKERS

IS_LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
#: How long it goes on at least.
SECONDS = 600.0 if IS_LONG else 0.0
#: Before each pause.
KILLS = 5 if IS_LONG else 2
INTERVALS = {"quick": 0.5, "slow": 1.3}
TTL = 2.0
#: Beyond the bound, for a machine that does much else: a process may get no time for long.
SLACK = 45.0
QUEUE = "pulses"
#: Ticks that are seen between one fault and the next.
SOME = 3


class BeatProcess(Service):
    """A beat in a process of its own."""

    name = "beat"

    def __init__(self, url: str) -> None:
        super().__init__()
        schedule = {
            name: {"task": f"shop.{name}", "schedule": interval, "options": {"queue": QUEUE}}
            for name, interval in INTERVALS.items()
        }
        self._extra = {
            "CELERIAC_BROKER_URL": url,
            "CELERIAC_BEAT_SCHEDULE": json.dumps(schedule),
            "CELERIAC_BEAT_TTL": str(TTL),
        }
        self._started_at_byte = 0

    def start(self) -> None:
        """Start it, and wait until it stands for the leadership."""
        self._started_at_byte = self.log_file.stat().st_size if self.log_file.exists() else 0
        super().start()

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "celeriac", "beat"]

    def _environment(self) -> dict[str, str]:
        return dict(os.environ) | self._extra

    def _is_ready(self) -> bool:
        return b"  schedule  " in self.log_file.read_bytes()[self._started_at_byte :]


@dataclass(frozen=True)
class Pulse:
    """A tick as it came by the queue."""

    id: str
    entry: str
    tick: float
    token: int


@dataclass
class Hosts:
    """Three beats, and all that they send."""

    app: Celeriac
    beats: list[BeatProcess]
    pulses: list[Pulse] = field(default_factory=list)
    _stopping: Event = field(default_factory=Event)

    def __enter__(self) -> Self:
        self._reader = Thread(target=self._read)
        self._reader.start()
        run_all([beat.start for beat in self.beats])
        return self

    def __exit__(self, *_: object) -> None:
        for beat in self.beats:
            beat.kill()
            print(f"== {beat.folder}\n{beat.log()}")  # pytest shows it if the test failed
            beat.close()
        self.read_no_more()
        self.app.close()

    def read_no_more(self) -> None:
        """End the reader."""
        self._stopping.set()
        self._reader.join()

    def _read(self) -> None:
        with self.app.connection() as connection:

            def take(delivery: Delivery) -> None:
                headers = delivery.message.headers
                self.pulses.append(
                    Pulse(
                        str(headers["id"]),
                        str(headers["beat"]),
                        float(str(headers["beat_tick"])),
                        int(str(headers["fencing"])),
                    )
                )
                connection.accept(delivery)

            connection.consume(task_queue(self.app.conf, QUEUE), take, prefetch=100)
            while not self._stopping.is_set():
                connection.drain(0.1)

    @property
    def record(self) -> Record | None:
        """Who leads."""
        return self.app.arbiter.read(lease_key("beat"))

    @property
    def token(self) -> int:
        """Of the last leader that something came from."""
        return self.pulses[-1].token if self.pulses else 0

    def let_some_come(self, *, above: int = 0) -> None:
        """Wait until ticks came from a leader whose token is higher than this one."""
        came = len(self.pulses)

        def have_come() -> bool:
            return sum(pulse.token > above for pulse in self.pulses[came:]) >= SOME

        assert wait_until(have_come, patience=PATIENCE)

    def leading(self) -> BeatProcess:
        """Return the beat that leads."""
        found: list[BeatProcess] = []

        def is_found() -> bool:
            record = self.record
            pid = int(record.owner.split(".")[-2]) if record is not None else 0
            found[:] = [beat for beat in self.beats if beat.pid == pid]
            return bool(found)

        assert wait_until(is_found, patience=PATIENCE)
        return found[0]

    def kill_leader(self) -> None:
        """Kill who leads, see another go on, and start it again."""
        leader, token = self.leading(), self.token
        leader.kill()
        self.let_some_come(above=token)
        leader.start()

    def pause_leader(self) -> None:
        """Let who leads sleep until another has gone on for a while, and wake it."""
        leader, token = self.leading(), self.token
        leader.signal(signal.SIGSTOP)
        self.let_some_come(above=token)
        leader.signal(signal.SIGCONT)
        self.let_some_come(above=token)

    def taken(self) -> list[Pulse]:
        """Return what who refuses a token lower than one it has seen would have taken."""
        taken: list[Pulse] = []
        for pulse in self.pulses:
            if not taken or pulse.token >= taken[-1].token:
                taken.append(pulse)
        return taken


@pytest.fixture(params=BROKERS)
def hosts(request: pytest.FixtureRequest) -> Iterator[Hosts]:
    with ExitStack() as stack:
        if request.param == "redis":
            redis = RedisServer({"appendonly": "yes", "appendfsync": "everysec"})
            url = stack.enter_context(redis).url
        else:
            url = request.getfixturevalue("amqp_url")
        app = Celeriac(url, environ={})
        yield stack.enter_context(Hosts(app, [BeatProcess(url) for _ in range(3)]))


def test_each_tick_is_sent_once_and_none_waits_for_long_whoever_is_killed_or_paused(hosts: Hosts) -> None:
    until = monotonic() + SECONDS
    hosts.let_some_come()
    for number in count(1):
        hosts.kill_leader()
        if number % KILLS == 0:
            hosts.pause_leader()
            if monotonic() >= until:
                break
    run_all([beat.stop for beat in hosts.beats])
    hosts.read_no_more()

    ids = [pulse.id for pulse in hosts.pulses]
    assert len(ids) == len(set(ids))
    assert [beat.exit_code for beat in hosts.beats] == [0, 0, 0]
    tokens = list(dict.fromkeys(pulse.token for pulse in hosts.pulses))
    assert len(tokens) > KILLS
    assert tokens == sorted(tokens)
    for entry, interval in INTERVALS.items():
        ticks = [pulse.tick for pulse in hosts.taken() if pulse.entry == entry]
        assert all(one < other for one, other in pairwise(ticks))
        # One that was killed between noting a tick and sending it takes that tick with it.
        bound = interval + TTL + 2 + interval
        gaps = [other - one for one, other in pairwise(ticks)]
        print(f"{entry}: {len(ticks)} ticks, the longest gap {max(gaps):.1f} s, the bound {bound:.1f} s")
        assert max(gaps) <= bound + SLACK


def test_where_a_grant_could_vanish_no_beat_begins_and_it_says_what_to_change() -> None:
    with RedisServer({"appendonly": "no", "save": ""}) as server:
        beat = BeatProcess(server.url)

        with pytest.raises(CeleriacError, match="exited with code 78") as raised:
            beat.start()

        beat.close()
    assert "below election_min_level L2" in str(raised.value)
