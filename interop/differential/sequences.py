"""Sequences of requests about one theme each, so that they meet the state that earlier ones have made.

A sequence begins with plain requests that make something to work on: topics with records, members of a group, a
producer with a transaction. Each of them may be missing. What follows is drawn from the APIs of the theme, in any of
their versions.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from barnabas.broker.api import registry
from barnabas.protocol import messages as m
from barnabas.protocol.api import APIS, ApiKey
from interop.differential.chance import Chance
from interop.differential.pools import REBALANCE_TIMEOUT_MS, SESSION_TIMEOUT_MS
from interop.differential.references import (
    MemberEpoch,
    MemberId,
    Name,
    Owned,
    ProducerEpoch,
    ProducerId,
    Records,
    Reference,
    Step,
)
from interop.differential.requests import TRANSACTIONAL, step

STEPS_MAX = 24
LATEST_IN = 3
"""One in so many requests is of the latest version; the others are of any."""

A = ApiKey
DATA = (
    (A.PRODUCE,) * 8
    + (A.FETCH,) * 8
    + (A.LIST_OFFSETS,) * 5
    + (A.DELETE_RECORDS,) * 2
    + (A.OFFSET_FOR_LEADER_EPOCH, A.OFFSET_FOR_LEADER_EPOCH, A.METADATA, A.METADATA, A.INIT_PRODUCER_ID)
    + (A.DESCRIBE_PRODUCERS, A.DESCRIBE_TOPIC_PARTITIONS, A.CREATE_PARTITIONS, A.DESCRIBE_LOG_DIRS, A.DELETE_TOPICS)
    + (A.ELECT_LEADERS, A.INCREMENTAL_ALTER_CONFIGS)
)
TOPICS_AND_CONFIGS = (
    (A.CREATE_TOPICS,) * 6
    + (A.DELETE_TOPICS,) * 3
    + (A.METADATA,) * 6
    + (A.CREATE_PARTITIONS,) * 3
    + (A.DESCRIBE_CONFIGS,) * 3
    + (A.ALTER_CONFIGS,) * 3
    + (A.INCREMENTAL_ALTER_CONFIGS,) * 4
    + (A.DESCRIBE_TOPIC_PARTITIONS, A.DESCRIBE_TOPIC_PARTITIONS, A.LIST_CONFIG_RESOURCES, A.LIST_CONFIG_RESOURCES)
)
CLUSTER = (
    (A.API_VERSIONS,) * 3
    + (A.DESCRIBE_CLUSTER, A.DESCRIBE_CLUSTER, A.DESCRIBE_QUORUM, A.DESCRIBE_QUORUM, A.ELECT_LEADERS, A.ELECT_LEADERS)
    + (A.ALTER_PARTITION_REASSIGNMENTS,) * 3
    + (A.LIST_PARTITION_REASSIGNMENTS, A.DESCRIBE_LOG_DIRS, A.DESCRIBE_LOG_DIRS, A.ALTER_REPLICA_LOG_DIRS)
    + (A.ALTER_REPLICA_LOG_DIRS, A.UNREGISTER_BROKER, A.UPDATE_FEATURES, A.UPDATE_FEATURES)
    + (A.DESCRIBE_CLIENT_QUOTAS,) * 3
    + (A.ALTER_CLIENT_QUOTAS,) * 4
)
CLASSIC_GROUPS = (
    (A.JOIN_GROUP,) * 9
    + (A.SYNC_GROUP,) * 6
    + (A.HEARTBEAT,) * 5
    + (A.LEAVE_GROUP,) * 4
    + (A.OFFSET_COMMIT,) * 7
    + (A.OFFSET_FETCH,) * 6
    + (A.DESCRIBE_GROUPS,) * 4
    + (A.LIST_GROUPS,) * 2
    + (A.OFFSET_DELETE, A.OFFSET_DELETE, A.DELETE_GROUPS, A.DELETE_GROUPS, A.FIND_COORDINATOR, A.FIND_COORDINATOR)
    + (A.DELETE_TOPICS, A.TXN_OFFSET_COMMIT)
)
CONSUMER_GROUPS = (
    (A.CONSUMER_GROUP_HEARTBEAT,) * 12
    + (A.CONSUMER_GROUP_DESCRIBE,) * 3
    + (A.OFFSET_COMMIT, A.OFFSET_COMMIT, A.OFFSET_FETCH, A.OFFSET_FETCH, A.LIST_GROUPS, A.DESCRIBE_GROUPS)
    + (A.SHARE_GROUP_DESCRIBE, A.STREAMS_GROUP_DESCRIBE, A.DELETE_GROUPS, A.OFFSET_DELETE, A.JOIN_GROUP)
    + (A.CREATE_PARTITIONS, A.DELETE_TOPICS, A.INCREMENTAL_ALTER_CONFIGS, A.HEARTBEAT, A.LEAVE_GROUP, A.SYNC_GROUP)
)
TRANSACTIONS = (
    (A.INIT_PRODUCER_ID,) * 6
    + (A.ADD_PARTITIONS_TO_TXN,) * 6
    + (A.ADD_OFFSETS_TO_TXN,) * 4
    + (A.TXN_OFFSET_COMMIT,) * 5
    + (A.END_TXN,) * 6
    + (A.PRODUCE,) * 6
    + (A.FETCH,) * 4
    + (A.LIST_OFFSETS,) * 2
    + (A.DESCRIBE_TRANSACTIONS,) * 3
    + (A.LIST_TRANSACTIONS,) * 3
    + (A.DESCRIBE_PRODUCERS,) * 2
    + (A.WRITE_TXN_MARKERS,) * 2
    + (A.FIND_COORDINATOR, A.OFFSET_FETCH, A.OFFSET_FETCH)
)


T0: Any = Name("t0")
G0: Any = Name("g0")
P0: Any = Name("p0")


def _reference(reference: Reference) -> Any:
    """Requests do not know that there can be references in the places of values."""
    return reference


def _create(topic: str, partitions: int) -> Step:
    new = m.CreateTopicsRequest.CreatableTopic(
        name=_reference(Name(topic)), num_partitions=partitions, replication_factor=1
    )
    return Step(m.CreateTopicsRequest(topics=[new], timeout_ms=30_000), 7)


def _write(values: int, minutes: int = 0) -> Step:
    records: Any = Records(T0, 0, values=values, minutes=minutes, key=b"k")
    data = m.ProduceRequest.PartitionProduceData(index=0, records=records)
    topic = m.ProduceRequest.TopicProduceData(name=T0, partition_data=[data])
    return Step(m.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]), 12)


def _join(member: int, version: int = 9, connection: int | None = None) -> Step:
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    request = m.JoinGroupRequest(
        group_id=G0,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
        member_id=_reference(MemberId("g0", member)),
        protocol_type="consumer",
        protocols=[protocol],
    )
    return Step(request, version, member if connection is None else connection, "g0", member)


def _sync(member: int) -> Step:
    given = m.SyncGroupRequest.SyncGroupRequestAssignment
    request = m.SyncGroupRequest(
        group_id=G0,
        generation_id=_reference(MemberEpoch("g0", member)),
        member_id=_reference(MemberId("g0", member)),
        protocol_type="consumer",
        protocol_name="range",
        assignments=[given(member_id=_reference(MemberId("g0", each)), assignment=b"some") for each in range(2)],
    )
    return Step(request, 5, member, "g0", member)


def _commit_offset() -> Step:
    request = m.OffsetCommitRequest
    partition = request.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    topic = request.OffsetCommitRequestTopic(name=T0, partitions=[partition])
    return Step(request(group_id=G0, topics=[topic]), 9)


def _enter(member: int) -> Step:
    request = m.ConsumerGroupHeartbeatRequest(
        group_id=G0,
        member_id=_reference(MemberId("g0", member, f"m{member}")),
        member_epoch=0,
        rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
        subscribed_topic_names=[T0],
        topic_partitions=[],
    )
    return Step(request, 1, 0, "g0", member)


def _own(member: int) -> Step:
    request = m.ConsumerGroupHeartbeatRequest(
        group_id=G0,
        member_id=_reference(MemberId("g0", member, f"m{member}")),
        member_epoch=_reference(MemberEpoch("g0", member)),
        topic_partitions=_reference(Owned("g0", member)),
    )
    return Step(request, 1, 0, "g0", member)


def _init(producer: int) -> Step:
    request = m.InitProducerIdRequest(transactional_id=_reference(Name(f"p{producer}")), transaction_timeout_ms=600_000)
    return Step(request, 5, producer=producer)


def _init_idempotent(producer: int) -> Step:
    return Step(m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 5, producer=producer)


def _add_partition() -> Step:
    topic = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=T0, partitions=[0])
    request = m.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=P0,
        v3_and_below_producer_id=_reference(ProducerId(0)),
        v3_and_below_producer_epoch=_reference(ProducerEpoch(0)),
        v3_and_below_topics=[topic],
    )
    return Step(request, 3)


def _write_in_transaction() -> Step:
    records: Any = Records(T0, 0, producer=0, attributes=TRANSACTIONAL, key=b"k")
    data = m.ProduceRequest.PartitionProduceData(index=0, records=records)
    topic = m.ProduceRequest.TopicProduceData(name=T0, partition_data=[data])
    return Step(m.ProduceRequest(transactional_id=P0, acks=-1, timeout_ms=30_000, topic_data=[topic]), 11)


THEMES: tuple[tuple[tuple[ApiKey, ...], tuple[Step, ...]], ...] = (
    (DATA, (_create("t0", 2), _create("t1", 1), _write(3), _write(1, minutes=1), _init_idempotent(0))),
    (TOPICS_AND_CONFIGS, (_create("t0", 2),)),
    (
        CLASSIC_GROUPS,
        (
            _create("t0", 2),
            _join(0),
            _join(0),
            _sync(0),
            _commit_offset(),
            _join(1),
            _join(1),
            _join(0),
            _sync(0),
            _sync(1),
        ),
    ),
    (CONSUMER_GROUPS, (_create("t0", 3), _enter(0), _own(0), _enter(1), _own(0), _own(1))),
    (TRANSACTIONS, (_create("t0", 2), _init(0), _add_partition(), _write_in_transaction())),
    (CLUSTER, (_create("t0", 2),)),
)


registry.register_all()
SERVED = tuple(sorted(ApiKey(key) for key in registry.ROUTES))
"""The APIs that a node lists."""
LISTED = tuple((key, version) for key in SERVED for version in range(APIS[key].min_version, APIS[key].max_version + 1))
"""Each of them in each version."""


@st.composite
def sequences(draw: st.DrawFn, focus: tuple[ApiKey, int]) -> list[Step]:
    """Sequences that have at least one request of an API and version, in a theme to which the API belongs."""
    chance = Chance(draw)
    api, version = focus
    apis, prelude = chance.choice([theme for theme in THEMES if api in theme[0]] or THEMES)
    steps = [each for each in prelude if chance.below(8)]
    for _ in range(chance.below(STEPS_MAX)):
        drawn = chance.choice(apis) if chance.below(12) else chance.choice(SERVED)
        steps.append(step(chance, drawn, _version(chance, drawn)))
    for _ in range(chance.choice((1, 1, 2))):
        steps.insert(len(steps) - chance.below(4), step(chance, api, version))
    return steps


def _version(chance: Chance, api: ApiKey) -> int:
    known = APIS[api]
    if chance.below(LATEST_IN) == 0:
        return known.max_version
    return known.max_version - chance.below(known.max_version - known.min_version + 1)
