"""Requests of any API and version, made up field by field from the schemas, and by hand where fields have to agree."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from barnabas.metadata.topic_names import INTERNAL_TOPICS
from barnabas.protocol import messages as m
from barnabas.protocol.api import APIS, ApiKey
from barnabas.protocol.compiler.schema import message_schema
from barnabas.protocol.compiler.structs import message_class
from barnabas.protocol.uuids import ZERO_UUID
from interop.differential import pools
from interop.differential.pools import Actor, pool
from interop.differential.references import (
    MemberEpoch,
    MemberId,
    Name,
    Owned,
    ProducerEpoch,
    ProducerId,
    Records,
    Step,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.compiler.schema import Field, MessageSchema, StructSchema
    from interop.differential.chance import Chance

FLAWS = ("crc", "length", "magic", "count", "control", "base offset", "codec", "garbage", "two", "empty", "null")
TRANSACTIONAL, CONTROL, LOG_APPEND_TIME, GZIP = 0x10, 0x20, 0x08, 1
JOIN, LEAVE, LEAVE_FOR_A_WHILE = 0, -1, -2
BY_ID_FROM = 13

# Requests have references in the places of values, which their types know nothing of: so these requests are `Any`.


def step(chance: Chance, api: ApiKey, version: int) -> Step:
    actor = Actor(
        version,
        Name(chance.choice((*pools.TOPICS[:1] * 4, *pools.TOPICS))),
        chance.choice((0, 0, 0, 1)),
        chance.choice((0, 0, 1, 2)),
        chance.choice((*pools.GROUPS[:1] * 2, *pools.GROUPS)),
        chance.choice((0, 0, 1, 2)),
        chance.choice((0, 0, 1)),
    )
    return made_by(chance, api, actor)


def made_by(chance: Chance, api: ApiKey, actor: Actor) -> Step:
    schema = message_schema(APIS[api].request)
    request = _struct(
        chance, actor, schema, schema.root, message_class(schema.name), APIS[api].request[: -len("Request")]
    )
    adjust = ADJUSTMENTS.get(api)
    if adjust is not None:
        adjust(chance, actor, request)
    cut = chance.choice((1, 2, -1)) if chance.one_in(150) else 0
    return Step(request, actor.version, actor.connection, actor.group, actor.member, actor.producer, cut)


def _struct(
    chance: Chance, actor: Actor, schema: MessageSchema, struct: StructSchema, cls: type[Any], path: str
) -> Any:
    values = {
        field.attribute: _field(chance, actor, schema, field, cls, f"{path}.{field.attribute}")
        for field in struct.fields
        if field.versions.covers(actor.version) and field.type != "records"
    }
    return cls(**values)


def _field(chance: Chance, actor: Actor, schema: MessageSchema, field: Field, cls: type[Any], path: str) -> Any:
    if field.is_array:
        if field.nullable.covers(actor.version) and chance.one_in(5):
            return None
        return [_element(chance, actor, schema, field, path) for _ in range(chance.choice((1, 1, 1, 1, 2, 0, 3)))]
    if field.is_struct and field.nullable.covers(actor.version) and not chance.one_in(3):
        return None
    value = _element(chance, actor, schema, field, path)
    return "" if value is None and not field.nullable.covers(actor.version) else value


def _element(chance: Chance, actor: Actor, schema: MessageSchema, field: Field, path: str) -> Any:
    if field.is_struct:
        inner = getattr(message_class(schema.name), field.type)
        return _struct(chance, actor, schema, schema.structs[field.type], inner, path)
    return pool(path, field.type)(chance, actor)


def _produce(chance: Chance, actor: Actor, request: Any) -> None:
    is_transactional = False
    if not chance.one_in(40):
        request.topic_data = _once(request.topic_data)
    for topic in request.topic_data:
        if not chance.one_in(40):
            topic.partition_data = _once(topic.partition_data)
        for partition in topic.partition_data:
            name = topic.name if actor.version < BY_ID_FROM else actor.topic
            partition.records = _records(chance, actor, name, partition.index)
            if partition.records is not None:
                is_transactional |= bool(partition.records.attributes & TRANSACTIONAL)
    if is_transactional != chance.one_in(12):
        request.transactional_id = pools.transactional_id(chance, actor)
    if chance.one_in(15):
        request.acks = chance.choice((-1, 0, 1, 2))
    elif request.acks not in {-1, 0, 1}:
        request.acks = -1


def _once(named: list[Any]) -> list[Any]:
    """Each topic or partition once: few differences say anything about what a request names twice."""
    return list(
        {
            repr((getattr(each, "name", 0), getattr(each, "topic_id", 0), getattr(each, "index", 0))): each
            for each in named
        }.values()
    )


def _records(chance: Chance, actor: Actor, topic: Any, partition: int) -> Any:
    kind = chance.below(4)
    records = Records(
        topic if isinstance(topic, Name) else Name("gone"),
        partition,
        values=chance.choice((1, 1, 2, 3)),
        minutes=chance.choice((0, 0, 1, 2)),
        key=chance.choice((b"k", b"k", b"l", None)),
        attributes=chance.choice((0, 0, 0, GZIP)),
    )
    if kind >= 2:
        records = replace(
            records,
            producer=actor.producer,
            epoch_off_by=chance.choice((0, 0, 0, 0, 0, 1, -1)),
            sequence_off_by=chance.choice((0, 0, 0, 0, 0, -1, 1, 5)),
        )
    if kind == 3:
        records = replace(records, attributes=records.attributes | TRANSACTIONAL)
    if chance.one_in(15):
        flaw = chance.choice(FLAWS)
        return None if flaw == "null" else replace(records, flaw=flaw)
    return records


def _create_topics(chance: Chance, actor: Actor, request: m.CreateTopicsRequest) -> None:
    for topic in request.topics:
        if topic.assignments and chance.one_in(3):
            topic.num_partitions = topic.replication_factor = -1
        elif topic.assignments and not chance.one_in(3):
            topic.assignments = []
        if not chance.one_in(4):
            topic.configs = []
        for config in topic.configs:
            config.name, value = chance.choice(pools.TOPIC_CONFIGS)
            config.value = None if chance.one_in(20) else value


def _create_partitions(chance: Chance, actor: Actor, request: Any) -> None:
    """Not for the topics of the coordinators, which would then be sought elsewhere for the rest of the run."""
    for topic in request.topics:
        if topic.name in INTERNAL_TOPICS:
            topic.name = Name("gone")
        if not chance.one_in(3):
            topic.assignments = None


def _config_resource(chance: Chance, resource: Any) -> tuple[tuple[str, str], ...]:
    """Makes name and settings of a resource fit its type, for the most part."""
    of_type = chance.choice(
        (pools.TOPIC,) * 6 + (pools.BROKER_RESOURCE, pools.GROUP, pools.GROUP, pools.CLIENT_METRICS)
    )
    resource.resource_type = of_type
    if of_type == pools.BROKER_RESOURCE:
        resource.resource_name = chance.choice(("1", "1", "", "2", "one", "-1"))
    elif of_type == pools.GROUP:
        resource.resource_name = chance.choice((Name("g0"), Name("g0"), Name("gone"), ""))
    elif of_type == pools.CLIENT_METRICS:
        resource.resource_name = chance.choice((Name("metrics"), Name("metrics"), Name("gone"), ""))
    else:
        resource.resource_name = chance.choice((Name("t0"), Name("t0"), Name("t1"), Name("gone"), "", "a b"))
    if chance.one_in(25):
        resource.resource_type = chance.choice((pools.UNKNOWN, 1, 3, pools.TOPIC, pools.GROUP, -1))
    return pools.CONFIGS_OF[of_type]


def _describe_configs(chance: Chance, actor: Actor, request: m.DescribeConfigsRequest) -> None:
    for resource in request.resources:
        configs = _config_resource(chance, resource)
        if resource.configuration_keys is not None:
            resource.configuration_keys = [chance.choice(configs)[0] for _ in resource.configuration_keys]


def _alter_configs(
    chance: Chance, actor: Actor, request: m.AlterConfigsRequest | m.IncrementalAlterConfigsRequest
) -> None:
    for resource in request.resources:
        configs = _config_resource(chance, resource)
        if not chance.one_in(15):
            resource.configs = resource.configs[:2]
        for config in resource.configs:
            config.name, value = chance.choice(configs)
            config.value = None if chance.one_in(20) else value
            if isinstance(config, m.IncrementalAlterConfigsRequest.AlterableConfig):
                config.config_operation = (
                    chance.choice((0, 0, 0, 1, 2, 3)) if not chance.one_in(40) else chance.choice((4, -1))
                )
    _resources_once(chance, request)


def _resources_once(chance: Chance, request: Any) -> None:
    if not chance.one_in(40):
        named = {(each.resource_type, each.resource_name): each for each in request.resources}
        request.resources = list(named.values())


def _sync_group(chance: Chance, actor: Actor, request: Any) -> None:
    for assignment, member in zip(request.assignments, range(pools.MEMBERS), strict=False):
        if not chance.one_in(8):
            assignment.member_id = MemberId(actor.group, member)


def _consumer_group_heartbeat(chance: Chance, actor: Actor, request: Any) -> None:
    kind = chance.choice(("join", "beat", "beat", "own", "own", "leave", "subscribe", "any"))
    if kind == "any":
        return
    request.member_id = MemberId(actor.group, actor.member, f"m{actor.member}" if actor.version else "")
    request.member_epoch = MemberEpoch(actor.group, actor.member)
    request.instance_id = "i2" if actor.member == pools.MEMBERS - 1 else None
    request.rack_id = request.server_assignor = request.subscribed_topic_regex = None
    names, request.subscribed_topic_names, request.topic_partitions = request.subscribed_topic_names, None, None
    if kind == "join":
        request.member_epoch, request.rebalance_timeout_ms = JOIN, pools.REBALANCE_TIMEOUT_MS
        request.subscribed_topic_names, request.topic_partitions = names or [Name("t0")], []
    elif kind == "own":
        request.topic_partitions = Owned(actor.group, actor.member)
    elif kind == "leave":
        request.member_epoch = chance.choice((LEAVE, LEAVE, LEAVE_FOR_A_WHILE))
    elif kind == "subscribe":
        request.subscribed_topic_names = names


def _init_producer_id(chance: Chance, actor: Actor, request: Any) -> None:
    if (request.producer_id == -1) != (request.producer_epoch == -1) and not chance.one_in(6):
        request.producer_id, request.producer_epoch = ProducerId(actor.producer), ProducerEpoch(actor.producer)


def _delete_topics(chance: Chance, actor: Actor, request: Any) -> None:
    """Without the topics of the coordinators: it takes long until these are there again."""
    request.topic_names = [Name("gone") if name in INTERNAL_TOPICS else name for name in request.topic_names]
    for topic in request.topics:
        if topic.name in INTERNAL_TOPICS:
            topic.name = Name("gone")
    for topic in request.topics:
        if topic.topic_id != ZERO_UUID and not chance.one_in(10):
            topic.name = None


def _metadata(chance: Chance, actor: Actor, request: Any) -> None:
    for topic in request.topics or ():
        if actor.version >= 10 and not chance.one_in(3):
            topic.topic_id = ZERO_UUID
        elif actor.version >= 10 and not chance.one_in(6):
            topic.name = None
        if topic.topic_id == ZERO_UUID and topic.name is None:
            topic.name = Name("t0")


def _telemetry(chance: Chance, actor: Actor, request: m.PushTelemetryRequest) -> None:
    if request.terminating and not chance.one_in(4):
        request.terminating = False


def _add_partitions(chance: Chance, actor: Actor, request: Any) -> None:
    if not chance.one_in(20):
        request.transactions = list({repr(each.transactional_id): each for each in request.transactions}.values())
    for transaction in request.transactions:
        if actor.version >= 4 and chance.one_in(2):
            transaction.verify_only = False


def _join_group(chance: Chance, actor: Actor, request: Any) -> None:
    if not chance.one_in(20):
        request.protocols = _once(request.protocols)


ADJUSTMENTS: dict[ApiKey, Callable[[Chance, Actor, Any], None]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.DESCRIBE_CONFIGS: _describe_configs,
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _alter_configs,
    ApiKey.SYNC_GROUP: _sync_group,
    ApiKey.JOIN_GROUP: _join_group,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _consumer_group_heartbeat,
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.METADATA: _metadata,
    ApiKey.PUSH_TELEMETRY: _telemetry,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions,
}
