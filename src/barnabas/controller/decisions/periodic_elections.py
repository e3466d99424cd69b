"""Elections that no request asks for: leadership goes back to preferred replicas (`auto.leader.rebalance.enable`), and
partitions without a leader get one that may lack records, where their settings allow that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.decisions.elections import Election, Elections, Target, change_partition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.controller.decisions.context import Settings
    from barnabas.controller.decisions.controller_state import ControllerState, PartitionKey
    from barnabas.metadata.image import PartitionImage
    from barnabas.metadata.versions import VersionedRecord


def elect_preferred(state: ControllerState, settings: Settings, keys: Iterable[PartitionKey]) -> list[VersionedRecord]:
    """Those of the partitions that their preferred replica can lead, and does not, are led by it."""

    def is_due(partition: PartitionImage) -> bool:
        preferred = partition.replicas[0]
        return partition.leader != preferred and preferred in partition.isr and state.is_active(preferred)

    elections = Elections(state, settings)
    changes = (
        change_partition(key, partition, Target(), elections.rules(key, election=Election.PREFERRED))
        for key, partition in _known(state, keys)
        if is_due(partition)
    )
    return [change for change in changes if change is not None]


def elect_unclean(state: ControllerState, settings: Settings, keys: Iterable[PartitionKey]) -> list[VersionedRecord]:
    """Those of the partitions without a leader that may be led by any live replica get such a leader."""
    elections = Elections(state, settings)
    records = []
    for key, partition in _known(state, keys):
        rules = elections.rules(key)
        if rules.election is Election.UNCLEAN:
            change = change_partition(key, partition, Target(), rules)
            if change is not None:
                records.append(change)
    return records


def _known(state: ControllerState, keys: Iterable[PartitionKey]) -> Iterable[tuple[PartitionKey, PartitionImage]]:
    """The partitions that are still there: they were looked up a few turns ago."""
    for key in keys:
        topic = state.topic_by_id(key.topic_id)
        if topic is not None and key.partition_id < len(topic.partitions):
            yield key, topic.partitions[key.partition_id]
