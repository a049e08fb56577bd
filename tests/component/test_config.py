"""Settings that come from files, and what goes before what."""

from pathlib import Path

import pytest

from celeriac.config import Settings
from tests.unit.test_config import NAMES, SECRET, load, refusal


def test_a_file_holds_settings_and_tables(tmp_path: Path) -> None:
    text = """
        event_queue_ttl = 9
        control_allow = ["revoke"]
        [broker_transport_options]
        visibility_timeout = 10
    """
    (tmp_path / "celeriac.toml").write_text(text)

    settings = load(folder=tmp_path)

    assert settings.event_queue_ttl == 9.0
    assert settings.control_allow == ("revoke",)
    assert settings.broker_transport_options == {"visibility_timeout": 10}


def test_the_table_of_a_project_is_read(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n[tool.celeriac]\nbroker_heartbeat = 3")

    settings = load(folder=tmp_path)

    assert settings.broker_heartbeat == 3


@pytest.mark.parametrize("text", ["", "[project]", "[tool.other]\nbroker_heartbeat = 3"])
def test_a_project_without_the_table_sets_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)

    settings = load(folder=tmp_path)

    assert settings == Settings()


def test_a_folder_without_files_sets_nothing(tmp_path: Path) -> None:
    (tmp_path / "celeriac.toml").mkdir()

    settings = load(folder=tmp_path)

    assert settings == Settings()


def test_the_current_folder_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "celeriac.toml").write_text("broker_heartbeat = 3")
    monkeypatch.chdir(tmp_path)

    settings = Settings.load(environ={})

    assert settings.broker_heartbeat == 3
    assert settings.sources()["broker_heartbeat"] == "file celeriac.toml"


def test_of_several_files_the_nearest_one_counts_alone(tmp_path: Path) -> None:
    (tmp_path / "given.toml").write_text("broker_heartbeat = 1")
    (tmp_path / "named.toml").write_text("broker_heartbeat = 2\nevent_queue_ttl = 2")
    (tmp_path / "celeriac.toml").write_text("broker_heartbeat = 3\nevent_queue_ttl = 3")
    (tmp_path / "pyproject.toml").write_text("[tool.celeriac]\nbroker_heartbeat = 4\nevent_queue_ttl = 4")
    environ = {"CELERIAC_CONFIG": str(tmp_path / "named.toml")}

    given = Settings.load(environ=environ, file=tmp_path / "given.toml", folder=tmp_path)
    named = Settings.load(environ=environ, folder=tmp_path)
    found = Settings.load(environ={"CELERIAC_CONFIG": ""}, folder=tmp_path)

    assert [each.broker_heartbeat for each in (given, named, found)] == [1, 2, 3]
    assert [each.event_queue_ttl for each in (given, named, found)] == [5.0, 2.0, 3.0]


def test_a_project_file_that_is_given_is_read_by_its_table(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text("[project]\nname = 'x'\n[tool.celeriac]\nbroker_heartbeat = 3")

    settings = Settings.load(environ={"CELERIAC_CONFIG": str(path)}, folder=tmp_path)

    assert settings.broker_heartbeat == 3


def test_a_file_that_is_named_must_be_there(tmp_path: Path) -> None:
    path = tmp_path / "absent.toml"

    given = refusal(file=path)
    named = refusal(environ={"CELERIAC_CONFIG": str(path)})

    assert given == named == f"cannot read file {path}: No such file or directory; use another file"


@pytest.mark.parametrize("content", [f'broker_url = "redis://:{SECRET}@h'.encode(), b"a = \xff", b"= 1"])
def test_a_file_that_is_not_toml_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "celeriac.toml"
    path.write_bytes(content)

    message = refusal(folder=tmp_path)

    assert message.startswith(f"file {path} is not TOML: ")


@pytest.mark.parametrize("text", ["tool = 1", "[tool]\nceleriac = 1", "tool = [1]"])
def test_a_project_whose_table_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)

    message = refusal(folder=tmp_path)

    assert message.endswith("is not a table; write [tool.celeriac]")


def test_an_unknown_key_names_file_and_nearest_key(tmp_path: Path) -> None:
    path = tmp_path / "celeriac.toml"
    path.write_text(f'brokr_url = "redis://:{SECRET}@h"')

    message = refusal(file=path)

    assert message == f"brokr_url (file {path}) is not a setting; did you mean broker_url?"


def test_a_bad_value_names_its_file(tmp_path: Path) -> None:
    path = tmp_path / "celeriac.toml"
    path.write_text("event_queue_ttl = '5'")

    message = refusal(file=path)

    assert message == f"event_queue_ttl is '5' (file {path}); give a number of seconds above 0"


def test_arguments_go_before_variables_before_files_before_defaults(tmp_path: Path) -> None:
    path = tmp_path / "celeriac.toml"
    path.write_text("event_queue_ttl = 1\ncontrol_queue_ttl = 1\nbroker_heartbeat = 1")
    environ = {"CELERIAC_EVENT_QUEUE_TTL": "2", "CELERIAC_CONTROL_QUEUE_TTL": "2"}

    settings = load({"event_queue_ttl": 3}, environ=environ, folder=tmp_path)

    assert settings.event_queue_ttl == 3.0
    assert settings.control_queue_ttl == 2.0
    assert settings.broker_heartbeat == 1
    assert settings.broker_connection_timeout == 4.0


def test_sources_tell_where_each_value_came_from(tmp_path: Path) -> None:
    path = tmp_path / "celeriac.toml"
    path.write_text("broker_heartbeat = 120")

    sources = load(
        {"event_queue_ttl": 3}, environ={"CELERIAC_EVENT_LOCALIZE": "0"}, folder=tmp_path
    ).sources()

    assert list(sources) == NAMES
    assert {name: source for name, source in sources.items() if source != "default"} == {
        "broker_heartbeat": f"file {path}",
        "event_localize": "variable CELERIAC_EVENT_LOCALIZE",
        "event_queue_ttl": "argument",
    }


def test_a_value_that_is_overruled_must_be_right_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "celeriac.toml").write_text("event_queue_ttl = 'soon'")

    message = refusal({"event_queue_ttl": 3}, folder=tmp_path)

    assert "event_queue_ttl is 'soon'" in message
