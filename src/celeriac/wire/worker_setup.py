"""How workers say that they are set up: the queues that they take tasks from, and the size of their pool."""

from typing import Final

__all__ = ["decode_begun", "decode_pool_size", "decode_queues"]

_PREFORK: Final = "celery.concurrency.prefork:"
#: A number that no pool has: who says more is not believed.
_TOO_MANY: Final = 1_000_000_000


def decode_queues(value: object) -> list[str]:
    """Read the names of queues from the answer to ``active_queues``; what is no name is left out."""
    queues = value if isinstance(value, list) else []
    names = [queue.get("name") for queue in queues if isinstance(queue, dict)]
    return [name for name in names if isinstance(name, str)]


def decode_pool_size(value: object) -> int | None:
    """Read from the answer to ``stats`` how many tasks a worker can run at once; None if it does not say."""
    size = _said(value)
    return size if size is not None and 0 <= size < _TOO_MANY else None


def decode_begun(value: object) -> int | None:
    """Read from the answer to ``stats`` how many tasks a worker has begun since its start; None if unsaid."""
    counts = value.get("total") if isinstance(value, dict) else None
    if not isinstance(counts, dict):
        return None
    return sum(each for each in counts.values() if type(each) is int and 0 <= each < _TOO_MANY)


def _said(value: object) -> int | None:
    match value:
        # Celery: a pool that grew goes on to say the size that it began with. That of eventlet also says how
        # many are free and busy, and that of processes which there are.
        case {"pool": {"free-threads": int(free), "running-threads": int(busy)}}:
            return free + busy
        case {"pool": {"implementation": str(name), "processes": list(all_)}} if name.startswith(_PREFORK):
            return len(all_)
        case {"pool": {"max-concurrency": int(size)}}:
            return size
        case _:
            return None
