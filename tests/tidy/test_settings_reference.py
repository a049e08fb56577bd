"""The reference of settings lists each of them, as it is."""

import re
from collections.abc import Mapping
from dataclasses import fields

from celeriac.config import Settings
from tests.tidy.repository import ROOT

PAGE = (ROOT / "docs" / "reference" / "settings.md").read_text()
ROW = re.compile(r"^\| `(\w+)` \| ([^|]+) \| `(.*?)` \| `(CELERIAC_\w+)` \| (.+) \|$", re.MULTILINE)
WORDS: dict[object, str] = {
    bool: "boolean",
    int: "integer",
    int | None: "integer or none",
    float: "seconds",
    float | None: "seconds or none",
    str: "string",
    str | None: "string or none",
    tuple[str, ...]: "list of strings",
    Mapping[str, object]: "table",
    bool | Mapping[str, object]: "boolean or table",
}


def truth() -> list[tuple[str, str, str, str]]:
    """Return name, type, default and variable of each setting, in the order of the module."""
    settings = Settings()
    rows = []
    for each in fields(Settings):
        if not each.name.startswith("_"):
            kind = WORDS[each.type]
            if each.name in ("broker_url", "result_backend", "election_url"):
                kind = kind.replace("string", "URL")
            default = repr(getattr(settings, each.name))
            rows.append((each.name, kind, default, f"CELERIAC_{each.name.upper()}"))
    return rows


def test_the_reference_lists_exactly_the_settings_with_their_true_defaults() -> None:
    expected = truth()

    listed = [match[:4] for match in (found.groups() for found in ROW.finditer(PAGE))]

    assert listed == expected


def test_the_reference_tells_what_each_setting_means() -> None:
    rows = re.findall(r"^\| `\w+` \|.*CELERIAC_.*$", PAGE, re.MULTILINE)

    meanings = [found[5].strip() for found in ROW.finditer(PAGE)]

    assert len(meanings) == len(rows) == len(truth())
    assert all(len(meaning) > 20 for meaning in meanings)
