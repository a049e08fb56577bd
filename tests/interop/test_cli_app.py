"""``-A``: commands find the broker and the exchanges of a cluster in the Celery app that runs there."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from celeriac.testing.brokers import RedisServer
from celeriac.testing.peers import CeleryWorker
from tests.live import peer
from tests.program import own_environment, run_program

ONE_WORKER = ("-d", "shop@lab", "--timeout", "20", "--listen", "20", "--json")
#: A package as Celery's guide has it, on a broker and an exchange that only its configuration names.
PROJECT = """
from celery import Celery
app = Celery("shop", broker={url!r}, set_as_current=False)
app.conf.update(event_exchange="shopevents", task_default_queue="shop")
@app.task(name="shop.add")
def add(x, y):
    return x + y
"""
DJANGO_PROJECT = """
import os
from celery import Celery
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "site_settings")
app = Celery("site", set_as_current=False)
app.config_from_object("django.conf:settings", namespace="CELERY")
"""
#: As much of Django as Celery asks for: settings that are read when somebody first looks at one.
DJANGO_CONF = """
import importlib, os
class Settings:
    def __getattr__(self, name):
        return getattr(importlib.import_module(os.environ["DJANGO_SETTINGS_MODULE"]), name)
    def __dir__(self):
        return dir(importlib.import_module(os.environ["DJANGO_SETTINGS_MODULE"]))
settings = Settings()
"""
DJANGO_SETTINGS = """
CELERY_BROKER_URL = {url!r}
CELERY_RESULT_BACKEND = "django-db"
CELERY_EVENT_EXCHANGE = "shopevents"
CELERY_BROKER_TRANSPORT_OPTIONS = {{"visibility_timeout": 7200}}
"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A broker that the tests of this module share."""
    with RedisServer() as server:
        yield server.url


@pytest.fixture(scope="module")
def project(url: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a project of Celery, and one of Django on the same broker."""
    folder = tmp_path_factory.mktemp("project")
    files = {
        "shop/__init__.py": "",
        "shop/celery.py": PROJECT.format(url=url),
        "site_settings.py": DJANGO_SETTINGS.format(url=url),
        "django/__init__.py": "VERSION = (5, 2, 0)",
        "django/conf.py": DJANGO_CONF,
        "mysite/__init__.py": "from .celery import app as celery_app",
        "mysite/celery.py": DJANGO_PROJECT,
        "shop_worker.py": "from shop.celery import app",
        "broken.py": "raise RuntimeError('no database')",
        "empty.py": "app = None",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module", autouse=True)
def worker(url: str, project: Path) -> Iterator[CeleryWorker]:
    """The one worker of the project."""
    options = {"url": url, "backend": None, "hostname": "shop@lab"}
    with CeleryWorker(peer("5.7"), project / "shop_worker.py", **options) as worker:  # type: ignore[arg-type]
        yield worker


@pytest.mark.parametrize("name", ["shop", "shop.celery", "shop.celery:app", "mysite", "mysite:celery_app"])
def test_commands_find_the_cluster_of_an_app(project: Path, name: str) -> None:
    result = run_program("status", "-A", name, *ONE_WORKER, cwd=project)

    assert result.returncode == 0, result.stderr
    (row,) = json.loads(result.stdout)
    assert row["status"] == "online"
    # Only heartbeats tell the load, and they go by the exchange that the app names.
    assert len(row["load"]) == 3


def test_the_app_may_stand_before_the_command(project: Path) -> None:
    result = run_program("-A", "shop", "inspect", "active_queues", "-d", "shop@lab", "--json", cwd=project)

    assert [queue["name"] for queue in json.loads(result.stdout)["shop@lab"]] == ["shop"]


def test_celery_runs_the_commands_on_its_app(project: Path) -> None:
    command = [sys.executable, "-m", "celery", "-A", "shop", "celeriac", "status", *ONE_WORKER]

    result = subprocess.run(command, cwd=project, env=own_environment(), capture_output=True, check=False)  # noqa: S603

    assert result.returncode == 0, result.stderr
    (row,) = json.loads(result.stdout)
    assert (row["name"], row["status"]) == ("shop@lab", "online")


def test_conf_names_the_app_as_a_source(project: Path, url: str) -> None:
    result = run_program("conf", "-A", "mysite", "--json", cwd=project)

    told = json.loads(result.stdout)
    assert told["broker_url"] == {"value": url, "source": "Celery app site"}
    assert told["broker_transport_options"]["value"] == {"visibility_timeout": 7200}
    assert told["result_backend"]["value"] == "django-db://"
    assert told["control_exchange"]["source"] == "default"


def test_an_unsupported_result_backend_fails_only_where_results_are_read(project: Path) -> None:
    result = run_program("result", "no-such-id", "-A", "mysite", cwd=project)

    assert result.returncode == 78
    assert "result_backend 'django-db://' is not supported; use redis://" in result.stderr


def test_the_broker_option_goes_before_the_app(project: Path) -> None:
    result = run_program("conf", "-A", "shop", "-b", "redis://other/0", "--json", cwd=project)

    told = json.loads(result.stdout)
    assert told["broker_url"] == {"value": "redis://other/0", "source": "argument"}
    assert told["event_exchange"]["source"] == "Celery app shop"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nowhere", "no module 'nowhere'. Run the command in the folder of the project"),
        ("shop:nothing", "module shop has no 'nothing'"),
        ("broken", "cannot load broken, RuntimeError: no database"),
        ("json", "no app in module json. Name the app"),
        ("empty:app", "not an app but a NoneType"),
    ],
)
def test_an_app_that_cannot_be_loaded_names_the_fix(project: Path, name: str, reason: str) -> None:
    result = run_program("status", "-A", name, cwd=project)

    assert result.returncode == 78
    assert f"error: --app {name}: {reason}" in result.stderr


def test_without_celery_the_error_says_where_to_install(project: Path) -> None:
    result = run_program(
        "status", "-A", "shop", cwd=project, before="import sys; sys.modules['celery'] = None"
    )

    assert result.returncode == 78
    assert "Celery is not installed here. Install celeriac in the environment of the app" in result.stderr


def test_worker_refuses_an_app_of_celery(project: Path) -> None:
    result = run_program("worker", "-A", "shop.celery:app", cwd=project)

    assert result.returncode == 78
    assert "For this app run: celery -A shop.celery:app worker" in result.stderr
