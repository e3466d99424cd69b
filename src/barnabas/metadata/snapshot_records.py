"""An image as the records of a snapshot: the shortest log that replays to the same image.

The order is Kafka's: feature levels come first, because they determine the versions of the records that follow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metadata import versions
from barnabas.metadata.conversions import addresses_as, features_as, partition_to_record
from barnabas.metadata.versions import VersionedRecord
from barnabas.protocol import messages as m

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.metadata.image import BrokerImage, ConfigsImage, FeaturesImage, MetadataImage, TopicImage


def snapshot_records(image: MetadataImage) -> Iterator[VersionedRecord]:
    """The records from which the image can be restored, in the versions that its metadata.version prescribes."""
    level = image.features.metadata_version
    yield from _features(image.features)
    for broker in image.brokers.values():
        yield _broker(broker, level)
    yield from (VersionedRecord(controller, 0) for controller in image.controllers.values())
    for topic in image.topics:
        yield from _topic(topic, level)
    yield from _configs(image.configs)
    yield from _client_quotas(image)
    if image.next_producer_id >= 0:
        producer_ids = m.ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id)
        yield VersionedRecord(producer_ids, 0)
    for kept in (image.acls, image.scram_credentials, image.delegation_tokens):
        yield from (VersionedRecord(record, 0) for record in kept.values())


def feature_record(name: str, level: int) -> VersionedRecord:
    return VersionedRecord(m.FeatureLevelRecord(name=name, feature_level=level), 0)


def _features(features: FeaturesImage) -> Iterator[VersionedRecord]:
    if features.metadata_version:
        yield feature_record(versions.FEATURE_NAME, features.metadata_version)
    for name, level in features.finalized.items():
        yield feature_record(name, level)
    if features.zk_migration_state is not None:
        yield VersionedRecord(m.ZkMigrationStateRecord(zk_migration_state=features.zk_migration_state), 0)


def _broker(broker: BrokerImage, level: int) -> VersionedRecord:
    record = m.RegisterBrokerRecord(
        broker_id=broker.id,
        is_migrating_zk_broker=broker.is_migrating_zk_broker,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=addresses_as(m.RegisterBrokerRecord.BrokerEndpoint, broker.endpoints),
        features=features_as(m.RegisterBrokerRecord.BrokerFeature, broker.features),
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.directories),
    )
    if broker.cordoned_directories is not None:
        record.cordoned_log_dirs = list(broker.cordoned_directories)
    return VersionedRecord(record, versions.register_broker_version(level))


def _topic(topic: TopicImage, level: int) -> Iterator[VersionedRecord]:
    yield VersionedRecord(m.TopicRecord(name=topic.name, topic_id=topic.topic_id), 0)
    for partition_id, partition in enumerate(topic.partitions):
        yield partition_to_record(partition, topic.topic_id, partition_id, level)


def _configs(configs: ConfigsImage) -> Iterator[VersionedRecord]:
    for resource, values in configs.resources.items():
        for name, value in values.items():
            record = m.ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value)
            yield VersionedRecord(record, 0)


def _client_quotas(image: MetadataImage) -> Iterator[VersionedRecord]:
    for entity, quotas in image.client_quotas.items():
        for key, value in quotas.items():
            members = [m.ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
            yield VersionedRecord(m.ClientQuotaRecord(entity=members, key=key, value=value), 0)


def bootstrap_records() -> list[VersionedRecord]:
    """The feature levels of a new cluster, which formatting writes to bootstrap.checkpoint."""
    return [feature_record(name, level) for name, level in versions.BOOTSTRAP_FEATURES.items()]
