"""Sequences of metadata records that fit together, for tests of what any log could say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from barnabas.metadata.image import ResourceType
from barnabas.metadata.versions import SUPPORTED_FEATURES
from barnabas.protocol import messages as m
from barnabas.protocol.uuids import Uuid

if TYPE_CHECKING:
    from barnabas.protocol.compiler.structs import Message

IDS = st.integers(0, 5)
NAMES = st.sampled_from(["a", "b", "c", "d.e", "d_e"])
UUIDS = st.integers(100, 130).map(lambda number: Uuid(number.to_bytes(16, "big")))
TEXTS = st.text(max_size=5)
BROKER_SETS = st.lists(IDS, max_size=4, unique=True)


class History:
    """Records so far, and enough of what they say to draw the next one."""

    def __init__(self) -> None:
        self.records: list[Message] = []
        self.brokers: dict[int, int] = {}
        self.topics: dict[str, Uuid] = {}
        self.partition_counts: dict[Uuid, int] = {}
        self.acls: set[Uuid] = set()
        self.users: set[tuple[int, str]] = set()
        self.tokens: set[str] = set()
        self.next_producer_id = 0


@st.composite
def histories(draw: st.DrawFn, max_size: int = 30) -> list[Message]:
    history = History()
    for _ in range(draw(st.integers(0, max_size))):
        step = draw(st.sampled_from(STEPS))
        record = step(draw, history)
        if record is not None:
            history.records.append(record)
    return history.records


def register_broker(draw: st.DrawFn, history: History) -> Message:
    broker_id = draw(IDS)
    history.brokers[broker_id] = len(history.records)
    endpoint, feature = m.RegisterBrokerRecord.BrokerEndpoint, m.RegisterBrokerRecord.BrokerFeature
    return m.RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=draw(UUIDS),
        broker_epoch=len(history.records),
        end_points=[endpoint(name="PLAINTEXT", host=draw(TEXTS), port=draw(st.integers(0, 65535)))],
        features=[feature(name="metadata.version", min_supported_version=7, max_supported_version=30)],
        rack=draw(st.none() | TEXTS),
        fenced=draw(st.booleans()),
        in_controlled_shutdown=draw(st.booleans()),
        log_dirs=draw(st.lists(UUIDS, max_size=2, unique=True)),
        cordoned_log_dirs=draw(st.none() | st.lists(UUIDS, max_size=2)),
    )


def change_broker(draw: st.DrawFn, history: History) -> Message | None:
    if not history.brokers:
        return None
    broker_id, epoch = draw(st.sampled_from(sorted(history.brokers.items())))
    kind = draw(st.integers(0, 3))
    if kind == 0:
        del history.brokers[broker_id]
        return m.UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch)
    if kind == 1:
        return m.FenceBrokerRecord(id=broker_id, epoch=epoch)
    if kind == 2:
        return m.UnfenceBrokerRecord(id=broker_id, epoch=epoch)
    return m.BrokerRegistrationChangeRecord(
        broker_id=broker_id,
        broker_epoch=epoch,
        fenced=draw(st.sampled_from([-1, 0, 1])),
        in_controlled_shutdown=draw(st.sampled_from([0, 1])),
        log_dirs=draw(st.lists(UUIDS, max_size=2)),
        cordoned_log_dirs=draw(st.none() | st.lists(UUIDS, max_size=2)),
    )


def register_controller(draw: st.DrawFn, _history: History) -> Message:
    endpoint = m.RegisterControllerRecord.ControllerEndpoint
    return m.RegisterControllerRecord(
        controller_id=draw(IDS), incarnation_id=draw(UUIDS), end_points=[endpoint(name="CONTROLLER", host=draw(TEXTS))]
    )


def topic(draw: st.DrawFn, history: History) -> Message | None:
    name, topic_id = draw(NAMES), draw(UUIDS)
    if name in history.topics or topic_id in history.partition_counts:
        return None
    history.topics[name] = topic_id
    history.partition_counts[topic_id] = 0
    return m.TopicRecord(name=name, topic_id=topic_id)


def remove_topic(draw: st.DrawFn, history: History) -> Message | None:
    if not history.topics:
        return None
    name = draw(st.sampled_from(sorted(history.topics)))
    topic_id = history.topics.pop(name)
    del history.partition_counts[topic_id]
    return m.RemoveTopicRecord(topic_id=topic_id)


def partition(draw: st.DrawFn, history: History) -> Message | None:
    if not history.topics:
        return None
    topic_id = draw(st.sampled_from(sorted(history.topics.values())))
    replicas = draw(st.lists(IDS, min_size=1, max_size=3, unique=True))
    number = history.partition_counts[topic_id]
    history.partition_counts[topic_id] += 1
    return m.PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=replicas,
        isr=replicas[:1],
        removing_replicas=draw(BROKER_SETS),
        adding_replicas=draw(BROKER_SETS),
        leader=replicas[0],
        leader_recovery_state=draw(st.sampled_from([0, 1])),
        leader_epoch=draw(st.integers(0, 9)),
        partition_epoch=draw(st.integers(0, 9)),
        directories=[draw(UUIDS) for _ in replicas],
        eligible_leader_replicas=draw(st.none() | BROKER_SETS),
        last_known_elr=draw(st.none() | BROKER_SETS),
    )


def change_partition(draw: st.DrawFn, history: History) -> Message | None:
    grown = sorted(topic_id for topic_id, count in history.partition_counts.items() if count)
    if not grown:
        return None
    topic_id = draw(st.sampled_from(grown))
    return m.PartitionChangeRecord(
        partition_id=draw(st.integers(0, history.partition_counts[topic_id] - 1)),
        topic_id=topic_id,
        isr=draw(st.none() | BROKER_SETS),
        leader=draw(st.integers(-2, 5)),
        removing_replicas=draw(st.none() | BROKER_SETS),
        leader_recovery_state=draw(st.sampled_from([-1, 0, 1])),
        eligible_leader_replicas=draw(st.none() | BROKER_SETS),
        last_known_elr=draw(st.none() | BROKER_SETS),
    )


def clear_elr(draw: st.DrawFn, history: History) -> Message:
    return m.ClearElrRecord(topic_name=draw(st.sampled_from(["", *sorted(history.topics)])))


def config(draw: st.DrawFn, _history: History) -> Message:
    return m.ConfigRecord(
        resource_type=draw(st.sampled_from(list(ResourceType))),
        resource_name=draw(NAMES | st.just("")),
        name=draw(st.sampled_from(["x", "y"])),
        value=draw(st.none() | TEXTS),
    )


def feature_level(draw: st.DrawFn, _history: History) -> Message:
    name = draw(st.sampled_from(sorted(SUPPORTED_FEATURES.keys() - {"metadata.version"})))
    return m.FeatureLevelRecord(name=name, feature_level=draw(st.integers(0, SUPPORTED_FEATURES[name].highest)))


def client_quota(draw: st.DrawFn, _history: History) -> Message:
    kinds = draw(st.lists(st.sampled_from(["user", "client-id", "ip"]), min_size=1, unique=True))
    entity = m.ClientQuotaRecord.EntityData
    return m.ClientQuotaRecord(
        entity=[entity(entity_type=kind, entity_name=draw(st.none() | TEXTS)) for kind in kinds],
        key=draw(st.sampled_from(["producer_byte_rate", "consumer_byte_rate"])),
        value=draw(st.floats(0, 1e9)),
        remove=draw(st.booleans()),
    )


def producer_ids(draw: st.DrawFn, history: History) -> Message:
    history.next_producer_id += draw(st.integers(1, 1000))
    return m.ProducerIdsRecord(broker_id=draw(IDS), next_producer_id=history.next_producer_id)


def acl(draw: st.DrawFn, history: History) -> Message:
    is_removal = draw(st.booleans())
    if history.acls and is_removal:
        acl_id = draw(st.sampled_from(sorted(history.acls)))
        history.acls.discard(acl_id)
        return m.RemoveAccessControlEntryRecord(id=acl_id)
    acl_id = draw(UUIDS)
    history.acls.add(acl_id)
    return m.AccessControlEntryRecord(id=acl_id, principal=draw(TEXTS), operation=draw(st.integers(0, 12)))


def scram_credential(draw: st.DrawFn, history: History) -> Message:
    is_removal = draw(st.booleans())
    if history.users and is_removal:
        mechanism, user = draw(st.sampled_from(sorted(history.users)))
        history.users.discard((mechanism, user))
        return m.RemoveUserScramCredentialRecord(name=user, mechanism=mechanism)
    key = draw(st.tuples(st.integers(1, 2), NAMES))
    history.users.add(key)
    return m.UserScramCredentialRecord(name=key[1], mechanism=key[0], salt=b"s", stored_key=b"k", iterations=4096)


def delegation_token(draw: st.DrawFn, history: History) -> Message:
    is_removal = draw(st.booleans())
    if history.tokens and is_removal:
        token_id = draw(st.sampled_from(sorted(history.tokens)))
        history.tokens.discard(token_id)
        return m.RemoveDelegationTokenRecord(token_id=token_id)
    token_id = draw(NAMES)
    history.tokens.add(token_id)
    return m.DelegationTokenRecord(owner="User:o", token_id=token_id, renewers=draw(st.lists(TEXTS, max_size=2)))


def no_op(_draw: st.DrawFn, _history: History) -> Message:
    return m.NoOpRecord()


def zk_migration_state(draw: st.DrawFn, _history: History) -> Message:
    return m.ZkMigrationStateRecord(zk_migration_state=draw(st.integers(0, 4)))


STEPS: list[Any] = [
    register_broker,
    change_broker,
    register_controller,
    topic,
    topic,
    remove_topic,
    partition,
    partition,
    partition,
    change_partition,
    clear_elr,
    config,
    feature_level,
    client_quota,
    producer_ids,
    acl,
    scram_credential,
    delegation_token,
    no_op,
    zk_migration_state,
]
