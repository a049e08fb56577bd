"""What is known of a result, read as programs written for Celery do."""

import pytest

from celeriac.model.result import ResultMeta


def test_a_result_is_read_like_the_dict_that_celery_passes() -> None:
    meta = ResultMeta("t1", "SUCCESS", 42, children=())

    values = [meta[key] for key in ("task_id", "status", "result", "traceback", "children")]

    assert values == ["t1", "SUCCESS", 42, None, ()]


def test_a_result_is_still_a_tuple() -> None:
    meta = ResultMeta("t1", "SUCCESS", 42)

    parts = (meta[0], meta[1:3], meta[-1])

    assert parts == ("t1", ("SUCCESS", 42), "")
    assert meta._replace(result=43).result == 43


@pytest.mark.parametrize("key", ["is_ready", "count", "nothing"])
def test_a_name_that_no_store_keeps_is_a_key_error(key: str) -> None:
    meta = ResultMeta("t1", "SUCCESS")

    with pytest.raises(KeyError, match=key):
        meta[key]
