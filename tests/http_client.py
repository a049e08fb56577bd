"""A client for the HTTP servers of tests."""

import ssl
from typing import Any, Final

import httpx

#: Nothing here is HTTPS, and reading the certificates of the system takes 20 ms of CPU for each client.
NO_CERTIFICATES: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def http_client(address: str, **options: Any) -> httpx.Client:
    """Return a client for a server at ``http://...``."""
    return httpx.Client(base_url=address, verify=NO_CERTIFICATES, **options)
