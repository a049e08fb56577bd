from base64 import b64decode
from contextlib import suppress
from hashlib import scrypt
from pathlib import Path
from unittest.mock import patch

import pytest

from celeriac.errors import CallerError, ImproperlyConfigured
from celeriac.web import access as access_module
from celeriac.web.access import Access, Account, Role, User, hashed, new_token, read_accounts, write_accounts
from celeriac.web.server import check_address, hosts_of
from tests.component.web.kit import cheaply_hashed

ADA = Account("ada", Role.OPERATOR, cheaply_hashed("correct horse"))


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_right_password_lets_somebody_in_until_he_leaves_or_his_time_is_over() -> None:
    clock = Clock()
    access = Access([ADA], now=clock)

    shown, again = access.log_in("ada", "correct horse"), access.log_in("ada", "correct horse")

    assert shown is not None
    assert again is not None
    assert access.by_login(shown) == User("ada", Role.OPERATOR)
    access.log_out(shown)
    assert access.by_login(shown) is None
    clock.now = 13 * 3600.0
    assert access.by_login(again) is None


@pytest.mark.parametrize(
    ("name", "password"), [("ada", "wrong"), ("eve", "correct horse"), ("ada", "x" * 2000)]
)
def test_a_wrong_name_or_password_lets_nobody_in(name: str, password: str) -> None:
    assert Access([ADA]).log_in(name, password) is None


def test_a_token_is_known_by_its_hash_alone() -> None:
    token = new_token("prometheus")
    access = Access([Account("prometheus", Role.VIEWER, hashed(token), is_token=True)])

    assert access.by_token(token) == User("prometheus", Role.VIEWER)
    assert access.by_token(token) == User("prometheus", Role.VIEWER)
    assert access.by_token(new_token("prometheus")) is None
    # A token is no password, and a password no token.
    assert access.log_in("prometheus", token) is None
    assert Access([ADA]).by_token("correct horse") is None


def test_a_guess_costs_sixteen_megabytes(cost_of_hashes: dict[str, int]) -> None:
    with patch.dict(access_module._COST, cost_of_hashes):
        secret = hashed("correct horse")
        shown = Access([Account("ada", Role.OPERATOR, secret)]).log_in("ada", "correct horse")

    scheme, salt, digest = secret.split("$")
    expected = scrypt(b"correct horse", salt=b64decode(salt), n=2**14, r=8, p=1, dklen=32)
    assert (scheme, b64decode(digest)) == ("scrypt-14-8-1", expected)
    assert shown is not None


def test_token_of_an_unknown_name_is_compared_too(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []

    def compare(secret: str, _: str) -> bool:
        compared.append(secret)
        return False

    monkeypatch.setattr("celeriac.web.access._is_right", compare)
    tokens = [new_token("prometheus"), new_token("nobody"), "no token at all"]
    access = Access([Account("prometheus", Role.VIEWER, hashed(tokens[0]), is_token=True)])

    assert [access.by_token(token) for token in tokens] == [None, None, None]
    assert compared == tokens


def test_after_many_wrong_guesses_who_guesses_waits_for_a_minute_and_others_do_not() -> None:
    clock = Clock()
    access = Access([ADA], now=clock)
    for _ in range(10):
        access.log_in("ada", "wrong", "10.0.0.1")

    with pytest.raises(CallerError, match="Wait a minute"):
        access.log_in("ada", "correct horse", "10.0.0.1")

    assert access.log_in("ada", "correct horse", "10.0.0.2") is not None
    clock.now = 61.0
    assert access.log_in("ada", "correct horse", "10.0.0.1") is not None


def test_who_guesses_at_many_names_waits_and_keeps_nobody_else_out() -> None:
    access = Access([ADA], now=Clock())
    for number in range(40):
        access.log_in(f"nobody-{number}", "wrong", "10.0.0.1")

    with pytest.raises(CallerError, match="Wait a minute"):
        access.log_in("somebody", "wrong", "10.0.0.1")

    assert access.log_in("ada", "correct horse", "10.0.0.2") is not None


@pytest.mark.parametrize(
    "addresses",
    [
        [f"2001:db8::{number:x}" for number in range(1, 12)],
        [f"::ffff:10.0.0.1%{number}" for number in range(1, 12)],
    ],
)
def test_who_has_many_addresses_of_one_network_is_one(addresses: list[str]) -> None:
    access = Access([ADA], now=Clock())

    for address in addresses[:10]:
        access.log_in("ada", "wrong", address)

    with pytest.raises(CallerError, match="Wait a minute"):
        access.log_in("ada", "wrong", addresses[10])

    assert access.log_in("ada", "correct horse", "2001:db8:1::1") is not None


def test_who_has_many_networks_is_slowed_down_and_keeps_nobody_out_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(access_module, "_is_right", lambda told, _: told == "correct horse")
    clock = Clock()
    access = Access([ADA], now=clock)
    tried = 0
    for number in range(2000):
        clock.now = number / 100
        with suppress(CallerError):
            access.log_in("ada", "wrong", f"10.{number // 250}.{number % 250}.1")
            tried += 1

    assert 400 <= tried < 500
    clock.now += 1.1
    assert access.log_in("ada", "correct horse", "192.0.2.1") is not None


def test_many_logins_of_one_end_none_of_another() -> None:
    access = Access([ADA, Account("vera", Role.VIEWER, hashed("x"))])
    operators = access.log_in("ada", "correct horse")
    assert operators is not None

    own = [access.log_in("vera", "x") for _ in range(25)]

    assert access.by_login(operators) is not None
    assert [each for each in own if each is not None and access.by_login(each) is not None] == own[-20:]


def test_right_tokens_are_no_guesses_however_many_accounts_there_are() -> None:
    tokens = {f"program-{number}": new_token(f"program-{number}") for number in range(15)}
    access = Access([Account(name, Role.VIEWER, hashed(token), True) for name, token in tokens.items()])

    told = {access.by_token(token, "10.0.0.1") for token in tokens.values()}

    assert {user.name for user in told if user is not None} == set(tokens)


def test_accounts_are_written_and_read_and_hold_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "accounts.json"

    write_accounts(path, [ADA])

    assert read_accounts(path) == [ADA]
    assert "correct horse" not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_accounts(tmp_path / "none.json") == []


def test_a_file_of_accounts_that_others_can_read_or_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "accounts.json"
    write_accounts(path, [ADA])
    path.chmod(0o644)
    with pytest.raises(ImproperlyConfigured, match="chmod 600"):
        read_accounts(path)
    path.chmod(0o600)
    path.write_text('[{"name": "ada", "role": "king", "secret": ""}]')
    with pytest.raises(ImproperlyConfigured, match="celeriac access add"):
        read_accounts(path)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "tasks.example.com"])  # noqa: S104
def test_others_than_this_machine_are_not_served_without_accounts(host: str) -> None:
    with pytest.raises(CallerError, match="--accounts FILE"):
        check_address(host, Access())
    check_address(host, Access([ADA]))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.0.0.5"])
def test_this_machine_is_served_without(host: str) -> None:
    check_address(host, Access())

    assert host in hosts_of(host, [])
