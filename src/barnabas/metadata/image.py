"""The state of the cluster at one offset of the metadata log, as an immutable value.

Consecutive images share every part that did not change, so `old.topics.get("t") is new.topics.get("t")` shows in
constant time that a topic is unchanged. The mappings inside an image are never modified.

The image has the contents of every kind of metadata record. Those that this software does not act on yet (ACLs, SCRAM
credentials, quotas, delegation tokens) are kept too, so that a snapshot loses nothing.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from barnabas.metadata import versions
from barnabas.protocol.config_resources import ResourceType as ResourceType  # of which every ConfigResource is
from barnabas.protocol.uuids import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from barnabas.protocol import messages as m

NO_LEADER = -1
RECOVERED = 0
RECOVERING = 1
"""Leader recovery states: a leader elected from outside the ISR is RECOVERING until it reports otherwise."""

MIGRATING_DIRECTORY = ZERO_UUID
UNASSIGNED_DIRECTORY = Uuid(bytes(15) + b"\x01")
LOST_DIRECTORY = Uuid(bytes(15) + b"\x02")
_RESERVED_DIRECTORIES = 100


def is_reserved_directory(directory: Uuid) -> bool:
    """The first hundred ids do not identify a directory, but a state (migrating, unassigned, lost)."""
    return int.from_bytes(directory, "big") < _RESERVED_DIRECTORIES


class PartitionImage(NamedTuple):
    """One partition. `directories[i]` is the directory of the replica on broker `replicas[i]`."""

    replicas: tuple[int, ...]
    directories: tuple[Uuid, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    elr: tuple[int, ...] = ()
    """Eligible leader replicas: not in sync, but known to have every committed record."""
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
    """The address of a listener of a node."""

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


class ConfigResource(NamedTuple):
    type: int
    name: str


DEFAULT_BROKERS = ConfigResource(ResourceType.BROKER, "")
"""The resource that holds the settings of all brokers of the cluster."""

_NO_CONFIGS: Mapping[str, str] = {}


class ConfigsImage:
    """Dynamic configuration by resource: only what was set, without defaults."""

    __slots__ = ("resources",)

    def __init__(self, resources: Mapping[ConfigResource, Mapping[str, str]]) -> None:
        self.resources = resources

    def of(self, resource: ConfigResource) -> Mapping[str, str]:
        return self.resources.get(resource, _NO_CONFIGS)

    def of_topic(self, name: str) -> Mapping[str, str]:
        return self.of(ConfigResource(ResourceType.TOPIC, name))

    def of_broker(self, broker_id: int | str) -> Mapping[str, str]:
        """The settings of one broker, or with an empty string those of all brokers of the cluster."""
        return self.of(ConfigResource(ResourceType.BROKER, str(broker_id)))

    def of_group(self, group_id: str) -> Mapping[str, str]:
        return self.of(ConfigResource(ResourceType.GROUP, group_id))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfigsImage) and self.resources == other.resources

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ConfigsImage({dict(self.resources)!r})"


class ConfigOperation(IntEnum):
    """What IncrementalAlterConfigs does to a setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def edited_list(text: str, operation: ConfigOperation, operand: str) -> str:
    """A list after APPEND of the entries that it does not have yet, or SUBTRACT of those that it has.

    As in Kafka, entries are compared as text, including any blanks.
    """
    parts = [part for part in text.split(",") if part]
    for part in operand.split(","):
        if operation is ConfigOperation.APPEND and part not in parts:
            parts.append(part)
        elif operation is ConfigOperation.SUBTRACT and part in parts:
            parts.remove(part)
    return ",".join(parts)


class FeaturesImage(NamedTuple):
    """Finalized feature levels. A feature at level 0 is absent."""

    metadata_version: int = 0
    """0 until the first FeatureLevelRecord, that is, while the log is empty."""
    finalized: Mapping[str, int] = {}
    """Without metadata.version."""
    zk_migration_state: int | None = None

    def levels(self, kraft_version: int) -> dict[str, int]:
        """All finalized levels. kraft.version is finalized by control records, which are not in the image."""
        return {
            **self.finalized,
            versions.FEATURE_NAME: self.metadata_version,
            versions.KRAFT_FEATURE: kraft_version,
        }

    @property
    def is_elr_enabled(self) -> bool:
        return versions.supports_elr(self.metadata_version) and self.finalized.get(versions.ELR_FEATURE, 0) >= 1


QuotaEntity = tuple[tuple[str, str | None], ...]
"""Pairs of entity type and name, sorted by type; None as the name is the default entity of that type."""


class ScramKey(NamedTuple):
    mechanism: int
    user: str


class MetadataImage(NamedTuple):
    """Everything the metadata log says up to and including `offset`."""

    cluster_id: str
    offset: int = -1
    epoch: int = 0
    """The leader epoch of the last record in the image."""
    timestamp_ms: int = -1
    """When the last batch in the image was written."""
    controller_id: int = -1
    """The leader of the quorum according to the last LeaderChange record."""
    features: FeaturesImage = FeaturesImage()
    brokers: Mapping[int, BrokerImage] = {}
    controllers: Mapping[int, m.RegisterControllerRecord] = {}
    topics: TopicsImage = TopicsImage({}, {})
    configs: ConfigsImage = ConfigsImage({})
    client_quotas: Mapping[QuotaEntity, Mapping[str, float]] = {}
    next_producer_id: int = -1
    """The first id of the next block to allocate; -1 before the first block."""
    acls: Mapping[Uuid, m.AccessControlEntryRecord] = {}
    scram_credentials: Mapping[ScramKey, m.UserScramCredentialRecord] = {}
    delegation_tokens: Mapping[str, m.DelegationTokenRecord] = {}

    def diff(self, old: MetadataImage) -> MetadataDelta:
        """What changed since `old`, found by looking at every topic, broker and configuration."""
        return diff_among(
            old,
            self,
            topic_ids={**old.topics.ids, **self.topics.ids},
            resources={*old.configs.resources, *self.configs.resources},
            broker_ids={*old.brokers, *self.brokers},
        )


class TopicChange(NamedTuple):
    old: TopicImage
    new: TopicImage


class MetadataDelta(NamedTuple):
    """The difference between two images.

    A topic that was deleted and created again with the same name is in both `deleted_topics` and `created_topics`.
    """

    created_topics: tuple[TopicImage, ...] = ()
    deleted_topics: tuple[TopicImage, ...] = ()
    changed_topics: tuple[TopicChange, ...] = ()
    changed_configs: frozenset[ConfigResource] = frozenset()
    changed_brokers: frozenset[int] = frozenset()
    changed_sections: frozenset[str] = frozenset()
    """The names of the other fields of the image that changed."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing changed that a broker acts on. The next producer id concerns only the controller."""
        return not any(self)


_WHOLE_SECTIONS = (
    "controller_id",
    "features",
    "controllers",
    "client_quotas",
    "acls",
    "scram_credentials",
    "delegation_tokens",
)


def diff_among(
    old: MetadataImage,
    new: MetadataImage,
    *,
    topic_ids: Iterable[Uuid],
    resources: Iterable[ConfigResource],
    broker_ids: Iterable[int],
) -> MetadataDelta:
    """What changed among the given topics, resources and brokers. Including unchanged ones is harmless."""
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
        frozenset(name for name in _WHOLE_SECTIONS if _differ(getattr(old, name), getattr(new, name))),
    )


def _differ(old: object, new: object) -> bool:
    # Images share what did not change, so only what was written to needs to be compared.
    return old is not new and old != new
