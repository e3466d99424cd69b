"""The state of the cluster at one offset of the metadata log, as an immutable value.

Consecutive images share every part that did not change, so that `old.topics.get("t") is new.topics.get("t")` tells
in constant time that nothing happened to a topic. Mappings inside an image are never changed after it was made.

The image holds every kind of metadata record. Those that nothing in this software acts on yet (ACLs, SCRAM
credentials, quotas, delegation tokens) are kept as the records themselves, so that a snapshot loses nothing.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from barnabas.metadata import versions
from barnabas.protocol.uuids import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from barnabas.protocol import messages as m

NO_LEADER = -1
RECOVERED = 0
RECOVERING = 1
"""Leader recovery states: a leader chosen outside the in-sync set is RECOVERING until it says otherwise."""

MIGRATING_DIRECTORY = ZERO_UUID
UNASSIGNED_DIRECTORY = Uuid(bytes(15) + b"\x01")
LOST_DIRECTORY = Uuid(bytes(15) + b"\x02")
_RESERVED_DIRECTORIES = 100


def is_reserved_directory(directory: Uuid) -> bool:
    """The first hundred ids name no folder but a situation (migrating, unassigned, lost)."""
    return int.from_bytes(directory, "big") < _RESERVED_DIRECTORIES


class PartitionImage(NamedTuple):
    """One partition. `directories[i]` is the folder that holds the replica on broker `replicas[i]`."""

    replicas: tuple[int, ...]
    directories: tuple[Uuid, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    elr: tuple[int, ...] = ()
    """Eligible leader replicas: out of sync, but known to hold everything committed."""
    last_known_elr: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = RECOVERED

    def directory_of(self, broker_id: int) -> Uuid | None:
        return self.directories[self.replicas.index(broker_id)] if broker_id in self.replicas else None


class TopicImage(NamedTuple):
    name: str
    topic_id: Uuid
    partitions: tuple[PartitionImage, ...]


class TopicsImage:
    """All topics, by name and by id."""

    __slots__ = ("_by_id", "_by_name")

    def __init__(self, by_name: Mapping[str, TopicImage], by_id: Mapping[Uuid, TopicImage]) -> None:
        self._by_name = by_name
        self._by_id = by_id

    def get(self, name: str) -> TopicImage | None:
        return self._by_name.get(name)

    def by_id(self, topic_id: Uuid) -> TopicImage | None:
        return self._by_id.get(topic_id)

    @property
    def names(self) -> Mapping[str, TopicImage]:
        return self._by_name

    @property
    def ids(self) -> Mapping[Uuid, TopicImage]:
        return self._by_id

    def __iter__(self) -> Iterator[TopicImage]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicsImage) and self._by_id == other._by_id

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"TopicsImage({len(self._by_name)} topics)"


class Endpoint(NamedTuple):
    """Where a listener of a node can be reached."""

    name: str
    host: str
    port: int
    security_protocol: int


class BrokerImage(NamedTuple):
    """One broker's registration."""

    id: int
    epoch: int
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    features: Mapping[str, versions.VersionRange]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    directories: tuple[Uuid, ...]
    cordoned_directories: tuple[Uuid, ...] | None = None
    is_migrating_zk_broker: bool = False

    @property
    def is_active(self) -> bool:
        """Whether it may lead partitions and be in sync."""
        return not self.fenced and not self.in_controlled_shutdown

    def endpoint(self, listener_name: str) -> Endpoint | None:
        return next((endpoint for endpoint in self.endpoints if endpoint.name == listener_name), None)


class ResourceType(IntEnum):
    """What a configuration belongs to; the numbers are those of the protocol and of ConfigRecord."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    type: int
    name: str


DEFAULT_BROKERS = ConfigResource(ResourceType.BROKER, "")
"""The resource of settings for all brokers of the cluster."""

_NO_CONFIGS: Mapping[str, str] = {}


class ConfigsImage:
    """Dynamic configuration: what was set, resource by resource, without defaults."""

    __slots__ = ("resources",)

    def __init__(self, resources: Mapping[ConfigResource, Mapping[str, str]]) -> None:
        self.resources = resources

    def of(self, resource: ConfigResource) -> Mapping[str, str]:
        return self.resources.get(resource, _NO_CONFIGS)

    def of_topic(self, name: str) -> Mapping[str, str]:
        return self.of(ConfigResource(ResourceType.TOPIC, name))

    def of_broker(self, broker_id: int | str) -> Mapping[str, str]:
        """Of one broker, or with the empty string of all brokers of the cluster."""
        return self.of(ConfigResource(ResourceType.BROKER, str(broker_id)))

    def of_group(self, group_id: str) -> Mapping[str, str]:
        return self.of(ConfigResource(ResourceType.GROUP, group_id))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfigsImage) and self.resources == other.resources

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ConfigsImage({dict(self.resources)!r})"


class FeaturesImage(NamedTuple):
    """Finalized feature levels. A feature at level 0 is absent."""

    metadata_version: int = 0
    """0 until the first FeatureLevelRecord, that is in a log that holds nothing yet."""
    finalized: Mapping[str, int] = {}
    """Without metadata.version."""
    zk_migration_state: int | None = None

    @property
    def is_elr_enabled(self) -> bool:
        return versions.supports_elr(self.metadata_version) and self.finalized.get(versions.ELR_FEATURE, 0) >= 1


QuotaEntity = tuple[tuple[str, str | None], ...]
"""Pairs of entity type and name, sorted by type; no name means the default of that type."""


class ScramKey(NamedTuple):
    mechanism: int
    user: str


class MetadataImage(NamedTuple):
    """Everything the metadata log says up to and including `offset`."""

    cluster_id: str
    offset: int = -1
    epoch: int = 0
    """The leader epoch of the last record that is in the image."""
    timestamp_ms: int = -1
    """When the last batch that is in the image was written."""
    controller_id: int = -1
    """The quorum's leader as the last LeaderChange record says it."""
    features: FeaturesImage = FeaturesImage()
    brokers: Mapping[int, BrokerImage] = {}
    controllers: Mapping[int, m.RegisterControllerRecord] = {}
    topics: TopicsImage = TopicsImage({}, {})
    configs: ConfigsImage = ConfigsImage({})
    client_quotas: Mapping[QuotaEntity, Mapping[str, float]] = {}
    next_producer_id: int = -1
    """The first id of the next block to hand out; -1 before the first block."""
    acls: Mapping[Uuid, m.AccessControlEntryRecord] = {}
    scram_credentials: Mapping[ScramKey, m.UserScramCredentialRecord] = {}
    delegation_tokens: Mapping[str, m.DelegationTokenRecord] = {}

    def diff(self, old: MetadataImage) -> MetadataDelta:
        """What changed since `old`, found by looking at every topic, broker and configuration."""
        return diff_among(
            old,
            self,
            topic_ids={*old.topics.ids, *self.topics.ids},
            resources={*old.configs.resources, *self.configs.resources},
            broker_ids={*old.brokers, *self.brokers},
        )


class TopicChange(NamedTuple):
    old: TopicImage
    new: TopicImage


class MetadataDelta(NamedTuple):
    """The difference between two images, for those who act on changes.

    A topic that was deleted and made again under its name is in `deleted_topics` and in `created_topics`.
    """

    created_topics: tuple[TopicImage, ...] = ()
    deleted_topics: tuple[TopicImage, ...] = ()
    changed_topics: tuple[TopicChange, ...] = ()
    changed_configs: frozenset[ConfigResource] = frozenset()
    changed_brokers: frozenset[int] = frozenset()

    @property
    def is_empty(self) -> bool:
        return not any(self)


def diff_among(
    old: MetadataImage,
    new: MetadataImage,
    *,
    topic_ids: Iterable[Uuid],
    resources: Iterable[ConfigResource],
    broker_ids: Iterable[int],
) -> MetadataDelta:
    """What changed, looking only at the named topics, resources and brokers. Naming too many is harmless."""
    created, deleted, changed = [], [], []
    for topic_id in topic_ids:
        before, after = old.topics.by_id(topic_id), new.topics.by_id(topic_id)
        if before is after:
            continue
        if before is None and after is not None:
            created.append(after)
        elif before is not None and after is None:
            deleted.append(before)
        elif before is not None and after is not None and before != after:
            changed.append(TopicChange(before, after))
    return MetadataDelta(
        tuple(created),
        tuple(deleted),
        tuple(changed),
        frozenset(resource for resource in resources if old.configs.of(resource) != new.configs.of(resource)),
        frozenset(broker_id for broker_id in broker_ids if old.brokers.get(broker_id) != new.brokers.get(broker_id)),
    )
