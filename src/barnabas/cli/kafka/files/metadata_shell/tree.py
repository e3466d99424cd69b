"""The metadata as a tree of folders and files, with Kafka's names for them, and what is in the files."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from barnabas.cli.kafka.cluster.feature_levels import ALL_NAMES
from barnabas.cli.kafka.java.java_values import double_text
from barnabas.cli.kafka.tool import KAFKA_VERSION
from barnabas.metadata.image import RECOVERED, Endpoint, ResourceType
from barnabas.protocol import uuids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.metadata.image import (
        BrokerImage,
        FeaturesImage,
        MetadataImage,
        PartitionImage,
        QuotaEntity,
        TopicImage,
    )
    from barnabas.protocol import messages as m

_INT16_MAX: Final = (1 << 15) - 1
_FINALIZED: Final = "finalized_"
_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_RESOURCE_TYPES: Final = ("UNKNOWN", "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER")
_PATTERN_TYPES: Final = ("UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED")
_PERMISSIONS: Final = ("UNKNOWN", "ANY", "DENY", "ALLOW")
_OPERATIONS: Final = (
    "UNKNOWN",
    "ANY",
    "ALL",
    "READ",
    "WRITE",
    "CREATE",
    "DELETE",
    "ALTER",
    "DESCRIBE",
    "CLUSTER_ACTION",
    "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS",
    "IDEMPOTENT_WRITE",
    "CREATE_TOKENS",
    "DESCRIBE_TOKENS",
    "TWO_PHASE_COMMIT",
)
_QUOTA_NAMES: Final = (("client-id", "clientId"), ("ip", "ip"), ("user", "user"))
_COMMIT: Final = "unknown"


class Folder:
    """A folder. What is in it is made when somebody looks."""

    def __init__(
        self, makers: Mapping[str, Callable[[], Node | None]], otherwise: Callable[[str], Node | None] | None = None
    ) -> None:
        self._makers = makers
        self._otherwise = otherwise

    @property
    def names(self) -> list[str]:
        return sorted(self._makers)

    def child(self, name: str) -> Node | None:
        maker = self._makers.get(name)
        if maker is None:
            return None if self._otherwise is None else self._otherwise(name)
        return maker()


Node: TypeAlias = "Folder | str"
"""A folder, or a file by what is in it."""


def tree_of(image: MetadataImage) -> Folder:
    return Folder({"local": _local, "image": lambda: _image(image)})


def _local() -> Folder:
    """About the tool itself."""
    return _files({"version": KAFKA_VERSION, "commitId": _COMMIT})


def _files(contents: Mapping[str, str]) -> Folder:
    return Folder({name: partial(str, text) for name, text in contents.items()})


def _image(image: MetadataImage) -> Folder:
    return Folder(
        {
            "provenance": lambda: _provenance(image),
            "features": lambda: _features(image.features),
            "cluster": lambda: _cluster(image),
            "topics": lambda: _topics(image),
            "configs": lambda: _configs(image),
            "clientQuotas": lambda: _quotas(image),
            "producerIds": lambda: _files({"nextProducerId": str(image.next_producer_id)}),
            "acls": lambda: Folder({"byId": lambda: _acls(image)}),
            "scram": lambda: _scram(image),
            "delegationToken": lambda: _files({each: _token(token) for each, token in image.delegation_tokens.items()}),
        }
    )


def _provenance(image: MetadataImage) -> str:
    moment = datetime.fromtimestamp(image.timestamp_ms // 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    fraction = f".{image.timestamp_ms % 1_000:03d}".rstrip("0").rstrip(".")
    return f"offset {image.offset}, epoch {image.epoch}, time {moment}{fraction}Z[UTC]"


def _features(features: FeaturesImage) -> Folder:
    name = ALL_NAMES.get(features.metadata_version)
    contents = {"metadataVersion": "Optional.empty" if name is None else f"Optional[{name}]"}
    contents |= {f"{_FINALIZED}{feature}": str(level) for feature, level in features.finalized.items()}
    return Folder(
        {name: partial(str, text) for name, text in contents.items()},
        lambda name: "0" if name.startswith(_FINALIZED) else None,
    )


def _cluster(image: MetadataImage) -> Folder:
    return Folder(
        {
            "brokers": lambda: Folder({str(each.id): partial(_broker, each) for each in image.brokers.values()}),
            "controllers": lambda: Folder(
                {str(node_id): partial(_controller, each) for node_id, each in image.controllers.items()}
            ),
        }
    )


def _broker(broker: BrokerImage) -> str:
    features = {name: (levels.lowest, levels.highest) for name, levels in broker.features.items()}
    return (
        f"BrokerRegistration(id={broker.id}, epoch={broker.epoch}, "
        f"incarnationId={uuids.to_text(broker.incarnation_id)}, listeners={_listeners(broker.endpoints)}, "
        f"supportedFeatures={_levels(features)}, rack={_optional(broker.rack)}, "
        f"fenced={_boolean(broker.fenced)}, inControlledShutdown={_boolean(broker.in_controlled_shutdown)}, "
        f"isMigratingZkBroker={_boolean(broker.is_migrating_zk_broker)}, "
        f"directories={_listed(map(uuids.to_text, broker.directories))}, "
        f"cordonedDirectories={_listed(map(uuids.to_text, broker.cordoned_directories or ()))})"
    )


def _controller(record: m.RegisterControllerRecord) -> str:
    endpoints = [Endpoint(each.name, each.host, each.port, each.security_protocol) for each in record.end_points]
    features = {each.name: (each.min_supported_version, each.max_supported_version) for each in record.features}
    return (
        f"ControllerRegistration(id={record.controller_id}, incarnationId={uuids.to_text(record.incarnation_id)}, "
        f"zkMigrationReady={_boolean(record.zk_migration_ready)}, listeners={_listeners(endpoints)}, "
        f"supportedFeatures={_levels(features)})"
    )


def _listeners(endpoints: Iterable[Endpoint]) -> str:
    return _listed(
        f"Endpoint(listenerName='{each.name}', securityProtocol={_named(_PROTOCOLS, each.security_protocol)}, "
        f"host='{each.host}', port={each.port})"
        for each in sorted(endpoints, key=lambda endpoint: endpoint.name)
    )


def _levels(features: Mapping[str, tuple[int, int]]) -> str:
    shown = []
    for name, (lowest, highest) in sorted(features.items()):
        levels = f"{lowest}+" if highest == _INT16_MAX else f"{lowest}-{highest}"
        shown.append(f"{name}: {lowest if lowest == highest else levels}")
    return "{" + ", ".join(shown) + "}"


def _topics(image: MetadataImage) -> Folder:
    topics = image.topics
    return Folder(
        {
            "byName": lambda: Folder({name: partial(_topic, topic) for name, topic in topics.names.items()}),
            "byId": lambda: Folder({uuids.to_text(each): partial(_topic, topic) for each, topic in topics.ids.items()}),
        }
    )


def _topic(topic: TopicImage) -> Folder:
    makers: dict[str, Callable[[], Node | None]] = {
        str(number): partial(_partition, partition) for number, partition in enumerate(topic.partitions)
    }
    makers |= {"name": lambda: topic.name, "id": lambda: uuids.to_text(topic.topic_id)}

    def numbered(name: str) -> Node | None:
        """Java takes `00` for the number that it is."""
        number = int(name) if name.isdecimal() else -1
        return _partition(topic.partitions[number]) if 0 <= number < len(topic.partitions) else None

    return Folder(makers, numbered)


def _partition(partition: PartitionImage) -> str:
    state = "RECOVERED" if partition.leader_recovery_state == RECOVERED else "RECOVERING"
    return (
        f"PartitionRegistration(replicas={_listed(partition.replicas)}, "
        f"directories={_listed(map(uuids.to_text, partition.directories))}, isr={_listed(partition.isr)}, "
        f"removingReplicas={_listed(partition.removing_replicas)}, "
        f"addingReplicas={_listed(partition.adding_replicas)}, elr={_listed(partition.elr)}, "
        f"lastKnownElr={_listed(partition.last_known_elr)}, leader={partition.leader}, "
        f"leaderRecoveryState={state}, leaderEpoch={partition.leader_epoch}, "
        f"partitionEpoch={partition.partition_epoch})"
    )


def _configs(image: MetadataImage) -> Folder:
    return Folder(
        {
            f"{ResourceType(resource.type).name}{resource.name and ':'}{resource.name}": partial(_files, configs)
            for resource, configs in image.configs.resources.items()
        }
    )


def _quotas(image: MetadataImage) -> Folder:
    """A default entity has no name in Kafka's tree, and nothing in it: only what is named can be looked at."""
    named = {
        entity: quotas for entity, quotas in image.client_quotas.items() if all(name is not None for _, name in entity)
    }
    by_name = {_quota_name(entity): quotas for entity, quotas in named.items()}
    names = dict.fromkeys(map(_quota_name, image.client_quotas))
    return Folder({name: partial(_quota, by_name.get(name)) for name in names})


def _quota(quotas: Mapping[str, float] | None) -> Folder | None:
    return None if quotas is None else _files({key: double_text(value) for key, value in quotas.items()})


def _quota_name(entity: QuotaEntity) -> str:
    parts = dict(entity)
    return "_".join(
        f"{shown}({_escaped(name)})" for kind, shown in _QUOTA_NAMES if (name := parts.get(kind)) is not None
    )


def _escaped(name: str) -> str:
    return name.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")


def _acls(image: MetadataImage) -> Folder:
    return Folder({uuids.to_text(each): partial(_acl, record) for each, record in image.acls.items()})


def _acl(record: m.AccessControlEntryRecord) -> str:
    return (
        f"StandardAcl[resourceType={_named(_RESOURCE_TYPES, record.resource_type)}, "
        f"resourceName={record.resource_name}, patternType={_named(_PATTERN_TYPES, record.pattern_type)}, "
        f"principal={record.principal}, host={record.host}, operation={_named(_OPERATIONS, record.operation)}, "
        f"permissionType={_named(_PERMISSIONS, record.permission_type)}]"
    )


def _scram(image: MetadataImage) -> Folder:
    def users(mechanism: int) -> Folder:
        found = {key.user: each for key, each in image.scram_credentials.items() if key.mechanism == mechanism}
        return Folder({user: partial(_credential, each) for user, each in found.items()})

    return Folder({name: partial(users, number) for number, name in _MECHANISMS.items()})


def _credential(record: m.UserScramCredentialRecord) -> str:
    return (
        f"ScramCredentialData(salt={bytes(record.salt).hex()}, storedKey={bytes(record.stored_key).hex()}, "
        f"serverKey={bytes(record.server_key).hex()}, iterations={record.iterations})"
    )


def _token(record: m.DelegationTokenRecord) -> str:
    return (
        f"DelegationTokenDatatokenId={record.token_id}(owner={record.owner}(tokenRequester={record.requester}"
        f"(renewers={' '.join(record.renewers)}, issueTimestamp={record.issue_timestamp}, "
        f"maxTimestamp={record.max_timestamp}), expiryTimestamp={record.expiration_timestamp}"
    )


def _listed(values: Iterable[object]) -> str:
    return f"[{', '.join(map(str, values))}]"


def _optional(value: str | None) -> str:
    return "Optional.empty" if value is None else f"Optional[{value}]"


def _boolean(value: object) -> str:
    return "true" if value else "false"


def _named(names: tuple[str, ...], number: int) -> str:
    return names[number] if 0 <= number < len(names) else names[0]
