"""Chords whose tasks end on workers of Celery and on ours: the body gets all results, once."""

import json
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import permutations
from threading import Barrier
from typing import Any
from uuid import uuid4

import pytest
import redis

from celeriac import Celeriac, MemoryBroker
from celeriac.config import Settings
from celeriac.errors import ConnectionLost, ImproperlyConfigured
from celeriac.model.chord import ChordEnd
from celeriac.model.result import Failure, Json, ResultMeta, StoredResult
from celeriac.node.redis_backend import RedisBackend
from celeriac.programs.port import LOOPBACK
from celeriac.programs.process import wait_until
from celeriac.testing.brokers import RedisServer
from celeriac.testing.peers import CeleryWorker
from celeriac.transport.redis_link import RedisLink
from tests.live import PEER_APP, PEERS, peer

PATIENCE = 60.0
FAILURE = Json(b'{"exc_type": "ValueError", "exc_message": ["planned"], "exc_module": "builtins"}')
#: A client that sends a chord to a queue that nobody serves, its body to one that is served. It prints the
#: id of the body.
CLIENT = """
import json, sys
from celery import chord, group
from app import add, echo, fail, total
def part(number):
    return add.s(number, number).set(queue="parts")
def more(number):
    return add.s(number).set(queue="parts")
kinds = {
    "flat": lambda: chord([part(number) for number in range(6)], total.s()),
    "fails": lambda: chord([part(0), fail.s().set(queue="parts"), part(2)], total.s()),
    "nested": lambda: chord([part(1) | group(more(10), more(20)), part(2)], echo.s()),
}
print(kinds[sys.argv[1]]().apply_async().id)
"""


@dataclass
class Part:
    """A task of a header, as its message tells it."""

    envelope: bytes
    headers: dict[str, Any]
    args: list[Any]
    chord: dict[str, Any]

    @property
    def id(self) -> str:
        return str(self.headers["id"])


class Cluster:
    """A Redis with a worker of each Celery, where we are the third kind of worker."""

    def __init__(self, server: RedisServer, ends: ExitStack) -> None:
        self.server = server
        self.redis = ends.enter_context(server.client())
        self.backend = RedisBackend(Settings(result_backend=server.url))
        ends.callback(self.backend.close)
        self.workers = {version: self._worker(version, ends) for version in PEERS}

    def _worker(self, version: str, ends: ExitStack) -> CeleryWorker:
        url = self.server.url
        worker = CeleryWorker(
            peer(version), PEER_APP, url=url, backend=url, pool="solo", arguments=("-Q", version)
        )
        ends.callback(self._end, worker)
        worker.start()
        return worker

    @staticmethod
    def _end(worker: CeleryWorker) -> None:
        worker.kill()
        print(worker.log())  # pytest shows it if the test failed
        worker.close()

    # -- what a client does

    def send(self, kind: str, version: str) -> tuple[str, list[Part]]:
        """Have Celery send a chord; return the id of its body, and its parts in their order."""
        url = self.server.url
        done = subprocess.run(  # noqa: S603 - our own program
            [str(peer(version)), "-c", CLIENT, kind],
            env={"CELERY_BROKER_URL": url, "CELERY_RESULT_BACKEND": url},
            cwd=PEER_APP.parent,
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip(), self.taken()

    def result(self, task_id: str) -> ResultMeta:
        """Return how a task ended."""
        assert wait_until(lambda: self._is_ready(task_id), patience=PATIENCE), task_id
        return self.backend.get_task_meta(task_id)

    def _is_ready(self, task_id: str) -> bool:
        return self.backend.get_task_meta(task_id).is_ready

    # -- what workers do

    def taken(self, count: int = 0) -> list[Part]:
        """Return the parts that wait, at least so many."""
        assert wait_until(lambda: int(self.redis.llen("parts")) >= count, patience=PATIENCE)
        parts = []
        while (envelope := self.redis.rpop("parts")) is not None:
            assert isinstance(envelope, bytes)
            message = json.loads(envelope)
            args, _, follows = json.loads(b64decode(message["body"]))
            parts.append(Part(envelope, message["headers"], args, follows["chord"]))
        return parts

    def hand_on(self, part: Part, version: str, *, waits: bool = True) -> None:
        """Let a worker of Celery do a part, and wait until it is counted."""
        self.redis.lpush(version, part.envelope)
        if waits:
            assert wait_until(lambda: self._is_counted(part), patience=PATIENCE)

    def _is_counted(self, part: Part) -> bool:
        if not part.chord:
            return self._is_ready(part.id)
        key = f"celery-taskset-meta-{part.headers['group']}"
        counted: Any = self.redis.zrange(f"{key}.j", 0, -1)
        # After the last there is nothing left.
        return not self.redis.exists(f"{key}.s") or any(part.id.encode() in each for each in counted)

    def end(self, part: Part, result: Json | None = None, state: str = "SUCCESS") -> ChordEnd | None:
        """Do a part as our worker does."""
        done = result or Json(json.dumps(sum(part.args)).encode())
        self.backend.store_many([StoredResult(ResultMeta(part.id, state, done))])
        return self.backend.end_chord_part(
            group_id=part.headers["group"],
            group_index=part.headers["group_index"],
            task_id=part.id,
            state=state,
            result=done,
            chord=part.chord,
        )

    def follow(self, end: ChordEnd) -> None:
        """Send the body of a chord, and close it."""
        assert end.error is None
        options = end.body["options"]
        body = [[json.loads(end.results.text), *end.body["args"]], end.body["kwargs"], {}]
        headers = {
            "lang": "py", "task": end.body["task"], "id": options["task_id"], "retries": 0,
            "root_id": options["task_id"], "parent_id": end.part.task_id, "eta": None, "expires": None,
            "argsrepr": "", "kwargsrepr": "", "timelimit": [None, None],
        }  # fmt: skip
        envelope = {
            "body": b64encode(json.dumps(body).encode()).decode(),
            "content-type": "application/json",
            "content-encoding": "utf-8",
            "headers": headers,
            "properties": {
                "correlation_id": options["task_id"],
                "reply_to": "",
                "delivery_mode": 2,
                "delivery_info": {"exchange": "", "routing_key": PEERS[-1]},
                "priority": 0,
                "body_encoding": "base64",
                "delivery_tag": str(uuid4()),
            },
        }
        self.redis.lpush(PEERS[-1], json.dumps(envelope))
        self.backend.close_chord(end)

    # -- what is left

    def pass_on_bodies(self) -> None:
        """Let a worker do the bodies that Celery sent: they go to the queue of all, which nobody serves."""
        while (envelope := self.redis.rpop("celery")) is not None:
            assert isinstance(envelope, bytes)
            self.redis.lpush(PEERS[0], envelope)

    def bodies(self, body_id: str) -> int:
        """Return how often a body was sent."""
        logs = "".join(worker.log() for worker in self.workers.values())
        return logs.count(f"peers.total[{body_id}] received") + logs.count(f"peers.echo[{body_id}] received")

    def keys(self, group_id: str) -> set[str]:
        found: Any = self.redis.keys(f"celery-taskset-meta-{group_id}*")
        return {each.decode().partition(group_id)[2] for each in found}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with ExitStack() as ends:
        yield Cluster(ends.enter_context(RedisServer()), ends)


def body_of(cluster: Cluster, body_id: str) -> ResultMeta:
    """Wait for the body, and make sure that it was sent once."""

    def has_ended() -> bool:
        cluster.pass_on_bodies()
        return cluster.backend.get_task_meta(body_id).is_ready

    assert wait_until(has_ended, patience=PATIENCE)
    cluster.pass_on_bodies()
    assert cluster.bodies(body_id) <= 1
    return cluster.backend.get_task_meta(body_id)


# -- with workers of Celery


@pytest.mark.parametrize("version", PEERS)
def test_the_body_is_ours_to_send_if_our_part_ends_last(cluster: Cluster, version: str) -> None:
    body_id, parts = cluster.send("flat", version)
    ends = [cluster.end(parts[number]) for number in (4, 1)]
    for number in (0, 5, 2):
        cluster.hand_on(parts[number], version)

    end = cluster.end(parts[3])

    assert ends == [None, None]
    assert end is not None
    assert json.loads(end.results.text) == [0, 2, 4, 6, 8, 10]
    cluster.follow(end)
    assert body_of(cluster, body_id).result == 30
    assert cluster.bodies(body_id) == 1
    assert cluster.keys(parts[0].headers["group"]) <= {".c"}


@pytest.mark.parametrize("version", PEERS)
def test_the_body_is_celerys_to_send_if_its_part_ends_last(cluster: Cluster, version: str) -> None:
    body_id, parts = cluster.send("flat", version)
    ends = [cluster.end(part) for part in parts[1:]]

    cluster.hand_on(parts[0], version)

    assert ends == [None] * 5
    assert body_of(cluster, body_id).result == 30
    assert cluster.bodies(body_id) == 1


@pytest.mark.parametrize("order", list(permutations((*PEERS, "ours"))), ids="-".join)
def test_in_a_cluster_of_all_three_the_body_is_sent_once(cluster: Cluster, order: tuple[str, ...]) -> None:
    body_id, parts = cluster.send("flat", PEERS[-1])

    ends = []
    for place, part in enumerate(parts):
        who = order[place // 2]
        if who == "ours":
            ends.append(cluster.end(part))
        else:
            cluster.hand_on(part, who)

    for end in ends:
        if end is not None:
            cluster.follow(end)
    assert body_of(cluster, body_id).result == 30
    assert cluster.bodies(body_id) == 1
    assert [end is not None for end in ends] == [False, order[-1] == "ours"]


def test_of_workers_that_end_their_parts_at_once_one_sends_the_body(cluster: Cluster) -> None:
    body_id, parts = cluster.send("flat", PEERS[-1])
    barrier = Barrier(4)

    def end(part: Part) -> ChordEnd | None:
        barrier.wait(PATIENCE)
        return cluster.end(part)

    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(end, part) for part in parts[:4]]
        for part, version in zip(parts[4:], PEERS, strict=True):
            cluster.hand_on(part, version, waits=False)
        ends = [future.result() for future in futures]

    for each in ends:
        if each is not None:
            cluster.follow(each)
    assert body_of(cluster, body_id).result == 30
    assert cluster.bodies(body_id) == 1


def test_a_part_that_ended_with_celery_and_again_with_us_counts_once(cluster: Cluster) -> None:
    body_id, parts = cluster.send("flat", "5.7")
    for part in parts[:5]:
        cluster.hand_on(part, "5.7")

    again = [cluster.end(part, Json(b'"another result"')) for part in parts[:5]]
    end = cluster.end(parts[5])

    assert again == [None] * 5
    assert end is not None
    assert json.loads(end.results.text) == [0, 2, 4, 6, 8, 10]
    cluster.follow(end)
    assert body_of(cluster, body_id).result == 30


def test_a_part_that_ends_again_after_celery_sent_the_body_sends_no_other(cluster: Cluster) -> None:
    body_id, parts = cluster.send("flat", "5.7")
    for part in parts[:5]:
        cluster.end(part)
    cluster.hand_on(parts[5], "5.7")
    body_of(cluster, body_id)

    again = [cluster.end(part) for part in parts]

    assert again == [None] * 6
    assert cluster.bodies(body_id) == 1


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_header_with_a_group_in_it_gives_a_nested_list_whoever_ends_the_last(
    cluster: Cluster, is_ours: bool
) -> None:
    # Celery: 5.6 sets the size of such a chord too low when it begins the group.
    version = "5.7"
    body_id, (first, plain) = cluster.send("nested", version)
    cluster.hand_on(first, version)
    inner = cluster.taken(2)
    cluster.end(plain)
    cluster.end(inner[1])

    if is_ours:
        end = cluster.end(inner[0])
        assert end is not None
        cluster.follow(end)
    else:
        cluster.hand_on(inner[0], version)

    assert body_of(cluster, body_id).result == [[12, 22], 4]


@pytest.mark.parametrize("version", PEERS)
def test_if_a_part_failed_the_body_fails_whoever_ends_the_last(cluster: Cluster, version: str) -> None:
    ids, told = [], []
    for is_ours in (True, False):
        body_id, (first, fails, last) = cluster.send("fails", version)
        cluster.end(first)
        if is_ours:
            cluster.hand_on(fails, version)
            end = cluster.end(last)
            assert end is not None
            cluster.backend.close_chord(end)
        else:
            cluster.end(fails, FAILURE, "FAILURE")
            cluster.hand_on(last, version)
        ids.append(fails.id)
        told.append(cluster.result(body_id))
        assert cluster.bodies(body_id) == 0

    assert [each.status for each in told] == ["FAILURE"] * 2
    assert [each.result for each in told] == [
        Failure("ChordError", (f"Dependency {each} raised ValueError('planned')",), "celery.exceptions")
        for each in ids
    ]


# -- with ourselves


class Ours:
    """Parts of a chord that is sent and done by nobody but the test."""

    def __init__(self, url: str, ends: ExitStack, *, size: int = 2, **settings: Any) -> None:
        self.group_id = str(uuid4())
        self.backend = RedisBackend(
            Settings(result_backend=url, broker_retry_base=0.01, broker_retry_cap=0.05, **settings)
        )
        ends.callback(self.backend.close)
        self.redis = ends.enter_context(redis.Redis.from_url(url))
        prefix: Any = settings.get("result_backend_transport_options", {}).get("global_keyprefix", "")
        self.key = f"{prefix}celery-taskset-meta-{self.group_id}"
        self.redis.set(f"{self.key}.s", size)

    def end(
        self,
        number: int,
        result: object = None,
        *,
        state: str = "SUCCESS",
        body: Mapping[str, Any] | None = None,
    ) -> ChordEnd | None:
        text = json.dumps(number if result is None else result).encode()
        return self.backend.end_chord_part(
            group_id=self.group_id,
            group_index=number,
            task_id=f"task-{number}",
            state=state,
            result=FAILURE if state == "FAILURE" else Json(text),
            chord=body or {"task": "t", "options": {"task_id": f"body-{self.group_id}"}},
        )

    def left(self) -> set[str]:
        found: Any = self.redis.keys(f"{self.key}*")
        return {each.decode().removeprefix(self.key) for each in found}


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def ours(redis_url: str, ends: ExitStack) -> Ours:
    return Ours(redis_url, ends)


def results(end: ChordEnd | None) -> Any:
    assert end is not None
    return json.loads(end.results.text)


def test_results_are_in_the_order_of_the_header(ours: Ours) -> None:
    first, last = ours.end(1), ours.end(0)

    assert first is None
    assert results(last) == [0, 1]


def test_the_end_names_the_body_and_the_last_part(ours: Ours) -> None:
    ours.end(0)

    end = ours.end(1)

    assert end is not None
    assert (end.body["task"], end.part.task_id, end.error) == ("t", "task-1", None)


def test_a_closed_chord_leaves_only_the_word_that_it_is_done(ours: Ours) -> None:
    ours.end(0)
    end = ours.end(1)
    assert end is not None

    ours.backend.close_chord(end)

    assert ours.left() == {".c"}
    assert ours.redis.get(f"{ours.key}.c") == b"done"
    assert 0 < int(ours.redis.ttl(f"{ours.key}.c")) <= 600
    assert [ours.end(0), ours.end(1)] == [None, None]


def test_who_died_before_the_body_was_sent_is_followed_by_who_is_given_the_part_again(ours: Ours) -> None:
    ours.end(0)
    ours.end(1)

    again = ours.end(1)

    assert results(again) == [0, 1]
    assert ours.end(0) is None


def test_an_end_whose_answer_was_lost_is_given_again(ours: Ours, monkeypatch: pytest.MonkeyPatch) -> None:
    ours.end(0)
    exchange = RedisLink.exchange
    lost: list[RedisLink] = []

    def lose(link: RedisLink, commands: Any, *, timeout: float) -> list[Any]:
        answers = exchange(link, commands, timeout=timeout)
        if len(lost) < 3:
            lost.append(link)
            raise ConnectionLost("on purpose")
        return answers

    monkeypatch.setattr(RedisLink, "exchange", lose)

    end = ours.end(1)

    assert len(lost) == 3
    assert results(end) == [0, 1]


def test_all_keys_of_a_chord_expire_with_results(redis_url: str, ends: ExitStack) -> None:
    ours = Ours(redis_url, ends, size=3, result_expires=1000)
    ours.redis.set(f"{ours.key}.t", 0)
    ours.redis.set(ours.key, "{}")

    ours.end(0)

    lives = {key: ours.redis.ttl(f"{ours.key}{key}") for key in ours.left()}
    assert lives.keys() == {"", ".j", ".s", ".t", ".d"}
    assert all(1000 - PATIENCE <= int(left) <= 1000 for left in lives.values())


def test_results_that_are_kept_for_ever_keep_the_chord_for_ever(redis_url: str, ends: ExitStack) -> None:
    ours = Ours(redis_url, ends, result_expires=0)

    ours.end(0)

    assert ours.redis.ttl(f"{ours.key}.j") == -1


def test_tasks_that_were_added_to_a_chord_are_waited_for(ours: Ours) -> None:
    ours.redis.set(f"{ours.key}.t", 1)

    ends = [ours.end(0), ours.end(1)]

    assert ends == [None, None]
    assert results(ours.end(2)) == [0, 1, 2]


def test_before_its_size_is_known_a_chord_is_not_complete(ours: Ours) -> None:
    ours.redis.delete(f"{ours.key}.s")

    ends = [ours.end(0), ours.end(1)]

    assert ends == [None, None]


def test_where_parts_are_not_ordered_they_come_as_they_ended(redis_url: str, ends: ExitStack) -> None:
    ours = Ours(redis_url, ends, result_backend_transport_options={"result_chord_ordered": False})
    ours.end(1)

    assert results(ours.end(0)) == [1, 0]
    assert ours.redis.type(f"{ours.key}.j") == b"list"


def test_keys_have_the_prefix_of_the_operator(redis_url: str, ends: ExitStack) -> None:
    ours = Ours(redis_url, ends, result_backend_transport_options={"global_keyprefix": "mine_"})
    ours.end(0)

    assert results(ours.end(1)) == [0, 1]


def test_where_scripts_are_not_allowed_parts_are_counted_without(
    own_redis: RedisServer, ends: ExitStack
) -> None:
    with own_redis.client() as client:
        client.execute_command("ACL", "SETUSER", "plain", "on", ">pw", "~*", "&*", "+@all", "-@scripting")
    ours = Ours(f"redis://plain:pw@{LOOPBACK}:{own_redis.port}/0", ends)

    first, last = ours.end(1), ours.end(0)

    assert first is None
    assert results(last) == [0, 1]
    assert last is not None
    ours.backend.close_chord(last)
    assert ours.left() == {".c"}


def test_a_failed_chord_fails_all_that_somebody_may_wait_for(ours: Ours) -> None:
    members = [{"task": "t", "options": {"task_id": f"{ours.group_id}-{each}"}} for each in "ab"]
    body = {"task": "celery.group", "subtask_type": "group", "kwargs": {"tasks": members}, "options": {}}
    ours.end(0, state="FAILURE")

    end = ours.end(1, body=body)

    assert end is not None
    assert end.error == Failure(
        "ChordError", ("Dependency task-0 raised ValueError('planned')",), "celery.exceptions"
    )
    stored = ours.backend.get_task_metas([f"{ours.group_id}-{each}" for each in "ab"])
    assert [(meta.status, meta.result) for meta in stored.values()] == [("FAILURE", end.error)] * 2
    assert all(meta.date_done for meta in stored.values())


def test_where_results_are_messages_there_are_no_chords_and_the_error_says_what_to_do() -> None:
    backend = Celeriac(MemoryBroker(), "rpc://", environ={}).backend

    with pytest.raises(ImproperlyConfigured, match="set result_backend to a Redis"):
        backend.end_chord_part(
            group_id="g", group_index=0, task_id="t", state="SUCCESS", result=Json(b"1"), chord={}
        )
