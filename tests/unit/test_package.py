"""The names of the package are loaded when they are asked for."""

import pytest

import celeriac


@pytest.mark.parametrize("name", celeriac.__all__)
def test_every_name_is_there_and_listed(name: str) -> None:
    assert getattr(celeriac, name) is not None
    assert name in dir(celeriac)


def test_a_name_that_is_not_there_is_told() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Celery'"):
        _ = celeriac.Celery
