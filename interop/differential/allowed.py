"""What may differ between an answer of Barnabas and one of Apache Kafka, each with the reason.

`docs/compatibility.md` has the differences in behaviour for people; those that a sequence can meet are listed here for
the comparison. Anything that is not named here has to be the same.
"""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.protocol import messages as m
from barnabas.protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.protocol.compiler.structs import Message

EACH_ITS_OWN: dict[str, str] = {
    "throttle_time_ms": "how long a client is held back depends on the machine's speed",
    "cluster_id": "each cluster has its own",
    "session_id": "drawn at random",
    "log_append_time_ms": "the moment of the append",
    "transaction_start_time_ms": "the moment in which the transaction began",
    "last_timestamp": "the moment of a marker, or of the coordinator's last change",
    "last_fetch_timestamp": "the moment of the last fetch",
    "last_caught_up_timestamp": "the moment of the last fetch",
    "finalized_features_epoch": "an offset of the metadata log, where idle moments count, too",
    "total_bytes": "of the disk",
    "usable_bytes": "of the disk",
    "DescribeQuorum.topics.partitions.high_watermark": "an offset of the metadata log, where idle moments count, too",
    "DescribeQuorum.topics.partitions.leader_epoch": "elections at the start",
    "log_end_offset": "an offset of the metadata log, where idle moments count, too",
    "DescribeConfigs.results.configs.documentation": "our descriptions of settings are in our words",
}
"""By field, or by the path of one: values that are anybody's own. That there is one is compared all the same."""

CHECKSUMS = frozenset({"GetTelemetrySubscriptions.subscription_id"})
"""Values that are anybody's own, too, and of which not even the sign means anything."""

NOT_SERVED = frozenset(
    {17, 29, 30, 31, 36, 38, 39, 40, 41, 50, 51, 71, 72, 76, 78, 79, 80, 81, 83, 84, 85, 86, 87, 88, 90, 91, 92}
)
"""APIs of which our ApiVersions says nothing (`docs/compatibility.md` has them by name), and those for metrics of
clients, which each side lists where somebody receives them."""

OF_ONE_SIDE = frozenset(
    {"barnabas.client.telemetry.dir", "advertised.listeners", "controller.quorum.bootstrap.servers", "listeners"}
)
"""Settings that the nodes were given differently: their ports, and what has ours answer questions about metrics, which
Kafka's answers anyway."""

EMPTY_SAYS_NOTHING = frozenset(
    {
        "AddPartitionsToTxn.results_by_topic_v3_and_below",
        "AddPartitionsToTxn.results_by_transaction.topic_results",
        "OffsetCommit.topics",
        "OffsetDelete.topics",
        "TxnOffsetCommit.topics",
    }
)
"""Arrays of topics of which those without partitions are left out: a request that names none gets no result for any,
and whether Kafka's answer has the topic's name depends on what became of the others."""

LISTINGS: dict[str, str] = {
    "Metadata.topics": "name",
    "ListGroups.groups": "group_id",
    "ListTransactions.transaction_states": "transactional_id",
    "DescribeLogDirs.results.topics": "name",
    "ListConfigResources.config_resources": "resource_name",
    "ListPartitionReassignments.topics": "name",
}
"""Arrays that may list everything there is, and where the name is: of these, what the sequence has made is compared,
because what earlier ones made goes away in its own time."""

ORDERED = frozenset(
    {
        "DescribeConfigs.results.configs.synonyms",
        "DescribeTopicPartitions.topics",
        "DescribeTopicPartitions.topics.partitions",
        "DescribeTopicPartitions.topics.partitions.replica_nodes",
        "Metadata.topics.partitions.replica_nodes",
        "Fetch.responses.partitions.aborted_transactions",
    }
)
"""Arrays whose order means something. All others are compared as sets, in which what has one name is one: Kafka makes
most of them from hash maps, and what a request names twice is in them once."""


ATTRIBUTES_AT, UNKNOWN_CODEC = 22, b"\7"
"""Where the low byte of a batch's attributes is, and what it is with `codec` for a flaw (`memory`)."""


class Allowed(NamedTuple):
    """A difference on purpose."""

    path: str
    """With `*` for anything."""
    reason: str
    ours: Any = ...
    """The value, unless any will do."""
    kafkas: Any = ...
    where: Callable[[Any], bool] | None = None
    """Which requests it is about."""
    after: Callable[[Any], bool] | None = None
    """Which requests it follows from, in the sequence before."""
    ends: bool = False
    """Whether the two sides differ in what they keep from here on, so that what follows cannot be compared."""


def _has_unknown_operation(request: Any) -> bool:
    return any(not 0 <= config.config_operation <= 3 for each in request.resources for config in each.configs)


def _names_a_host(request: Any) -> bool:
    return any(
        of.entity_type == "ip" and of.entity_name in {"u", "v"} for each in request.entries for of in each.entity
    )


def _names_nothing(request: Any) -> bool:
    return any(each.name is None and each.topic_id == ZERO_UUID for each in request.topics or ())


def _has_epoch_without_member(request: Any) -> bool:
    return any(each.member_epoch >= 0 and not each.member_id for each in request.groups)


def _rejoins_unasked(request: Any) -> bool:
    return bool(request.member_epoch == 0 and request.rebalance_timeout_ms == -1 and request.topic_partitions is None)


def _has_unknown_type(request: Any) -> bool:
    return any(each.resource_type not in {2, 4, 8, 16, 32} for each in request.resources)


def _names_a_resource_twice(request: Any) -> bool:
    named = [(each.resource_type, each.resource_name) for each in request.resources]
    return len(named) != len({*named})


def _is_nonsense_for_addresses(request: Any) -> bool:
    return any(config.value == "nonsense" for each in request.resources for config in each.configs)


def _has_broken_records(request: Any) -> bool:
    return any(
        b"garbage" in bytes(partition.records or b"")
        for each in request.topic_data
        for partition in each.partition_data
    )


def _has_unknown_codec(request: Any) -> bool:
    return any(
        bytes(partition.records or b"")[ATTRIBUTES_AT : ATTRIBUTES_AT + 1] == UNKNOWN_CODEC
        for each in request.topic_data
        for partition in each.partition_data
    )


def _lacks_records(request: Any) -> bool:
    return any(partition.records is None for each in request.topic_data for partition in each.partition_data)


def _has_members_without_subscription(request: Any) -> bool:
    """Whether a member says what it wants in bytes that are none of a subscription, or in none at all."""
    return any(bytes(each.metadata)[:2] != b"\0\0" for each in request.protocols)


def _offers_no_name(request: Any) -> bool:
    return any(not each.name for each in request.protocols)


def _joins(request: Any) -> bool:
    return isinstance(request, m.JoinGroupRequest)


def _leaves(request: Any) -> bool:
    if isinstance(request, m.ConsumerGroupHeartbeatRequest):
        return bool(request.member_epoch < 0)
    return isinstance(request, m.LeaveGroupRequest)


def _writes_to_internal_topics(request: Any) -> bool:
    return any(str(each.name).startswith("__") for each in request.topic_data)


def _fetches_nothing(request: Any) -> bool:
    sizes = [partition.partition_max_bytes for topic in request.topics for partition in topic.partitions]
    return request.max_bytes < 0 or any(size < 0 for size in sizes)


def _fetches_twice(request: Any) -> bool:
    named = [
        (topic.topic, topic.topic_id, partition.partition) for topic in request.topics for partition in topic.partitions
    ]
    return len(named) != len({*named})


def _reads_internal_topics(request: Any) -> bool:
    names = [each.topic for each in request.topics] if hasattr(request, "session_id") else []
    names += [each.name for each in request.topics if hasattr(each, "name")]
    names += [each.topic for each in request.topics if hasattr(each, "topic")]
    return any(str(name).startswith("__") for name in names)


def _is_of_another_replica(request: Any) -> bool:
    return bool(request.replica_id >= 0 or request.replica_state.replica_id >= 0)


def _names_a_transaction_twice(request: Any) -> bool:
    named = [each.transactional_id for each in request.transactions]
    return len(named) != len({*named})


def _names_no_transaction(request: Any) -> bool:
    return not request.transactions and not request.v3_and_below_topics


def _marks_twice(request: Any) -> bool:
    """Whether a partition is to get two markers, or a producer is named twice."""
    named = [
        (topic.name, index) for each in request.markers for topic in each.topics for index in topic.partition_indexes
    ]
    producers = [each.producer_id for each in request.markers]
    return len(named) != len({*named}) or len(producers) != len({*producers})


def _fetches_without_name(request: Any) -> bool:
    return any(not each.topic and each.topic_id == ZERO_UUID for each in request.topics)


def _names_a_protocol_twice(request: Any) -> bool:
    if not isinstance(request, m.JoinGroupRequest):
        return False
    names = [each.name for each in request.protocols]
    return len(names) != len({*names})


def _gives_no_time_to_rebalance(request: Any) -> bool:
    return isinstance(request, m.JoinGroupRequest) and request.rebalance_timeout_ms < 0


def _subscribes_by_pattern(request: Any) -> bool:
    return isinstance(request, m.ConsumerGroupHeartbeatRequest) and bool(request.subscribed_topic_regex)


def _has_several_settings(request: Any) -> bool:
    resources = request.topics if hasattr(request, "topics") else request.resources
    return any(len(each.configs) > 1 for each in resources)


def _has_several_limits(request: Any) -> bool:
    return any(len(each.entity) > 1 or len(each.ops) > 1 for each in request.entries)


def _has_no_cleaner_threads(request: Any) -> bool:
    return any(
        (config.name, config.value) == ("log.cleaner.threads", "0")
        for each in request.resources
        for config in each.configs
    )


def _names_a_topic_without_name(request: Any) -> bool:
    return any(not each.name for each in request.topics)


def _names_a_partition_twice(request: Any) -> bool:
    named = [
        (each.name, each.topic_id, partition.index) for each in request.topic_data for partition in each.partition_data
    ]
    return len(named) != len({*named})


ALLOWED: tuple[Allowed, ...] = (
    Allowed(
        "IncrementalAlterConfigs.responses*",
        "an operation that does not exist fails what it is about, not all there is",
        where=_has_unknown_operation,
        ends=True,
    ),
    Allowed("AlterClientQuotas.entries*", "names of hosts are not looked up", where=_names_a_host, ends=True),
    Allowed(
        "Metadata.topics.error_code", "a topic with neither name nor id is an invalid request", 42, -1, _names_nothing
    ),
    Allowed(
        "OffsetFetch.groups*",
        "a member epoch without a member is the epoch of an unknown member",
        where=_has_epoch_without_member,
    ),
    Allowed(
        "ConsumerGroupHeartbeat.error_code",
        "a member of librdkafka that forgot to join is told to rejoin, instead of a fatal error",
        110,
        42,
        where=_rejoins_unasked,
    ),
    Allowed(
        "ConsumerGroupHeartbeat.error_message",
        "a member of librdkafka that forgot to join is told to rejoin, instead of a fatal error",
        where=_rejoins_unasked,
    ),
    Allowed(
        "JoinGroup",
        "every request is answered, that of a member that asks again or leaves, too",
        kafkas="no answer",
        ends=True,
    ),
    Allowed(
        "SyncGroup",
        "every request is answered, that of a member that asks again or leaves, too",
        kafkas="no answer",
        ends=True,
    ),
    Allowed(
        "JoinGroup*",
        "what members want is not looked at as long as nobody needs it",
        where=_has_members_without_subscription,
        ends=True,
    ),
    *(
        Allowed(path, "a join that is refused leaves no group behind", ours, kafkas, after=_joins, ends=True)
        for path, ours, kafkas in (
            ("ListGroups.groups", ..., ...),
            ("OffsetCommit.topics.partitions.error_code", 69, 25),
            ("OffsetDelete.error_code", 69, 0),
            ("OffsetDelete.topics", [], ...),
            ("DeleteGroups.results.error_code", 69, 0),
            ("DescribeGroups.groups.group_state", "Dead", "Empty"),
            ("DescribeGroups.groups.error_code", 69, 0),
            ("DescribeGroups.groups.error_message", ..., None),
            ("DescribeGroups.groups.authorized_operations", -(2**31), ...),
        )
    ),
    *(
        Allowed(path, "a group that members leave is assigned without a heartbeat", after=_leaves, ends=True)
        for path in (
            "ConsumerGroupDescribe.groups.group_state",
            "ConsumerGroupDescribe.groups.assignment_epoch",
            "ConsumerGroupDescribe.groups.members.*assignment*",
            "ConsumerGroupHeartbeat.assignment*",
            "ListGroups.groups*",
        )
    ),
    Allowed("JoinGroup.protocol_name", "a protocol without a name has no name", "", None, where=_offers_no_name),
    Allowed(
        "AddPartitionsToTxn",
        "a request for no transaction is answered",
        kafkas="no answer",
        where=_names_no_transaction,
    ),
    Allowed(
        "AddPartitionsToTxn*",
        "a transaction that is named twice is answered for with what it was named with last",
        where=_names_a_transaction_twice,
        ends=True,
    ),
    Allowed(
        "WriteTxnMarkers*",
        "a partition that is named twice gets one marker, or each of two; Kafka does not answer",
        where=_marks_twice,
        ends=True,
    ),
    *(
        Allowed(
            path,
            "of several settings that are wrong, Kafka names the first in the order of a hash map",
            where=_has_several_settings,
        )
        for path in ("CreateTopics.topics.error_message", "*AlterConfigs.responses.error_message")
    ),
    Allowed(
        "*AlterConfigs.responses.error_*",
        "that there are no threads for the cleaner is refused in words; Kafka divides by zero",
        where=_has_no_cleaner_threads,
    ),
    Allowed(
        "AlterClientQuotas.entries*",
        "of several parts of an entry that are wrong, Kafka names the first in the order of a hash map",
        where=_has_several_limits,
    ),
    Allowed(
        "DescribeTopicPartitions*",
        "a topic without a name is an invalid topic",
        where=_names_a_topic_without_name,
    ),
    Allowed(
        "DescribeConfigs.results*",
        "a resource of a type that does not exist does not fail the others",
        where=_has_unknown_type,
    ),
    Allowed(
        "AlterConfigs*",
        "Kafka does not answer where a resource is named twice",
        where=_names_a_resource_twice,
        ends=True,
    ),
    Allowed(
        "*AlterConfigs.responses.error_message",
        "how a value is malformed is told in the words of Java's parser",
        where=_is_nonsense_for_addresses,
    ),
    Allowed("Fetch*", "a fetch of a negative number of bytes fails Kafka", where=_fetches_nothing, ends=True),
    Allowed("Fetch*", "what names a partition twice fetches it as it is named first or last", where=_fetches_twice),
    Allowed(
        "Fetch.node_endpoints",
        "a replica that does not exist is told where the leader is, as anybody is",
        where=_is_of_another_replica,
    ),
    Allowed("Fetch*", "each side has its own coordinators' records", where=_reads_internal_topics),
    Allowed("Fetch*", "a topic with neither name nor id fails Kafka", where=_fetches_without_name, ends=True),
    *(
        Allowed(path, "each side has its own coordinators' records", where=_reads_internal_topics)
        for path in ("ListOffsets*", "OffsetForLeaderEpoch*", "DescribeProducers*")
    ),
    *(
        Allowed("JoinGroup*", reason, after=after, ends=True)
        for reason, after in (
            ("a protocol that is named twice counts once", _names_a_protocol_twice),
            ("a member that has no time to rebalance stays for its session", _gives_no_time_to_rebalance),
        )
    ),
    Allowed(
        "ConsumerGroup*epoch",
        "patterns are looked up in each side's own time",
        after=_subscribes_by_pattern,
        ends=True,
    ),
    Allowed(
        "WriteTxnMarkers*",
        "markers of no producer are refused before any is written",
        where=lambda request: any(each.producer_id < 0 or each.producer_epoch < 0 for each in request.markers),
        ends=True,
    ),
    Allowed(
        "UpdateFeatures.error_message",
        "of several updates that are wrong, Kafka names the first in the order of a hash map",
        where=lambda request: len(request.feature_updates) > 1,
    ),
    Allowed(
        "GetTelemetrySubscriptions.delta_temporality",
        "only the newest push is kept, so it has to say it all",
        False,
        True,
    ),
    Allowed(
        "Produce*",
        "batches are not opened without need: what is wrong inside one is not seen",
        where=_has_broken_records,
        ends=True,
    ),
    Allowed(
        "Produce*",
        "nobody writes to the coordinators' topics, whatever it is",
        17,
        87,
        where=_writes_to_internal_topics,
    ),
    Allowed("Produce", "a partition without records is refused", kafkas="no answer", where=_lacks_records, ends=True),
    Allowed(
        "Produce*",
        "before version 7, a codec that does not exist fails the whole request, and here its partition",
        where=_has_unknown_codec,
        ends=True,
    ),
    Allowed(
        "Produce*",
        "of two batches for one partition in one request Kafka writes one and drops the other without a word",
        where=_names_a_partition_twice,
        ends=True,
    ),
)


def allowance(path: str, ours: Any, kafkas: Any, request: Message, earlier: Sequence[Message] = ()) -> Allowed | None:
    for each in ALLOWED:
        if (
            fnmatch.fnmatchcase(path, each.path)
            and each.ours in (..., ours)
            and each.kafkas in (..., kafkas)
            and (each.where is None or each.where(request))
            and (each.after is None or any(each.after(one) for one in earlier))
        ):
            return each
    return None
