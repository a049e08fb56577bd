"""What a winner does: it writes to a sink that refuses what is out of date."""

from typing import TYPE_CHECKING, Final

from celeriac.core.election_effect import Act
from celeriac.model.election import Mode

if TYPE_CHECKING:
    from tests.simulation.node import Node

__all__ = ["Handler"]

#: So often a leader writes: between these.
WRITE_EVERY: Final = (0.1, 0.3)


class Handler:
    """What one grant lets a node do, in steps: each is guarded by the check, and some come late all the same.

    Between the check and the write a process can be paused, and the write can be slow on its way. Nothing
    but the sink can stop those.
    """

    def __init__(self, node: "Node", act: Act) -> None:
        self.token = act.token
        self.is_running = True
        #: When it was told to end, by the node's clock.
        self.told_at: float | None = None
        self._node = node
        self._identity = node.identity
        self._mode = act.election.mode
        self._random = node.handler_random

    def start(self) -> None:
        """Begin."""
        node, drawn = self._node, self._random()
        if self._mode is Mode.LEASE:
            node.later(0.0, self._use)
            if drawn < 0.15 and not self._is_calm():
                node.later(1.0 + 12.0 * self._random(), self._end_by_itself)
        else:
            # Some take longer than a grant lasts.
            seconds = 0.3 * drawn if drawn < 0.8 else 1.6 * node.world.plan.ttl * (drawn - 0.7)
            node.later(0.0 if self._is_calm() else seconds, self._finish)

    def step_down(self) -> None:
        """Be told to end: most do so at once, some take longer than they may."""
        self.told_at = self._node.local()
        drawn = self._random()
        self._node.later(0.1 * drawn if drawn < 0.8 else 40.0 * (drawn - 0.8), self._stepped_down)

    def _may_go_on(self) -> bool:
        candidacy = self._node.candidacy()
        return candidacy is not None and candidacy.token == self.token and self._node.is_leader()

    def _use(self) -> None:
        if not self.is_running:
            return
        node, drawn = self._node, self._node.sink_random()
        if self._may_go_on():
            node.checker.used(node)
            node.later(0.04 * drawn, self._write)
        shortest, longest = WRITE_EVERY
        node.later(shortest + (longest - shortest) * drawn, self._use)

    def _write(self) -> None:
        node, drawn = self._node, self._node.sink_random()
        if drawn > 0.97 and not node.world.is_healed:
            node.world.met["slow write"] += 1
            node.world.at(
                node.world.now + 200.0 * (drawn - 0.97), node.checker.written, self._identity, self.token
            )
        else:
            node.checker.written(self._identity, self.token)

    def _finish(self) -> None:
        node = self._node
        is_failed = self._mode is Mode.TAKEOVER and (
            not self._may_go_on() or (self._random() < 0.1 and not self._is_calm())
        )
        if is_failed:
            self._finished(is_failed=True)
        else:
            node.checker.used(node)
            node.later(0.02 * self._random(), self._write_and_finish)

    def _write_and_finish(self) -> None:
        self._write()
        self._finished(is_failed=False)

    def _finished(self, *, is_failed: bool) -> None:
        self.is_running = False
        self._node.acted(is_failed=is_failed)

    def _end_by_itself(self) -> None:
        if self.is_running and self.told_at is None and not self._node.world.is_healed:
            self._node.acted(is_failed=self._random() < 0.5)

    def _is_calm(self) -> bool:
        world = self._node.world
        return world.is_healed or world.plan.profile.is_fair

    def _stepped_down(self) -> None:
        self.is_running = False
        if self._node.handler is self:
            self._node.stepped_down()
