"""New partitions: where their replicas go, by manual assignment or by placement, and which replica leads first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.decisions.elections import default_directory
from barnabas.controller.decisions.placement import UsableBroker, place_replicas
from barnabas.metadata.image import PartitionImage
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.controller.decisions.context import Context
    from barnabas.controller.decisions.controller_state import ControllerState


def placed_partitions(
    state: ControllerState, context: Context, partition_count: int, replication_factor: int
) -> list[PartitionImage]:
    brokers = [
        UsableBroker(broker.id, broker.rack, broker.fenced)
        for broker in state.brokers.values()
        if not broker.in_controlled_shutdown and not _is_cordoned(state, broker.id)
    ]
    try:
        assignments = place_replicas(brokers, partition_count, replication_factor, context.random.below)
        # Thousands of partitions lie on the same few brokers.
        made = {replicas: _new_partition(state, replicas) for replicas in dict.fromkeys(assignments)}
        return [made[replicas] for replicas in assignments]
    except KafkaError as error:
        raise KafkaError(
            error.error, f"Unable to replicate the partition {replication_factor} time(s): {error.message}"
        ) from None


def assigned_partition(
    state: ControllerState, partition_id: int, replicas: Sequence[int], replication_factor: int | None
) -> PartitionImage:
    """A partition with manually assigned replicas. All partitions of a topic must have the same number."""
    check_assignment(state, replicas, replication_factor)
    if not any(state.is_active(broker_id) for broker_id in replicas):
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT,
            f"All brokers specified in the manual partition assignment for partition {partition_id} "
            "are fenced or in controlled shutdown.",
        )
    return _new_partition(state, tuple(replicas))


def _new_partition(state: ControllerState, replicas: tuple[int, ...]) -> PartitionImage:
    isr = tuple(broker_id for broker_id in replicas if state.is_active(broker_id))
    if not isr:
        raise KafkaError(
            Error.INVALID_REPLICATION_FACTOR, "All brokers are currently fenced or in controlled shutdown."
        )
    return PartitionImage(
        replicas=replicas,
        directories=tuple(default_directory(state.brokers[broker_id]) for broker_id in replicas),
        isr=isr,
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
    )


def check_assignment(state: ControllerState, replicas: Sequence[int], replication_factor: int | None) -> None:
    """Raises KafkaError if these cannot be the replicas of a partition."""
    if not replicas:
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT, "The manual partition assignment includes an empty replica list."
        )
    previous = None
    for broker_id in sorted(replicas):
        if broker_id not in state.brokers:
            raise KafkaError(
                Error.INVALID_REPLICA_ASSIGNMENT,
                f"The manual partition assignment includes broker {broker_id}, but no such broker is registered.",
            )
        if broker_id == previous:
            raise KafkaError(
                Error.INVALID_REPLICA_ASSIGNMENT,
                f"The manual partition assignment includes the broker {broker_id} more than once.",
            )
        previous = broker_id
    if replication_factor is not None and len(replicas) != replication_factor:
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT,
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not "
            f"consistent with previous partitions, which have {replication_factor} replica(s).",
        )


def _is_cordoned(state: ControllerState, broker_id: int) -> bool:
    """Whether the broker takes no new replicas, because all its directories are cordoned."""
    broker = state.brokers[broker_id]
    cordoned = broker.cordoned_directories or ()
    return bool(broker.directories) and set(broker.directories) <= set(cordoned)
