"""A broker with workers of ours on it, and what tests do with them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from celeriac.app import Celeriac
from celeriac.node.inspect import Inspect
from celeriac.node.result import AsyncResult
from celeriac.testing.peers import CeleriacWorker
from tests.fleet import OUR_APP, PATIENCE

__all__ = ["Stage", "lines"]


@dataclass(frozen=True)
class Stage:
    """A broker, where results are kept, and a client of ours."""

    url: str
    backend: str
    app: Celeriac

    @classmethod
    @contextmanager
    def on(cls, url: str, backend: str, **settings: Any) -> Iterator[Self]:
        """Have a client of ours that ends with us."""
        app = Celeriac(url, backend, environ={}, **settings)
        try:
            yield cls(url, backend, app)
        finally:
            app.close()

    def worker(self, hostname: str, *arguments: str, **options: Any) -> CeleriacWorker:
        """Return a worker of ours, not yet started. The part before ``@`` of its name names its queue too."""
        arguments = arguments if "-Q" in arguments else ("-Q", hostname.partition("@")[0], *arguments)
        options = {"url": self.url, "backend": self.backend, **options}
        return CeleriacWorker(OUR_APP, hostname=hostname, arguments=arguments, **options)

    def ask(self, worker: CeleriacWorker) -> Inspect:
        """Return what asks one worker."""
        return self.app.control.inspect([worker.hostname], timeout=PATIENCE)

    def send(self, name: str, *args: Any, **options: Any) -> AsyncResult:
        """Send a task of ``tests/peers/ours.py``."""
        return self.app.send_task(f"ours.{name}", args, **options)


def lines(file: Path) -> list[str]:
    """Return what tasks have written to a file."""
    return file.read_text().splitlines() if file.exists() else []
