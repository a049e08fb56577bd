"""Collection of a test file by the one process that runs it.

In a parallel run of xdist each process collects all tests, although it runs a share of them: seven CPU
seconds in each process, before the first test. Here the processes collect the names of the files alone. A
file is one item for the scheduler; its tests are collected when the file is next, and reported one by one as
always.

Each file ends with two items that do nothing: xdist gives a process more work once two items are left of the
work that it has. Without them each process would hold a file that others could run.
"""

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from _pytest.runner import runtestprotocol

_ENDS: Final = ("end-1", "end-2")


class LateFile(pytest.File):
    """A file of tests that is not read yet."""

    def collect(self) -> Iterator[pytest.Item]:
        """Return one item for all tests of the file, and the items behind it."""
        yield FileItem.from_parent(self, name=self.path.name, nodeid=self.nodeid)
        for name in _ENDS:
            yield EndItem.from_parent(self, name=name)


class FileItem(pytest.Item):
    """All tests of a file."""

    def runtest(self) -> None:
        """Do nothing: ``run_file`` runs the tests."""


class EndItem(pytest.Item):
    """An item behind a file: fixtures that the next file does not share are torn down here."""

    def runtest(self) -> None:
        """Do nothing."""


def is_late(config: pytest.Config) -> bool:
    """Return whether files are read late: in a process of a parallel run that was given whole files."""
    return hasattr(config, "workerinput") and not any("::" in argument for argument in config.args)


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> LateFile | None:
    """Collect the name of a file alone."""
    return LateFile.from_parent(parent, path=module_path) if is_late(parent.config) else None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run the tests of a file, or the teardowns behind it."""
    if isinstance(item, FileItem):
        run_file(item, nextitem)
        return True
    if isinstance(item, EndItem):
        for report in runtestprotocol(item, log=False, nextitem=nextitem):
            if report.failed:
                item.ihook.pytest_runtest_logreport(report=report)
        return True
    return None


def run_file(file: FileItem, nextitem: pytest.Item | None) -> None:
    """Collect and run the tests of a file.

    Each is at the position of the file meanwhile: xdist refuses reports of other items.
    """
    items = file.session.items
    position = items.index(file)
    tests = collect_tests(file)
    for test, following in zip(tests, [*tests[1:], nextitem][: len(tests)], strict=True):
        items[position] = test
        test.ihook.pytest_runtest_protocol(item=test, nextitem=following)


def collect_tests(file: FileItem) -> list[pytest.Item]:
    """Return the tests of a file, selected and ordered as in an ordinary run.

    As there, the garbage collector is off meanwhile, and does not look at the tests later.
    """
    gc.disable()
    late = file.parent
    assert late is not None
    module = pytest.Module.from_parent(late.parent, path=file.path)
    tests = list(file.session.genitems(module))
    file.config.hook.pytest_collection_modifyitems(session=file.session, config=file.config, items=tests)
    gc.freeze()
    gc.enable()
    return tests
