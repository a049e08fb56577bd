import json
from pathlib import Path

import pytest

from celeriac.errors import DiskError
from celeriac.store.audit import Actor, Audit

ADA = Actor("ada", "operator")


def test_lines_are_added_and_are_for_their_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    audit = Audit(path)

    audit.check()
    assert path.read_bytes() == b""
    audit.note(ADA, "revoke", targets=["a"])
    Audit(path).note_end(ADA, "revoke", replies={})

    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["user"], line["role"], line["action"]) for line in lines] == [
        ("ada", "operator", "revoke"), ("ada", "operator", "revoke done"),
    ]  # fmt: skip
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_cannot_be_written_is_told_with_what_helps_and_what_came_of_it(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "missing" / "audit.jsonl")

    with pytest.raises(DiskError, match=r"actions are disabled: No such file.*with --audit"):
        audit.check()
    with pytest.raises(DiskError, match="the action was not run"):
        audit.note(ADA, "revoke")
    with pytest.raises(DiskError, match="the action was run"):
        audit.note_end(ADA, "revoke")


def test_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(DiskError):
        Audit(tmp_path / "link").check()
    assert not (tmp_path / "elsewhere").exists()
