"""Which tests stay together when several processes share them, and which run beside each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xdist.workermanage import WorkerController  # type: ignore[import-untyped]

SPARK: Final = "tests/spark/"
WAITING: Final = ("tests/chaos/", "tests/clients/", "tests/cluster/", "tests/kit/")
"""What waits most of the time: for sessions to end, for leaders to be elected, for members to be missed."""
COMPUTING_MAX: Final = 2
"""Modules of the others that run at a time, as long as there are some that wait to run beside them."""


class ByModule(LoadScopeScheduling):  # type: ignore[misc]  # it has no annotations
    """A module's tests share what they have in common, and all tests of pipelines one Spark session.

    `make test` has modules handed out in the order of the tree, but so that what waits runs beside what computes: there
    are more processes than processors, and none of these is idle for long.
    """

    def _split_scope(self, nodeid: str) -> str:
        return SPARK if nodeid.startswith(SPARK) else nodeid.partition("::")[0]

    def _assign_work_unit(self, node: WorkerController) -> None:
        others = [work for other, work in self.assigned_work.items() if other is not node and work]
        computing = sum(not waits(next(reversed(work))) for work in others)
        scope = next_scope(self.workqueue, computing)
        self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)


def next_scope(scopes: Iterable[str], computing: int) -> str:
    """The first that suits so many computing ones beside it; the very first, if none does."""
    wanted = computing >= COMPUTING_MAX
    first, *_ = ordered = list(scopes)
    return next((scope for scope in ordered if waits(scope) == wanted), first)


def waits(scope: str) -> bool:
    return scope.startswith(WAITING)
