"""Which pool a name stands for."""

import pytest

from celeriac.config import Settings
from celeriac.errors import ImproperlyConfigured
from celeriac.worker.execute import Executor
from celeriac.worker.pool.base import Pool
from celeriac.worker.pool.choose import POOL_NAMES, make_pool
from tests.component.worker.pool.sample import app
from tests.results import run_program


def made(name: str) -> Pool:
    return make_pool(name, runner=Executor(app.tasks, app.conf), app="any:app", size=3, settings=Settings())


@pytest.mark.parametrize("name", ["threads", "processes", "solo"])
def test_a_pool_has_the_name_it_was_chosen_by(name: str) -> None:
    pool = made(name)

    assert pool.name == name
    assert pool.runs_in_place == (name == "solo")
    assert pool.size == (1 if name == "solo" else 3)


def test_an_unknown_name_is_told_with_those_that_there_are() -> None:
    with pytest.raises(ImproperlyConfigured) as caught:
        made("prefork")

    assert "'prefork'" in str(caught.value)
    assert all(name in str(caught.value) for name in POOL_NAMES)


def test_greenlets_need_a_patched_program() -> None:
    with pytest.raises(ImproperlyConfigured, match=r"gevent\.monkey\.patch_all\(\)"):
        made("gevent")


def test_greenlets_need_gevent() -> None:
    code = """
        import sys
        sys.modules["gevent"] = None
        from celeriac.errors import ImproperlyConfigured
        from tests.component.worker.pool.test_choose import made
        try:
            made("gevent")
        except ImproperlyConfigured as error:
            print(error)
    """

    done = run_program(code)

    assert "pip install 'celeriac[gevent]'" in done.stdout
