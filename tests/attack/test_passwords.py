"""No command shows the password of a broker, backend or database: not in errors, logs, files or processes."""

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from typer.main import get_command

from celeriac.cli.exit import Code
from celeriac.cli.root import app
from celeriac.programs.port import ReservedPort
from celeriac.programs.process import wait_until
from celeriac.testing.brokers import RabbitServer, RedisServer
from tests.live import IS_LONG
from tests.program import CELERIAC, Program, own_environment
from tests.up import PATIENCE, running

#: The first characters of each are those of no other word; of an encoded one both forms are looked for.
PASSWORDS = ("hush-plain", "hush@enc:oded/?#[ü] %41")
#: What is left of them however they are cut or decoded.
TRACES = ("hush", "enc:oded", "enc%3Aoded", "oded")


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each command that can be run, with its name."""
    for name, below in command.commands.items():
        if hasattr(below, "commands"):
            yield from commands(below, (*path, name))
        else:
            yield (*path, name), below


COMMANDS = {" ".join(path): each for path, each in commands(get_command(app))}
#: What is given for an argument or option that must be there, by its metavar; for all others a word will do.
VALUES = {
    "RATE": "10/m",
    "MAX": "3",
    "MIN": "1",
    "KEY=VALUE": "a=b",
    "SELECT": "SELECT 1",
    "TABLE": "tasks",
}
#: What names a place, and may have a password in it.
PLACES = ("URL", "LOG", "OUTPUT", "TARGET")
#: Options that end a command that would go on.
ENDS = {"--timeout": "0.3", "--for": "0.3"}
#: Options that a command is given if it has them: it asks nothing, and waits for an answer.
FLAGS = ("--yes", "--wait")
#: Other options that a command needs, to get as far as a connection.
MORE = {
    "control time-limit": ["--soft", "1"],
    "snapshot": ["--every", "0.1"],
    "worker": ["--pool", "solo", "--app", "shop:app"],
}
SETTINGS = {"CELERIAC_BEAT_SCHEDULE": '{"a": {"task": "shop.a", "schedule": 60}}'}
#: Commands that connect to no broker, though all take the options that name one. The one that wants
#: a terminal is tried in tests/tui/test_top.py.
OFFLINE = re.compile(r"^(conf|top|replay|log .*|history .*|pipeline .*|export .*|access .*)$")
#: Those that start a Spark, which takes half a minute: they are tried in the long form alone.
SLOW = re.compile(r"^pipeline ")
TRIED_COMMANDS = [path for path in COMMANDS if IS_LONG or not SLOW.match(path)]
SHOP = "from celeriac import Celeriac\napp = Celeriac()\n"


def is_place(option: Any) -> bool:
    return option.metavar in PLACES and "--broker" not in option.opts


def arguments_of(path: str, *, place: str = "") -> list[str]:
    """Return how a command is run, with ``place`` wherever it takes a URL."""
    given = [*path.split(), *MORE.get(path, ())]
    for option in COMMANDS[path].params:
        name = option.opts[0]
        is_option = name.startswith("-")
        given += [flag for flag in FLAGS if flag in option.opts]
        if name in ENDS:
            given += [name, ENDS[name]]
        elif is_place(option) and (place or option.required):
            given += [name, place] if is_option else [place]
        elif option.required:
            value = VALUES.get(option.metavar or "", "word")
            given += [name, value] if is_option else [value]
    return given


def traces_in(text: str) -> list[str]:
    """Return the lines in which something of a password is."""
    return [line for line in text.splitlines() if any(trace in line for trace in TRACES)]


def run(folder: Path, arguments: Sequence[str], **variables: str) -> tuple[int, str]:
    """Run a command until it ends or has tried several times; return its code, and all that it wrote."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "shop.py").write_text(SHOP)
    output = folder / "said"
    with output.open("wb") as said:
        environment = own_environment(TMPDIR=str(folder), **SETTINGS, **variables)
        program = Program(
            *arguments,
            "--debug",
            cwd=folder,
            env=environment,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        with program:

            def has_said_enough() -> bool:
                return program.poll() is not None or output.read_text(errors="replace").count("127.0.0.1") > 5

            wait_until(has_said_enough, patience=PATIENCE)
            titles = titles_of(program.pid)
            program.terminate()
            program.wait(PATIENCE)
    return program.returncode or 0, "\n".join([*titles, *map(read, files_in(folder))])


def files_in(folder: Path) -> list[Path]:
    return [each for each in folder.rglob("*") if each.is_file() and each.name != "shop.py"]


def read(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:  # gone, or a socket
        return ""


def titles_of(pid: int) -> list[str]:
    """Return what others see of a process: its title, its name, and those of its threads."""
    places = [Path(f"/proc/{pid}/cmdline"), *Path(f"/proc/{pid}/task").glob("*/comm")]
    return [read(place).replace("\0", " ") for place in places]


@pytest.fixture(scope="module")
def nobody() -> Iterator[str]:
    """A port at which nobody listens."""
    port = ReservedPort()
    yield f"127.0.0.1:{port.number}"
    port.release()


def urls_at(place: str, scheme: str, database: str = "") -> list[str]:
    return [f"{scheme}://us3r:{quote(password, safe='')}@{place}/{database}" for password in PASSWORDS]


# -- nobody is there

SCHEMES = ("redis", "amqp")
#: In the gate each command has one of these in turn, else each has all.
WAYS = [(scheme, number, is_option) for number in (0, 1) for scheme in SCHEMES for is_option in (True, False)]
TURNS = cycle([WAYS[0], WAYS[7], WAYS[5], WAYS[2]])
TRIED = [(path, way) for path in TRIED_COMMANDS for way in (WAYS if IS_LONG else [next(TURNS)])]


@pytest.mark.parametrize(("path", "way"), TRIED)
def test_broker_that_is_not_there_is_named_without_its_password(
    path: str, way: tuple[str, int, bool], nobody: str, tmp_path: Path
) -> None:
    scheme, number, is_option = way
    url = urls_at(nobody, scheme)[number]
    backend = urls_at(nobody, "redis")[number]
    variables = {"CELERIAC_RESULT_BACKEND": backend, "CELERIAC_ELECTION_URL": backend}
    if not is_option:
        variables["CELERIAC_BROKER_URL"] = url

    code, text = run(
        tmp_path / "here",
        [*arguments_of(path), *(["--broker", url] if is_option else [])],
        **variables,
    )

    assert traces_in(text) == []
    assert OFFLINE.match(path) is not None or "127.0.0.1" in text, text
    # It got as far as a connection, and was not refused for how it was called.
    assert OFFLINE.match(path) or code in (Code.OK, Code.UNAVAILABLE, -15), text


WITH_PLACES = [path for path in TRIED_COMMANDS if any(map(is_place, COMMANDS[path].params))]
PLACE_SCHEMES = ("redis", "postgresql", "https", "s3", "spark", "nothing")


@pytest.mark.parametrize("path", WITH_PLACES)
@pytest.mark.parametrize("scheme", PLACE_SCHEMES if IS_LONG else ["postgresql"])
def test_place_that_is_not_there_is_named_without_its_password(
    path: str, scheme: str, nobody: str, tmp_path: Path
) -> None:
    urls = urls_at(nobody, scheme, "name")
    for number, url in enumerate(urls if IS_LONG else urls[1:]):
        variables = {
            "CELERIAC_BROKER_URL": "memory://",
            "CELERIAC_LOG_URL": url,
            "CELERIAC_WAREHOUSE_URL": url,
        }

        _, text = run(tmp_path / str(number), arguments_of(path, place=url), **variables)

        assert traces_in(text) == []


# -- somebody refuses


@pytest.fixture(scope="module")
def refusing(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Where brokers listen that let nobody in with our passwords."""
    rabbit: RabbitServer = request.getfixturevalue("rabbit_server")
    with RedisServer() as redis:
        redis.configure("requirepass", "other")
        yield {
            "redis": f"127.0.0.1:{redis.port}",
            "amqp": re.sub(r".*@|/.*", "", rabbit.url.partition("//")[2]),
        }


ONLINE = [path for path in COMMANDS if not OFFLINE.match(path)]
REFUSED = [
    (path, scheme, number)
    for place, path in enumerate(ONLINE)
    for scheme in SCHEMES
    for number in (0, 1)
    if IS_LONG or (place % 4 == 0 and (scheme == "redis") == (number == 0))
]


@pytest.mark.parametrize(("path", "scheme", "number"), REFUSED)
def test_broker_that_refuses_a_password_does_not_have_it_shown(
    path: str, scheme: str, number: int, refusing: dict[str, str], tmp_path: Path
) -> None:
    url = urls_at(refusing[scheme], scheme)[number]
    backend = urls_at(refusing["redis"], "redis")[number]

    code, text = run(
        tmp_path / "here",
        arguments_of(path),
        CELERIAC_BROKER_URL=url,
        CELERIAC_RESULT_BACKEND=backend,
        CELERIAC_ELECTION_URL=backend,
    )

    assert traces_in(text) == []
    assert code in (Code.OK, Code.UNAVAILABLE, Code.REFUSED, -15), text


# -- somebody lets us in


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    """The URL of a broker that wants a password of many characters."""
    with RedisServer() as server:
        with server.client() as client:
            client.execute_command("ACL", "SETUSER", "us3r", "on", f">{PASSWORDS[1]}", "~*", "&*", "+@all")
            client.execute_command("ACL", "SETUSER", "default", "off")
        yield urls_at(f"127.0.0.1:{server.port}", "redis", "0")[1]


def marked(mark: str) -> list[int]:
    """Return the processes that have a mark in their environment."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark.encode() in (place / "environ").read_bytes():
                found.append(int(place.name))
    return found


def test_no_process_of_a_worker_has_the_password_in_its_title(guarded: str, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    mark = f"TEST_MARK_{os.getpid()}_{id(guarded)}"
    log = tmp_path / "log"
    environment = own_environment(CELERIAC_BROKER_URL=guarded, TEST_MARK=mark)
    command = [
        *CELERIAC,
        "worker",
        "--app",
        "shop:app",
        "--pool",
        "processes",
        "-c",
        "2",
        "--loglevel",
        "debug",
    ]
    with ExitStack() as stack:
        said = stack.enter_context(log.open("wb"))
        worker = stack.enter_context(
            subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=said, stderr=said)  # noqa: S603
        )
        stack.callback(worker.kill)
        assert wait_until(lambda: len(marked(mark)) >= 3 or worker.poll() is not None, patience=PATIENCE)
        assert wait_until(lambda: "127.0.0.1" in read(log), patience=PATIENCE), read(log)
        titles = [title for pid in marked(mark) for title in titles_of(pid)]
        worker.terminate()
        assert worker.wait(PATIENCE) == 0

    assert any("shop" in title for title in titles)
    assert traces_in("\n".join([*titles, read(log)])) == []


def test_no_process_of_up_has_the_password_in_its_title_or_files(guarded: str, tmp_path: Path) -> None:
    with running(tmp_path, "--debug", CELERIAC_BROKER_URL=guarded) as up:
        up.wait_for("^(end +with Ctrl-C)")
        titles = [title for pid in up.alive() for title in titles_of(pid)]
        assert up.end(15) == 0
        texts = [read(each) for each in files_in(tmp_path)]

    assert len(titles) > 4
    assert traces_in("\n".join([*titles, up.told, *texts])) == []
