"""Changes of the accounts file take effect in a running dashboard."""

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event as Flag
from threading import Thread

import httpx
import pytest

from celeriac.errors import ImproperlyConfigured
from celeriac.programs.process import wait_until
from celeriac.web import access as access_module
from celeriac.web.access import Access, Account, Role, User, hashed, new_token, write_accounts
from tests.component.web.kit import Rig, cheaply_hashed, served

PATIENCE = 20.0
TOKEN = new_token("prometheus")
ADA = Account("ada", Role.OPERATOR, cheaply_hashed("correct horse"))
VERA = Account("vera", Role.VIEWER, cheaply_hashed("battery staple"))
PROMETHEUS = Account("prometheus", Role.VIEWER, cheaply_hashed(TOKEN), is_token=True)
LOGGER = "celeriac.web.access"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now

    def advance(self) -> None:
        """Let the next check of the file be due."""
        self.now += 2.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "accounts.json"
    write_accounts(file, [ADA, VERA, PROMETHEUS])
    return file


@pytest.fixture
def access(file: Path, clock: Clock) -> Access:
    return Access(file=file, now=clock)


def log_in(access: Access, name: str, password: str) -> str:
    session = access.log_in(name, password)
    assert session is not None
    return session


def test_removal_ends_the_sessions_of_that_user_alone(access: Access, file: Path, clock: Clock) -> None:
    ada, vera = log_in(access, "ada", "correct horse"), log_in(access, "vera", "battery staple")
    assert access.by_token(TOKEN) is not None

    write_accounts(file, [ADA])
    clock.advance()

    assert access.by_login(ada) == User("ada", Role.OPERATOR)
    assert (access.by_login(vera), access.lasts(vera)) == (None, False)
    assert (access.by_token(TOKEN), access.lasts(TOKEN)) == (None, False)
    assert access.log_in("vera", "battery staple") is None


@pytest.mark.parametrize(
    "changed",
    [Account("vera", Role.OPERATOR, VERA.secret), Account("vera", Role.VIEWER, cheaply_hashed("new"))],
    ids=["role", "password"],
)
def test_another_role_or_password_ends_sessions(
    access: Access, file: Path, clock: Clock, changed: Account
) -> None:
    session = log_in(access, "vera", "battery staple")

    write_accounts(file, [ADA, changed])
    clock.advance()

    assert access.by_login(session) is None


def test_another_token_replaces_the_old_one(access: Access, file: Path, clock: Clock) -> None:
    assert access.by_token(TOKEN) is not None
    other = new_token("prometheus")

    write_accounts(file, [Account("prometheus", Role.VIEWER, hashed(other), is_token=True)])
    clock.advance()

    assert access.by_token(TOKEN) is None
    assert access.by_token(other) == User("prometheus", Role.VIEWER)


def test_login_sees_a_change_at_once(access: Access, file: Path) -> None:
    eve = Account("eve", Role.VIEWER, hashed("secret"))
    write_accounts(file, [ADA, eve])

    assert access.log_in("vera", "battery staple") is None
    assert access.by_login(log_in(access, "eve", "secret")) == User("eve", Role.VIEWER)


def test_file_is_checked_at_most_once_a_second(
    access: Access, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks: list[Path] = []
    version_of = access_module._version_of

    def count(file: Path) -> tuple[int, ...] | None:
        checks.append(file)
        return version_of(file)

    monkeypatch.setattr(access_module, "_version_of", count)

    for _ in range(100):
        access.by_login("nobody")
    assert checks == []
    clock.advance()
    for _ in range(100):
        access.by_login("nobody")
    assert len(checks) == 1


def test_unchanged_file_is_not_read(access: Access, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_module, "read_accounts", None)
    clock.advance()

    access.refresh()


def test_file_without_accounts_lets_nobody_in(access: Access, file: Path, clock: Clock) -> None:
    session = log_in(access, "ada", "correct horse")

    write_accounts(file, [])
    clock.advance()

    assert access.by_login(session) is None
    assert (access.is_open, access.anyone()) == (False, None)


def break_json(file: Path) -> None:
    file.write_text("[{]")


def break_permissions(file: Path) -> None:
    file.chmod(0o644)


@pytest.mark.parametrize(
    ("damage", "fix"),
    [(break_json, "celeriac access add"), (break_permissions, "chmod 600"), (os.remove, "Cannot read")],
)
def test_broken_file_keeps_the_accounts_and_is_logged_once(
    *,
    access: Access,
    file: Path,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
    damage: Callable[[Path], None],
    fix: str,
) -> None:
    session = log_in(access, "ada", "correct horse")
    damage(file)

    with caplog.at_level(logging.ERROR, LOGGER):
        for _ in range(5):
            clock.advance()
            assert access.by_login(session) == User("ada", Role.OPERATOR)
    assert log_in(access, "vera", "battery staple")
    (record,) = caplog.records
    assert record.getMessage().startswith("access: kept the old accounts: ")
    assert fix in record.getMessage()

    file.unlink(missing_ok=True)
    write_accounts(file, [VERA])
    clock.advance()
    assert access.by_login(session) is None


def test_broken_file_is_an_error_at_the_start(file: Path) -> None:
    break_json(file)

    with pytest.raises(ImproperlyConfigured, match="Invalid accounts file"):
        Access(file=file)


def test_account_removed_while_its_password_is_checked_gets_no_session(
    access: Access, file: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_right = access_module._is_right

    def check_late(secret: str, kept: str) -> bool:
        write_accounts(file, [ADA])
        clock.advance()
        access.refresh()
        return is_right(secret, kept)

    monkeypatch.setattr(access_module, "_is_right", check_late)

    assert access.log_in("vera", "battery staple") is None


@pytest.fixture
def client(rig: Rig, file: Path) -> Iterator[httpx.Client]:
    with served(rig, Access(file=file)) as client:
        yield client


def test_removal_ends_the_event_stream_of_a_token(client: httpx.Client, file: Path) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    is_open, ended = Flag(), Flag()

    def read() -> None:
        with client.stream("GET", "/api/v1/events", headers=headers) as answer:
            assert answer.status_code == 200
            for _ in answer.iter_lines():
                is_open.set()
        ended.set()

    thread = Thread(target=read, daemon=True)
    thread.start()
    assert is_open.wait(PATIENCE)

    write_accounts(file, [ADA])

    assert ended.wait(PATIENCE)
    thread.join()
    assert wait_until(
        lambda: client.get("/api/v1/overview", headers=headers).status_code == 401, patience=PATIENCE
    )
