"""The programs of ``celeriac up`` are told where all is, and people what they can do next."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from time import time
from types import SimpleNamespace
from typing import cast

import pytest
from celery import Celery

from celeriac.app import Celeriac
from celeriac.cli import lineup
from celeriac.cli.home import Home
from celeriac.cli.lineup import Lineup
from celeriac.cli.sample_cluster import SampleCluster
from celeriac.cli.up_option import Served
from celeriac.cli.up_place import places_of
from celeriac.config import Settings
from celeriac.errors import DiskError

SAMPLE_URL = "redis://127.0.0.1:4711/0"
REAL_URL = "redis://127.0.0.1:6379/0"

Make = Callable[..., Lineup]


class Unstarted:
    """A sample of which nothing is started."""

    url = SAMPLE_URL
    backend = "redis://127.0.0.1:4711/1"

    def daemons(self, **_: str) -> list[object]:
        return [SimpleNamespace(name="broker", needs=(), is_up=False)]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    monkeypatch.chdir(tmp_path)
    made = Home(tmp_path / ".celeriac")
    with made.taken():
        yield made


@pytest.fixture
def make(home: Home) -> Iterator[Make]:
    with ExitStack() as stack:

        def made(
            *,
            is_sample: bool = False,
            config: Path | None = None,
            broker: str | None = None,
            pipeline_every: float = 0.0,
            celery: Celery | None = None,
            **variables: str,
        ) -> Lineup:
            app = Celeriac(broker, config=config, environ=variables, celery=celery)
            stack.callback(app.close)
            return Lineup(
                app,
                home,
                places_of(app, home, is_sample=is_sample),
                sample=cast("SampleCluster", Unstarted()) if is_sample else None,
                served=Served(),
                port=8765,
                pipeline_every=pipeline_every,
                config=config,
                app_name=None if celery is None else "shop",
            )

        yield made


def told(made: Lineup) -> dict[str, str]:
    """Return the settings that the programs get by variables."""
    around = made._recorder._environment()
    return {name: value for name, value in around.items() if name.startswith("CELERIAC_")}


def test_the_sample_is_kept_in_the_folder_whatever_the_settings_name(make: Make, home: Home) -> None:
    elsewhere = {
        "CELERIAC_LOG_URL": "mine",
        "CELERIAC_LOG_SPOOL": "mine/spool",
        "CELERIAC_WAREHOUSE_URL": "s3://mine/tables",
        "CELERIAC_RESULT_BACKEND": "redis://mine/0",
        "CELERIAC_ELECTION_URL": "redis://mine/0",
    }

    made = make(is_sample=True, **elsewhere)

    assert {name: told(made)[name] for name in elsewhere} == {
        "CELERIAC_LOG_URL": str(home.log),
        "CELERIAC_LOG_SPOOL": str(home.log / "spool"),
        "CELERIAC_WAREHOUSE_URL": str(home.warehouse),
        "CELERIAC_RESULT_BACKEND": Unstarted.backend,
        "CELERIAC_ELECTION_URL": SAMPLE_URL,
    }
    assert made._recorder._spool.parent == home.log / "spool"


def test_a_cluster_of_the_users_is_kept_where_the_settings_say(make: Make, home: Home) -> None:
    chosen = make(broker=REAL_URL, CELERIAC_LOG_URL="mine", CELERIAC_LOG_SPOOL="spool")
    plain = make(broker=REAL_URL)

    assert (told(chosen)["CELERIAC_LOG_URL"], chosen._recorder._spool.parent) == ("mine", Path("spool"))
    assert told(chosen)["CELERIAC_WAREHOUSE_URL"] == str(home.warehouse)
    assert told(plain)["CELERIAC_LOG_URL"] == str(home.log)
    assert plain._recorder._spool.parent == home.log / "spool"


def test_the_programs_get_the_settings_of_a_celery_app(make: Make) -> None:
    shop = Celery("shop", broker=REAL_URL, set_as_current=False)
    shop.conf.update(
        event_exchange="shop", event_queue_ttl=9, broker_transport_options={"global_keyprefix": "s:"}
    )

    made = make(celery=shop)

    read = Settings.load(environ=told(made))
    assert (read.broker_url, read.event_exchange, read.event_queue_ttl) == (REAL_URL, "shop", 9.0)
    assert read.broker_transport_options == {"global_keyprefix": "s:"}
    assert tries(made)[:2] == ["top -A shop", "status -A shop"]


def test_a_log_that_is_a_url_of_a_folder_is_one(home: Home, tmp_path: Path) -> None:
    app = Celeriac(REAL_URL, environ={"CELERIAC_LOG_URL": f"file://{tmp_path}/mine"})

    folder = places_of(app, home, is_sample=False).log_folder

    app.close()
    assert folder == tmp_path / "mine"


# -- what can be tried


def tries(made: Lineup) -> list[str]:
    return [line.partition("  #")[0].partition("celeriac ")[2] for line in made._tries()]


def test_a_broker_that_was_named_for_one_command_is_named_again(make: Make) -> None:
    by_option = make(broker=REAL_URL)
    by_variable = make(CELERIAC_BROKER_URL=REAL_URL)
    sample = make(is_sample=True)

    assert tries(by_option)[:2] == tries(by_variable)[:2] == [f"top -b {REAL_URL}", f"status -b {REAL_URL}"]
    assert tries(sample)[0] == f"top -b {SAMPLE_URL}"


def test_a_password_is_not_shown_and_where_it_is_taken_from_is_said(make: Make) -> None:
    made = make(CELERIAC_BROKER_URL="redis://:hush@127.0.0.1:6379/0")

    first = made._tries()[0]

    assert tries(made)[:2] == ['top -b "$CELERIAC_BROKER_URL"', 'status -b "$CELERIAC_BROKER_URL"']
    assert first.endswith("# set it to the URL of the broker, with its password")
    assert "hush" not in "".join(made._tries())


def test_a_file_of_settings_that_was_named_is_named_in_each_command(make: Make, tmp_path: Path) -> None:
    config = tmp_path / "my settings.toml"
    config.write_text(f'broker_url = "{REAL_URL}"')

    made = make(config=config)

    assert tries(made) == [
        "top --config 'my settings.toml'",
        "status --config 'my settings.toml'",
        "pipeline run --config 'my settings.toml'",
        "history latency --config 'my settings.toml' --since 1h --by minute",
    ]


def test_tables_that_come_by_themselves_are_not_told_to_be_made(make: Make) -> None:
    by_hand = tries(make(broker=REAL_URL))
    by_themselves = tries(make(broker=REAL_URL, pipeline_every=600.0))

    assert [each.split()[0] for each in by_hand] == ["top", "status", "pipeline", "history"]
    assert [each.split()[0] for each in by_themselves] == ["top", "status", "history"]


def test_commands_name_the_places_that_are_not_the_default(make: Make) -> None:
    made = make(broker=REAL_URL, CELERIAC_LOG_URL="mine", CELERIAC_WAREHOUSE_URL="s3://mine/tables")

    assert tries(made)[2:] == [
        "pipeline run mine --warehouse s3://mine/tables",
        "history latency --warehouse s3://mine/tables --since 1h --by minute",
    ]


def test_commands_of_packages_that_are_missing_are_not_shown(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lineup, "find_spec", lambda _: None)

    assert tries(make(broker=REAL_URL)) == [f"status -b {REAL_URL}"]


def test_one_that_a_variable_named_is_too(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "settings.toml"
    config.write_text(f'broker_url = "{REAL_URL}"')
    monkeypatch.setenv("CELERIAC_CONFIG", str(config))

    made = make(CELERIAC_CONFIG=str(config))

    assert tries(made)[0] == "top --config settings.toml"


def test_a_file_of_the_folder_need_not_be_named(make: Make, tmp_path: Path) -> None:
    (tmp_path / "celeriac.toml").write_text(f'broker_url = "{REAL_URL}"')

    assert tries(make())[:2] == ["top", "status"]


# -- when the log is compacted


DAY = 86_400


@pytest.mark.parametrize(
    ("ago", "first"),
    [
        pytest.param(None, 180.0, id="never"),
        pytest.param(10 * DAY, 180.0, id="long ago"),
        pytest.param(DAY - 3600, 3600.0, id="almost a day ago"),
        pytest.param(0, DAY, id="just now"),
        pytest.param(-9 * DAY, DAY, id="in the future"),
    ],
)
def test_the_log_is_compacted_once_a_day_over_all_starts(
    make: Make, home: Home, monkeypatch: pytest.MonkeyPatch, ago: int | None, first: float
) -> None:
    now = int(time())
    monkeypatch.setattr(lineup, "time", lambda: float(now))
    monkeypatch.setattr(lineup, "monotonic", lambda: 0.0)
    if ago is not None:
        home.compacted_at = now - ago

    made = make(broker=REAL_URL)

    assert made.crew._parts["compaction"]._turns.due_at == first  # type: ignore[attr-defined]


def test_that_it_was_compacted_is_noted_and_need_not_be(
    make: Make, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lineup, "time", lambda: 4711.0)
    made = make(broker=REAL_URL)

    line = made._note_compaction("")
    noted = home.compacted_at
    (home.folder / "compacted-at").unlink()
    (home.folder / "compacted-at").mkdir()
    again = made._note_compaction("")

    assert (line, noted, again) == ("", 4711, "")
    with pytest.raises(DiskError):
        home.compacted_at = 1
