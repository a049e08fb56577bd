"""The names of the package are loaded when they are asked for."""

from importlib import import_module

import pytest

import celeriac


@pytest.mark.parametrize("name", celeriac.__all__)
def test_every_name_is_there_and_listed(name: str) -> None:
    assert getattr(celeriac, name) is not None
    assert name in dir(celeriac)


def test_a_name_that_is_not_there_is_told() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Celery'"):
        _ = celeriac.Celery


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("events", ["EventDispatcher", "EventReceiver"]),
        ("events.dispatcher", ["EventDispatcher"]),
        ("events.receiver", ["EventReceiver"]),
        ("events.state", ["State", "Task", "Worker"]),
        ("events.snapshot", ["Polaroid", "evcam"]),
    ],
)
def test_celerys_import_path_leads_to_the_public_names(module: str, names: list[str]) -> None:
    found = import_module(f"celeriac.{module}")

    public = {name: getattr(found, name) for name in found.__all__ if name in names}

    assert public == {name: getattr(celeriac, name) for name in names}


@pytest.mark.parametrize("name", ["events", "states"])
def test_names_of_the_model_are_in_a_module_of_the_package(name: str) -> None:
    module, model = import_module(f"celeriac.{name}"), import_module(f"celeriac.model.{name}")

    names = {each: getattr(module, each) for each in model.__all__}

    assert getattr(celeriac, name) is module
    assert names == {each: getattr(model, each) for each in model.__all__}
    assert set(model.__all__) <= set(module.__all__)
