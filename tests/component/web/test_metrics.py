import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from time import time

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from celeriac.core.series import MAX_NAMES
from celeriac.model.election import Level, Mode, Record, RecordState
from celeriac.model.events import WorkerHeartbeat
from celeriac.programs.process import wait_until
from celeriac.store.recorder_status import RecorderStatus, read_statuses, write_status
from celeriac.web.metrics import metrics_text
from tests.component.web.kit import PATIENCE, Rig, served
from tests.component.web.kit import rig as made
from tests.warehouses import publish

Labels = tuple[tuple[str, str], ...]

#: The format as Prometheus describes it, in no words of the library that writes it for us.
_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
_NUMBER = r"(?:[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?|\+Inf)"
_SAMPLE = re.compile(rf"({_NAME}(?:\{{{_LABEL}(?:,{_LABEL})*\}})?) {_NUMBER}")
_COMMENT = re.compile(rf"# (HELP|TYPE) ({_NAME}) (.+)")


def check(text: str) -> None:
    """Raise for what Prometheus would refuse, or promtool find fault with: a series that comes twice, say."""
    assert text.endswith("\n")
    series: list[str] = []
    told: dict[str, set[str]] = {"HELP": set(), "TYPE": set()}
    for line in text.removesuffix("\n").split("\n"):
        comment, sample = _COMMENT.fullmatch(line), _SAMPLE.fullmatch(line)
        if comment is not None:
            assert comment[2] not in told[comment[1]], line
            told[comment[1]].add(comment[2])
        else:
            assert sample is not None, line
            series.append(sample[1])
    assert len(set(series)) == len(series), [each for each in series if series.count(each) > 1]
    families = {re.sub(r"(_bucket|_count|_sum)?([{].*)?$", "", each) for each in series}
    assert families <= told["HELP"] == told["TYPE"]


def read(text: str) -> dict[str, dict[Labels, float]]:
    """Read what is scraped as Prometheus does; a text that it could not read raises."""
    check(text)
    told: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = (("", sample.name), *sorted(sample.labels.items()))
            known = told.setdefault(family.name, {})
            assert labels not in known
            known[labels] = sample.value
    return told


def test_tasks_workers_and_times_are_scraped(rig: Rig, ask: httpx.Client) -> None:
    rig.send("worker-online", freq=600.0)
    rig.run_task("a")
    rig.run_task("b", 'mail."send"\n')
    rig.arrived()

    told = read(ask.get("/metrics").text)

    events = told["celeriac_task_events"]
    assert events[("", "celeriac_task_events_total"), ("event", "succeeded"), ("name", "shop.pay")] == 1
    assert events[("", "celeriac_task_events_total"), ("event", "received"), ("name", 'mail."send"\\n')] == 1
    runs = told["celeriac_run_seconds"]
    assert runs[("", "celeriac_run_seconds_bucket"), ("le", "0.25"), ("name", "shop.pay")] == 1
    assert runs[("", "celeriac_run_seconds_bucket"), ("le", "0.1"), ("name", "shop.pay")] == 0
    assert runs[("", "celeriac_run_seconds_sum"), ("name", "shop.pay")] == 0.25
    assert told["celeriac_tasks"][("", "celeriac_tasks"), ("state", "SUCCESS")] == 2
    assert told["celeriac_workers"][("", "celeriac_workers"), ("liveness", "ALIVE")] == 1
    assert told["celeriac_receiving"][("", "celeriac_receiving"),] == 1


def test_queues_are_scraped(tmp_path: Path) -> None:
    with made(tmp_path, queues=lambda: {"celery": 3, "bulk": 0}) as rig, served(rig) as ask:
        told = read(ask.get("/metrics").text)["celeriac_queue_length"]
        overview = ask.get("/api/v1/overview").json()

    assert told == {
        (("", "celeriac_queue_length"), ("queue", "celery")): 3,
        (("", "celeriac_queue_length"), ("queue", "bulk")): 0,
    }
    assert overview["queues"] == {"celery": 3, "bulk": 0}


def test_why_queues_are_not_known_is_told_harmlessly(tmp_path: Path) -> None:
    with made(tmp_path, queue_trouble=lambda: "refused\x1b[31m") as rig, served(rig) as ask:
        overview = ask.get("/api/v1/overview").json()

    assert overview["queues"] is None
    assert overview["queue_trouble"].startswith("refused")
    assert overview["queue_trouble"].isprintable()


def test_an_empty_cluster_is_scraped_too(ask: httpx.Client) -> None:
    told = read(ask.get("/metrics").text)

    assert told["celeriac_events"] == {(("", "celeriac_events_total"),): 0}
    assert "celeriac_link_losses" in told


@pytest.mark.parametrize(
    "text",
    [
        "# HELP a b\n# TYPE a gauge\na 1\na 2\n",
        '# HELP a b\n# TYPE a gauge\na{x="1"} 1\na{x="1"} 1\n',
        "# HELP a b\n# TYPE a gauge\n# HELP a b\na 1\n",
        "a 1\n",
        "# HELP a b\n# TYPE a gauge\na 1",
        '# HELP a b\n# TYPE a gauge\na{x="1\\x"} 1\n',
    ],
)
def test_what_prometheus_would_refuse_is_found(text: str) -> None:
    with pytest.raises(AssertionError):
        check(text)


def test_names_that_are_shown_alike_are_one_series(rig: Rig, ask: httpx.Client) -> None:
    long = "x" * 300
    names = ("evil\n", "evil\\n", long, long + "y", 'quote"', "other")
    for number, name in enumerate(names):
        rig.run_task(f"t{number}", name)
    for number in range(MAX_NAMES):
        rig.run_task(f"m{number}", f"many.{number}")
    rig.arrived()

    told = read(ask.get("/metrics").text)

    def counted(name: str) -> float:
        key = (("", "celeriac_task_events_total"), ("event", "succeeded"), ("name", name))
        ran = (("", "celeriac_run_seconds_count"), ("name", name))
        took = (("", "celeriac_run_seconds_sum"), ("name", name))
        assert told["celeriac_run_seconds"][ran] == told["celeriac_task_events"][key]
        assert told["celeriac_run_seconds"][took] == 0.25 * told["celeriac_run_seconds"][ran]
        return told["celeriac_task_events"][key]

    assert counted("evil\\n") == 2
    assert counted("x" * 199 + "…") == 2
    assert counted('quote"') == 1
    # Its own, and those of all names beyond the first 200.
    assert counted("other") == 1 + len(names)


def test_buckets_are_added_up_to_what_took_longest(rig: Rig, ask: httpx.Client) -> None:
    for number, name in enumerate(("evil\n", "evil\\n")):
        rig.run_task(f"t{number}", name)
    rig.arrived()

    told = read(ask.get("/metrics").text)["celeriac_run_seconds"]

    buckets = {float(dict(labels)["le"]): value for labels, value in told.items() if "le" in dict(labels)}
    ordered = [buckets[bound] for bound in sorted(buckets)]
    assert all(before <= after for before, after in pairwise(ordered))
    assert (ordered[0], ordered[-1]) == (0, 2)


class TwoAlike:
    """An arbiter with two leases whose names are cut to the same."""

    reason = "of a test"

    def look(self) -> Level:
        return Level.L0

    def leases(self) -> list[Record]:
        key, owner = "lease.".ljust(200, "x"), "w1@lab.1.boot"
        return [
            Record(f"{key}{token}", owner, token, Mode.LEASE, RecordState.HELD, 9.0, 5.0, 0.0)
            for token in (4, 3)
        ]


def test_queues_and_leaders_that_are_shown_alike_are_one_series(tmp_path: Path) -> None:
    queues = {"q" * 201: 3, "q" * 202: 4}

    with made(tmp_path, queues=lambda: queues, arbiter=TwoAlike) as rig:
        told = read(metrics_text(rig.board).decode())

    assert list(told["celeriac_queue_length"].values()) == [7]
    assert list(told["celeriac_leader_token"].values()) == [4]


def value_of(told: dict[str, dict[Labels, float]], name: str) -> float:
    (value,) = told[name].values()
    return value


def test_how_late_events_come_is_scraped_whatever_clocks_say(rig: Rig, ask: httpx.Client) -> None:
    watcher, now = rig.board.watcher, time()
    before = read(ask.get("/metrics").text)

    def beat(received_at: float, *, late: float) -> WorkerHeartbeat:
        return WorkerHeartbeat(
            timestamp=received_at - late - 500.0, clock=1, hostname="w1@lab", local_received=received_at
        )

    watcher._take([beat(now - 5, late=0.0), beat(now, late=40.0)])

    assert "celeriac_event_lag_seconds" not in before
    assert value_of(read(ask.get("/metrics").text), "celeriac_event_lag_seconds") == pytest.approx(40.0)


def test_gaps_are_counted_when_they_are_over(rig: Rig, ask: httpx.Client) -> None:
    before = value_of(read(ask.get("/metrics").text), "celeriac_gaps")

    rig.broker.cut()

    assert wait_until(lambda: bool(rig.board.watcher.state.gaps), patience=PATIENCE)
    assert wait_until(lambda: rig.board.watcher.gap_count == 1, patience=PATIENCE)
    told = read(ask.get("/metrics").text)
    assert (before, value_of(told, "celeriac_gaps")) == (0, 1)
    assert value_of(told, "celeriac_last_gap_timestamp_seconds") > 0


def test_events_that_somebody_who_listens_missed_are_counted(
    rig: Rig, ask: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("celeriac.node.watcher._MOST_WAITING", 2)

    with rig.board.watcher.listening():
        rig.run_task("a")
        rig.run_task("b")
        rig.arrived()
        told = read(ask.get("/metrics").text)

    assert value_of(told, "celeriac_overlooked_events") >= 4


@contextmanager
def recorded(tmp_path: Path, **fields: object) -> Iterator[Rig]:
    """Have a dashboard beside the spool of a recorder, which told this of itself."""
    status = RecorderStatus(
        name="eu-1", recorder="eu-1-abc", log="here", pid=1, started_at=1.0, updated_at=time(),
        state="recording", **fields,  # type: ignore[arg-type]
    )  # fmt: skip
    folder = tmp_path / "spool" / "eu-1"
    folder.mkdir(parents=True)
    write_status(folder, status)
    with made(tmp_path, recorders=lambda: read_statuses(tmp_path / "spool")) as rig:
        yield rig


def test_the_recorder_beside_us_is_scraped(tmp_path: Path) -> None:
    with recorded(tmp_path, dropped=3, gaps=2, lag=1.5) as rig:
        assert wait_until(lambda: bool(rig.board.recorders()), patience=PATIENCE)
        told = read(metrics_text(rig.board).decode())

    assert told["celeriac_recorder_recording"] == {
        (("", "celeriac_recorder_recording"), ("recorder", "eu-1")): 1
    }
    assert value_of(told, "celeriac_recorder_dropped_events") == 3
    assert value_of(told, "celeriac_recorder_gaps") == 2
    assert value_of(told, "celeriac_recorder_lag_seconds") == 1.5


def test_a_recorder_that_is_not_well_is_scraped_and_told_on_the_first_page(tmp_path: Path) -> None:
    with recorded(tmp_path) as rig, served(rig) as ask:
        ill = RecorderStatus(
            name="eu-1", recorder="x", log="here", pid=1, started_at=1.0, updated_at=time(), state="link"
        )
        write_status(tmp_path / "spool" / "eu-1", ill)
        assert wait_until(lambda: any(row.ailment for row in rig.board.recorders()), patience=PATIENCE)
        told = read(ask.get("/metrics").text)
        alerts = ask.get("/api/v1/overview").json()["alerts"]

    assert value_of(told, "celeriac_recorder_recording") == 0
    assert alerts == [
        {
            "level": "error",
            "text": "Events are not recorded: recorder eu-1: disconnected from the broker",
            "page": "cluster",
            "query": "",
        }
    ]


def test_when_the_tables_were_made_is_scraped_and_told_once_they_are_old(tmp_path: Path) -> None:
    published_at = time() - 40 * 3600
    publish(tmp_path / "warehouse", {}, published_at=published_at)

    with made(tmp_path) as rig, served(rig) as ask:
        assert wait_until(lambda: rig.board.tables_at() is not None, patience=PATIENCE)
        told = read(ask.get("/metrics").text)
        (alert,) = ask.get("/api/v1/overview").json()["alerts"]

    assert value_of(told, "celeriac_tables_published_timestamp_seconds") == published_at
    assert alert["text"].startswith("History tables are 1 d 16 h old")


def test_where_no_history_is_kept_nothing_is_said_of_it(ask: httpx.Client) -> None:
    text = ask.get("/metrics").text

    assert [name for name in read(text) if "recorder" in name or "tables" in name] == []
    assert "# TYPE celeriac_recorder_recording gauge" in text
