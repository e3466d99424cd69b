"""Tasks for worker processes that a client waits for: one whose worker dies is tried once more.

What killed the worker may have been anything: somebody, or the system for want of memory. A task that its second worker
does not survive either is at fault itself.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

from barnabas.ports.processes import WorkerDiedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.ports import Processes

logger = logging.getLogger("barnabas.workers")

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


async def run_in_worker(processes: Processes, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
    """What the function returns or raises in a worker process. Raises WorkerError if it cannot be run."""
    try:
        return await processes.run(function, *arguments)
    except WorkerDiedError as error:
        logger.warning("trying once more: %s", error)
    return await processes.run(function, *arguments)
