"""What a field of a request may be: names and numbers that make sense among those that do not.

A pool is looked up by the path of a field (`JoinGroup.protocols.name`), then by its name (`partition_index`), then by
its type. The first values of a pool are the plainest.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnabas.protocol import messages as m
from barnabas.protocol.codec import encode
from barnabas.protocol.uuids import ZERO_UUID, Uuid
from interop.differential.references import (
    DataFolder,
    Instance,
    MemberEpoch,
    MemberId,
    Name,
    ProducerEpoch,
    ProducerId,
    SessionEpoch,
    SessionId,
    Subscription,
    TopicId,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from interop.differential.chance import Chance

    Pool = Callable[["Chance", "Actor"], Any]


@dataclass(frozen=True, slots=True)
class Actor:
    """Who sends a request, and what about: the fields of one request have to agree to be of use."""

    version: int
    topic: Name
    partition: int
    connection: int
    group: str
    member: int
    producer: int


FIRST_RECORD_MS = 1_790_000_000_000
INT16_MAX, INT32_MAX, INT64_MAX = 2**15 - 1, 2**31 - 1, 2**63 - 1
UNKNOWN_UUID = Uuid(b"nobody knows me.")
TOPICS, GROUPS, PRODUCERS, MEMBERS = ("t0", "t1", "t2"), ("g0", "g1"), ("p0", "p1"), 3
ODD_NAMES = (
    "",
    ".",
    "..",
    "with a blank",
    "é",
    "a" * 249,
    "a" * 250,
    "a/b",
    "__consumer_offsets",
    "__transaction_state",
)
ONE_METRIC = bytes.fromhex("0a170a1512130a110a016d2a0c0a0a31") + (7).to_bytes(8, "little")
BROKER, NO_BROKER = 1, 2


def one_of(*values: Any) -> Pool:
    return lambda chance, _: chance.choice(values)


def mostly(usual: Pool, *odd: Any, one_in: int = 8) -> Pool:
    return lambda chance, actor: chance.choice(odd) if chance.one_in(one_in) else usual(chance, actor)


def topic_name(chance: Chance, actor: Actor) -> Any:
    if not chance.one_in(6):
        return actor.topic
    return Name(chance.choice((*TOPICS, "gone"))) if chance.one_in(2) is False else chance.choice(ODD_NAMES)


def topic_id(chance: Chance, actor: Actor) -> Any:
    if not chance.one_in(6):
        return TopicId(actor.topic)
    return chance.choice((TopicId(Name("t1")), ZERO_UUID, UNKNOWN_UUID, TopicId(Name("gone"))))


def partition(chance: Chance, actor: Actor) -> int:
    return chance.choice((0, 1, 2, 9, -1, INT32_MAX)) if chance.one_in(5) else actor.partition


def group_id(chance: Chance, actor: Actor) -> Any:
    return Name(actor.group) if not chance.one_in(10) else chance.choice((Name("g1"), Name("gone"), ""))


def member_id(chance: Chance, actor: Actor) -> Any:
    if not chance.one_in(8):
        return MemberId(actor.group, actor.member)
    return chance.choice(("", "nobody", MemberId(actor.group, 0), MemberId(actor.group, 1)))


def member_epoch(chance: Chance, actor: Actor) -> Any:
    if not chance.one_in(6):
        return MemberEpoch(actor.group, actor.member)
    return chance.choice(
        (MemberEpoch(actor.group, actor.member, 1), MemberEpoch(actor.group, actor.member, -1), -1, 0, -2, 7, INT32_MAX)
    )


def instance_id(chance: Chance, actor: Actor) -> str | None:
    """Static members have one by their number, so that two requests of one member agree."""
    usual = "i2" if actor.member == MEMBERS - 1 else None
    return usual if not chance.one_in(12) else chance.choice((None, "i2", "i1", ""))


def transactional_id(chance: Chance, actor: Actor) -> Any:
    usual = Name(f"p{actor.producer}")
    return usual if not chance.one_in(8) else chance.choice((Name("p1"), Name("gone"), ""))


def producer_id(chance: Chance, actor: Actor) -> Any:
    usual = ProducerId(actor.producer)
    return usual if not chance.one_in(8) else chance.choice((ProducerId(1), -1, 4_000_000_000, -2))


def producer_epoch(chance: Chance, actor: Actor) -> Any:
    usual = ProducerEpoch(actor.producer)
    if not chance.one_in(6):
        return usual
    return chance.choice((ProducerEpoch(actor.producer, 1), ProducerEpoch(actor.producer, -1), -1, 0, 5, INT16_MAX, -2))


def init_producer_id(chance: Chance, actor: Actor) -> Any:
    return -1 if not chance.one_in(3) else producer_id(chance, actor)


def init_producer_epoch(chance: Chance, actor: Actor) -> Any:
    return -1 if not chance.one_in(3) else producer_epoch(chance, actor)


def maybe_transactional_id(chance: Chance, actor: Actor) -> Any:
    return None if chance.one_in(6) else transactional_id(chance, actor)


def subscription(chance: Chance, actor: Actor) -> bytes:
    names = chance.choice(((), ("t",), ("t", "u")))
    right = b"\x00\x00" + encode(m.ConsumerProtocolSubscription(topics=list(names)), 0)
    return right if not chance.one_in(5) else chance.choice((b"", b"\x00", b"metadata"))


TOPIC_CONFIGS = (
    ("retention.ms", "1000000000000"),
    ("cleanup.policy", "compact"),
    ("cleanup.policy", "compact,delete"),
    ("cleanup.policy", "delete"),
    ("cleanup.policy", ""),
    ("compression.type", "gzip"),
    ("compression.type", "producer"),
    ("compression.type", "none"),
    ("compression.type", "lz"),
    ("max.message.bytes", "200"),
    ("max.message.bytes", "-1"),
    ("max.message.bytes", "many"),
    ("message.timestamp.type", "LogAppendTime"),
    ("message.timestamp.type", "Never"),
    ("min.insync.replicas", "1"),
    ("min.insync.replicas", "2"),
    ("min.insync.replicas", "0"),
    ("segment.bytes", "1048576"),
    ("segment.bytes", "1"),
    ("segment.ms", "0"),
    ("min.cleanable.dirty.ratio", "0.9"),
    ("min.cleanable.dirty.ratio", "1.1"),
    ("unclean.leader.election.enable", "true"),
    ("unclean.leader.election.enable", "maybe"),
    ("preallocate", "TRUE"),
    ("local.retention.ms", "-2"),
    ("local.retention.ms", "5"),
    ("local.retention.bytes", "-3"),
    ("remote.storage.enable", "true"),
    ("leader.replication.throttled.replicas", "*"),
    ("leader.replication.throttled.replicas", "0:1,1:1"),
    ("leader.replication.throttled.replicas", "nonsense"),
    ("message.timestamp.before.max.ms", "-1"),
    ("message.timestamp.after.max.ms", "60000"),
    ("flush.messages", "1"),
    ("file.delete.delay.ms", "100"),
    ("retention.ms", "-2"),
    ("retention.ms", " 5 "),
    ("retention.ms", "9223372036854775808"),
    ("no.such.setting", "1"),
    ("", ""),
)
BROKER_CONFIGS = (
    ("log.retention.ms", "1000000000000"),
    ("log.cleaner.threads", "1"),
    ("log.cleaner.threads", "0"),
    ("num.network.threads", "3"),
    ("num.io.threads", "100"),
    ("message.max.bytes", "1048576"),
    ("message.max.bytes", "-1"),
    ("max.connections", "1000"),
    ("max.connections.per.ip", "500"),
    ("max.connections.per.ip.overrides", "127.0.0.1:400"),
    ("max.connections.per.ip.overrides", "nonsense"),
    ("compression.type", "lz"),
    ("log.segment.bytes", "5"),
    ("min.insync.replicas", "1"),
    ("unclean.leader.election.enable", "maybe"),
    ("leader.replication.throttled.rate", "1000000"),
    ("follower.replication.throttled.rate", "-5"),
    ("background.threads", "10"),
    ("log.dirs", "/nowhere"),
    ("node.id", "7"),
    ("process.roles", "broker"),
    ("auto.create.topics.enable", "false"),
    ("no.such.setting", "1"),
    ("", "1"),
)
GROUP_CONFIGS = (
    ("consumer.session.timeout.ms", "46000"),
    ("consumer.session.timeout.ms", "1"),
    ("consumer.session.timeout.ms", "100000000"),
    ("consumer.heartbeat.interval.ms", "5000"),
    ("consumer.heartbeat.interval.ms", "soon"),
    ("consumer.assignment.interval.ms", "0"),
    ("share.session.timeout.ms", "46000"),
    ("share.auto.offset.reset", "earliest"),
    ("share.auto.offset.reset", "sometimes"),
    ("streams.num.standby.replicas", "1"),
    ("no.such.setting", "1"),
)
CLIENT_METRICS_CONFIGS = (
    ("interval.ms", "60000"),
    ("interval.ms", "1"),
    ("metrics", "org.apache.kafka.producer."),
    ("metrics", ""),
    ("match", "client_id=wire.*"),
    ("match", "client_software_name"),
    ("match", "client_id=("),
    ("no.such.setting", "1"),
)
UNKNOWN, TOPIC, BROKER_RESOURCE, BROKER_LOGGER, CLIENT_METRICS, GROUP = 0, 2, 4, 8, 16, 32
CONFIGS_OF = {
    TOPIC: TOPIC_CONFIGS,
    BROKER_RESOURCE: BROKER_CONFIGS,
    GROUP: GROUP_CONFIGS,
    CLIENT_METRICS: CLIENT_METRICS_CONFIGS,
}
QUOTA_KEYS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
    "no_such_quota",
    "",
)
FEATURES = (
    "metadata.version",
    "group.version",
    "transaction.version",
    "share.version",
    "streams.version",
    "eligible.leader.replicas.version",
    "kraft.version",
    "no.such.feature",
    "",
)

SESSION_TIMEOUT_MS, REBALANCE_TIMEOUT_MS = 120_000, 120_000
"""So long that no member is missed while a sequence runs."""

POOLS: dict[str, Pool] = {
    # names that many messages have
    "topic_id": topic_id,
    "topic": topic_name,
    "topic_name": topic_name,
    "topic_names": topic_name,
    "partition": partition,
    "partition_index": partition,
    "partition_indexes": partition,
    "partition_id": partition,
    "partitions": partition,
    "index": partition,
    "group_id": group_id,
    "group_ids": group_id,
    "groups_names": group_id,
    "member_id": member_id,
    "member_epoch": member_epoch,
    "generation_id": member_epoch,
    "generation_id_or_member_epoch": member_epoch,
    "group_instance_id": instance_id,
    "instance_id": instance_id,
    "transactional_id": transactional_id,
    "transactional_ids": transactional_id,
    "v3_and_below_transactional_id": transactional_id,
    "producer_id": producer_id,
    "v3_and_below_producer_id": producer_id,
    "producer_epoch": producer_epoch,
    "v3_and_below_producer_epoch": producer_epoch,
    "timeout_ms": mostly(one_of(30_000), 1_000, INT32_MAX),
    "current_leader_epoch": one_of(-1, -1, -1, 0, 0, 1, 5, -2),
    "committed_offset": one_of(1, 0, 5, 100, -1, -2, INT64_MAX),
    "committed_leader_epoch": one_of(-1, 0, 3, -2, INT32_MAX),
    "committed_metadata": one_of("", None, "metadata", "é" * 10, "x" * 4096, "x" * 4097),
    "rack_id": one_of("", "", "rack"),
    "isolation_level": one_of(0, 0, 0, 1, 1, 1, 2, -1),
    "reason": one_of(None, "because", "", "r" * 300),
    "validate_only": one_of(False, False, False, True),
    "broker_ids": mostly(one_of(BROKER), NO_BROKER, -1, one_in=6),
    "replicas": mostly(one_of(BROKER), NO_BROKER, -1, one_in=4),
    "name": topic_name,
    # of single messages
    "Produce.transactional_id": one_of(None),
    "Produce.acks": one_of(-1, -1, -1, 1, 1, 0, 2, -2),
    "Fetch.replica_id": mostly(one_of(-1), 1, 2, -2, one_in=20),
    "Fetch.replica_state.replica_id": mostly(one_of(-1), 1, 2, -2, one_in=20),
    "Fetch.replica_state.replica_epoch": one_of(-1, -1, 0, 5),
    "Fetch.cluster_id": mostly(one_of(None), "another", "", one_in=20),
    "Fetch.max_wait_ms": one_of(0, 0, 0, -1),
    "Fetch.min_bytes": one_of(0, 1, 1, 100, -1),
    "Fetch.max_bytes": one_of(INT32_MAX, 50_000_000, 100, 1, 0, -1),
    "Fetch.session_id": lambda chance, actor: (
        mostly(one_of(SessionId(actor.connection)), 0, 5, -1)(chance, actor) if chance.one_in(2) else 0
    ),
    "Fetch.session_epoch": lambda chance, actor: chance.choice(
        (
            -1,
            -1,
            0,
            SessionEpoch(actor.connection),
            SessionEpoch(actor.connection),
            SessionEpoch(actor.connection, 1),
            -2,
        )
    ),
    "Fetch.topics.partitions.fetch_offset": one_of(0, 0, 0, 1, 2, 3, 5, 100, -1, INT64_MAX),
    "Fetch.topics.partitions.last_fetched_epoch": one_of(-1, -1, -1, 0, 1, 7),
    "Fetch.topics.partitions.log_start_offset": one_of(-1, -1, 0, 3),
    "Fetch.topics.partitions.partition_max_bytes": one_of(1_048_576, 1_048_576, 100, 1, 0, -1),
    "Fetch.topics.partitions.high_watermark": one_of(INT64_MAX, 0, -1),
    "ListOffsets.replica_id": mostly(one_of(-1), -2, 1, 2, one_in=12),
    "ListOffsets.topics.partitions.timestamp": one_of(
        -1, -2, -3, -4, -5, -6, -7, 0, FIRST_RECORD_MS, FIRST_RECORD_MS + 60_000, FIRST_RECORD_MS + 60_001, INT64_MAX
    ),
    "OffsetForLeaderEpoch.replica_id": mostly(one_of(-1), -2, 1, 2, one_in=8),
    "OffsetForLeaderEpoch.topics.partitions.leader_epoch": one_of(0, 0, 1, 5, -1, -2, INT32_MAX),
    "DeleteRecords.topics.partitions.offset": one_of(1, 0, 2, 3, -1, 100, -2, INT64_MAX),
    "OffsetCommit.retention_time_ms": one_of(-1, 0, 5),
    "FindCoordinator.key": mostly(group_id, f"{'A' * 22}:x:0", "a:b"),
    "FindCoordinator.coordinator_keys": mostly(group_id, f"{'A' * 22}:x:0", "a:b"),
    "FindCoordinator.key_type": one_of(0, 0, 0, 1, 1, 2, 3, -1),
    "OffsetFetch.groups.member_id": lambda chance, actor: None if not chance.one_in(3) else member_id(chance, actor),
    "OffsetFetch.groups.member_epoch": lambda chance, actor: (
        -1 if not chance.one_in(3) else member_epoch(chance, actor)
    ),
    "JoinGroup.session_timeout_ms": mostly(one_of(SESSION_TIMEOUT_MS), 0, -1, 5_999, INT32_MAX, one_in=15),
    "JoinGroup.rebalance_timeout_ms": mostly(one_of(REBALANCE_TIMEOUT_MS), -1, one_in=20),
    "JoinGroup.protocol_type": mostly(one_of("consumer"), "", "connect", one_in=15),
    "JoinGroup.protocols.name": one_of("range", "range", "range", "roundrobin", ""),
    "JoinGroup.protocols.metadata": subscription,
    "SyncGroup.protocol_type": mostly(one_of("consumer"), None, "connect", "", one_in=10),
    "SyncGroup.protocol_name": mostly(one_of("range"), None, "roundrobin", "", one_in=10),
    "SyncGroup.assignments.assignment": one_of(b"", b"assignment", b"\x00\x00\x00\x00\x00\x00"),
    "DescribeGroups.groups": group_id,
    "ListGroups.states_filter": one_of("Stable", "Empty", "stable", "PreparingRebalance", "Assigning", "Nowhere", ""),
    "ListGroups.types_filter": one_of("classic", "consumer", "Consumer", "share", "none", ""),
    "ApiVersions.client_software_name": one_of("differential", "a", "", "-", "with blank", "a.b-c"),
    "ApiVersions.client_software_version": one_of("1.0", "", "?"),
    "CreateTopics.topics.num_partitions": one_of(1, 2, 3, 1, -1, 0, -2),
    "CreateTopics.topics.replication_factor": mostly(one_of(1, 1, -1), 0, 2, -2, INT16_MAX, one_in=6),
    "CreateTopics.topics.assignments.partition_index": one_of(0, 1, 2, 0, 5, -1),
    "CreateTopics.topics.configs.name": lambda chance, _: chance.choice(TOPIC_CONFIGS)[0],
    "CreateTopics.topics.configs.value": lambda chance, _: chance.choice(TOPIC_CONFIGS)[1],
    "DeleteTopics.topics.topic_id": lambda chance, actor: (
        ZERO_UUID if chance.below(2) == 0 else topic_id(chance, actor)
    ),
    "CreatePartitions.topics.count": one_of(2, 3, 4, 1, 0, -1),
    "InitProducerId.transactional_id": maybe_transactional_id,
    "InitProducerId.transaction_timeout_ms": mostly(one_of(600_000), 0, -1, 900_001, INT32_MAX, one_in=10),
    "InitProducerId.producer_id": init_producer_id,
    "InitProducerId.producer_epoch": init_producer_epoch,
    "WriteTxnMarkers.markers.coordinator_epoch": one_of(0, 0, 1, 5, -1),
    "WriteTxnMarkers.markers.transaction_version": one_of(0, 1, 2, 3, -1),
    "ListTransactions.state_filters": one_of("Ongoing", "Empty", "CompleteCommit", "CompleteAbort", "Nowhere", ""),
    "ListTransactions.producer_id_filters": lambda chance, actor: producer_id(chance, actor),
    "ListTransactions.duration_filter": one_of(-1, 0, 1_000_000, -2),
    "ListTransactions.transactional_id_pattern": one_of(None, "", ".*p0", "(", "p", ".*"),
    "ConsumerGroupHeartbeat.rebalance_timeout_ms": one_of(-1),
    "ConsumerGroupHeartbeat.subscribed_topic_names": topic_name,
    "ConsumerGroupHeartbeat.subscribed_topic_regex": one_of(None, None, None, "", "(", "nothing-.*"),
    "ConsumerGroupHeartbeat.server_assignor": one_of(None, None, "uniform", "range", "no such assignor", ""),
    "AlterReplicaLogDirs.dirs.path": mostly(one_of(DataFolder()), "/nowhere", "", "relative", one_in=4),
    "ElectLeaders.election_type": one_of(0, 0, 1, 2, -1),
    "DescribeClientQuotas.components.entity_type": one_of("user", "client-id", "ip", "", "group"),
    "DescribeClientQuotas.components.match_type": one_of(0, 1, 2, 3, -1),
    "DescribeClientQuotas.components.match": one_of("u", None, "127.0.0.1", ""),
    "AlterClientQuotas.entries.entity.entity_type": one_of("user", "client-id", "ip", "", "group"),
    "AlterClientQuotas.entries.entity.entity_name": one_of("u", None, "127.0.0.1", "", "v"),
    "AlterClientQuotas.entries.ops.key": one_of(*QUOTA_KEYS),
    "AlterClientQuotas.entries.ops.value": one_of(1000.0, 1e12, 0.5, 0.0, -1.0, float("inf"), float("nan")),
    "DescribeQuorum.topics.topic_name": mostly(one_of("__cluster_metadata"), "elsewhere", "", one_in=5),
    "UpdateFeatures.feature_updates.feature": one_of(*FEATURES),
    "UpdateFeatures.feature_updates.max_version_level": one_of(1, 2, 0, 30, 29, 31, 7, 3, -1),
    "UpdateFeatures.feature_updates.upgrade_type": one_of(1, 2, 3, 0, 4),
    "UnregisterBroker.broker_id": one_of(NO_BROKER, -1, INT32_MAX),
    "DescribeCluster.endpoint_type": one_of(1, 1, 1, 2, 3, 0),
    "DescribeTransactions.transactional_ids": transactional_id,
    "DescribeConfigs.resources.configuration_keys": lambda chance, _: chance.choice(
        (*TOPIC_CONFIGS, *BROKER_CONFIGS, *GROUP_CONFIGS, *CLIENT_METRICS_CONFIGS)
    )[0],
    "ListConfigResources.resource_types": one_of(
        TOPIC, BROKER_RESOURCE, GROUP, CLIENT_METRICS, BROKER_LOGGER, UNKNOWN, 3
    ),
    "GetTelemetrySubscriptions.client_instance_id": one_of(ZERO_UUID, Instance(), UNKNOWN_UUID),
    "PushTelemetry.client_instance_id": one_of(Instance(), Instance(), ZERO_UUID, UNKNOWN_UUID),
    "PushTelemetry.subscription_id": one_of(Subscription(), Subscription(), Subscription(1)),
    "PushTelemetry.compression_type": one_of(0, 0, 1, 5, -1),
    "PushTelemetry.metrics": one_of(ONE_METRIC, b"", gzip.compress(ONE_METRIC, mtime=0), b"no metrics"),
    "DescribeTopicPartitions.response_partition_limit": one_of(2000, 1, 2, 0, -1),
    "DescribeTopicPartitions.cursor.partition_index": one_of(0, 1, 5, -1),
}

TYPES: dict[str, Sequence[Any]] = {
    "bool": (False, True),
    "int8": (0, 1, -1, 127),
    "int16": (0, 1, -1, INT16_MAX),
    "int32": (0, 1, -1, INT32_MAX),
    "int64": (0, 1, -1, INT64_MAX),
    "float64": (0.0, 1.0),
    "string": ("", "a"),
    "bytes": (b"", b"bytes"),
    "uuid": (ZERO_UUID, UNKNOWN_UUID),
}


def pool(path: str, type_name: str) -> Pool:
    found = POOLS.get(path) or POOLS.get(path.rpartition(".")[2])
    return found or one_of(*TYPES[type_name])
