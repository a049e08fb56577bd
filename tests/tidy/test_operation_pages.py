"""The pages for operators are complete, and their figures are those of the code and the benchmarks."""

import re
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from celeriac.cli.web import PORT
from celeriac.store import columns, manifest
from celeriac.store.frame import _MAGIC as MAGIC
from celeriac.web import access
from celeriac.web.server import API
from tests.tidy.repository import ROOT

ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yaml"
RULES: dict[str, Any] = {
    rule["alert"]: rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
}
RUNBOOK = ROOT / "docs" / "howto" / "handle-alerts.md"
CHECKLIST = (ROOT / "docs" / "howto" / "production-checklist.md").read_text()
BENCHMARKS = (ROOT / "benchmarks" / "README.md").read_text()


def sections() -> dict[str, str]:
    """Return what the page says of each alert."""
    parts = re.split(r"^### (\w+)$", RUNBOOK.read_text(), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


# -- alerts


def test_every_alert_has_a_section_and_no_other_is_there() -> None:
    assert set(sections()) == set(RULES)


@pytest.mark.parametrize("name", RULES)
def test_a_section_says_meaning_impact_check_and_fix(name: str) -> None:
    items = re.findall(r"^- \*\*(\w+)\.\*\* ", sections()[name], re.MULTILINE)

    assert items == ["Meaning", "Impact", "Check", "Fix"]


@pytest.mark.parametrize("name", RULES)
def test_an_alert_leads_to_its_section(name: str) -> None:
    page = RUNBOOK.relative_to(ROOT).as_posix()

    assert RULES[name]["annotations"]["runbook_url"] == f"{page}#{name.lower()}"


# -- versions and limits


def test_the_versions_of_formats_are_those_of_the_code() -> None:
    page = (ROOT / "docs" / "reference" / "versioning.md").read_text()
    rows = dict(re.findall(r"^\| ([^|]+) \| [^|]+ \| ([^|]+) \|", page, re.MULTILINE))

    assert rows["HTTP API"] == f"`{API}`"
    assert (
        rows["event log"] == f"format {columns.VERSION} (`{MAGIC.decode().strip()}` for the write-ahead file)"
    )
    assert rows["manifest `current.json`"] == str(manifest.FORMAT)


def test_the_limits_of_logins_are_those_of_the_code() -> None:
    page = (ROOT / "docs" / "explanation" / "security.md").read_text()

    assert (
        f"Sessions last {access.LOGIN_SECONDS / 3600:.0f} hours, at most {access._MOST_OF_NAME} for each"
        in page
    )
    assert f"after {access._MOST_GUESSES} wrong passwords a minute" in page
    assert f"or {access._MOST_OF_ADDRESS} for one address" in page
    assert f"(n = 2<sup>{access._COST['n'].bit_length() - 1}</sup>, r = {access._COST['r']})" in page


def test_the_picture_of_the_architecture_has_the_port_and_every_role() -> None:
    picture = (ROOT / "docs" / "explanation" / "architecture.svg").read_text()

    assert f"port {PORT}" in picture
    assert [
        role for role in ("web", "top", "record", "pipeline", "history") if f"celeriac {role}" not in picture
    ] == []


# -- figures


@pytest.mark.parametrize(
    ("resource", "figures"),
    [
        ("dashboard, CPU", ["2.6"]),
        ("receiving events, one core", ["52,799", "111,832"]),
        ("recorder, one core", ["107,438", "89,963"]),
        ("event log", ["26.6"]),
        ("pipeline, CPU", ["136,125", "38,638"]),
        ("pipeline, memory", ["9.8"]),
        ("tables", ["203"]),
        ("a question to the tables", ["440 to 540 ms", "already 67"]),
    ],
)
def test_a_figure_of_the_checklist_is_one_of_the_benchmarks(resource: str, figures: list[str]) -> None:
    table = CHECKLIST.partition("| Resource | Measured |")[2].partition("\n\n")[0]
    (row,) = re.findall(rf"^\| {re.escape(resource)} \| (.*) \|$", table, re.MULTILINE)

    shown = [each.removeprefix("already ") for each in figures]
    assert [each for each in shown if each not in row] == []
    assert [each for each in figures if each not in BENCHMARKS] == []
