"""Where Redis keeps results: the keys, and what every one of them begins with."""

import pytest

from celeriac.errors import ImproperlyConfigured
from celeriac.wire.result import key_prefix, task_id_of, task_key


@pytest.mark.parametrize(
    ("said", "prefix"),
    [
        ("shop", "shop_"),
        ("shop:", "shop:"),
        ("shop_", "shop_"),
        ("shop-", "shop-"),
        ("shop.", "shop."),
        ("shop/", "shop/_"),
        ("", ""),
        (None, ""),
    ],
)
def test_a_prefix_is_parted_from_the_rest_of_the_key(said: object, prefix: str) -> None:
    assert key_prefix({"global_keyprefix": said}) == prefix


def test_without_the_option_there_is_no_prefix() -> None:
    assert key_prefix({"master_name": "m"}) == ""


@pytest.mark.parametrize("said", [7, b"shop", ["shop"]])
def test_a_prefix_that_is_no_text_is_refused_by_its_name(said: object) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"global_keyprefix.*give a string"):
        key_prefix({"global_keyprefix": said})


def test_the_keys_are_celerys() -> None:
    assert task_key("t1") == "celery-task-meta-t1"
    assert task_key("t1", "shop_") == "shop_celery-task-meta-t1"


@pytest.mark.parametrize("task_id", ["t1", "é€", "celery-task-meta-x"])
@pytest.mark.parametrize("prefix", ["", "shop_", "é:"])
def test_the_id_of_a_key_is_the_one_it_was_made_of(task_id: str, prefix: str) -> None:
    key = task_key(task_id, prefix).encode()

    assert task_id_of(key, prefix) == task_id


@pytest.mark.parametrize("key", [b"celery-taskset-meta-g1", b"shop_celery-task-meta-t1", b"", b"\xff"])
def test_a_key_of_something_else_has_no_task_id(key: bytes) -> None:
    assert task_id_of(key) == ""


def test_a_key_that_is_no_text_gives_an_id_all_the_same() -> None:
    assert task_id_of(b"celery-task-meta-\xff") == "�"
