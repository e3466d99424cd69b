"""Replays committed metadata records into images, and never publishes one from the middle of a transaction.

A metadata transaction (BeginTransaction … EndTransaction) may span batches. Until it ends, readers see the image from
before it began; if it is aborted, the draft is reset to that image.

A draft (`ImageDraft`) starts from an image and shares each of its mappings until it first writes to it; freezing passes
the mappings to the new image and starts sharing again. Adding a topic thus costs a copy of two dictionaries of
references, however many partitions there are, and an unchanged topic remains the same object.

The controller uses a draft too and never freezes it, so nothing is copied there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

from barnabas.metadata import versions
from barnabas.metadata.conversions import merge, partition_from_record, supported_levels
from barnabas.metadata.image import (
    BrokerImage,
    ConfigResource,
    ConfigsImage,
    Endpoint,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    QuotaEntity,
    ResourceType,
    ScramKey,
    TopicImage,
    TopicsImage,
    diff_among,
)
from barnabas.protocol import messages as m
from barnabas.protocol.uuids import Uuid, to_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.protocol.compiler.structs import Message

K = TypeVar("K")
V = TypeVar("V")


class ReplayError(Exception):
    """A record that contradicts the records before it."""


class Section(Generic[K, V]):
    """A mapping that is shared with an image until it is written to (copy on write)."""

    __slots__ = ("_is_shared", "data")

    def __init__(self, data: Mapping[K, V]) -> None:
        self.data = data
        self._is_shared = True

    def writable(self) -> dict[K, V]:
        if self._is_shared:
            self.data = dict(self.data)
            self._is_shared = False
        assert isinstance(self.data, dict)
        return self.data

    def freeze(self) -> Mapping[K, V]:
        self._is_shared = True
        return self.data


class OpenTopic:
    """A topic whose partitions are being changed. `missing` is the number of gaps below the highest partition."""

    __slots__ = ("missing", "name", "partitions", "topic_id")

    def __init__(self, topic: TopicImage) -> None:
        self.name = topic.name
        self.topic_id = topic.topic_id
        self.partitions: list[PartitionImage | None] = list(topic.partitions)
        self.missing = 0

    def put(self, partition_id: int, partition: PartitionImage) -> None:
        gap = partition_id - len(self.partitions)
        if gap >= 0:
            self.partitions.extend([None] * (gap + 1))
            self.missing += gap
        elif self.partitions[partition_id] is None:
            self.missing -= 1
        self.partitions[partition_id] = partition

    def close(self) -> TopicImage:
        if self.missing:
            raise ReplayError(f"topic {self.name} is missing {self.missing} of its {len(self.partitions)} partitions")
        return TopicImage(self.name, self.topic_id, tuple(self.partitions))  # type: ignore[arg-type]


class ImageDraft:
    """The working copy. Its public mappings are up to date after `settle`."""

    __slots__ = (
        "_acls",
        "_brokers",
        "_configs",
        "_controllers",
        "_credentials",
        "_image",
        "_open",
        "_quotas",
        "_tokens",
        "_topics_by_id",
        "_topics_by_name",
        "_touched_brokers",
        "_touched_resources",
        "_touched_topics",
        "controller_id",
        "features",
        "next_producer_id",
    )

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self.controller_id = image.controller_id
        self.features = image.features
        self.next_producer_id = image.next_producer_id
        self._brokers = Section(image.brokers)
        self._controllers = Section(image.controllers)
        self._topics_by_name = Section(image.topics.names)
        self._topics_by_id = Section(image.topics.ids)
        self._configs = Section(image.configs.resources)
        self._quotas = Section(image.client_quotas)
        self._acls = Section(image.acls)
        self._credentials = Section(image.scram_credentials)
        self._tokens = Section(image.delegation_tokens)
        self._open: dict[Uuid, OpenTopic] = {}
        self._touched_topics: dict[Uuid, None] = {}
        self._touched_resources: set[ConfigResource] = set()
        self._touched_brokers: set[int] = set()

    @property
    def brokers(self) -> Mapping[int, BrokerImage]:
        return self._brokers.data

    @property
    def controllers(self) -> Mapping[int, m.RegisterControllerRecord]:
        return self._controllers.data

    @property
    def topics_by_name(self) -> Mapping[str, TopicImage]:
        return self._topics_by_name.data

    @property
    def topics_by_id(self) -> Mapping[Uuid, TopicImage]:
        return self._topics_by_id.data

    @property
    def configs(self) -> ConfigsImage:
        return ConfigsImage(self._configs.data)

    @property
    def client_quotas(self) -> Mapping[QuotaEntity, Mapping[str, float]]:
        return self._quotas.data

    def configs_of_topic(self, name: str) -> Mapping[str, str]:
        return self._configs.data.get(ConfigResource(ResourceType.TOPIC, name), {})

    def apply(self, record: Message) -> None:
        handler = self._handlers.get(type(record).__name__)
        if handler is None:
            raise ReplayError(f"{type(record).__name__} cannot be applied to an image")
        handler(self, record)

    def settle(self) -> None:
        """Closes the topics that `apply` opened, so that they can be read as values."""
        if not self._open:
            return
        by_name, by_id = self._topics_by_name.writable(), self._topics_by_id.writable()
        for topic in self._open.values():
            closed = topic.close()
            by_name[closed.name] = by_id[closed.topic_id] = closed
        self._open.clear()

    def freeze(self, *, offset: int, epoch: int, timestamp_ms: int) -> MetadataImage:
        """The image of all records so far. It shares what did not change with the previous image."""
        self.settle()
        previous = self._image
        by_name, by_id = self._topics_by_name.freeze(), self._topics_by_id.freeze()
        resources = self._configs.freeze()
        self._image = MetadataImage(
            cluster_id=previous.cluster_id,
            offset=offset,
            epoch=epoch,
            timestamp_ms=timestamp_ms,
            controller_id=self.controller_id,
            features=self.features,
            brokers=self._brokers.freeze(),
            controllers=self._controllers.freeze(),
            topics=previous.topics if by_id is previous.topics.ids else TopicsImage(by_name, by_id),
            configs=previous.configs if resources is previous.configs.resources else ConfigsImage(resources),
            client_quotas=self._quotas.freeze(),
            next_producer_id=self.next_producer_id,
            acls=self._acls.freeze(),
            scram_credentials=self._credentials.freeze(),
            delegation_tokens=self._tokens.freeze(),
        )
        return self._image

    def rewound(self, image: MetadataImage) -> ImageDraft:
        """A new draft that starts from an earlier image, but keeps what does not come from the aborted records.

        That is the id of the controller, and what was touched since the last `take_delta`.
        """
        replay = ImageDraft(image)
        replay.controller_id = self.controller_id
        replay._touched_topics = self._touched_topics
        replay._touched_resources = self._touched_resources
        replay._touched_brokers = self._touched_brokers
        return replay

    def take_delta(self, old: MetadataImage, new: MetadataImage) -> MetadataDelta:
        """What changed from `old` to `new`, looking only at what was touched since the last call."""
        delta = diff_among(
            old,
            new,
            topic_ids=self._touched_topics,
            resources=self._touched_resources,
            broker_ids=self._touched_brokers,
        )
        self._touched_topics = {}
        self._touched_resources = set()
        self._touched_brokers = set()
        return delta

    def partition(self, topic_id: Uuid, partition_id: int) -> PartitionImage | None:
        """One partition with all records applied so far, settled or not."""
        partitions = (self._open.get(topic_id) or self._topics_by_id.data[topic_id]).partitions
        return partitions[partition_id] if 0 <= partition_id < len(partitions) else None

    def _open_topic(self, topic_id: Uuid) -> OpenTopic:
        topic = self._open.get(topic_id)
        if topic is None:
            closed = self._topics_by_id.data.get(topic_id)
            if closed is None:
                raise ReplayError(f"no topic has the id {to_text(topic_id)}")
            topic = self._open[topic_id] = OpenTopic(closed)
            self._touched_topics[topic_id] = None
        return topic

    def _broker(self, broker_id: int, epoch: int) -> BrokerImage:
        broker = self._brokers.data.get(broker_id)
        if broker is None:
            raise ReplayError(f"broker {broker_id} is not registered")
        if broker.epoch != epoch:
            raise ReplayError(f"broker {broker_id} is registered with epoch {broker.epoch}, not {epoch}")
        return broker

    def _put_broker(self, broker: BrokerImage) -> None:
        self._brokers.writable()[broker.id] = broker
        self._touched_brokers.add(broker.id)

    # Topics and partitions

    def _topic(self, record: m.TopicRecord) -> None:
        if record.name in self._topics_by_name.data or record.topic_id in self._topics_by_id.data:
            raise ReplayError(f"topic {record.name} ({to_text(record.topic_id)}) already exists")
        topic = TopicImage(record.name, record.topic_id, ())
        self._topics_by_name.writable()[record.name] = topic
        self._topics_by_id.writable()[record.topic_id] = topic
        self._open[record.topic_id] = OpenTopic(topic)
        self._touched_topics[record.topic_id] = None

    def _partition(self, record: m.PartitionRecord) -> None:
        self._open_topic(record.topic_id).put(record.partition_id, partition_from_record(record))

    def _partition_change(self, record: m.PartitionChangeRecord) -> None:
        topic = self._open_topic(record.topic_id)
        known = topic.partitions[record.partition_id] if 0 <= record.partition_id < len(topic.partitions) else None
        if known is None:
            raise ReplayError(f"topic {topic.name} has no partition {record.partition_id}")
        topic.put(record.partition_id, merge(known, record))

    def _remove_topic(self, record: m.RemoveTopicRecord) -> None:
        topic = self._topics_by_id.data.get(record.topic_id)
        if topic is None:
            raise ReplayError(f"no topic has the id {to_text(record.topic_id)}")
        self._open.pop(record.topic_id, None)
        self._touched_topics[record.topic_id] = None
        del self._topics_by_id.writable()[record.topic_id]
        del self._topics_by_name.writable()[topic.name]
        resource = ConfigResource(ResourceType.TOPIC, topic.name)
        if self._configs.writable().pop(resource, None) is not None:
            self._touched_resources.add(resource)

    def _clear_elr(self, record: m.ClearElrRecord) -> None:
        self.settle()
        if record.topic_name:
            topic = self._topics_by_name.data.get(record.topic_name)
            if topic is None:
                raise ReplayError(f"there is no topic {record.topic_name}")
            topics = [topic]
        else:
            topics = list(self._topics_by_id.data.values())
        for topic in topics:
            for partition_id, partition in enumerate(topic.partitions):
                if partition.elr or partition.last_known_elr:
                    cleared = partition._replace(elr=(), last_known_elr=())
                    self._open_topic(topic.topic_id).put(partition_id, cleared)

    # Nodes

    def _register_broker(self, record: m.RegisterBrokerRecord) -> None:
        cordoned = record.cordoned_log_dirs
        self._put_broker(
            BrokerImage(
                id=record.broker_id,
                epoch=record.broker_epoch,
                incarnation_id=record.incarnation_id,
                endpoints=tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points),
                features=supported_levels(record.features),
                rack=record.rack,
                fenced=record.fenced,
                in_controlled_shutdown=record.in_controlled_shutdown,
                directories=tuple(record.log_dirs),
                cordoned_directories=None if cordoned is None else tuple(cordoned),
                is_migrating_zk_broker=record.is_migrating_zk_broker,
            )
        )

    def _unregister_broker(self, record: m.UnregisterBrokerRecord) -> None:
        self._broker(record.broker_id, record.broker_epoch)
        del self._brokers.writable()[record.broker_id]
        self._touched_brokers.add(record.broker_id)

    def _fence_broker(self, record: m.FenceBrokerRecord) -> None:
        self._put_broker(self._broker(record.id, record.epoch)._replace(fenced=True))

    def _unfence_broker(self, record: m.UnfenceBrokerRecord) -> None:
        self._put_broker(self._broker(record.id, record.epoch)._replace(fenced=False))

    def _registration_change(self, record: m.BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(record.broker_id, record.broker_epoch)
        if record.fenced:
            broker = broker._replace(fenced=record.fenced > 0)
        if record.in_controlled_shutdown:
            broker = broker._replace(in_controlled_shutdown=True)
        if record.log_dirs:
            broker = broker._replace(directories=tuple(record.log_dirs))
        if record.cordoned_log_dirs is not None:
            broker = broker._replace(cordoned_directories=tuple(record.cordoned_log_dirs))
        self._put_broker(broker)

    def _register_controller(self, record: m.RegisterControllerRecord) -> None:
        self._controllers.writable()[record.controller_id] = record

    # Configuration and features

    def _config(self, record: m.ConfigRecord) -> None:
        resource = ConfigResource(record.resource_type, record.resource_name)
        configs = dict(self._configs.data.get(resource, {}))
        if record.value is None:
            configs.pop(record.name, None)
        else:
            configs[record.name] = record.value
        resources = self._configs.writable()
        if configs:
            resources[resource] = configs
        else:
            resources.pop(resource, None)
        self._touched_resources.add(resource)

    def _feature_level(self, record: m.FeatureLevelRecord) -> None:
        versions.check_supported(record.name, record.feature_level)
        if record.name == versions.FEATURE_NAME:
            self.features = self.features._replace(metadata_version=record.feature_level)
            return
        finalized = {**self.features.finalized, record.name: record.feature_level}
        if record.feature_level == 0:
            del finalized[record.name]
        self.features = self.features._replace(finalized=finalized)

    def _zk_migration_state(self, record: m.ZkMigrationStateRecord) -> None:
        self.features = self.features._replace(zk_migration_state=record.zk_migration_state)

    def _client_quota(self, record: m.ClientQuotaRecord) -> None:
        entity: QuotaEntity = tuple(sorted((e.entity_type, e.entity_name) for e in record.entity))
        quotas = dict(self._quotas.data.get(entity, {}))
        if record.remove:
            quotas.pop(record.key, None)
        else:
            quotas[record.key] = record.value
        entities = self._quotas.writable()
        if quotas:
            entities[entity] = quotas
        else:
            entities.pop(entity, None)

    def _producer_ids(self, record: m.ProducerIdsRecord) -> None:
        if record.next_producer_id <= self.next_producer_id:
            raise ReplayError(
                f"the next producer id cannot go back from {self.next_producer_id} to {record.next_producer_id}"
            )
        self.next_producer_id = record.next_producer_id

    # Security

    def _access_control_entry(self, record: m.AccessControlEntryRecord) -> None:
        self._acls.writable()[record.id] = record

    def _remove_access_control_entry(self, record: m.RemoveAccessControlEntryRecord) -> None:
        if self._acls.writable().pop(record.id, None) is None:
            raise ReplayError(f"no ACL has the id {to_text(record.id)}")

    def _scram_credential(self, record: m.UserScramCredentialRecord) -> None:
        self._credentials.writable()[ScramKey(record.mechanism, record.name)] = record

    def _remove_scram_credential(self, record: m.RemoveUserScramCredentialRecord) -> None:
        if self._credentials.writable().pop(ScramKey(record.mechanism, record.name), None) is None:
            raise ReplayError(f"user {record.name} has no SCRAM credential of mechanism {record.mechanism}")

    def _delegation_token(self, record: m.DelegationTokenRecord) -> None:
        self._tokens.writable()[record.token_id] = record

    def _remove_delegation_token(self, record: m.RemoveDelegationTokenRecord) -> None:
        if self._tokens.writable().pop(record.token_id, None) is None:
            raise ReplayError(f"there is no delegation token {record.token_id}")

    def _no_op(self, record: m.NoOpRecord) -> None:
        pass

    _handlers: ClassVar[dict[str, Callable[[ImageDraft, Any], None]]] = {
        "RegisterBrokerRecord": _register_broker,
        "UnregisterBrokerRecord": _unregister_broker,
        "TopicRecord": _topic,
        "PartitionRecord": _partition,
        "ConfigRecord": _config,
        "PartitionChangeRecord": _partition_change,
        "FenceBrokerRecord": _fence_broker,
        "UnfenceBrokerRecord": _unfence_broker,
        "RemoveTopicRecord": _remove_topic,
        "DelegationTokenRecord": _delegation_token,
        "UserScramCredentialRecord": _scram_credential,
        "FeatureLevelRecord": _feature_level,
        "ClientQuotaRecord": _client_quota,
        "ProducerIdsRecord": _producer_ids,
        "BrokerRegistrationChangeRecord": _registration_change,
        "AccessControlEntryRecord": _access_control_entry,
        "RemoveAccessControlEntryRecord": _remove_access_control_entry,
        "NoOpRecord": _no_op,
        "ZkMigrationStateRecord": _zk_migration_state,
        "RemoveUserScramCredentialRecord": _remove_scram_credential,
        "RemoveDelegationTokenRecord": _remove_delegation_token,
        "RegisterControllerRecord": _register_controller,
        "ClearElrRecord": _clear_elr,
    }
    """Keyed by name, because referring to a class would build it, and few processes see all kinds of records."""


class Publication(NamedTuple):
    image: MetadataImage
    delta: MetadataDelta


class ImageReplay:
    """Replays a log, starting from an image."""

    __slots__ = ("_before_transaction", "_draft", "_epoch", "_offset", "_published", "_timestamp_ms")

    def __init__(self, image: MetadataImage) -> None:
        self._published = image
        self._draft = ImageDraft(image)
        self._before_transaction: MetadataImage | None = None
        self._offset, self._epoch, self._timestamp_ms = image.offset, image.epoch, image.timestamp_ms

    @property
    def image(self) -> MetadataImage:
        """The last published image."""
        return self._published

    @property
    def is_in_transaction(self) -> bool:
        return self._before_transaction is not None

    def apply_batch(self, records: Iterable[Message], *, last_offset: int, epoch: int, timestamp_ms: int) -> None:
        """Applies one committed batch. `last_offset` is the offset of its last record."""
        self.apply_records(records)
        self.skip_batch(last_offset=last_offset, epoch=epoch, timestamp_ms=timestamp_ms)

    def apply_records(self, records: Iterable[Message]) -> None:
        """Applies some records of a batch. After all of them, `skip_batch` says where it ends."""
        for record in records:
            if isinstance(record, m.BeginTransactionRecord):
                self._begin()
            elif isinstance(record, m.EndTransactionRecord):
                self._end()
            elif isinstance(record, m.AbortTransactionRecord):
                self._abort()
            else:
                self._draft.apply(record)

    def skip_batch(self, *, last_offset: int, epoch: int, timestamp_ms: int) -> None:
        """Advances past a batch that does not affect the image, such as one of control records."""
        self._offset, self._epoch, self._timestamp_ms = last_offset, epoch, timestamp_ms

    def set_controller(self, controller_id: int) -> None:
        self._draft.controller_id = controller_id

    def publish(self) -> Publication | None:
        """The newest image that may be published and what changed, or None if there is no new one."""
        if self._before_transaction is not None:
            if self._before_transaction is self._published:
                return None
            old, self._published = self._published, self._before_transaction
            # A full comparison, because `take_delta` would forget what the open transaction has touched.
            return Publication(self._published, self._published.diff(old))
        if self._offset == self._published.offset:
            return None
        old, self._published = self._published, self._freeze()
        return Publication(self._published, self._draft.take_delta(old, self._published))

    def _freeze(self) -> MetadataImage:
        return self._draft.freeze(offset=self._offset, epoch=self._epoch, timestamp_ms=self._timestamp_ms)

    def _begin(self) -> None:
        if self.is_in_transaction:
            raise ReplayError("a transaction begins inside another transaction")
        self._before_transaction = self._freeze()

    def _end(self) -> None:
        if not self.is_in_transaction:
            raise ReplayError("a transaction ends, but none has begun")
        self._before_transaction = None

    def _abort(self) -> None:
        if self._before_transaction is None:
            raise ReplayError("a transaction is aborted, but none has begun")
        self._draft = self._draft.rewound(self._before_transaction)
        self._before_transaction = None
