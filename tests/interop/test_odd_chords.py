"""Chords whose keys in Redis hold something else: they are told, and keep nobody waiting."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from celeriac.config import Settings
from celeriac.errors import ImproperlyConfigured
from celeriac.model.result import Json
from celeriac.node.redis_backend import RedisBackend

KEY = "celery-taskset-meta-group"


@pytest.fixture
def backend(redis_url: str) -> Iterator[RedisBackend]:
    backend = RedisBackend(Settings(result_backend=redis_url))
    yield backend
    backend.close()


def unordered(client: Any) -> None:
    """Be a worker that was told not to keep the order."""
    client.rpush(f"{KEY}.j", '[1, "other", "SUCCESS", 1]')
    client.set(f"{KEY}.s", 2)


def sized_by_text(client: Any) -> None:
    client.set(f"{KEY}.s", "two")


def corrected_by_text(client: Any) -> None:
    client.set(f"{KEY}.s", 2)
    client.set(f"{KEY}.t", "one more")


def claimed_by_a_list(client: Any) -> None:
    client.rpush(f"{KEY}.c", "somebody")


@pytest.mark.parametrize("spoil", [unordered, sized_by_text, corrected_by_text, claimed_by_a_list])
def test_a_chord_that_cannot_be_counted_is_told_at_once(
    backend: RedisBackend, redis_url: str, spoil: Callable[[Any], None]
) -> None:
    with redis.Redis.from_url(redis_url) as client:
        spoil(client)

    # Not a lost link, after which it would be tried again and again.
    with pytest.raises(ImproperlyConfigured, match=r"cannot count group.*use the same result_chord_ordered"):
        backend.end_chord_part(
            group_id="group",
            group_index=0,
            task_id="task",
            state="SUCCESS",
            result=Json(b"1"),
            chord={},
            timeout=1.0,
        )
