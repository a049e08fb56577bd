"""Connections that programs pass in: ours, or kombu's, which Celery programs have."""

from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING

from celeriac.config import Settings
from celeriac.errors import CallerError
from celeriac.transport.base import AnyConnection, Connection

if TYPE_CHECKING:
    import kombu

__all__ = ["accept_connection"]


def accept_connection(given: AnyConnection, settings: Settings | None) -> tuple[Connection, Settings]:
    """Return a connection of ours to the broker of the given one, and the settings to use it with.

    Without settings, those of the connection are used, which are those of its app. A kombu.Connection is
    read, and neither opened nor closed: its URLs, transport options, TLS options, login method, timeout and
    heartbeat take the place of the settings for the broker. Its failover strategy is not used: the brokers
    are tried in turn. Raises CallerError for a connection that asks a function for its password.
    """
    if isinstance(given, Connection):
        return given, settings or given.settings
    # Imported only for programs that have such a connection: kombu takes long to import.
    import kombu  # noqa: PLC0415

    from celeriac.transport.connect import connect  # noqa: PLC0415

    if not isinstance(given, kombu.Connection):
        raise CallerError(
            f"invalid connection of type {type(given).__name__}: pass app.connection() or a kombu.Connection"
        )
    settings = _settings_of(given, settings or Settings())
    return connect(settings), settings


def _settings_of(given: "kombu.Connection", settings: Settings) -> Settings:
    if given.credential_provider or callable(given.password):
        raise CallerError(
            "a kombu.Connection with a credential_provider or a callable password is not supported: pass "
            "a connection with userid and password"
        )
    return replace(
        settings,
        broker_url=_urls_of(given),
        broker_transport_options=given.transport_options,
        broker_use_ssl=given.ssl or False,
        broker_login_method=given.login_method,
        broker_connection_timeout=given.connect_timeout or settings.broker_connection_timeout,
        # kombu leaves heartbeats to its caller, so that most programs name none. 0 would turn them off.
        broker_heartbeat=ceil(given.heartbeat or settings.broker_heartbeat),
    )


def _urls_of(given: "kombu.Connection") -> str:
    """Return the URLs of all brokers, first the one that the connection is at."""
    alternates = (_alternate(given, each) for each in given.alt)
    connections = (given, *alternates)
    return ";".join(dict.fromkeys(each.as_uri(include_password=True) for each in connections))


def _alternate(given: "kombu.Connection", address: str) -> "kombu.Connection":
    """Return the connection to an alternate, with the user and password of the given one if it names none."""
    parameters = {"userid": given.userid, "password": given.password, "ssl": given.ssl}
    if "://" not in address:  # the name of a host
        parameters |= {
            "port": given.port,
            "virtual_host": given.virtual_host,
            "transport": given.transport_cls,
        }
    return type(given)(address, **parameters)
