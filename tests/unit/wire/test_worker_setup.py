"""What workers say of their queues and pools is read, whatever they say."""

import pytest

from celeriac.wire.worker_setup import decode_pool_size, decode_queues


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ([{"name": "celery", "exchange": {}}, {"name": "mail"}], ["celery", "mail"]),
        ([{"name": 7}, {}, "mail", None, {"name": "celery"}], ["celery"]),
        ({"name": "celery"}, []),
        (None, []),
    ],
)
def test_queues_are_those_that_have_names(value: object, names: list[str]) -> None:
    assert decode_queues(value) == names


PREFORK = "celery.concurrency.prefork:TaskPool"


@pytest.mark.parametrize(
    ("pool", "size"),
    [
        ({"implementation": PREFORK, "max-concurrency": 2, "processes": [11, 12, 13]}, 3),
        ({"implementation": "celery.concurrency.thread:TaskPool", "max-concurrency": 4, "threads": 1}, 4),
        ({"max-concurrency": 4, "free-threads": 3, "running-threads": 2}, 5),
        ({"implementation": "celeriac.…:ThreadPool", "max-concurrency": 8, "processes": [11]}, 8),
        ({"max-concurrency": 2**70}, None),
        ({"max-concurrency": -1}, None),
        ({"max-concurrency": "many"}, None),
        ([], None),
        (None, None),
    ],
)
def test_the_size_of_a_pool_is_how_many_tasks_it_can_run_at_once(pool: object, size: int | None) -> None:
    assert decode_pool_size({"pool": pool}) == size
    assert decode_pool_size(pool) is None
