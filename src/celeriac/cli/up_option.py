"""The options of ``celeriac up`` that are passed on to the dashboard."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from celeriac.cli import output
from celeriac.cli.web import (
    PORT,
    Accounts,
    AllowControl,
    AllowedHost,
    EnableEvents,
    Host,
    TrustedProxy,
    not_served,
)

if TYPE_CHECKING:
    from celeriac.programs.port import ReservedPort

__all__ = ["Served"]

_LOOPBACK: Final = "127.0.0.1"

WebPort = Annotated[
    int | None,
    typer.Option(
        "--port",
        min=0,
        max=65535,
        show_default=False,
        help=f"Port to listen on; 0 for a free one. Default: {PORT}, or a free one if that is taken.",
    ),
]


@dataclass(frozen=True)
class Served:
    """The options of the dashboard."""

    host: Host = _LOOPBACK
    port: WebPort = None
    accounts: Accounts = None
    allowed_host: AllowedHost = None
    trusted_proxy: TrustedProxy = None
    allow_control: AllowControl = False
    enable_events: EnableEvents = False

    def options(self) -> list[str]:
        """Return the options of ``celeriac web`` but for its address."""
        return [
            *([] if self.accounts is None else ["--accounts", str(self.accounts)]),
            *(part for name in self.allowed_host or () for part in ("--allowed-host", name)),
            *(part for address in self.trusted_proxy or () for part in ("--trusted-proxy", address)),
            *(["--allow-control"] if self.allow_control else []),
            *(["--enable-events"] if self.enable_events else []),
        ]

    def reserve(self) -> "ReservedPort":
        """Have the port of the dashboard, over each start of it. Raises CallerError if somebody else has."""
        from celeriac.programs.port import ReservedPort, free_port  # noqa: PLC0415 - not for --help

        try:
            if self.port is not None:
                return ReservedPort(self.port, host=self.host)
            found = free_port(PORT, host=self.host)
        except OSError as error:
            where = self.host if self.port is None else f"{self.host}:{self.port}"
            raise not_served(where, error) from None
        if found.number != PORT:
            output.say(f"port {PORT} is taken, so the dashboard has another. Choose one with --port")
        return found
