import json
from pathlib import Path
from typing import Any

import pytest

from celeriac.errors import DiskError
from celeriac.store.manifest import MANIFEST, Manifest, PartFile, read_manifest, write_manifest
from celeriac.store.place import place_for


def manifest(**fields: Any) -> Manifest:
    told: dict[str, Any] = {
        "version": 3,
        "published_at": 1_794_700_000.5,
        "log": "/srv/history",
        "recorders": ("web-1", "web-2"),
        "covered": {"web-1": ((1, 100), (201, 300))},
        "events": 200,
        "tables": {"tasks": {"2026-11-14": (PartFile("tables/tasks/r/day=2026-11-14/a.parquet", 7, 1234),)}},
        "schemas": {"tasks": 1},
    }
    return Manifest(**(told | fields))


def test_what_was_published_is_read_as_it_was(tmp_path: Path) -> None:
    place, published = place_for(tmp_path), manifest(rate=1000.0, retired={"tables/tasks/q/x": 1.5})

    write_manifest(place, published)

    assert read_manifest(place) == published


def test_where_nothing_was_published_there_is_no_manifest(tmp_path: Path) -> None:
    assert read_manifest(place_for(tmp_path / "nowhere")) is None


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"format": "1"}', b'{"format": true}', b'{"format": 1}']
)
def test_one_that_is_damaged_is_refused_with_what_to_do(tmp_path: Path, content: bytes) -> None:
    (tmp_path / MANIFEST).write_bytes(content)

    with pytest.raises(DiskError, match=r"current\.json is damaged: .*celeriac pipeline run to rebuild"):
        read_manifest(place_for(tmp_path))


def test_one_of_a_later_format_is_refused_whatever_else_is_in_it(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text(json.dumps({"format": 2, "version": "x"}))

    with pytest.raises(DiskError, match="has format 2, newer than 1: upgrade Celeriac"):
        read_manifest(place_for(tmp_path))


def test_fields_that_a_later_celeriac_added_are_passed_by(tmp_path: Path) -> None:
    place = place_for(tmp_path)
    write_manifest(place, manifest())
    told = json.loads((tmp_path / MANIFEST).read_bytes())

    (tmp_path / MANIFEST).write_text(json.dumps(told | {"colour": "green"}))

    assert read_manifest(place) == manifest()
