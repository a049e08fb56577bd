"""A WebSocket client that sends any bytes, and costs no thread."""

import socket
from contextlib import suppress
from typing import Self
from urllib.parse import urlencode, urlsplit

__all__ = ["BINARY", "CONTINUATION", "PING", "TEXT", "RawWebSocket", "frame"]

CONTINUATION, TEXT, BINARY, PING = 0, 1, 2, 9
#: Far more than needed, for a busy machine.
_PATIENCE = 90.0
_PATH = "/_nicegui_ws/socket.io/?"
_HEAD = (
    "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n{more}\r\n"
)


def frame(
    payload: bytes | str, kind: int = TEXT, *, is_last: bool = True, announced: int | None = None
) -> bytes:
    """Return a frame as a client sends it; ``announced`` is the length that it claims to have."""
    content = payload.encode() if isinstance(payload, str) else payload
    length = len(content) if announced is None else announced
    head = bytes([kind | (0x80 if is_last else 0)])
    if length < 126:
        head += bytes([0x80 | length])
    elif length < 1 << 16:
        head += b"\xfe" + length.to_bytes(2)
    else:
        head += b"\xff" + length.to_bytes(8)
    # The mask is of zeros, and leaves the content as it is.
    return head + bytes(4) + content


class RawWebSocket:
    """A connection to a dashboard that asked to become a WebSocket; ``status`` is the answer."""

    def __init__(
        self, address: str, *, source: str = "127.0.0.1", page: str = "none", headers: str = ""
    ) -> None:
        place = urlsplit(f"//{address}")
        query = {
            "EIO": 4, "transport": "websocket", "client_id": page, "implicit_handshake": "true",
            "tab_id": f"tab-{page}", "document_id": f"document-{page}", "next_message_id": 0,
        }  # fmt: skip
        self.link = socket.create_connection(
            (place.hostname, place.port), timeout=_PATIENCE, source_address=(source, 0)
        )
        more = f"{headers}\r\n" if headers else ""
        with suppress(ConnectionError):  # the refusal may have come before
            self.link.sendall(_HEAD.format(path=_PATH + urlencode(query), host=address, more=more).encode())
        #: What came and was not looked at.
        self.received = b""
        self.status = self._read_status()

    def _read_status(self) -> int:
        with suppress(ConnectionError):
            while b"\r\n\r\n" not in self.received and (more := self.link.recv(65_536)):
                self.received += more
        head, _, self.received = self.received.partition(b"\r\n\r\n")
        return int(head[9:12] or 0)

    def send(self, content: bytes) -> None:
        """Send bytes; nothing happens if the connection was closed."""
        with suppress(ConnectionError):
            self.link.sendall(content)

    def read_until(self, text: bytes) -> bool:
        """Read until a text comes; say whether it came before the connection was closed."""
        with suppress(ConnectionError):
            while text not in self.received:
                if not (more := self.link.recv(65_536)):
                    return False
                self.received += more
            return True
        return False

    def is_closed(self) -> bool:
        """Say whether the other side has closed the connection; what came before is dropped."""
        self.link.setblocking(False)
        try:
            while self.link.recv(65_536):
                pass
        except BlockingIOError:
            return False
        except ConnectionError:
            pass
        finally:
            self.link.settimeout(_PATIENCE)
        return True

    def close(self) -> None:
        """Close the connection."""
        self.link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
