"""Conversions between the parts of an image and the messages that carry them.

Partitions are written to PartitionRecords and changed by PartitionChangeRecords. The listeners and supported features
of a broker or controller appear in requests, in records and in the image, each time in another class with the same
fields.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Protocol, TypeVar

from barnabas.metadata import versions
from barnabas.metadata.image import MIGRATING_DIRECTORY, PartitionImage
from barnabas.metadata.versions import VersionedRecord, VersionRange
from barnabas.protocol import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.protocol.uuids import Uuid

NO_LEADER_CHANGE = -2
NO_RECOVERY_CHANGE = -1

T = TypeVar("T")


def partition_from_record(record: m.PartitionRecord) -> PartitionImage:
    return PartitionImage(
        replicas=_shared(tuple(record.replicas)),
        directories=_directories(record.directories, len(record.replicas)),
        isr=_shared(tuple(record.isr)),
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        elr=_shared(tuple(record.eligible_leader_replicas or ())),
        last_known_elr=_shared(tuple(record.last_known_elr or ())),
        removing_replicas=_shared(tuple(record.removing_replicas)),
        adding_replicas=_shared(tuple(record.adding_replicas)),
        leader_recovery_state=record.leader_recovery_state,
    )


def merge(partition: PartitionImage, change: m.PartitionChangeRecord) -> PartitionImage:
    """The partition after a change. A change that names a leader, even the same one, starts a new leader epoch."""
    replicas = _or(change.replicas, partition.replicas)
    names_leader = change.leader != NO_LEADER_CHANGE
    keeps_recovery_state = change.leader_recovery_state == NO_RECOVERY_CHANGE
    return PartitionImage(
        replicas=replicas,
        directories=_directories(_or(change.directories, partition.directories), len(replicas)),
        isr=_or(change.isr, partition.isr),
        leader=change.leader if names_leader else partition.leader,
        leader_epoch=partition.leader_epoch + names_leader,
        partition_epoch=partition.partition_epoch + 1,
        elr=_or(change.eligible_leader_replicas, partition.elr),
        last_known_elr=_or(change.last_known_elr, partition.last_known_elr),
        removing_replicas=_or(change.removing_replicas, partition.removing_replicas),
        adding_replicas=_or(change.adding_replicas, partition.adding_replicas),
        leader_recovery_state=(
            partition.leader_recovery_state if keeps_recovery_state else change.leader_recovery_state
        ),
    )


def partition_to_record(
    partition: PartitionImage, topic_id: Uuid, partition_id: int, metadata_version: int
) -> VersionedRecord:
    record = m.PartitionRecord(
        partition_id=partition_id,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
    )
    if versions.supports_directories(metadata_version):
        record.directories = list(partition.directories)
    if versions.supports_elr(metadata_version):
        record.eligible_leader_replicas = list(partition.elr) or None
        record.last_known_elr = list(partition.last_known_elr) or None
    return VersionedRecord(record, versions.partition_version(metadata_version))


def _or(changed: Iterable[T] | None, known: tuple[T, ...]) -> tuple[T, ...]:
    return known if changed is None else _shared(tuple(changed))


def _directories(directories: Iterable[Uuid] | None, replica_count: int) -> tuple[Uuid, ...]:
    """Records of older levels have no directories; their replicas count as migrating."""
    known = tuple(directories or ())
    if not any(directory != MIGRATING_DIRECTORY for directory in known):
        known = (MIGRATING_DIRECTORY,) * replica_count
    return _shared(known)


@functools.lru_cache(maxsize=4096)
def _shared(values: tuple[T, ...]) -> tuple[T, ...]:
    """The same tuple for equal values: thousands of partitions share the same few brokers and directories."""
    return values


class HasAddress(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def security_protocol(self) -> int: ...


class HasRange(Protocol):
    name: str
    min_supported_version: int
    max_supported_version: int


def addresses_as(kind: Callable[..., T], addresses: Iterable[HasAddress]) -> list[T]:
    """The same addresses as objects of `kind`."""
    return [
        kind(name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol)
        for each in addresses
    ]


def features_as(kind: Callable[..., T], supported: Mapping[str, VersionRange]) -> list[T]:
    """The supported levels of each feature as objects of `kind`."""
    return [
        kind(name=name, min_supported_version=levels.lowest, max_supported_version=levels.highest)
        for name, levels in supported.items()
    ]


def supported_levels(features: Iterable[HasRange]) -> dict[str, VersionRange]:
    """The supported levels of each feature by name."""
    return {each.name: VersionRange(each.min_supported_version, each.max_supported_version) for each in features}
