"""One step in a group, and what its client is told when the group cannot be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from barnabas.net.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.broker.coordinators.group_coordinator import GroupCoordinator
    from barnabas.broker.coordinators.led_shard import Step
    from barnabas.groups.group_shard import GroupShard

R = TypeVar("R")


def step_in_group(
    groups: GroupCoordinator,
    group_id: str,
    step: Step[GroupShard],
    response: Callable[..., R],
    finish: Callable[[R], R] | None = None,
) -> Pending[R]:
    """The answer of the step, or one that has nothing but the error."""
    answer = Pending(lambda error: response(error_code=error), finish)
    groups.begin_step(group_id, step, answer)
    return answer
