"""A client and a monitor of a real Celery, in a process of its own with that Celery."""

import json
import os
import subprocess
from pathlib import Path
from queue import Empty, Queue
from tempfile import TemporaryFile
from threading import Thread
from types import TracebackType
from typing import Any, Self

__all__ = ["Console"]

_PROGRAM = Path(__file__).parent / "peers" / "console.py"
#: Far more than any answer needs, for a busy machine.
_PATIENCE = 90.0


class Console:
    """Runs ``tests/peers/console.py``, which says what it can do; ends with us, as its input does."""

    def __init__(self, python: Path, *, url: str, backend: str | None = None) -> None:
        # Without a backend of its own the app would take none.
        self._environment = {"CELERY_BROKER_URL": url, "CELERY_RESULT_BACKEND": backend or "disabled://"}
        self._python = python
        self._answers: Queue[str] = Queue()

    def __enter__(self) -> Self:
        self._log = TemporaryFile("w+")
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            [str(self._python), str(_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            bufsize=1,
            env=dict(os.environ) | self._environment,
        )
        self._reader = Thread(target=self._read)
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        self._process.stdout.close()
        self._log.seek(0)
        print(self._log.read())  # pytest shows it if the test failed
        self._log.close()

    def ask(self, do: str, **arguments: Any) -> Any:
        """Have a command done, and return what it returned."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        try:
            answer = json.loads(self._answers.get(timeout=_PATIENCE))
        except Empty:
            raise AssertionError(f"the peer did not {do!r} within {_PATIENCE:g} s") from None
        if "error" in answer:
            raise AssertionError(f"the peer could not {do!r}: {answer['error']}")
        return answer["answer"]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
