"""A link that kombu makes from the settings, and what can go wrong with it, in our own words."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from time import monotonic
from types import TracebackType
from typing import Any, ClassVar, Final, NamedTuple, Self

import kombu
from kombu.exceptions import KombuError
from kombu.transport import TRANSPORT_ALIASES

from celeriac.config import Settings
from celeriac.errors import CallerError, ConnectionLost, ImproperlyConfigured, NetworkError
from celeriac.masking import sanitize_url
from celeriac.transport.translation import error_text, translated

__all__ = ["KombuLink", "Peer", "error_text", "translated"]

#: How often, within one heartbeat interval of the broker, a link that waits shows that it lives.
_HEARTBEAT_RATE: Final = 4
#: How kombu fails to load a transport that it does not know (KeyError), or whose library is not installed:
#: the Kafka transport raises a NameError. On connecting the same errors can come from a passing fault.
_MISSING: Final = (KeyError, ImportError, NameError)


class Peer(NamedTuple):
    """What a link leads to, as messages and settings name it."""

    name: str = "broker"
    url: str = "broker_url"
    options: str = "broker_transport_options"


class KombuLink:
    """Opened when it is used, lost once, and closed; what it is used for is up to its heirs."""

    peer: ClassVar = Peer()

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._beat_at = 0.0
        #: What ended the link. Nothing may use it any more: kombu would make another, with no subscriptions.
        self._lost: ConnectionLost | None = None
        try:
            self._kombu = self._new_kombu()
            transport = self._kombu.transport
        except _MISSING as error:
            raise self._missing(error) from error
        except ValueError:
            # Without what was raised: that may quote a password.
            raise ImproperlyConfigured(
                f"invalid {self.peer.url} {self.address!r}: check the port, and percent-encode special "
                "characters of the password, such as %40 for @ and %2F for /"
            ) from None
        except TypeError:
            raise self._unusable() from None
        #: The family of the broker.
        self.driver: str = transport.driver_type
        #: The library that speaks to it.
        self.library: str = transport.driver_name
        #: Whether the broker asked us to publish nothing for now.
        self.is_blocked = False
        self._errors: tuple[type[Exception], ...] = (
            *transport.connection_errors,
            *transport.channel_errors,
            KombuError,
            OSError,
        )

    @property
    def address(self) -> str:
        """Where it leads, for people: a URL without its password."""
        return sanitize_url(self.settings.broker_url)

    def open(self) -> None:
        """Connect now; any other call does so by itself."""
        try:
            with self._translated():
                # Each URL once, and no pause: when to try again is for who called us to say.
                self._kombu.ensure_connection(
                    max_retries=max(len(self._kombu.alt), 1) - 1,
                    interval_start=0,
                    interval_step=0,
                    reraise_as_library_errors=False,
                )
        except ImportError as error:  # some transports import their library only now
            raise self._missing(error) from error
        except (ValueError, TypeError):
            raise self._unusable() from None

    def server_properties(self) -> Mapping[str, object]:
        """Return what an AMQP server says of itself to who connects; empty for other brokers."""
        self.open()
        said = getattr(self._kombu.connection, "server_properties", None)
        return said if isinstance(said, Mapping) else {}

    def close(self) -> None:
        """End the link; closing twice is fine, and no error comes out of it."""
        with suppress(*self._errors):
            self._kombu.release()

    def clone(self) -> Self:
        """Return a new link to the same broker, not yet open."""
        return type(self)(self.settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- what the quicker ways do otherwise

    def _options(self) -> dict[str, object]:
        """Return options of the transport, for what the settings leave open."""
        return {}

    def _tls(self) -> bool | Mapping[str, object]:
        """Say whether to speak TLS, or with which options."""
        return self.settings.broker_use_ssl

    # -- shared

    def _new_kombu(self, url: str | None = None) -> Any:
        settings = self.settings
        return kombu.Connection(
            url or settings.broker_url,
            ssl=self._tls(),
            connect_timeout=settings.broker_connection_timeout,
            heartbeat=settings.broker_heartbeat,
            login_method=settings.broker_login_method,
            # A copy, because kombu writes into it.
            transport_options=self._options() | dict(settings.broker_transport_options),
        )

    def _missing(self, error: Exception) -> ImproperlyConfigured:
        module = TRANSPORT_ALIASES.get(self.address.partition(":")[0], "").removeprefix("kombu.transport.")
        library = f": pip install 'kombu[{module.partition(':')[0].lower()}]'" if module else ""
        return ImproperlyConfigured(
            f"{self.peer.url} {self.address!r} uses an unavailable transport ({error}): check the scheme, "
            f"or install its library{library}"
        )

    def _unusable(self) -> ImproperlyConfigured:
        # Without what was raised: that may quote a part of a password.
        return ImproperlyConfigured(
            f"cannot use the {self.peer.name} at {self.address}: check the URL and {self.peer.options}, "
            "for example a database that is not a number, or Sentinel without master_name"
        )

    def _new_channel(self) -> Any:
        self.open()
        return self._kombu.channel()

    def _show_life(self) -> float | None:
        """Send a heartbeat if it is time, and return how long the next one can wait."""
        # All of it: to be asked how often, kombu would make a lost link anew.
        with self._translated():
            if not self._kombu.supports_heartbeats or not self._kombu.get_heartbeat_interval():
                return None
            interval = float(self._kombu.get_heartbeat_interval()) / _HEARTBEAT_RATE
            if monotonic() >= self._beat_at:
                self._kombu.heartbeat_check(rate=_HEARTBEAT_RATE)
                self._beat_at = monotonic() + interval
            return interval

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn what the broker's library raises into our own errors."""
        if self._lost is not None:
            raise ConnectionLost(str(self._lost))
        try:
            yield
        except ConnectionLost as error:
            self._lost = error
            raise
        except (NetworkError, CallerError):
            raise
        except self._errors as error:
            ours = translated(error, self.address, self.peer.name)
            if isinstance(ours, ConnectionLost):
                self._lost = ours
            elif self._kombu._connection is not None and not self._kombu.connected:  # noqa: SLF001
                # Refused in such a way that the link has ended, too.
                self._lost = ConnectionLost(str(ours))
            raise ours from error
