"""Settings: each rule, each source, and that no secret ever shows."""

import copy
import inspect
import json
import pickle
import ssl
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, fields, replace
from datetime import timedelta
from pathlib import Path
from traceback import format_exception
from typing import Any

import pytest
from celery.app.defaults import DEFAULTS
from hypothesis import given
from hypothesis import strategies as st

from celeriac.config import Settings
from celeriac.errors import ImproperlyConfigured
from celeriac.masking import sanitize_url
from celeriac.node.state import State

SECRET = "hunter2"  # noqa: S105 - it opens nothing
NAMES = [each.name for each in fields(Settings) if not each.name.startswith("_")]
SECONDS = {each.name for each in fields(Settings) if each.type is float}
#: Those of them that have a least value of their own.
LEAST = {"beat_ttl": 0.5, "election_ttl": 0.5, "election_retain": 60.0}
SECRET_KEYS = [
    *("password", "PASSWD", "redis_password", "passphrase", "pwd", "secret", "client_secret", "token"),
    *("sessionToken", "api_key", "apikey", "key", "aws_access_key_id", "AccountKey", "SharedAccessSignature"),
    *("sig", "credentials", "authorization", "auth", "cookie", "dsn", "private"),
]
OURS = {
    "beat_ttl",
    "broker_retry_base",
    "broker_retry_cap",
    "control_allow",
    "election_actions",
    "election_broker_nodes",
    "election_min_level",
    "election_mixed",
    "election_namespace",
    "election_retain",
    "election_ttl",
    "election_url",
    "event_localize",
    "event_offline_limit",
    *(name for name in NAMES if name.startswith(("log_", "redact_", "spark_", "warehouse_"))),
    "max_tasks_in_memory",
    "max_workers_in_memory",
    "result_drainer",
    "result_max_bytes",
    "task_max_bytes",
    "task_routes",
    # Celery: none is UTC.
    "timezone",
    "worker_eta_task_limit",
    "worker_gossip_interval",
    "worker_heartbeat_interval",
    "worker_mingle_timeout",
}


def refusal(
    arguments: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    file: Path | None = None,
    folder: Path = Path("nowhere"),
) -> str:
    """Return why settings cannot be loaded, after a look that the whole traceback holds no secret."""
    with pytest.raises(ImproperlyConfigured) as raised:
        Settings.load(arguments, environ=environ or {}, file=file, folder=folder)
    assert SECRET not in "".join(format_exception(raised.value))
    return str(raised.value)


def load(
    arguments: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    folder: Path = Path("nowhere"),
) -> Settings:
    """Load settings, with no file unless a folder is given."""
    return Settings.load(arguments, environ=environ or {}, folder=folder)


# Defaults


@pytest.mark.parametrize("name", sorted({*NAMES} - OURS - {"broker_url"}))
def test_the_defaults_are_those_of_celery(name: str) -> None:
    stock = DEFAULTS[name]

    ours = getattr(Settings(), name)

    # Celery: of some switches None means off, and one duration is no number.
    if isinstance(stock, timedelta):
        stock = stock.total_seconds()
    assert ours == (bool(stock) if isinstance(ours, bool) else stock)


def test_with_no_broker_named_it_is_rabbitmq_on_this_machine() -> None:
    settings = Settings()

    url = settings.broker_url

    assert url == "amqp://guest:guest@127.0.0.1:5672//"


@pytest.mark.parametrize("name", ["max_tasks_in_memory", "max_workers_in_memory"])
def test_the_limits_of_memory_are_those_of_the_state(name: str) -> None:
    default = inspect.signature(State).parameters[name].default

    setting = getattr(Settings(), name)

    assert setting == default


def test_settings_are_frozen() -> None:
    settings = Settings()

    with pytest.raises(FrozenInstanceError):
        settings.broker_heartbeat = 1  # type: ignore[misc]


def test_tables_are_copied_all_the_way_down() -> None:
    options: dict[str, Any] = {"sentinel_kwargs": {"db": 1}, "sentinels": [["a", 1]]}
    settings = Settings(broker_transport_options=options)

    options["sentinel_kwargs"]["db"] = 2
    options["sentinels"].append(["b", 2])

    assert settings.broker_transport_options == {"sentinel_kwargs": {"db": 1}, "sentinels": [["a", 1]]}


def test_settings_can_be_copied_pickled_and_replaced() -> None:
    settings = Settings(broker_transport_options={"db": 1}, control_allow=("revoke",))

    copies = [copy.deepcopy(settings), pickle.loads(pickle.dumps(settings)), replace(settings)]  # noqa: S301

    assert copies == [settings] * 3


# Rules


@pytest.mark.parametrize("kind", ["event", "control"])
def test_a_queue_that_is_exclusive_by_default_cannot_be_durable(kind: str) -> None:
    arguments = {f"{kind}_queue_durable": True}

    message = refusal(arguments)

    assert message == (
        f"{kind}_queue_durable and {kind}_queue_exclusive are both on "
        f"({kind}_queue_exclusive is on by default), but an exclusive queue is deleted with its "
        f"connection; set {kind}_queue_exclusive to False, or {kind}_queue_durable to False"
    )


@pytest.mark.parametrize("kind", ["event", "control"])
def test_a_queue_that_is_not_exclusive_can_be_durable(kind: str) -> None:
    arguments = {f"{kind}_queue_durable": True, f"{kind}_queue_exclusive": False}

    settings = load(arguments)

    assert getattr(settings, f"{kind}_queue_durable") is True


@pytest.mark.parametrize("serializer", ["pickle", "yaml", "msgpack", "", 1])
def test_events_are_json_and_the_message_says_why(serializer: object) -> None:
    arguments = {"event_serializer": serializer}

    message = refusal(arguments)

    assert message.startswith("event_serializer is ")
    assert "use 'json': Celeriac accepts JSON only, because pickle" in message


@pytest.mark.parametrize("accepted", [["pickle"], ["json", "pickle"], [], "json", ["json", 1]])
def test_only_json_is_accepted_and_the_message_says_why(accepted: object) -> None:
    arguments = {"accept_content": accepted}

    message = refusal(arguments)

    assert message.startswith("accept_content is ")
    assert "use ['json']: Celeriac accepts JSON only" in message


@pytest.mark.parametrize("accepted", [["json"], ("application/json",), ["json", "application/json"]])
def test_json_is_accepted_under_both_its_names(accepted: list[str]) -> None:
    arguments = {"accept_content": accepted}

    settings = load(arguments)

    assert settings.accept_content == tuple(accepted)


@pytest.mark.parametrize("name", sorted(SECONDS - {"result_expires", *LEAST}))
@pytest.mark.parametrize("value", [0, -1, -0.5, float("nan"), float("inf"), 10**400, True, "5", [5], ssl])
def test_seconds_are_numbers_above_zero(name: str, value: object) -> None:
    arguments = {name: value}

    message = refusal(arguments)

    assert message.startswith(f"{name} is ")
    assert message.endswith(" (argument); give a number of seconds above 0")


@pytest.mark.parametrize("name", sorted(LEAST))
@pytest.mark.parametrize("value", [0, -1, 0.49, float("nan"), float("inf"), True, "5"])
def test_some_seconds_are_of_no_use_below_a_least(name: str, value: object) -> None:
    arguments = {name: value}

    message = refusal(arguments)

    assert message.startswith(f"{name} is ")
    assert message.endswith(f" (argument); give a number of seconds of at least {LEAST[name]:g}")
    assert getattr(load({name: LEAST[name]}), name) == LEAST[name]


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("election_min_level", "choose L0, L1, L2, L3"),
        ("election_mixed", "use 'follow' or 'refuse'"),
        (
            "election_url",
            "give a URL such as redis://127.0.0.1:6379/0, or an empty string to use the broker",
        ),
    ],
)
@pytest.mark.parametrize("value", ["never", f"redis//:{SECRET}@h", 2, ["L2"]])
def test_how_elections_are_decided_is_one_of_what_there_is(name: str, fix: str, value: object) -> None:
    arguments = {name: value}

    message = refusal(arguments)

    assert message.startswith(f"{name} is ")
    assert message.endswith(f" (argument); {fix}")


@pytest.mark.parametrize("value", [-1, -0.5, float("nan"), float("inf"), 10**400, True, False, "5", [5], ssl])
def test_results_are_kept_for_some_seconds_or_for_ever(value: object) -> None:
    message = refusal({"result_expires": value})

    assert message.endswith(" (argument); give a number of seconds, or 0 for no limit")
    assert load({"result_expires": 0}).result_expires == 0.0


def test_whole_seconds_become_a_float() -> None:
    arguments = {"event_queue_ttl": 7}

    settings = load(arguments)

    assert type(settings.event_queue_ttl) is float
    assert settings.event_queue_ttl == 7.0


@pytest.mark.parametrize("name", ["event_offline_limit", "max_tasks_in_memory", "max_workers_in_memory"])
@pytest.mark.parametrize("value", [0, -1, 1.0, True, "1"])
def test_limits_are_whole_numbers_above_zero(name: str, value: object) -> None:
    arguments = {name: value}

    message = refusal(arguments)

    assert message == f"{name} is {value!r} (argument); give an integer above 0"


def test_the_heartbeat_may_be_zero() -> None:
    arguments = {"broker_heartbeat": 0}

    settings = load(arguments)

    assert settings.broker_heartbeat == 0


@pytest.mark.parametrize("value", [-1, 1.5, False, "120"])
def test_the_heartbeat_is_in_whole_seconds(value: object) -> None:
    arguments = {"broker_heartbeat": value}

    message = refusal(arguments)

    assert message == f"broker_heartbeat is {value!r} (argument); use whole seconds or 0"


@pytest.mark.parametrize("name", [each.name for each in fields(Settings) if each.type is bool])
@pytest.mark.parametrize("value", [1, 0, "true", [True]])
def test_switches_are_booleans(name: str, value: object) -> None:
    arguments = {name: value}

    message = refusal(arguments)

    assert message == f"{name} is {value!r} (argument); use true or false"


@pytest.mark.parametrize("name", ["event_exchange", "event_queue_prefix", "control_exchange"])
@pytest.mark.parametrize("value", ["", 1, ["a"]])
def test_names_are_texts_that_are_not_empty(name: str, value: object) -> None:
    arguments = {name: value}

    message = refusal(arguments)

    assert message == f"{name} is {value!r} (argument); give a string that is not empty"


@pytest.mark.parametrize("value", ["revoke", [""], [1], {"revoke"}, 1])
def test_a_list_of_commands_is_a_list_of_texts(value: object) -> None:
    arguments = {"control_allow": value}

    message = refusal(arguments)

    assert message.startswith("control_allow is ")
    assert message.endswith(" (argument); give a list of strings; in a variable: a,b")


def test_a_list_is_kept_as_a_tuple() -> None:
    arguments = {"control_allow": ["revoke", "shutdown"]}

    settings = load(arguments)

    assert settings.control_allow == ("revoke", "shutdown")


@pytest.mark.parametrize("value", [["db"], "db=1", 1, {1: 2}])
def test_transport_options_are_a_table(value: object) -> None:
    arguments = {"broker_transport_options": value}

    message = refusal(arguments)

    assert message.startswith("broker_transport_options is ")
    assert message.endswith(" (argument); give a table; in a variable: JSON")


@pytest.mark.parametrize("value", [True, False, {"ca_certs": "ca.pem", "cert_reqs": ssl.CERT_REQUIRED}])
def test_tls_is_a_switch_or_a_table(value: object) -> None:
    arguments = {"broker_use_ssl": value}

    settings = load(arguments)

    assert settings.broker_use_ssl == value


@pytest.mark.parametrize("value", [1, "yes", [True]])
def test_tls_is_nothing_else(value: object) -> None:
    arguments = {"broker_use_ssl": value}

    message = refusal(arguments)

    assert message.startswith(f"broker_use_ssl is {value!r} (argument); use true or false, or give a table")


@pytest.mark.parametrize("value", ["", SECRET, f"user:{SECRET}@host", f"redis:/{SECRET}", 1, ["redis://h"]])
def test_the_broker_is_a_url(value: object) -> None:
    arguments = {"broker_url": value}

    message = refusal(arguments)

    assert message.startswith("broker_url is ")
    assert message.endswith("give a URL such as redis://127.0.0.1:6379/0; separate several by ;")


@pytest.mark.parametrize("value", ["redis", SECRET, 1])
def test_the_result_backend_is_a_url(value: object) -> None:
    arguments = {"result_backend": value}

    message = refusal(arguments)

    assert "give a URL such as redis://127.0.0.1:6379/0 or rpc://, or an empty string for none" in message


@pytest.mark.parametrize("name", ["result_backend", "broker_login_method"])
def test_an_empty_text_is_none_where_none_is_possible(name: str) -> None:
    environ = {f"CELERIAC_{name.upper()}": "rpc://"}

    settings = load({name: ""}, environ=environ)

    assert getattr(settings, name) is None


@pytest.mark.parametrize(
    "name", ["result_backend", "broker_login_method", "result_failure_expires", "result_compression"]
)
def test_an_empty_variable_is_none_where_none_is_possible(name: str) -> None:
    settings = load(environ={f"CELERIAC_{name.upper()}": ""})

    assert getattr(settings, name) is None


def test_the_longest_wait_is_not_shorter_than_the_first() -> None:
    arguments = {"broker_retry_base": 2.0}

    message = refusal(arguments)

    assert message == (
        "broker_retry_cap is 1.0, less than broker_retry_base, 2.0; raise it, or lower broker_retry_base"
    )


def test_the_rules_hold_without_load_too() -> None:
    arguments: dict[str, Any] = {"event_queue_ttl": "soon"}

    with pytest.raises(ImproperlyConfigured, match="event_queue_ttl is 'soon'"):
        Settings(**arguments)


# Variables


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_can_be_set_by_a_variable(name: str) -> None:
    value = getattr(Settings(), name)
    text = value if isinstance(value, str) else json.dumps(value)
    text = ",".join(value) if isinstance(value, tuple) else "" if value is None else text

    settings = load(environ={f"CELERIAC_{name.upper()}": text})

    assert settings == Settings()
    assert settings.sources()[name] == f"variable CELERIAC_{name.upper()}"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[(text, True) for text in ("1", "true", "YES", "On", " on ")],
        *[(text, False) for text in ("0", "false", "No", "OFF")],
    ],
)
def test_variables_spell_booleans_in_eight_ways(text: str, value: bool) -> None:
    environ = {"CELERIAC_WORKER_SEND_TASK_EVENTS": text, "CELERIAC_BROKER_USE_SSL": text}

    settings = load(environ=environ)

    assert settings.worker_send_task_events is value
    assert settings.broker_use_ssl is value


def test_variables_hold_numbers_lists_and_json() -> None:
    environ = {
        "CELERIAC_EVENT_QUEUE_TTL": "2.5",
        "CELERIAC_BROKER_HEARTBEAT": "0",
        "CELERIAC_CONTROL_ALLOW": "revoke, shutdown,",
        "CELERIAC_BROKER_TRANSPORT_OPTIONS": '{"global_keyprefix": "a", "nested": {"b": [1]}}',
        "CELERIAC_BROKER_USE_SSL": '{"ca_certs": "ca.pem"}',
    }

    settings = load(environ=environ)

    assert settings.event_queue_ttl == 2.5
    assert settings.broker_heartbeat == 0
    assert settings.control_allow == ("revoke", "shutdown")
    assert settings.broker_transport_options == {"global_keyprefix": "a", "nested": {"b": [1]}}
    assert settings.broker_use_ssl == {"ca_certs": "ca.pem"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("EVENT_QUEUE_TTL", "soon"),
        ("EVENT_QUEUE_TTL", ""),
        ("EVENT_QUEUE_TTL", "nan"),
        ("BROKER_HEARTBEAT", "1.5"),
        ("EVENT_LOCALIZE", "maybe"),
        ("EVENT_LOCALIZE", "{}"),
        ("BROKER_URL", ""),
        ("BROKER_USE_SSL", "2"),
        ("BROKER_TRANSPORT_OPTIONS", f'{{"password": "{SECRET}"'),
        ("BROKER_TRANSPORT_OPTIONS", f'["{SECRET}"]'),
        ("BROKER_TRANSPORT_OPTIONS", "[" * 100_000),
        ("EVENT_QUEUE_TTL", f"redis://:{SECRET}@h"),
    ],
)
def test_a_variable_that_cannot_be_read_is_named(name: str, text: str) -> None:
    environ = {f"CELERIAC_{name}": text}

    message = refusal(environ=environ)

    assert message.startswith(f"{name.lower()} is ")
    assert f" (variable CELERIAC_{name}); " in message
    assert len(message) < 250


@pytest.mark.parametrize(
    ("variable", "fix"),
    [
        ("CELERIAC_BROKR_URL", "did you mean CELERIAC_BROKER_URL?"),
        ("CELERIAC_broker_url", "did you mean CELERIAC_BROKER_URL?"),
        ("CELERIAC_EVENT_TTL", "did you mean CELERIAC_EVENT_QUEUE_TTL?"),
        ("CELERIAC_ZZZ", "see the settings reference for all names"),
    ],
)
def test_an_unknown_variable_is_refused_with_the_nearest_one(variable: str, fix: str) -> None:
    environ = {variable: SECRET}

    message = refusal(environ=environ)

    assert message == f"variable {variable} is not a setting; {fix}"


def test_variables_of_others_are_none_of_our_business() -> None:
    environ = {"CELERY_TIMEZONE": "UTC", "PATH": "", "CELERIACS": "1"}

    settings = load(environ=environ)

    assert settings == Settings()


# Arguments


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("brokr_url", "broker_url"),
        ("BROKER_URL", "broker_url"),
        ("CELERY_RESULT_BACKEND", "result_backend"),
        ("CELERY_SEND_TASK_SENT_EVENT", "task_send_sent_event"),
        ("CELERY_SEND_EVENTS", "worker_send_task_events"),
        ("CELERY_EVENT_QUEUE_TTL", "event_queue_ttl"),
        ("CELERYD_ENABLE_REMOTE_CONTROL", "worker_enable_remote_control"),
    ],
)
def test_an_unknown_argument_is_refused_with_the_nearest_one(key: str, near: str) -> None:
    arguments = {key: SECRET}

    message = refusal(arguments)

    assert message == f"{key} (argument) is not a setting; did you mean {near}?"


def test_an_unknown_argument_is_refused_even_when_it_is_none() -> None:
    arguments = {"brokr_url": None}

    message = refusal(arguments)

    assert "did you mean broker_url?" in message


def test_an_argument_that_is_none_counts_as_not_given() -> None:
    environ = {"CELERIAC_RESULT_BACKEND": "rpc://"}

    settings = load({"result_backend": None, "broker_url": None}, environ=environ)

    assert settings.result_backend == "rpc://"
    assert settings.broker_url == Settings().broker_url


# Sources


def test_settings_made_by_hand_tell_their_sources_too() -> None:
    settings = Settings(event_queue_ttl=3)

    sources = settings.sources()

    assert {name for name, source in sources.items() if source == "argument"} == {"event_queue_ttl"}
    assert {*sources.values()} == {"argument", "default"}


def test_settings_are_equal_wherever_they_came_from() -> None:
    loaded = load({"event_queue_ttl": 3}, environ={"CELERIAC_BROKER_HEARTBEAT": "7"})

    by_hand = Settings(event_queue_ttl=3.0, broker_heartbeat=7)

    assert loaded == by_hand


# What people see


def test_the_defaults_show_as_they_are_but_for_the_password() -> None:
    settings = Settings()

    public = settings.public()

    assert public == {
        name: list(value) if isinstance(value := getattr(settings, name), tuple) else value for name in NAMES
    } | {"broker_url": "amqp://guest:**@127.0.0.1:5672//", "redact_hash_key": "**"}


@pytest.mark.parametrize(
    "key",
    SECRET_KEYS,
)
def test_what_a_key_calls_secret_is_masked_at_any_depth(key: str) -> None:
    options = {key: SECRET, "sentinel_kwargs": {key: {"a": SECRET}}, "more": [{key: [SECRET]}]}
    settings = Settings(broker_transport_options=options, broker_use_ssl={key: SECRET})

    public = settings.public()

    assert public["broker_transport_options"] == {
        key: "**",
        "sentinel_kwargs": {key: "**"},
        "more": [{key: "**"}],
    }
    assert public["broker_use_ssl"] == {key: "**"}
    assert SECRET not in repr(settings)


def test_what_is_not_secret_stays_readable() -> None:
    options = {
        "global_keyprefix": "shop.",
        "visibility_timeout": 3600,
        "socket_keepalive": True,
        "sentinels": [("a", 26379)],
        "keyfile": "client.pem",
        "authSource": "admin",
        "nothing": None,
    }

    public = Settings(broker_transport_options=options).public()

    assert public["broker_transport_options"] == options | {"sentinels": [["a", 26379]]}


def test_urls_are_masked_under_any_key_and_objects_show_their_type() -> None:
    options = {
        "read_from": f"redis://u:{SECRET}@h/1",
        "odd": f"u:{SECRET}@h",
        "raw": SECRET.encode(),
        "context": Secretive(),
    }

    public = Settings(broker_transport_options=options).public()

    assert public["broker_transport_options"] == {
        "read_from": "redis://u:**@h/1",
        "odd": "**",
        "raw": "<bytes>",
        "context": "<Secretive>",
    }


class Secretive:
    """An object that tells its secret to whoever prints it."""

    def __repr__(self) -> str:
        return SECRET


def test_the_public_form_is_json() -> None:
    settings = Settings(
        control_allow=("revoke",),
        broker_use_ssl={"cert_reqs": ssl.CERT_REQUIRED},
        broker_transport_options={"context": Secretive(), "sentinels": (("a", 1),)},
    )

    public = settings.public()

    assert json.loads(json.dumps(public)) == public


def test_a_repr_shows_what_was_chosen_without_its_secrets() -> None:
    settings = Settings(
        broker_url=f"redis://:{SECRET}@h:6379/0", result_backend=f"redis://u:{SECRET}@h", event_queue_ttl=7
    )

    text = repr(settings)

    assert text == (
        "Settings(broker_url='redis://:**@h:6379/0', result_backend='redis://u:**@h', event_queue_ttl=7.0)"
    )
    assert str(settings) == text


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "value", [f"redis://u:{SECRET}@h", f"u:{SECRET}@h", {"password": SECRET}, Secretive()]
)
def test_no_message_holds_a_secret(name: str, value: object) -> None:
    values: dict[str, Any] = {name: value}

    try:
        message = repr(Settings(**values))
    except ImproperlyConfigured as error:
        message = "".join(format_exception(error))

    assert SECRET not in message


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
        ("redis://localhost", "redis://localhost"),
        ("rpc://", "rpc://"),
        ("redis+socket:///run/redis.sock?virtual_host=1", "redis+socket:///run/redis.sock?virtual_host=1"),
        ("amqp://guest:guest@h:5672//", "amqp://guest:**@h:5672//"),
        ("redis://:hunter2@h/0", "redis://:**@h/0"),
        ("redis://u:@h/0", "redis://u:**@h/0"),
        ("sqs://id:hunter2@", "sqs://id:**@"),
        # Several
        ("amqp://u:hunter2@a//;amqp://u:hunter2@b//", "amqp://u:**@a//;amqp://u:**@b//"),
        ("sentinel://:hunter2@a:1;sentinel://b:2/0", "sentinel://:**@a:1;sentinel://b:2/0"),
        ("sentinel://:hunter2@a:1;b:2", "sentinel://:**@a:1;b:2"),
        ("mongodb://u:hunter2@a:1,b:2/d?authSource=x", "mongodb://u:**@a:1,b:2/d?authSource=x"),
        ("amqp://u:hunter2@a,amqp://u:hunter2@b", "amqp://u:**@b"),
        # IPv6
        ("redis://[::1]:6379/0", "redis://[::1]:6379/0"),
        ("redis://u:hunter2@[fe80::1%25eth0]:6379/0", "redis://u:**@[fe80::1%25eth0]:6379/0"),
        # Percent-encoded, and characters nobody encoded
        ("redis://u:hunter2%40%3A%2F@h/0", "redis://u:**@h/0"),
        ("redis://us%40er:hunter2@h/0", "redis://us%40er:**@h/0"),
        ("redis://u:hunter2@x/y?z#@h/0", "redis://u:**@h/0"),
        ("redis://u:12;34:hunter2@h", "redis://u:**@h"),
        ("redis://u:hunter2\n@h", "redis://u:**@h"),
        # A key in place of a user
        ("azurestoragequeues://hunter2@h", "azurestoragequeues://**@h"),
        ("redis://h?password=hunter2:x@y", "redis://**@y"),
        # In the query
        ("redis://h/0?password=hunter2&db=1", "redis://h/0?password=**&db=1"),
        ("redis://h/0?token=hunter2#top", "redis://h/0?token=**"),
        ("redis://h/0?password=h&password=hunter2", "redis://h/0?password=**&password=**"),
        ("mssql://h/?odbc_connect=A%3DB%3BPWD%3Dhunter2", "mssql://h/?odbc_connect=**"),
        # Not understood
        ("", "**"),
        ("hunter2", "**"),
        ("u:hunter2@h", "**"),
        ("redis:/u:hunter2@h", "**"),
        ("://u:hunter2@h", "**"),
        (" redis://u:hunter2@h", "**"),
        ("redis://:hunter2", "redis://**"),
        ("redis://:12345", "redis://**"),
        ("redis://u:hunter2", "redis://**"),
        ("redis://u:hunter2%40h/0", "redis://**"),
        ("redis://[::1/hunter2", "redis://**"),
        ("azure://Endpoint=sb://h/;SharedAccessKey=hunter2", "azure://**"),
    ],
)
def test_a_url_for_people_has_no_password(url: str, shown: str) -> None:
    sanitized = sanitize_url(url)

    assert sanitized == shown


@given(
    user=st.text(alphabet="abc%40"),
    before=st.text(max_size=5),
    after=st.text(max_size=5),
    place=st.sampled_from(["h", "h:6379/0", "[::1]:1//", "a:1;b:2", "", "h/x?db=1"]),
)
def test_no_password_survives_however_it_is_written(user: str, before: str, after: str, place: str) -> None:
    url = f"redis://{user}:{before}{SECRET}{after}@{place}"

    sanitized = sanitize_url(url)

    assert SECRET not in sanitized
    assert sanitized == f"redis://{user}:**@{place}"


@given(text=st.text())
def test_any_text_is_sanitized_and_twice_is_once(text: str) -> None:
    once = sanitize_url(text)

    twice = sanitize_url(once)

    assert isinstance(once, str)
    assert twice == once


@pytest.mark.parametrize("value", [{"billing.*": "mask"}, {"billing.*": None}, ["drop"], "drop"])
def test_a_policy_of_redaction_is_one_of_three_words(value: object) -> None:
    message = refusal({"redact_tasks": value})

    assert "redact_tasks" in message
    assert "keep, hash, drop" in message
    assert load({"redact_tasks": {"billing.*": "drop"}}).redact_tasks == {"billing.*": "drop"}
