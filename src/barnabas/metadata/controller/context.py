"""What a decision is given besides the state, and what it gives back."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.metadata.versions import VersionedRecord
    from barnabas.protocol.structs import Message
    from barnabas.protocol.uuids import Uuid

MAX_RECORDS_PER_BATCH = 10_000
"""Records that one decision may append as one batch; larger results are split, or refused where they must not be."""
MAX_PARTITIONS_PER_REQUEST = 10_000


class RandomSource(Protocol):
    def uuid(self) -> Uuid: ...

    def below(self, limit: int) -> int: ...


class ConfigEntry(NamedTuple):
    """A setting in effect, as CreateTopics reports it."""

    name: str
    value: str | None
    source: int
    is_read_only: bool
    is_sensitive: bool


class DynamicLayers(NamedTuple):
    """The dynamic broker settings that are in force: those of all brokers, and those of the controller's own node."""

    cluster: Mapping[str, str]
    node: Mapping[str, str]


class ConfigRules(Protocol):
    """What is known about settings. Checks raise `KafkaError` with Kafka's code and message."""

    def check_topic(self, overrides: Mapping[str, str], layers: DynamicLayers) -> None: ...

    def check_group(self, overrides: Mapping[str, str], layers: DynamicLayers) -> None: ...

    def check_cluster(self, configs: Mapping[str, str], layers: DynamicLayers) -> None:
        """New dynamic settings for all brokers."""
        ...

    def check_broker(self, configs: Mapping[str, str], layers: DynamicLayers) -> None:
        """New dynamic settings of one broker."""
        ...

    def is_list(self, resource_type: int, name: str) -> bool: ...

    def default_text(self, resource_type: int, name: str) -> str | None: ...

    def topic_configs(self, overrides: Mapping[str, str], layers: DynamicLayers) -> Sequence[ConfigEntry]:
        """Every setting of a topic with these overrides, in the order of their names."""
        ...


class Settings(NamedTuple):
    """The controller's static configuration, as far as decisions need it."""

    node_id: int
    cluster_id: str
    default_partition_count: int = 1
    default_replication_factor: int = 1
    is_topic_deletion_enabled: bool = True
    session_timeout_ms: int = 9000
    min_insync_replicas: int = 1
    is_unclean_election_enabled: bool = False
    sole_broker_id: int | None = None
    """The broker whose data folder this process has locked while being the only voter. An incarnation of it from
    before this leadership cannot be alive, so that its session need not be waited out."""


class Context(NamedTuple):
    """The moment of a decision."""

    now_ms: int
    """Monotonic: only differences count."""
    next_offset: int
    """Where the log ends, that is the offset of the first record that this decision writes."""
    random: RandomSource
    rules: ConfigRules
    settings: Settings


class Contact(NamedTuple):
    """A broker has shown that it lives; not a record, since a new controller learns it anew."""

    broker_id: int
    at_ms: int
    metadata_offset: int


class Decision(NamedTuple):
    """Records to append in order, and the response to give when they are committed."""

    response: Message
    records: Sequence[VersionedRecord] = ()
    contact: Contact | None = None
