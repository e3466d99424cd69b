"""Groups and transactional ids of a coordinator, under the names of Kafka's GroupMetadataManager and of its own."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from barnabas.groups.classic.rebalancing import ClassicGroupState
from barnabas.groups.consumer.consumer_group import ConsumerGroupState
from barnabas.metrics.exposition import GAUGE, Family, gauge
from barnabas.node.metrics.group_figures import group_labels
from barnabas.transactions.transaction import TransactionState

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.broker.coordinators.group_coordinator import GroupCoordinator
    from barnabas.broker.coordinators.transaction_coordinator import TransactionCoordinator

GROUPS: Final = "kafka_coordinator_group_groupmetadatamanager_"
CLASSIC_STATES: Final = tuple(state.value for state in ClassicGroupState)
GROUP_STATES: Final = (*CLASSIC_STATES, *(s.value for s in ConsumerGroupState if s.value not in CLASSIC_STATES))


def group_count_families(groups: GroupCoordinator, offset_count: int) -> Iterator[Family]:
    found = [each for shard in groups.served_shards() for each in shard.group_figures()]
    states = Counter(state for _, state, _ in found)
    yield gauge(f"{GROUPS}numgroups", "groups that this broker coordinates", len(found))
    yield gauge(f"{GROUPS}numoffsets", "offsets that they have committed", offset_count)
    for state in GROUP_STATES:
        yield gauge(f"{GROUPS}numgroups{state.lower()}", f"groups in the state {state}", states[state])
    yield member_family([(group, members) for group, _, members in found])


def member_family(found: Sequence[tuple[str, int]]) -> Family:
    family = Family("kafka_consumergroup_members", GAUGE, "members of a group")
    for group, members in found:
        family.add(members, **group_labels(group))
    return family


def transaction_families(transactions: TransactionCoordinator) -> Iterator[Family]:
    states = Counter(state for shard in transactions.served_shards() for state in shard.transaction_states())
    family = Family("barnabas_transactional_ids", GAUGE, "transactional ids that this broker coordinates, by state")
    for state in TransactionState:
        family.add(states[state], state=state.title)
    yield family
    yield gauge(
        "kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize",
        "ends of transactions that wait until somebody leads their partitions",
        transactions.leaderless_marker_count,
    )
