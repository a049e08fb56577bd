"""Results in Redis: keys that expire, and a word to everybody who listens."""

from collections.abc import Sequence

from celeriac.config import Settings
from celeriac.model.chord import ChordPart, Gathered
from celeriac.model.result import ResultMeta, StoredResult
from celeriac.node.backend import Backend
from celeriac.node.per_process import PerProcess
from celeriac.transport.redis_chord import RedisChords
from celeriac.transport.redis_results import RedisResultLink
from celeriac.transport.redis_store import RedisResultStore
from celeriac.transport.result_link import ResultLink

__all__ = ["RedisBackend"]


class RedisBackend(Backend):
    """Results that stay in Redis until they expire, and can be read by anybody until then."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._store = PerProcess(lambda: RedisResultStore(settings))

    def read(self, task_ids: Sequence[str], *, timeout: float) -> dict[str, ResultMeta]:
        """Return what is stored of these tasks."""
        return self._store.get().read(task_ids, timeout=timeout)

    def forget(self, task_id: str) -> None:
        """Delete what is stored of a task."""
        self._store.get().delete([task_id], timeout=self.settings.broker_connection_timeout)

    def close(self, *, tells: bool = True) -> None:
        """End the links and what runs in the background; to wait again starts both again."""
        super().close(tells=tells)
        store = self._store.pop()
        if store is not None:
            store.close()

    def _new_link(self) -> ResultLink:
        return RedisResultLink(self.settings)

    def _write(
        self,
        meta: ResultMeta,
        *,
        reply_to: str,  # noqa: ARG002
        correlation_id: str,  # noqa: ARG002
        timeout: float,
    ) -> bool:
        return self._store.get().write_many([meta], timeout=timeout)[0]

    def _write_many(self, results: Sequence[StoredResult], *, timeout: float) -> None:
        self._store.get().write_many([each.meta for each in results], timeout=timeout)

    def _end_part(self, part: ChordPart, *, timeout: float) -> Gathered | None:
        return RedisChords(self._store.get()).end_part(part, timeout=timeout)

    def _close_chord(self, part: ChordPart, *, timeout: float) -> None:
        RedisChords(self._store.get()).close(part, timeout=timeout)
