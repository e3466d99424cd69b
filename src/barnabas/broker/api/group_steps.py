"""One step in a group, and what its client is told when the group cannot be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from barnabas.protocol.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.broker.coordination.led_shard import Step
    from barnabas.broker.server import Broker
    from barnabas.groups.shard import GroupShard

R = TypeVar("R")


async def step_in_group(broker: Broker, group_id: str, step: Step[GroupShard], response: Callable[..., R]) -> R:
    """The answer of the step, or one that holds nothing but why there is none."""
    try:
        answer: R = await broker.groups.step(group_id, step)
    except KafkaError as failed:
        return response(error_code=failed.error)
    return answer
