"""Says that the node stood still: its process was stopped, or the machine gave it no processor time.

What a cluster does to a node that does not move, from elections to fencing, is then in the logs of all others. In its
own, nothing else would tell why.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio

logger = logging.getLogger("barnabas.node")

LOOK_S: Final = 0.25
LATE_S_MAX: Final = 0.5
"""No request holds an event loop for a tenth of this."""


class StallWatch:
    """A timer of the node's event loop that knows when it should have gone off."""

    def __init__(self, loop: asyncio.AbstractEventLoop, node_id: int) -> None:
        self._loop = loop
        self._node_id = node_id
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    def start(self) -> None:
        self._due = self._loop.time() + LOOK_S
        self._timer = self._loop.call_at(self._due, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        late_s = self._loop.time() - self._due
        if late_s > LATE_S_MAX:
            logger.warning(
                "node %d stood still for %.1f s: its process was stopped, or got no processor time",
                self._node_id,
                late_s,
            )
        self.start()
