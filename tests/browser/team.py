"""A dashboard where people have to say who they are, and operators may act; and who they are."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from celeriac.web.access import Account, Role, hashed, new_token, write_accounts
from tests.browser.kit import Dashboard, dashboard

__all__ = ["NAMES", "PASSWORD", "TOKENS", "locked_dashboard"]

PASSWORD = "correct horse battery"  # noqa: S105
#: Those who log in with it.
NAMES = {Role.OPERATOR: "ada", Role.VIEWER: "vera"}
#: Those of programs.
TOKENS = {role: new_token(f"program-{role}") for role in Role}


@contextmanager
def locked_dashboard(url: str, folder: Path, *options: str) -> Iterator[Dashboard]:
    """Have it serve what happens at a broker; its accounts are in a folder. Its client is a viewer."""
    file = folder / "accounts.json"
    people = [Account(name, role, hashed(PASSWORD)) for role, name in NAMES.items()]
    programs = [
        Account(f"program-{role}", role, hashed(token), is_token=True) for role, token in TOKENS.items()
    ]
    write_accounts(file, [*people, *programs])
    options = ("--accounts", str(file), "--allow-control", *options)
    with dashboard(url, *options, token=TOKENS[Role.VIEWER]) as running:
        yield running
