"""Settings from a Celery app, and from the variables that Celery reads."""

from typing import Any

import pytest
from celery import Celery

from celeriac.app import Celeriac
from celeriac.config import Settings
from celeriac.errors import ImproperlyConfigured


def made(**settings: Any) -> Celery:
    app = Celery("shop", set_as_current=False)
    app.conf.update(settings)
    return app


def test_an_app_that_sets_nothing_gives_nothing() -> None:
    settings = Settings.load(environ={}, celery=made())

    assert settings == Settings()
    assert set(settings.sources().values()) == {"default"}


def test_an_app_goes_before_variables_and_after_arguments() -> None:
    app = made(broker_url="redis://app/0", event_exchange="app", task_default_queue="app")
    environ = {"CELERIAC_BROKER_URL": "redis://variable/0", "CELERIAC_EVENT_EXCHANGE": "variable"}

    settings = Settings.load({"event_exchange": "argument"}, environ=environ, celery=app)

    assert settings.broker_url == "redis://app/0"
    assert settings.event_exchange == "argument"
    assert settings.sources()["task_default_queue"] == "Celery app shop"


def test_variables_of_celery_come_last() -> None:
    environ = {"CELERY_BROKER_URL": "redis://celery/0", "CELERY_RESULT_BACKEND": "redis://celery/1"}

    fallback = Settings.load(environ=environ)
    own = Settings.load(environ=environ | {"CELERIAC_BROKER_URL": "redis://own/0"})

    assert (fallback.broker_url, own.broker_url) == ("redis://celery/0", "redis://own/0")
    assert own.result_backend == "redis://celery/1"
    assert fallback.sources()["broker_url"] == "variable CELERY_BROKER_URL"


def test_a_file_goes_before_the_variables_of_celery(tmp_path: Any) -> None:
    (tmp_path / "celeriac.toml").write_text('broker_url = "redis://file/0"')

    settings = Settings.load(environ={"CELERY_BROKER_URL": "redis://celery/0"}, folder=tmp_path)

    assert settings.broker_url == "redis://file/0"


def test_several_brokers_are_joined() -> None:
    app = made(broker_url=["redis://one/0", "redis://two/0"])

    assert Settings.load(environ={}, celery=app).broker_url == "redis://one/0;redis://two/0"


@pytest.mark.parametrize(
    ("given", "backend"),
    [("rpc", "rpc://"), ("disabled", None), ("disabled://", None), ("cache+memory://", "cache+memory://")],
)
def test_backends_are_named_as_urls(given: str, backend: str | None) -> None:
    assert Settings.load(environ={}, celery=made(result_backend=given)).result_backend == backend


@pytest.mark.parametrize(
    ("routes", "taken"),
    [
        ({"a.*": {"queue": "q"}, "b": "p"}, {"a.*": {"queue": "q"}, "b": "p"}),
        ([("a.*", {"queue": "q"}), {"b": "p"}], {"a.*": {"queue": "q"}, "b": "p"}),
        ([lambda *_: None, ("b", "p")], {"b": "p"}),
        (lambda *_: None, {}),
    ],
)
def test_routes_that_are_plain_are_taken(routes: Any, taken: dict[str, object]) -> None:
    assert Settings.load(environ={}, celery=made(task_routes=routes)).task_routes == taken


def test_a_bad_value_names_the_app() -> None:
    with pytest.raises(ImproperlyConfigured, match=r"broker_url is .* \(Celery app shop\); give a URL"):
        Settings.load(environ={}, celery=made(broker_url="localhost"))


def test_an_app_of_ours_takes_the_settings_of_one_of_celery() -> None:
    app = Celeriac(celery=made(broker_url="redis://app/0"), environ={})

    assert app.conf.broker_url == "redis://app/0"
