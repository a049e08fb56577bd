"""The steps that run tasks and end them: they outlive every link."""

from typing import ClassVar, Final

from celeriac.worker.finisher import Finisher
from celeriac.worker.graph import Step
from celeriac.worker.pool.base import Listener, Pool

__all__ = ["FinisherStep", "PoolStep"]

#: How long what follows the last tasks, and their results, may take when a worker ends.
_PATIENCE: Final = 30.0
#: How long a pool with nothing to do may take to end in good order.
_FAREWELL: Final = 5.0


class PoolStep(Step):
    """The pool that runs tasks."""

    name: ClassVar = "pool"
    requires: ClassVar = ("finisher",)

    def __init__(self, pool: Pool, listener: Listener) -> None:
        self.pool = pool
        self._listener = listener

    def start(self) -> None:
        """Make ready to run tasks."""
        self.pool.start(self._listener)

    def stop(self) -> None:
        """End; what still runs is ended too. Who wants to wait for it does so before."""
        if not self.pool.stop(_FAREWELL):
            self.pool.kill()


class FinisherStep(Step):
    """The thread that ends tasks."""

    name: ClassVar = "finisher"

    def __init__(self, finisher: Finisher) -> None:
        self.finisher = finisher

    def start(self) -> None:
        """Begin to end tasks."""
        self.finisher.start()

    def stop(self) -> None:
        """End once all that has ended is stored and told."""
        self.finisher.stop(_PATIENCE)
