"""Accounts of the dashboard, kept as hashes of passwords and tokens, and the sessions made with them.

A file of accounts is read again when it changes, so that ``celeriac access`` needs no restart. A session
belongs to the account that it was made with: once the file no longer has exactly this account, because it was
removed or has another role or secret, the session is over, and WebSockets and streams with it.
"""

import hmac
import logging
import os
from base64 import b64decode, b64encode
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from enum import StrEnum
from hashlib import scrypt, sha256
from pathlib import Path
from secrets import token_bytes, token_urlsafe
from threading import Lock
from time import monotonic
from typing import Final, NamedTuple

import msgspec

from celeriac.errors import CallerError, CeleriacError, DiskError, ImproperlyConfigured
from celeriac.store.new_file import new_file
from celeriac.web.proxy import network_of

__all__ = [
    "ANYONE",
    "Access",
    "Account",
    "Role",
    "User",
    "hashed",
    "new_token",
    "read_accounts",
    "write_accounts",
]

#: 16 MB and some 40 ms for each guess.
_COST: Final = {"n": 2**14, "r": 8, "p": 1}
_SCHEME: Final = "scrypt-14-8-1"
#: How long a login lasts, and how many there are at once.
LOGIN_SECONDS: Final = 12 * 3600.0
_MOST_LOGINS: Final = 1000
#: And of one name, so that nobody can end the logins of others with many of his own.
_MOST_OF_NAME: Final = 20
#: Wrong guesses within a minute at one account from one address, before who is there has to wait: a person
#: makes a few.
_MOST_GUESSES: Final = 10
#: And from one address at all accounts.
_MOST_OF_ADDRESS: Final = 40
#: And from all sides at all accounts, which costs a quarter of a processor. Beyond it who did not guess wrong
#: within that minute may try all the same, or a stranger could keep everybody out; but, as a stranger may
#: have many addresses, only so many of those within a second.
_MOST_OF_ALL: Final = 400
_MOST_NEW_A_SECOND: Final = 2
#: That are remembered.
_MOST_REMEMBERED: Final = 10_000
_GUESS_SECONDS: Final = 60.0
MAX_SECRET_BYTES: Final = 1024
#: Seconds between two looks whether the file of accounts has changed. A look is one call of stat.
_CHECK_SECONDS: Final = 1.0
#: Of a name or address that is remembered.
_MOST_CHARS: Final = 64
_MAX_FILE_BYTES: Final = 1 << 20


logger = logging.getLogger(__name__)


class Role(StrEnum):
    """What somebody may do."""

    #: Look at everything.
    VIEWER = "viewer"
    #: And act, where that is allowed at all.
    OPERATOR = "operator"


class User(NamedTuple):
    """Somebody who was let in."""

    name: str
    role: Role


#: The name of every user where there are no accounts: they come from this machine.
ANYONE: Final = "anyone here"


class Account(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Somebody who may be let in, by a password or by a token; of both only hashes are kept."""

    name: str
    role: Role
    secret: str
    is_token: bool = False


def new_token(name: str) -> str:
    """Return a token that nobody can guess. It says whose it is, so that one hash has to be looked at."""
    return f"celeriac_{_mark(name)}_{token_urlsafe(32)}"


def _mark(name: str) -> str:
    return sha256(name.encode()).hexdigest()[:16]


def hashed(secret: str) -> str:
    """Return what is kept of a password or a token."""
    salt = token_bytes(16)
    return "$".join((_SCHEME, *(b64encode(part).decode() for part in (salt, _digest(secret, salt)))))


def _digest(secret: str, salt: bytes) -> bytes:
    return scrypt(secret.encode(), salt=salt, dklen=32, **_COST)


def _is_right(secret: str, kept: str) -> bool:
    scheme, _, rest = kept.partition("$")
    salt, _, digest = rest.partition("$")
    if scheme != _SCHEME:
        return False
    return hmac.compare_digest(_digest(secret, b64decode(salt)), b64decode(digest))


def read_accounts(path: Path) -> list[Account]:
    """Return the accounts of a file; none if there is no file yet."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DiskError(f"Cannot read {path}: {error.strerror}") from None
    if len(content) > _MAX_FILE_BYTES:
        raise ImproperlyConfigured(
            f"Invalid accounts file {path}: larger than 1 MiB. Create one with celeriac access add"
        )
    if os.stat(path).st_mode & 0o077:  # noqa: PTH116 - of the very file, wherever a link leads
        raise ImproperlyConfigured(
            f"Accounts file {path} holds password hashes and is readable by others. Run: chmod 600 {path}"
        )
    try:
        return msgspec.json.decode(content, type=list[Account])
    except msgspec.DecodeError as error:
        raise ImproperlyConfigured(
            f"Invalid accounts file {path}: {error}. Create one with celeriac access add"
        ) from None


def write_accounts(path: Path, accounts: Sequence[Account]) -> None:
    """Write a file of accounts, which nobody else can read."""
    with new_file(path, fix="name another file") as file:
        file.write(msgspec.json.format(msgspec.json.encode(list(accounts)), indent=2) + b"\n")


class Access:
    """Authenticates users and decides who may act.

    Without accounts every user of this machine may look, and act if that is allowed. With a ``file`` users
    always have to log in, even if it becomes empty. Raises CallerError for one that is empty at the start.
    """

    def __init__(
        self,
        accounts: Iterable[Account] = (),
        *,
        file: Path | None = None,
        allow_control: bool = False,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._file = file
        self.allow_control = allow_control
        self._now = now
        self._mutex = Lock()
        self._passwords: dict[str, Account] = {}
        self._tokens: dict[str, Account] = {}
        #: Of each session its account and its end, by the hash of the cookie or token.
        self._logins: OrderedDict[bytes, tuple[Account, float]] = OrderedDict()
        #: When somebody guessed, by address and account, the oldest first.
        self._guesses: deque[tuple[float, str, str]] = deque(maxlen=_MOST_REMEMBERED)
        self._checked_at = now()
        #: Before the file is read: a change while it is read is seen at the next check.
        self._version = None if file is None else _version_of(file)
        self._take(accounts if file is None else read_accounts(file))
        if file is not None and not self._passwords and not self._tokens:
            raise CallerError(f"No accounts in {file}. Add one: celeriac access add NAME --accounts {file}")
        #: Whether no user has to log in.
        self.is_open = file is None and not self._passwords and not self._tokens

    def refresh(self, *, is_due: bool = False) -> None:
        """Read the file of accounts again if it has changed; at most once a second, unless ``is_due``.

        A file that cannot be read changes nothing: the error is logged once, and the accounts stay.
        """
        if self._file is None:
            return
        with self._mutex:
            now = self._now()
            if not is_due and now < self._checked_at + _CHECK_SECONDS:
                return
            self._checked_at = now
            version = _version_of(self._file)
            if version == self._version:
                return
            self._version = version
            try:
                if version is None:
                    raise DiskError(f"Cannot read {self._file}: No such file or directory")
                accounts = read_accounts(self._file)
            except CeleriacError as error:
                logger.error("access: kept the old accounts: %s", error)  # noqa: TRY400 - said to people
                return
            self._take(accounts)
            logger.info("access: read %s again, accounts=%d", self._file, len(accounts))

    def _take(self, accounts: Iterable[Account]) -> None:
        """Use other accounts, and end the sessions of those that are not among them."""
        accounts = list(accounts)
        self._passwords = {each.name: each for each in accounts if not each.is_token}
        self._tokens = {_mark(each.name): each for each in accounts if each.is_token}
        for key in [key for key, (account, _) in self._logins.items() if account not in accounts]:
            del self._logins[key]

    def may_act(self, user: User) -> bool:
        """Tell whether somebody may act."""
        return self.allow_control and user.role is Role.OPERATOR

    def anyone(self) -> User | None:
        """Return who comes without saying who he is; None if he has to say it."""
        return User(ANYONE, Role.OPERATOR if self.allow_control else Role.VIEWER) if self.is_open else None

    def log_in(self, name: str, password: str, address: str = "") -> str | None:
        """Return what a browser is to show from now on; None if the password is wrong.

        Raises CallerError while too many were wrong that came from this address.
        """
        self.refresh(is_due=True)
        account = self._passwords.get(name)
        # As long for a name that nobody has, so that it cannot be told from one that somebody has.
        kept = _NOBODY if account is None else account.secret
        if not self._is_guessed(password, kept, (address, name[:_MOST_CHARS])) or account is None:
            return None
        shown = token_urlsafe(32)
        return shown if self._let_in(shown, account) else None

    def log_out(self, shown: str) -> None:
        """Let somebody in no more."""
        with self._mutex:
            self._logins.pop(_key(shown), None)

    def by_login(self, shown: str) -> User | None:
        """Return the user of a session, by the cookie or the token that was let in."""
        self.refresh()
        with self._mutex:
            account, until = self._logins.get(_key(shown), (None, 0.0))
        return None if account is None or self._now() >= until else User(account.name, account.role)

    def lasts(self, shown: str | None) -> bool:
        """Return whether a connection may go on that was let in with this cookie or token.

        A connection outlives a logout and the removal of its account. A token has no end of its own: it is
        only asked for again after some hours, at the next request.
        """
        if self.is_open:
            return True
        self.refresh()
        with self._mutex:
            account, until = self._logins.get(_key(shown or ""), (None, 0.0))
        return account is not None and (account.is_token or self._now() < until)

    def by_token(self, token: str, address: str = "") -> User | None:
        """Return whose token it is. Raises CallerError while too many came from there that were wrong."""
        known = self.by_login(token)
        if known is not None:
            return known
        mark = token.split("_")[1] if token.count("_") > 1 else ""
        account = self._tokens.get(mark)
        # As long for a name that has no token, so that it cannot be told from one that has.
        kept = _NOBODY if account is None else account.secret
        if not self._is_guessed(token, kept, (address, mark[:_MOST_CHARS])) or account is None:
            return None
        return User(account.name, account.role) if self._let_in(token, account) else None

    def _let_in(self, shown: str, account: Account) -> bool:
        """Begin a session; False if the account is gone, as checking a secret takes a while."""
        with self._mutex:
            kept = (
                self._tokens.get(_mark(account.name))
                if account.is_token
                else self._passwords.get(account.name)
            )
            if kept != account:
                return False
            own = [key for key, (known, _) in self._logins.items() if known.name == account.name]
            for key in own[: max(0, len(own) - _MOST_OF_NAME + 1)]:
                del self._logins[key]
            self._logins[_key(shown)] = (account, self._now() + LOGIN_SECONDS)
            while len(self._logins) > _MOST_LOGINS:
                self._logins.popitem(last=False)
            return True

    def _is_crowded(self, now: float) -> bool:
        return len(self._guesses) >= _MOST_NEW_A_SECOND and self._guesses[-_MOST_NEW_A_SECOND][0] > now - 1.0

    def _is_guessed(self, secret: str, kept: str, by: tuple[str, str]) -> bool:
        by = (network_of(by[0]), by[1])
        if len(secret.encode()) > MAX_SECRET_BYTES:
            return False
        with self._mutex:
            now = self._now()
            while self._guesses and self._guesses[0][0] <= now - _GUESS_SECONDS:
                self._guesses.popleft()
            of_address = [guess[1:] for guess in self._guesses if guess[1] == by[0]]
            if (
                of_address.count(by) >= _MOST_GUESSES
                or len(of_address) >= _MOST_OF_ADDRESS
                or (len(self._guesses) >= _MOST_OF_ALL and (of_address or self._is_crowded(now)))
            ):
                raise CallerError("Too many wrong passwords or tokens. Wait a minute")
            # Before it is known whether it is right, or many at once would be none yet.
            guess = (now, *by)
            self._guesses.append(guess)
        if not _is_right(secret, kept):
            return False
        with self._mutex, suppress(ValueError):
            self._guesses.remove(guess)
        return True


def _version_of(file: Path) -> tuple[int, ...] | None:
    """Return what changes with each change of a file; None if it is not there."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _key(shown: str) -> bytes:
    return sha256(shown.encode()).digest()


_NOBODY: Final = hashed(token_urlsafe(16))
