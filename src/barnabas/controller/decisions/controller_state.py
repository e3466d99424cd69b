"""The controller's view of the cluster: the metadata with every appended record, and indexes into it.

Thanks to the indexes, lookups take time that does not grow with the cluster: for which partitions a broker is in the
ISR or the ELR, which partitions have no leader, which topic names would collide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.controller.decisions.context import DynamicLayers
from barnabas.controller.decisions.sessions import NO_OFFSET, Session
from barnabas.metadata.image import NO_LEADER, MetadataImage, PartitionImage
from barnabas.metadata.replay import ImageDraft
from barnabas.metadata.topic_names import has_collision_characters, unify_collision_characters
from barnabas.protocol import messages as m

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from barnabas.controller.decisions.context import Contact, Settings
    from barnabas.metadata.image import BrokerImage, FeaturesImage, TopicImage
    from barnabas.metadata.versions import VersionedRecord
    from barnabas.protocol.compiler.structs import Message
    from barnabas.protocol.uuids import Uuid


_TRANSACTION_BOUNDARIES = (m.BeginTransactionRecord, m.EndTransactionRecord, m.AbortTransactionRecord)


class PartitionKey(NamedTuple):
    topic_id: Uuid
    partition_id: int


class PartitionSet:
    """Partitions in insertion order."""

    __slots__ = ("_keys",)

    def __init__(self) -> None:
        self._keys: dict[PartitionKey, None] = {}

    def add(self, key: PartitionKey) -> None:
        self._keys[key] = None

    def discard(self, key: PartitionKey) -> None:
        self._keys.pop(key, None)

    def snapshot(self) -> tuple[PartitionKey, ...]:
        return tuple(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


class ControllerState:
    """Changed only by `apply` and `touch`; decisions read it."""

    __slots__ = (
        "_colliding",
        "_eligible",
        "_in_sync",
        "_led_count",
        "first_offset",
        "imbalanced",
        "leaderless",
        "metadata",
        "registered_at",
        "sessions",
    )

    def __init__(self, image: MetadataImage, now_ms: int) -> None:
        self.metadata = ImageDraft(image)
        self.first_offset = image.offset + 1
        """The offset of the first record of this leadership."""
        self._in_sync: dict[int, PartitionSet] = {}
        self._eligible: dict[int, PartitionSet] = {}
        self._led_count: dict[int, int] = {}
        self.leaderless = PartitionSet()
        self.imbalanced = PartitionSet()
        """Partitions that another replica than the preferred one leads."""
        self._colliding: dict[str, dict[str, None]] = {}
        self.registered_at: dict[int, int] = dict.fromkeys(image.brokers, image.offset)
        self.sessions: dict[int, Session] = {broker_id: Session(now_ms) for broker_id in image.brokers}
        for topic in image.topics:
            self._add_name(topic.name)
            for partition_id, partition in enumerate(topic.partitions):
                self._index(PartitionKey(topic.topic_id, partition_id), None, partition)

    @property
    def features(self) -> FeaturesImage:
        return self.metadata.features

    @property
    def brokers(self) -> Mapping[int, BrokerImage]:
        return self.metadata.brokers

    def topic(self, name: str) -> TopicImage | None:
        return self.metadata.topics_by_name.get(name)

    def topic_by_id(self, topic_id: Uuid) -> TopicImage | None:
        return self.metadata.topics_by_id.get(topic_id)

    def topic_and_partition(self, key: PartitionKey) -> tuple[TopicImage, PartitionImage]:
        topic = self.metadata.topics_by_id[key.topic_id]
        return topic, topic.partitions[key.partition_id]

    def in_sync_partitions(self, broker_id: int) -> tuple[PartitionKey, ...]:
        partitions = self._in_sync.get(broker_id)
        return partitions.snapshot() if partitions else ()

    def eligible_partitions(self, broker_id: int) -> tuple[PartitionKey, ...]:
        """The partitions whose ELR the broker is in."""
        partitions = self._eligible.get(broker_id)
        return partitions.snapshot() if partitions else ()

    def leads_any(self, broker_id: int) -> bool:
        return self._led_count.get(broker_id, 0) > 0

    def colliding_topic(self, name: str) -> str | None:
        """An existing topic whose name equals `name` or differs from it only in `.` and `_`."""
        names = self._colliding.get(unify_collision_characters(name)) if has_collision_characters(name) else None
        return next(iter(names)) if names else None

    def is_active(self, broker_id: int) -> bool:
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_active

    def has_valid_session(self, broker_id: int, now_ms: int, settings: Settings) -> bool:
        broker, session = self.brokers.get(broker_id), self.sessions.get(broker_id)
        if broker is None or session is None or broker.fenced:
            return False
        return now_ms <= session.ends_at_ms(settings)

    def expired_brokers(self, now_ms: int, settings: Settings) -> list[int]:
        """Brokers that are not fenced although their sessions have ended."""
        return [
            broker.id
            for broker in self.brokers.values()
            if not broker.fenced and not self.has_valid_session(broker.id, now_ms, settings)
        ]

    def inherited_setting(self, setting: str, settings: Settings) -> str | None:
        """The dynamic value that topics inherit for a setting, if any: this node's, else the cluster's."""
        layers = self.dynamic_layers(settings)
        return layers.node.get(setting, layers.cluster.get(setting))

    def dynamic_layers(self, settings: Settings) -> DynamicLayers:
        configs = self.metadata.configs
        return DynamicLayers(configs.of_broker(""), configs.of_broker(settings.node_id))

    def touch(self, contact: Contact) -> None:
        session = self.sessions.get(contact.broker_id, Session(contact.at_ms))
        self.sessions[contact.broker_id] = session._replace(
            last_contact_ms=contact.at_ms, metadata_offset=contact.metadata_offset
        )

    def connected(self, broker_id: int, broker_epoch: int, connection: object) -> None:
        """A heartbeat came over a connection. Another incarnation's does not count."""
        broker, session = self.brokers.get(broker_id), self.sessions.get(broker_id)
        if broker is not None and session is not None and broker.epoch == broker_epoch:
            self.sessions[broker_id] = session.connected(connection)

    def disconnected(self, broker_id: int, connection: object, now_ms: int) -> None:
        """A connection over which heartbeats came was closed from the other side."""
        if (session := self.sessions.get(broker_id)) is not None:
            self.sessions[broker_id] = session.disconnected(connection, now_ms)

    def lost(self, broker_id: int, now_ms: int) -> None:
        """The node of a broker takes no connections."""
        if (session := self.sessions.get(broker_id)) is not None:
            self.sessions[broker_id] = session.lost(now_ms)

    def apply(self, records: Iterable[VersionedRecord], base_offset: int, now_ms: int) -> None:
        """Applies records that were appended at `base_offset`."""
        for _ in self.applying(records, base_offset, now_ms):
            pass

    def applying(self, records: Iterable[VersionedRecord], base_offset: int, now_ms: int) -> Iterator[None]:
        """As `apply`, record by record. The state is of no use to anybody until the last is applied."""
        for offset, record in enumerate(records, base_offset):
            self._apply(record.message, offset, now_ms)
            yield
        self.metadata.settle()

    def _apply(self, record: Message, offset: int, now_ms: int) -> None:
        if isinstance(record, m.PartitionRecord | m.PartitionChangeRecord):
            key = PartitionKey(record.topic_id, record.partition_id)
            before = self.metadata.partition(*key)
            self.metadata.apply(record)
            self._index(key, before, self.metadata.partition(*key))
            return
        if isinstance(record, m.RemoveTopicRecord | m.ClearElrRecord):
            self._apply_to_topics(record)
            return
        if isinstance(record, _TRANSACTION_BOUNDARIES):
            # The controller sees its own transactions while they are open, and starts after any that it aborts.
            return
        self.metadata.apply(record)
        if isinstance(record, m.TopicRecord):
            self._add_name(record.name)
        elif isinstance(record, m.RegisterBrokerRecord):
            self.registered_at[record.broker_id] = offset
            self.sessions[record.broker_id] = Session(now_ms)
        elif isinstance(record, m.UnregisterBrokerRecord):
            self.registered_at.pop(record.broker_id, None)
            self.sessions.pop(record.broker_id, None)
        elif isinstance(record, m.BrokerRegistrationChangeRecord):
            self._note_registration_change(record, offset, now_ms)

    def _apply_to_topics(self, record: m.RemoveTopicRecord | m.ClearElrRecord) -> None:
        self.metadata.settle()
        if isinstance(record, m.RemoveTopicRecord):
            topics = [self.metadata.topics_by_id[record.topic_id]]
            self._remove_name(topics[0].name)
        elif record.topic_name:
            topics = [self.metadata.topics_by_name[record.topic_name]]
        else:
            topics = list(self.metadata.topics_by_id.values())
        self.metadata.apply(record)
        for topic in topics:
            is_gone = topic.topic_id not in self.metadata.topics_by_id
            for partition_id, before in enumerate(topic.partitions):
                key = PartitionKey(topic.topic_id, partition_id)
                self._index(key, before, None if is_gone else self.metadata.partition(*key))

    def _note_registration_change(self, record: m.BrokerRegistrationChangeRecord, offset: int, now_ms: int) -> None:
        session = self.sessions.get(record.broker_id, Session(now_ms))
        if record.fenced > 0:
            # Fencing ends the controlled shutdown: a fenced broker may stop at once.
            session = session._replace(controlled_shutdown_offset=NO_OFFSET)
        if record.in_controlled_shutdown and session.controlled_shutdown_offset == NO_OFFSET:
            session = session._replace(controlled_shutdown_offset=offset)
        self.sessions[record.broker_id] = session

    def _index(self, key: PartitionKey, before: PartitionImage | None, after: PartitionImage | None) -> None:
        _move(self._in_sync, key, before.isr if before else (), after.isr if after else ())
        _move(self._eligible, key, before.elr if before else (), after.elr if after else ())
        if before is not None and before.leader != NO_LEADER:
            self._led_count[before.leader] -= 1
        if after is not None and after.leader != NO_LEADER:
            self._led_count[after.leader] = self._led_count.get(after.leader, 0) + 1
        if after is not None and after.leader == NO_LEADER:
            self.leaderless.add(key)
        else:
            self.leaderless.discard(key)
        if after is not None and after.leader not in (NO_LEADER, after.replicas[0]):
            self.imbalanced.add(key)
        else:
            self.imbalanced.discard(key)

    def _add_name(self, name: str) -> None:
        if has_collision_characters(name):
            self._colliding.setdefault(unify_collision_characters(name), {})[name] = None

    def _remove_name(self, name: str) -> None:
        names = self._colliding.get(unify_collision_characters(name), {})
        names.pop(name, None)
        if not names:
            self._colliding.pop(unify_collision_characters(name), None)


def _move(index: dict[int, PartitionSet], key: PartitionKey, before: tuple[int, ...], after: tuple[int, ...]) -> None:
    if before == after:
        return
    for broker_id in before:
        if broker_id not in after:
            index[broker_id].discard(key)
    for broker_id in after:
        if broker_id not in before:
            index.setdefault(broker_id, PartitionSet()).add(key)
