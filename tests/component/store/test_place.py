"""Places of a log: what is written is there whole, nothing leads out of them, and errors tell no secrets."""

import errno
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry

from celeriac.errors import CallerError, DiskError, ImproperlyConfigured
from celeriac.store.local_place import LocalPlace
from celeriac.store.place import Place, place_for
from celeriac.store.remote_place import RemotePlace

NAME = "events/date=2026-11-15/hour=01/a.parquet"
POINTS = ["before-write", "after-write", "before-fsync", "after-fsync", "before-rename", "after-rename"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "history"


@pytest.fixture
def local(root: Path) -> LocalPlace:
    return LocalPlace(root)


@pytest.fixture(params=["folder", "memory://history", "memory://"])
def place(request: pytest.FixtureRequest, root: Path) -> Place:
    """A folder, or an object store."""
    return place_for(root if request.param == "folder" else request.param)


@pytest.fixture
def driver() -> Iterator[Callable[[type[MemoryFileSystem]], str]]:
    """Have fsspec know a driver of our own; its URL."""

    def register(kind: type[MemoryFileSystem]) -> str:
        fsspec.register_implementation("odd", kind, clobber=True)
        return "odd://bucket/history"

    yield register
    _registry.pop("odd", None)


def files(folder: Path) -> set[str]:
    return {str(each.relative_to(folder)) for each in folder.rglob("*") if not each.is_dir()}


# -- what every place promises


def test_what_was_written_is_read(place: Place) -> None:
    place.write(NAME, b"content")

    assert place.read(NAME) == b"content"
    assert place.size(NAME) == 7


@pytest.mark.parametrize("content", [b"", memoryview(b"abcd")[1:3], memoryview(bytearray(300_000))])
def test_every_kind_of_content_is_written(place: Place, content: bytes | memoryview) -> None:
    place.write(NAME, content)

    assert place.read(NAME) == bytes(content)


def test_a_second_write_replaces_the_first(place: Place) -> None:
    place.write(NAME, b"a longer content")

    place.write(NAME, b"new")

    assert place.read(NAME) == b"new"


def test_names_are_those_under_a_folder_at_any_depth_and_sorted(place: Place) -> None:
    for name in ("events/b/c", "events/a", "events/b.c", "eventsmore/x", "other/events/a"):
        place.write(name, name.encode())

    assert place.names("events") == ["events/a", "events/b.c", "events/b/c"]
    assert place.names("events/b") == ["events/b/c"]
    assert place.sizes("events") == {"events/a": 8, "events/b.c": 10, "events/b/c": 10}
    assert list(place.sizes("events")) == place.names("events")
    assert place.names("") == ["events/a", "events/b.c", "events/b/c", "eventsmore/x", "other/events/a"]


def test_before_the_first_write_there_is_nothing(place: Place, root: Path) -> None:
    assert place.names("events") == []
    assert place.sizes("events") == {}
    assert place.names("") == []
    place.remove(NAME)
    assert not root.exists()


@pytest.mark.parametrize("ask", [Place.read, Place.size, Place.set_aside])
def test_a_file_that_is_not_there_is_told_as_such(place: Place, ask: Callable[[Place, str], object]) -> None:
    place.write("events/other", b"")

    with pytest.raises(DiskError, match=r"a\.parquet cannot be .*: No such file") as caught:
        getattr(place, ask.__name__)(NAME)

    assert caught.value.errno == errno.ENOENT


def test_a_file_that_was_removed_is_gone_and_to_remove_it_again_is_fine(place: Place) -> None:
    place.write(NAME, b"")

    place.remove(NAME)
    place.remove(NAME)

    assert place.names("") == []


def test_another_sees_at_once_what_one_writes_and_removes(place: Place, root: Path) -> None:
    url = root if place.is_local else place.url
    other = place_for(url)
    assert other.names("events") == []

    place.write(NAME, b"1")
    seen = other.names("events")
    place.write(NAME, b"22")
    size = other.size(NAME)
    place.remove(NAME)

    assert seen == [NAME]
    assert size == 2
    assert other.names("events") == []


def test_what_is_set_aside_keeps_its_path_and_overwrites_nothing(place: Place) -> None:
    asides = []
    for content in (b"1", b"2", b"3"):
        place.write(NAME, content)
        asides.append(place.set_aside(NAME))

    assert asides == [f"damaged/{NAME}", f"damaged/{NAME}.1", f"damaged/{NAME}.2"]
    assert [place.read(aside) for aside in asides] == [b"1", b"2", b"3"]
    assert place.names("events") == []


@pytest.mark.parametrize(
    "name",
    ["/", "/etc/passwd", "..", "../outside", "events/../../outside", "events/..", "./a", "a/./b", "a//b",
     "a/", ".new/draft", ".hidden", "events/.hidden/a", "a\0b", "x" * 256, "é" * 128, "x" * 99 + "/x" * 451],
)  # fmt: skip
@pytest.mark.parametrize("how", ["read", "size", "write", "remove", "set_aside", "names", "sizes"])
def test_a_name_that_could_lead_elsewhere_is_refused(place: Place, root: Path, name: str, how: str) -> None:
    place.write("events/a", b"precious")

    with pytest.raises(CallerError, match="invalid file name"):
        getattr(place, how)(name, *([b"evil"] if how == "write" else []))

    assert place.names("") == ["events/a"]
    assert place.read("events/a") == b"precious"
    assert files(root.parent.parent) <= {"deep/history/events/a"}


@pytest.mark.parametrize(
    "name",
    [
        "\uff0e\uff0e/outside",
        "\u2025/a",
        "a*b?[c]",
        "%2e%2e/a",
        "a\\..\\b",
        "~/a",
        "x" * 255,
        "a b\n",
        "\u202e",
    ],
)
def test_an_odd_name_is_a_name_like_any_other(place: Place, root: Path, name: str) -> None:
    place.write(name, b"odd")
    place.write("other", b"other")
    listed, content = place.names(""), place.read(name)

    place.remove(name)

    assert listed == sorted([name, "other"])
    assert content == b"odd"
    assert place.names("") == ["other"]
    assert files(root.parent.parent) <= {"deep/history/other"}


def test_many_writers_of_many_files_and_of_one_disturb_nobody(place: Place) -> None:
    def write(number: int) -> None:
        place.write(f"events/hour={number % 3}/{number}", bytes([number]) * 1000)
        place.write("events/same", bytes([number]) * 1000)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(40)))

    assert len(place.names("events")) == 41
    assert all(place.read(f"events/hour={n % 3}/{n}") == bytes([n]) * 1000 for n in range(40))
    assert len(set(place.read("events/same"))) == 1


# -- a folder


def test_only_its_owner_may_read_it(local: LocalPlace, root: Path) -> None:
    before = os.umask(0)
    try:
        local.write(NAME, b"")
        local.set_aside(NAME)
    finally:
        os.umask(before)

    modes = {stat.S_IMODE(each.stat().st_mode) for each in [root, *root.rglob("*")] if each.is_dir()}
    assert modes == {0o700}
    assert stat.S_IMODE((root / "damaged" / NAME).stat().st_mode) == 0o600


def test_a_write_leaves_nothing_but_the_file(local: LocalPlace, root: Path) -> None:
    local.write(NAME, b"")

    assert files(root) == {NAME}


def test_the_folders_of_the_last_file_go_with_it_and_others_stay(local: LocalPlace, root: Path) -> None:
    for name in ("events/x/1/a", "events/x/1/b", "events/y/2/a"):
        local.write(name, b"")

    local.remove("events/x/1/a")
    still = (root / "events/x/1").exists()
    local.remove("events/x/1/b")

    assert still
    assert not (root / "events/x").exists()
    assert local.names("") == ["events/y/2/a"]


def test_who_removes_a_folder_never_fails_who_writes_into_it(local: LocalPlace) -> None:
    others = threading.Barrier(4)

    def come_and_go(number: int) -> None:
        others.wait(60)
        for turn in range(100):
            name = f"events/hour/{number}-{turn}"
            local.write(name, b"x")
            assert local.read(name) == b"x"
            local.remove(name)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(come_and_go, range(4)))

    assert local.names("") == []


def test_it_stays_the_same_folder_when_the_process_goes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    place = place_for("history")

    monkeypatch.chdir(tmp_path / "elsewhere")
    place.write("a", b"")

    assert files(tmp_path) == {"history/a"}
    assert place.url == str(tmp_path / "history")


def test_a_folder_can_be_named_in_several_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    place_for(tmp_path / "with space").write("a", b"1")

    ways = [str(tmp_path / "with space"), "~/with space", f"file://{tmp_path}/with%20space",
            f"FILE://localhost{tmp_path}/with%20space", f"local://{tmp_path}/with%20space"]  # fmt: skip

    assert [place_for(way).read("a") for way in ways] == [b"1"] * 5
    assert all(place_for(way).is_local for way in ways)


@pytest.mark.parametrize(
    ("url", "why"),
    [("", "log_url is empty"), ("file://server/share", "on another machine.*mount it"), ("a\0b", "null"),
     ("~nobody-of-that-name/x", "cannot store a history in")],
)  # fmt: skip
def test_what_names_no_folder_is_refused(url: str, why: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=why):
        place_for(url)


def test_a_file_where_the_folder_should_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "history").write_text("precious")
    place = place_for(tmp_path / "history")

    for ask in (place.names, place.read, place.size, place.remove, lambda name: place.write(name, b"")):
        with pytest.raises(
            DiskError, match=r"history.*cannot be .*a file or a symbolic link is in the place of a folder"
        ):
            ask("events/a")

    assert (tmp_path / "history").read_text() == "precious"


# -- links


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "history").symlink_to(tmp_path / "disk")
    place = place_for(tmp_path / "history")

    place.write(NAME, b"1")

    assert files(tmp_path / "disk") == {NAME}
    assert place.names("events") == [NAME]


def test_a_link_to_a_file_is_listed_but_never_read(local: LocalPlace, root: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    local.write("events/a", b"")
    (root / "events" / "link").symlink_to(tmp_path / "secret")

    with pytest.raises(DiskError, match="symbolic links are not followed: replace the link by its target"):
        local.read("events/link")

    assert local.names("events") == ["events/a", "events/link"]


def test_a_write_takes_the_place_of_a_link_and_leaves_alone_what_it_leads_to(
    local: LocalPlace, root: Path, tmp_path: Path
) -> None:
    (tmp_path / "precious").write_text("precious")
    local.write("events/a", b"")
    (root / "events" / "link").symlink_to(tmp_path / "precious")

    local.write("events/link", b"ours")

    assert (tmp_path / "precious").read_text() == "precious"
    assert local.read("events/link") == b"ours"


@pytest.mark.parametrize("linked", ["events", "events/date=2026-11-15", ".new", "damaged"])
def test_nothing_is_read_written_or_removed_through_a_linked_folder(
    local: LocalPlace, root: Path, tmp_path: Path, linked: str
) -> None:
    outside = tmp_path / "outside"
    for folder in ("hour=01", "date=2026-11-15/hour=01"):
        (outside / folder).mkdir(parents=True)
        (outside / folder / "a.parquet").write_text("precious")
    before = files(outside)
    (root / linked).parent.mkdir(parents=True)
    (root / linked).symlink_to(outside)
    steps: list[Callable[[str], object]] = [
        local.read, local.remove, local.set_aside, local.names, lambda name: local.write(name, b"evil"),
    ]  # fmt: skip

    refused = 0
    for step in steps:
        try:
            step(NAME)
        except DiskError:
            refused += 1

    assert files(outside) == before
    assert all((outside / name).read_text() == "precious" for name in before)
    assert refused >= 2
    assert [name for name in local.names("") if "a.parquet" in name] in ([], [NAME])


def test_a_pipe_is_refused_and_not_waited_for(local: LocalPlace, root: Path) -> None:
    local.write("events/a", b"")
    os.mkfifo(root / "events" / "pipe")

    with pytest.raises(DiskError, match="not a regular file"):
        local.read("events/pipe")


def test_a_folder_where_a_file_should_be_is_told(local: LocalPlace) -> None:
    local.write("events/a/b", b"")

    with pytest.raises(DiskError, match="a folder is in the place of a file: move it away"):
        local.write("events/a", b"")
    with pytest.raises(DiskError, match="not a regular file"):
        local.read("events/a")


# -- crashes


def _write_and_die(root: Path, name: str, *, at: str) -> int:
    """Write in a process that is killed at a point; return how it ended."""

    def reach(point: str) -> None:
        if point == at:
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        try:
            place_for(root, at=reach).write(name, b"new" * 1000)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _run(code: str, *given: str) -> int:
    return subprocess.run([sys.executable, "-c", code, *given], check=False).returncode  # noqa: S603


@pytest.mark.parametrize("point", POINTS)
def test_a_write_that_is_killed_leaves_the_old_file_or_the_new_one(
    local: LocalPlace, root: Path, point: str
) -> None:
    local.write(NAME, b"old")
    other = NAME.replace("hour=01", "hour=02")

    for name in (NAME, other):
        ended = _write_and_die(root, name, at=point)
        assert ended == -signal.SIGKILL

    is_new = point == "after-rename"
    assert local.read(NAME) == (b"new" * 1000 if is_new else b"old")
    assert local.names("") == ([NAME, other] if is_new else [NAME])


def test_what_a_crash_left_is_swept_when_it_is_old_and_what_is_under_way_stays(
    local: LocalPlace, root: Path
) -> None:
    local.write("events/a", b"")
    (root / ".new").mkdir()
    for draft, age in (("old.new", 3700), ("young.new", 60)):
        path = root / ".new" / draft
        path.write_bytes(b"half")
        os.utime(path, (path.stat().st_mtime - age,) * 2)

    local.write("events/b", b"")

    assert local.names("") == ["events/a", "events/b"]
    assert files(root) == {".new/young.new", "events/a", "events/b"}


def test_a_write_leaves_nothing_but_the_file_and_many_at_once_do_not_hinder_each_other(
    local: LocalPlace, root: Path
) -> None:
    names = [f"events/{number}" for number in range(200)]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: local.write(name, b"x"), names))

    assert files(root) == {*names}
    assert not (root / ".new").exists()


def test_the_points_of_a_write_are_told_in_order(root: Path) -> None:
    passed: list[str] = []

    place_for(root, at=passed.append).write(NAME, b"")
    there = list(passed)
    passed.clear()
    place_for("memory://points", at=passed.append).write(NAME, b"")

    assert there == POINTS
    assert passed == ["before-write", "after-write"]


def test_content_is_on_the_disk_before_its_name_and_its_name_before_the_return(
    local: LocalPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, rename = os.fsync, os.rename

    def note_fsync(number: int) -> None:
        path = Path(f"/proc/self/fd/{number}").readlink()
        steps.append(
            path.name if path.suffix != ".new" or stat.S_ISDIR(os.fstat(number).st_mode) else "draft"
        )
        fsync(number)

    def note_rename(*given: Any, **more: Any) -> None:
        rename(*given, **more)
        steps.append("rename")

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "rename", note_rename)

    local.write("events/hour=01/a", b"")

    after_draft = steps[steps.index("draft") + 1 :]
    assert after_draft == ["history", "events", "rename", "hour=01"]


@pytest.mark.parametrize("call", ["fsync", "open", "rename"])
@pytest.mark.parametrize(
    ("number", "fix"),
    [(errno.ENOSPC, "free disk space, or lower the retention with log_keep or log_max_bytes"),
     (errno.EDQUOT, "free disk space"), (errno.EIO, "the disk reported an I/O error"),
     (errno.EACCES, "give the user that runs Celeriac"), (errno.EROFS, "mount it read-write")],
)  # fmt: skip
def test_a_write_that_fails_leaves_what_was_there_and_names_the_fix(
    local: LocalPlace, root: Path, monkeypatch: pytest.MonkeyPatch, *, call: str, number: int, fix: str
) -> None:
    local.write(NAME, b"old")

    def fail(*_: Any, **__: Any) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(
            DiskError, match=rf"{NAME} cannot be written: {os.strerror(number)}; {fix}"
        ) as caught:
            local.write(NAME, b"new")

    assert caught.value.errno == number
    assert local.read(NAME) == b"old"
    assert files(root) == {NAME}


# -- object stores


class CachingFiles(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Keeps its listings, as the drivers of s3 and gcs do unless they are told not to."""

    protocol = "odd"

    def ls(self, path: str, detail: bool = True, **_: Any) -> Any:
        path = self._strip_protocol(path.removeprefix("odd://"))
        found = self.dircache[path] if path in self.dircache else super().ls(path, detail=True)
        self.dircache[path] = found
        return found if detail else [each["name"] for each in found]

    def find(self, path: str, **options: Any) -> Any:
        return fsspec.AbstractFileSystem.find(self, path, **options)

    def invalidate_cache(self, _path: str | None = None) -> None:
        self.dircache.clear()

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        stripped: str = MemoryFileSystem._strip_protocol(path.removeprefix("odd://"))
        return stripped


def test_a_driver_that_keeps_listings_never_hides_what_others_wrote(
    driver: Callable[[type[MemoryFileSystem]], str],
) -> None:
    url = driver(CachingFiles)
    ours, plain = place_for(url), fsspec.filesystem("odd")
    others = place_for("memory://bucket/history")
    others.write("events/a", b"")
    first = ours.names("events"), len(plain.find("/bucket/history/events"))

    others.write("events/b", b"")

    assert first == (["events/a"], 1)
    assert len(plain.find("/bucket/history/events")) == 1, "the driver keeps no listing: this test is void"
    assert ours.names("events") == ["events/a", "events/b"]


class FailingFiles(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Reaches nothing, and says all it knows, as some drivers do."""

    protocol = "odd"

    def _fail(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError(
            "403 for odd://me:hunter2@bucket/h?token=tok456, key hunter2, tok456 and hun%74er2"
        )

    find = info = cat_file = pipe_file = rm_file = exists = cp_file = _fail


@pytest.mark.parametrize("how", ["names", "sizes", "read", "size", "write", "remove", "set_aside"])
def test_no_error_tells_a_secret_of_the_url(
    driver: Callable[[type[MemoryFileSystem]], str], how: str
) -> None:
    driver(FailingFiles)
    place = place_for("odd://me:hun%74er2@bucket/h?token=tok456")

    with pytest.raises(DiskError, match=r"events/a cannot be .*403 for .*check that the store") as caught:
        getattr(place, how)("events/a", *([b""] if how == "write" else []))

    told = f"{caught.value} {place.url}"
    assert "hunter2" not in told
    assert "hun%74er2" not in told
    assert "tok456" not in told
    assert "bucket" in place.url


def test_a_missing_driver_is_named() -> None:
    with pytest.raises(
        ImproperlyConfigured, match=r"s3://bucket/history needs an fsspec driver.*[Ii]nstall s3fs"
    ):
        place_for("s3://bucket/history")


def test_a_missing_fsspec_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)

    with pytest.raises(ImproperlyConfigured, match=r"install celeriac\[history\]"):
        place_for("memory://history")


@pytest.mark.parametrize(
    ("url", "why"),
    [("nosuch://me:hunter2@bucket/x", "cannot store a history in"),
     ("s3::memory://x", "has several locations"),
     ("sftp://me:hunter2@host/x", "mount it and give the folder"),
     ("https://host/x?token=hunter2", "files that are half written"),
     ("memory://a::memory://b", "has several locations")],
)  # fmt: skip
def test_a_url_that_can_keep_no_history_is_refused_and_tells_no_secret(url: str, why: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=why) as caught:
        place_for(url)

    assert "hunter2" not in str(caught.value)


def test_a_store_without_a_bucket_is_refused(driver: Callable[[type[MemoryFileSystem]], str]) -> None:
    driver(CachingFiles)

    with pytest.raises(ImproperlyConfigured, match="has no bucket"):
        RemotePlace("odd://")


def test_neither_pyarrow_nor_fsspec_is_loaded_for_a_folder() -> None:
    code = (
        "import sys, celeriac.store.place as p; p.place_for('x').names('');"
        "sys.exit(bool({'pyarrow', 'fsspec'} & set(sys.modules)))"
    )

    ended = _run(code)

    assert ended == 0
