"""``celeriac access``: the accounts of the dashboard."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer

from celeriac.cli import output
from celeriac.cli.exit import Code
from celeriac.cli.format_option import PLAIN, Output
from celeriac.cli.option import add_command, add_common
from celeriac.cli.session import Session
from celeriac.errors import CallerError

__all__ = ["access"]

_LEAST_CHARS: Final = 8
_MOST_CHARS: Final = 64
_MOST_PASSWORD_CHARS: Final = 200

access = typer.Typer(no_args_is_help=True)
add_common(access, help="Manage dashboard accounts. A running dashboard reads changes within seconds.")

File = Annotated[
    Path,
    typer.Option("--accounts", metavar="FILE", help="Accounts file of celeriac web."),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="User name.")]
DEFAULT: Final = Path("accounts.json")


class Kind(StrEnum):
    """The roles of an account."""

    VIEWER = "viewer"
    OPERATOR = "operator"


@add_command(access, "add")
def add(
    session: Session,
    *,
    name: Name,
    role: Annotated[
        Kind, typer.Option("--role", help="Viewers see the dashboard, operators run its actions too.")
    ] = Kind.VIEWER,
    token: Annotated[
        bool, typer.Option("--token", help="Create a token for a program in place of a password.")
    ] = False,
    accounts: File = DEFAULT,
) -> Code:
    """Add a user or reset a password.

    Asks for the password, or reads it from standard input. A token is generated and shown once. The file
    holds hashes only.

    For example:
      celeriac access add ada --role operator
      celeriac access add prometheus --token
    """
    from celeriac.web.access import Account, Role, hashed, new_token, read_accounts, write_accounts  # noqa: PLC0415

    if not name.isprintable() or not 0 < len(name) <= _MOST_CHARS:
        raise CallerError(f"Invalid user name. Use up to {_MOST_CHARS} printable characters")
    secret = new_token(name) if token else _password(session)
    known = read_accounts(accounts)
    others = [each for each in known if (each.name, each.is_token) != (name, token)]
    made = Account(name, Role(role.value), hashed(secret), token)
    write_accounts(accounts, [*others, made])
    if token:
        output.write(secret)
        output.say("Keep this token. It is not shown again")
    done = "secret replaced" if len(others) < len(known) else "account added"
    output.say(
        f"{name}: {done} in {accounts}, role {role.value}. A running celeriac web reads it within seconds"
    )
    return Code.OK


class AccountRow(NamedTuple):
    """An account of the dashboard."""

    name: str
    role: str
    #: What it logs in with.
    by: str


@add_command(access, "list")
def list_(session: Session, *, accounts: File = DEFAULT, out: Output = PLAIN) -> Code:
    """List the accounts.

    For example:
      celeriac access list
    """
    from celeriac.web.access import read_accounts  # noqa: PLC0415

    del session
    if not accounts.exists():
        raise CallerError(f"No accounts file {accounts}. Create it with: celeriac access add NAME")
    rows = [
        AccountRow(each.name, each.role.value, "token" if each.is_token else "password")
        for each in read_accounts(accounts)
    ]
    out.write_rows(AccountRow, rows, empty=f"No accounts in {accounts}")
    return Code.OK


@add_command(access, "remove")
def remove(session: Session, *, name: Name, accounts: File = DEFAULT) -> Code:
    """Remove a user. A running celeriac web ends the sessions of this user within seconds.

    For example:
      celeriac access remove ada
    """
    from celeriac.web.access import read_accounts, write_accounts  # noqa: PLC0415

    del session
    known = read_accounts(accounts)
    left = [each for each in known if each.name != name]
    if len(left) == len(known):
        raise CallerError(f"No user {name!r} in {accounts}. celeriac access list shows the users")
    write_accounts(accounts, left)
    output.say(f"{name}: removed from {accounts}")
    return Code.OK


def _password(session: Session) -> str:
    if session.is_attended():
        password: str = typer.prompt("password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline().rstrip("\n")
    if not _LEAST_CHARS <= len(password) <= _MOST_PASSWORD_CHARS:
        raise CallerError(f"Invalid password. Use {_LEAST_CHARS} to {_MOST_PASSWORD_CHARS} characters")
    return password
