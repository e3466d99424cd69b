"""What a decision takes besides the state, and what it returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from barnabas.metadata.versions import VersionedRecord
    from barnabas.protocol import messages as m
    from barnabas.protocol.compiler.structs import Message
    from barnabas.protocol.uuids import Uuid

MAX_RECORDS_PER_BATCH = 10_000
"""Records that may be appended as one batch. Larger results are split, or rejected if they must stay together."""
MAX_PARTITIONS_PER_REQUEST = 10_000
NO_GRACE = -1


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
    """The dynamic broker settings in effect: those of all brokers, and those of the controller's own node."""

    cluster: Mapping[str, str]
    node: Mapping[str, str]


class ConfigRules(Protocol):
    """What decisions need to know about settings. Checks raise `KafkaError` with Kafka's code and message."""

    def check_topic(self, overrides: Mapping[str, str], layers: DynamicLayers) -> None: ...

    def check_group(self, overrides: Mapping[str, str], layers: DynamicLayers) -> None: ...

    def check_cluster(self, configs: Mapping[str, str], layers: DynamicLayers) -> None:
        """New dynamic settings for all brokers."""
        ...

    def check_broker(self, configs: Mapping[str, str], layers: DynamicLayers) -> None:
        """New dynamic settings of one broker."""
        ...

    def check_client_metrics(self, configs: Mapping[str, str]) -> None:
        """New settings of a subscription to clients' metrics."""
        ...

    def is_list(self, resource_type: int, name: str) -> bool: ...

    def default_text(self, resource_type: int, name: str) -> str | None: ...

    def topic_configs(self, overrides: Mapping[str, str], layers: DynamicLayers) -> Sequence[ConfigEntry]:
        """All settings of a topic with these overrides, sorted by name."""
        ...

    def describe(
        self, request: m.DescribeConfigsRequest, layers: DynamicLayers, stored: Callable[[int, str], Mapping[str, str]]
    ) -> m.DescribeConfigsResponse:
        """`stored` are the settings in the metadata log, by type and name of their resource."""
        ...


class Settings(NamedTuple):
    """The part of the controller's static configuration that decisions need."""

    node_id: int
    cluster_id: str
    default_partition_count: int = 1
    default_replication_factor: int = 1
    is_topic_deletion_enabled: bool = True
    session_timeout_ms: int = 9000
    disconnect_grace_ms: int = NO_GRACE
    """How long a broker whose connection was closed may take to come back before it is fenced, see `sessions`."""
    min_insync_replicas: int = 1
    is_unclean_election_enabled: bool = False
    sole_broker_id: int | None = None
    """The broker whose data folder is locked by this process, which is also the only voter. An incarnation from before
    this leadership cannot be alive, so there is no need to wait for its session to expire."""


class Context(NamedTuple):
    """The moment of a decision."""

    now_ms: int
    """Monotonic: only differences are meaningful."""
    next_offset: int
    """The end of the log, that is, the offset of the first record that this decision writes."""
    random: RandomSource
    rules: ConfigRules
    settings: Settings
    kraft_version: int = 1
    """How the quorum knows its voters, which control records say."""


class Contact(NamedTuple):
    """A sign of life from a broker. It is not recorded: a new controller starts new sessions."""

    broker_id: int
    at_ms: int
    metadata_offset: int


class Decision(NamedTuple):
    """The records to append, in order, and the response to send when they are committed."""

    response: Message
    records: Sequence[VersionedRecord] = ()
    contact: Contact | None = None
    parts: Iterable[Sequence[VersionedRecord]] = ()
    """Further records, which take a while to find: to be taken before anything else is decided."""
