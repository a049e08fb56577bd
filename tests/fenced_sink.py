"""A place that leaders write to, and that takes nothing of one who was replaced."""

import json
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingUnixStreamServer
from threading import Lock, Thread
from time import monotonic
from typing import Any, Self

from tests.election_history import Attempt

__all__ = ["FencedSink"]


class FencedSink:
    """Takes a write only by a token that is not lower than the highest it has seen of that key.

    Writers are other processes, by a socket at ``path``; each line is a write, and is answered by whether it
    was taken. A writer says beforehand that it begins. All is kept, in the order in which it came.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.begun: list[Attempt] = []
        self.attempts: list[Attempt] = []
        #: Of each key that was written, the highest token.
        self.highest: dict[str, int] = {}
        self._lock = Lock()
        self._server = _Server(str(path), _Writer)
        self._server.sink = self
        self._thread = Thread(target=self._server.serve_forever, args=(0.05,), name="sink", daemon=True)

    def receive(
        self, *, key: str, token: int, owner: str, boot: str, entered_at: float, is_begin: bool
    ) -> bool:
        """Take a write, or refuse it."""
        with self._lock:
            if is_begin:
                self.begun.append(Attempt(key, token, owner, boot, entered_at, monotonic(), is_taken=True))
                return True
            highest = self.highest.get(key, 0)
            is_taken = token >= highest
            self.highest[key] = max(token, highest)
            self.attempts.append(Attempt(key, token, owner, boot, entered_at, monotonic(), is_taken))
        return is_taken

    def taken(self, key: str) -> list[Attempt]:
        """Return what was taken of a key."""
        return [each for each in list(self.attempts) if each.key == key and each.is_taken]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End; those who write must be gone."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingUnixStreamServer):
    daemon_threads = True
    sink: FencedSink


class _Writer(StreamRequestHandler):
    def handle(self) -> None:
        server: Any = self.server
        try:
            for line in self.rfile:
                is_taken = server.sink.receive(**json.loads(line))
                self.wfile.write(b"taken\n" if is_taken else b"stale\n")
        except (OSError, json.JSONDecodeError):
            pass  # it was killed, perhaps in the middle of a line
