"""``celeriac snapshot`` beside a real Redis, with a worker of ours."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from celeriac import State
from celeriac.app import Celeriac
from celeriac.programs.port import ReservedPort
from celeriac.programs.process import wait_until
from celeriac.testing.brokers import RedisServer
from celeriac.testing.peers import CeleriacWorker
from tests.interop.test_cli_elections import SHOP
from tests.program import Program, own_environment

PATIENCE = 60.0

CAMERA = """
import json
from celeriac.node.camera import Polaroid

class Camera(Polaroid):
    def on_shutter(self, state):
        with open("pictures.jsonl", "a") as file:
            print(json.dumps({uuid: task.state for uuid, task in state.itertasks()}), file=file)

class Broken(Polaroid):
    def on_shutter(self, state):
        raise OSError("the film is torn")
"""


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="module")
def app(redis: RedisServer) -> Iterator[Celeriac]:
    """A client of a worker of ours, which runs in a process of its own."""
    app = Celeriac(redis.url, redis.url, environ={}, task_send_sent_event=True)
    with CeleriacWorker(SHOP, url=redis.url, backend=redis.url, arguments=("--task-events",)):
        yield app
    app.close()


def running(redis: RedisServer, *arguments: str, cwd: Path) -> Program:
    """Run a command meanwhile; it is killed at the end of the context if it has not ended by then."""
    return Program("snapshot", *arguments, cwd=cwd, env=own_environment(CELERIAC_BROKER_URL=redis.url))


def price_until(app: Celeriac, is_seen: Any) -> None:
    """Have the worker run tasks until somebody has seen one."""

    def look() -> bool:
        app.send_task("shop.price", (3, 2.5), kwargs={}).get(timeout=PATIENCE)
        return bool(is_seen())

    assert wait_until(look, patience=PATIENCE)


def test_what_is_heard_of_the_cluster_is_saved_and_can_be_restored(
    redis: RedisServer, app: Celeriac, tmp_path: Path
) -> None:
    with running(redis, "--for", "5", "--json", cwd=tmp_path) as process:
        price_until(app, lambda: process.poll() is not None)
        out, err = process.communicate(timeout=PATIENCE)

    state = State().restore(tmp_path / "cluster.state")
    told = json.loads(out)
    assert (process.returncode, err) == (0, "")
    assert (told["saved"], told["workers"], told["tasks"]) == ("cluster.state", 1, len(state.tasks))
    assert told["events"] == state.event_count > 0
    # It may begin to listen in the middle of a task, whose name it then does not hear.
    assert {task.name for task in state.tasks.values()} - {None} == {"shop.price"}
    assert "SUCCESS" in {task.state for task in state.tasks.values()}


@pytest.mark.usefixtures("app")
def test_until_quiet_ends_when_no_task_was_heard_of(redis: RedisServer, tmp_path: Path) -> None:
    with running(redis, "there/a.state", "--until-quiet", "--for", "10", cwd=tmp_path) as process:
        out, err = process.communicate(timeout=PATIENCE)

    assert (process.returncode, err) == (0, "")
    assert out.startswith("there/a.state: 1 worker, ")
    assert len(State().restore(tmp_path / "there" / "a.state").workers) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.usefixtures("app")
def test_what_was_heard_is_saved_when_it_is_told_to_end(
    redis: RedisServer, tmp_path: Path, number: signal.Signals
) -> None:
    with redis.client() as client:
        before = len(client.client_list(_type="pubsub"))
    with redis.client() as client, running(redis, "--for", "600", cwd=tmp_path) as process:
        is_listening = wait_until(lambda: len(client.client_list(_type="pubsub")) > before, patience=PATIENCE)
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)

    assert is_listening
    assert (process.returncode, err) == (0, "")
    assert out.startswith("cluster.state: ")
    assert (tmp_path / "cluster.state").exists()


def test_a_camera_of_yours_takes_pictures_until_it_is_told_to_end(
    redis: RedisServer, app: Celeriac, tmp_path: Path
) -> None:
    (tmp_path / "darkroom.py").write_text(CAMERA)
    pictures = tmp_path / "pictures.jsonl"

    def is_seen() -> bool:
        return pictures.exists() and "SUCCESS" in pictures.read_text()

    with running(redis, "--camera", "darkroom:Camera", "--freq", "0.05", "--json", cwd=tmp_path) as process:
        price_until(app, is_seen)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=PATIENCE)

    told = json.loads(out)
    lines = pictures.read_text().splitlines()
    assert (process.returncode, told["failed"]) == (0, 0)
    assert told["snapshots"] == len(lines)
    assert len(json.loads(lines[-1])) == told["tasks"] > 0


def test_a_camera_that_fails_to_the_end_fails_the_command(redis: RedisServer, tmp_path: Path) -> None:
    (tmp_path / "darkroom.py").write_text(CAMERA)

    with running(
        redis, "--camera", "darkroom.Broken", "--freq", "0.2", "--for", "10", cwd=tmp_path
    ) as process:
        _, err = process.communicate(timeout=PATIENCE)

    assert process.returncode == 1
    assert err.startswith("snapshot every 200 ms, by darkroom.Broken; stop: Ctrl-C\n")
    assert "camera: picture of Broken failed, retrying at the next interval: the film is torn" in err
    assert err.splitlines()[-1].startswith(
        "error: Camera darkroom.Broken failed: OSError: the film is torn. --debug shows the trace"
    )


def test_a_database_that_is_away_is_told_at_each_picture_and_with_its_own_option_at_the_end(
    redis: RedisServer, tmp_path: Path
) -> None:
    port = ReservedPort()
    url = f"postgresql://u:topsecret@127.0.0.1:{port.number}/db"

    with running(redis, "--database", url, "--freq", "0.2", "--for", "10", cwd=tmp_path) as process:
        _, err = process.communicate(timeout=PATIENCE)
    port.release()

    first, picture, *_, last = err.splitlines()
    assert process.returncode == 69, err
    assert first.startswith(
        f"snapshot every 200 ms, to postgresql+psycopg://u:**@127.0.0.1:{port.number}/db;"
    )
    assert "picture of DatabaseCamera failed, retrying at the next interval: postgresql" in picture
    assert "onnection refused" in picture
    assert last.endswith("name another with --database URL")
    assert "topsecret" not in err


@pytest.mark.parametrize("option", ["--parquet", "--database"])
def test_cameras_of_ours_keep_what_happens_without_secrets(
    redis: RedisServer, app: Celeriac, tmp_path: Path, option: str
) -> None:
    url = "pictures" if option == "--parquet" else "sqlite:///pictures.sqlite"

    def kept() -> bytes:
        return b"".join(path.read_bytes() for path in sorted(tmp_path.rglob("pictures*")) if path.is_file())

    def is_seen() -> bool:
        if option == "--parquet":
            tables = [pq.ParquetFile(path).read() for path in tmp_path.glob("pictures/*/tasks.parquet")]
            return any("SUCCESS" in table["state"].to_pylist() for table in tables)
        return b"SUCCESS" in kept()

    with running(redis, option, url, "--freq", "0.2", "--json", cwd=tmp_path) as process:

        def look() -> bool:
            app.send_task("shop.price", (3, 2.5), kwargs={"password": "hunter2"})
            app.send_task("shop.price", (3, 2.5)).get(timeout=PATIENCE)
            return is_seen()

        assert wait_until(look, patience=PATIENCE)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE)

    told = json.loads(out)
    assert (process.returncode, told["failed"]) == (0, 0), err
    assert told["snapshots"] > 0
    assert b"hunter2" not in kept()
    if option == "--parquet":
        last = max(tmp_path.glob("pictures/*/tasks.parquet"))
        assert "password" in str(pq.ParquetFile(last).read()["kwargs"].to_pylist())


@pytest.mark.parametrize(
    ("arguments", "code", "fix"),
    [
        (("a.state", "--parquet", "b"), 2, "one of OUTPUT"),
        (("--camera", "x:Y", "--parquet", "b"), 2, "one of OUTPUT"),
        (("--until-quiet", "--database", "sqlite://"), 2, "--until-quiet is for a file"),
        (("--camera", "json:dumps"), 2, "invalid camera "),
        (("--database", "nonsense"), 78, "invalid database URL 'nonsense': use"),
        (("--camera", "nowhere:Camera"), 78, "no module 'nowhere'"),
        (("--parquet", "b", "--maxrate", "often"), 2, "often"),
    ],
)
def test_what_cannot_be_done_is_told_with_the_fix(
    redis: RedisServer, tmp_path: Path, arguments: tuple[str, ...], code: int, fix: str
) -> None:
    with running(redis, *arguments, cwd=tmp_path) as process:
        _, err = process.communicate(timeout=PATIENCE)

    assert process.returncode == code, err
    assert fix in err
