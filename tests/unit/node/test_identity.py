"""The names of nodes, and their time zone."""

import time

import pytest

from celeriac.node import identity
from celeriac.node.identity import anonymous_name, hours_west, node_name


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "machine_name", lambda: "web1.shop.example")


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("celery@%h", "celery@web1.shop.example"),
        ("mail@%n", "mail@web1"),
        ("mail@%d", "mail@shop.example"),
        ("mail", "mail@web1.shop.example"),
        ("%n-mail", "web1-mail@web1.shop.example"),
        ("100%%@lab", "100%@lab"),
        ("%%h@lab", "%h@lab"),
        ("%x@lab", "%x@lab"),
        ("w@lab", "w@lab"),
        ("w%", "w%@web1.shop.example"),
    ],
)
def test_a_template_names_a_node(template: str, name: str) -> None:
    assert node_name(template) == name


def test_a_host_without_a_domain_has_an_empty_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "machine_name", lambda: "web1")

    assert node_name("w@%n.%d") == "w@web1."


def test_a_process_that_is_no_worker_has_a_name_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getpid", lambda: 77)

    assert anonymous_name() == "gen77@web1.shop.example"


@pytest.mark.parametrize(
    ("zone", "hours"),
    [("UTC0", 0), ("EST5", 5), ("IST-5:30", -5.5), ("<-0330>3:30", 3.5)],
)
def test_the_offset_of_a_time_zone_is_exact(zone: str, hours: float, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", zone)
        time.tzset()
        west = hours_west()
    time.tzset()

    assert west == hours
