"""Reverse proxies that the operator trusts: they forward the addresses of clients, and hold many connections.

Anybody can write an ``X-Forwarded-For`` header, so only a peer that is named may say whose request it passes
on: by the last address in that header which is not one of the proxies.
"""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final

from celeriac.errors import CallerError

__all__ = ["TrustedProxies", "network_of"]

#: What is kept of an address that is none.
_MAX_CHARS: Final = 64


class TrustedProxies:
    """The addresses and networks of proxies. Raises CallerError for anything else."""

    def __init__(self, networks: Iterable[str] = ()) -> None:
        self._networks = [_parse(each) for each in networks]

    def __contains__(self, address: str) -> bool:
        try:
            parsed = ip_address(address)
        except ValueError:
            return False
        return any(parsed in network for network in self._networks)

    @property
    def networks(self) -> list[str]:
        """The networks in CIDR notation."""
        return [str(network) for network in self._networks]


def _parse(text: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text)
    except ValueError as error:
        raise CallerError(
            f"Invalid --trusted-proxy {text!r}: {error}. Use an address or a network, 10.0.0.5 or 10.0.0.0/24"
        ) from None


def network_of(address: str) -> str:
    """Return the network of which one client may have every address: of IPv6 a /64, of IPv4 the address."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address[:_MAX_CHARS]
    if isinstance(parsed, IPv4Address):
        return str(parsed)
    return str(parsed.ipv4_mapped or IPv6Network((parsed, 64), strict=False))
