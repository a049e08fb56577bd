"""``celeriac access``: who may look at the dashboard, and who may act by it."""

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
add_common(access, help="Say who may look at the dashboard, and who may act by it.")

File = Annotated[
    Path,
    typer.Option("--accounts", metavar="FILE", help="The file of accounts for celeriac web."),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Who it is.")]
DEFAULT: Final = Path("accounts.json")


class Kind(StrEnum):
    """What somebody may do."""

    VIEWER = "viewer"
    OPERATOR = "operator"


@add_command(access, "add")
def add(
    session: Session,
    *,
    name: Name,
    role: Annotated[Kind, typer.Option("--role", help="What he may do: look, or act too.")] = Kind.VIEWER,
    token: Annotated[
        bool, typer.Option("--token", help="A token for a program, instead of a password for a person.")
    ] = False,
    accounts: File = DEFAULT,
) -> Code:
    """Let somebody in, or give him another password.

    A password is asked for, or read from standard input; a token is made, and shown this once. The file
    keeps hashes of them.

    For example:
      celeriac access add ada --role operator
      celeriac access add prometheus --token
    """
    from celeriac.web.access import Account, Role, hashed, new_token, read_accounts, write_accounts  # noqa: PLC0415

    if not name.isprintable() or not 0 < len(name) <= _MOST_CHARS:
        raise CallerError(f"a name is printable, and of up to {_MOST_CHARS} characters")
    secret = new_token(name) if token else _password(session)
    known = read_accounts(accounts)
    others = [each for each in known if (each.name, each.is_token) != (name, token)]
    made = Account(name, Role(role.value), hashed(secret), token)
    write_accounts(accounts, [*others, made])
    if token:
        output.write(secret)
        output.say("keep it: it is not shown again")
    what = "another secret" if len(others) < len(known) else "an account"
    output.say(f"{name} has {what} in {accounts}, as {role.value}; celeriac web reads it when it begins")
    return Code.OK


class AccountRow(NamedTuple):
    """An account of the dashboard."""

    name: str
    role: str
    #: What it logs in with.
    by: str


@add_command(access, "list")
def list_(session: Session, *, accounts: File = DEFAULT, out: Output = PLAIN) -> Code:
    """Show who may come in.

    For example:
      celeriac access list
    """
    from celeriac.web.access import read_accounts  # noqa: PLC0415

    del session
    if not accounts.exists():
        raise CallerError(
            f"No accounts file {accounts}. Create it with: celeriac access add NAME --accounts FILE"
        )
    rows = [
        AccountRow(each.name, each.role.value, "token" if each.is_token else "password")
        for each in read_accounts(accounts)
    ]
    out.write_rows(AccountRow, rows, empty=f"No accounts in {accounts}")
    return Code.OK


@add_command(access, "remove")
def remove(session: Session, *, name: Name, accounts: File = DEFAULT) -> Code:
    """Let somebody in no more, from the next start of celeriac web on.

    For example:
      celeriac access remove ada
    """
    from celeriac.web.access import read_accounts, write_accounts  # noqa: PLC0415

    del session
    known = read_accounts(accounts)
    left = [each for each in known if each.name != name]
    if len(left) == len(known):
        raise CallerError(f"{accounts} names no {name!r}: celeriac access list shows who is there")
    write_accounts(accounts, left)
    output.say(f"{name} is not in {accounts} any more")
    return Code.OK


def _password(session: Session) -> str:
    if session.is_attended():
        password: str = typer.prompt("password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline().rstrip("\n")
    if not _LEAST_CHARS <= len(password) <= _MOST_PASSWORD_CHARS:
        raise CallerError(f"a password has {_LEAST_CHARS} to {_MOST_PASSWORD_CHARS} characters")
    return password
