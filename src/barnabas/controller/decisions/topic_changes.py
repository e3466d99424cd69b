"""CreateTopics, DeleteTopics and CreatePartitions.

The topics of a request are independent of each other: an error for one does not affect the others, and the response has
a result for each. All records of one request, or of one slice of a large one, are appended as one batch.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from barnabas.controller.decisions.assignments import assigned_partition, placed_partitions
from barnabas.controller.decisions.context import MAX_PARTITIONS_PER_REQUEST, MAX_RECORDS_PER_BATCH, Decision
from barnabas.metadata.conversions import partition_to_record
from barnabas.metadata.image import ResourceType
from barnabas.metadata.topic_names import CLUSTER_METADATA, check_topic_name
from barnabas.metadata.versions import VersionedRecord
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error, KafkaError
from barnabas.protocol.refusals import TOO_MANY_CHANGES
from barnabas.protocol.uuids import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.controller.decisions.context import Context
    from barnabas.controller.decisions.controller_state import ControllerState
    from barnabas.metadata.image import PartitionImage

TOO_MANY_PARTITIONS = "Excessively large number of partitions per request."


def create_topics(state: ControllerState, request: m.CreateTopicsRequest, context: Context) -> Decision:
    names = Counter(topic.name for topic in request.topics)
    wanted = [topic for topic in request.topics if names[topic.name] == 1 and topic.name != CLUSTER_METADATA]
    check_total_partitions(wanted, context)
    records: list[VersionedRecord] = []
    results = []
    for topic in wanted:
        try:
            result, new_records = _create_topic(state, topic, context)
            records += new_records
            results.append(result)
        except KafkaError as error:
            results.append(_refused(topic.name, error.error, error.message))
    check_record_count(records)
    results += [
        _refused(name, Error.INVALID_REQUEST, "Duplicate topic name.") for name, count in names.items() if count > 1
    ]
    if names[CLUSTER_METADATA] == 1:
        message = f"Creation of internal topic {CLUSTER_METADATA} is prohibited."
        results.append(_refused(CLUSTER_METADATA, Error.INVALID_REQUEST, message))
    return Decision(m.CreateTopicsResponse(topics=results), [] if request.validate_only else records)


def delete_topics(state: ControllerState, request: m.DeleteTopicsRequest, context: Context) -> Decision:
    if not context.settings.is_topic_deletion_enabled:
        raise KafkaError(Error.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
    results: list[m.DeleteTopicsResponse.DeletableTopicResult] = []
    names, ids = _named_topics(request, results)
    supplied = {topic.topic_id for topic in request.topics if topic.name is None}
    doomed: dict[Uuid, str] = {}
    for topic_id in ids:
        topic = state.topic_by_id(topic_id)
        if topic is None:
            results.append(_deleted(None, topic_id, Error.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."))
        else:
            doomed[topic_id] = topic.name
    for name in names:
        topic = state.topic(name)
        if topic is None:
            message = "This server does not host this topic-partition."
            results.append(_deleted(name, ZERO_UUID, Error.UNKNOWN_TOPIC_OR_PARTITION, message))
        elif topic.topic_id in supplied:
            doomed.pop(topic.topic_id, None)
            message = "The provided topic name maps to an ID that was already supplied."
            results.append(_deleted(name, topic.topic_id, Error.INVALID_REQUEST, message))
        else:
            doomed[topic.topic_id] = name
    records = [VersionedRecord(m.RemoveTopicRecord(topic_id=topic_id), 0) for topic_id in doomed]
    check_record_count(records)
    results += [_deleted(name, topic_id, Error.NONE, None) for topic_id, name in doomed.items()]
    return Decision(m.DeleteTopicsResponse(responses=results), records)


def create_partitions(state: ControllerState, request: m.CreatePartitionsRequest, context: Context) -> Decision:
    names = Counter(topic.name for topic in request.topics)
    result = m.CreatePartitionsResponse.CreatePartitionsTopicResult
    records: list[VersionedRecord] = []
    results = [
        result(name=name, error_code=Error.INVALID_REQUEST, error_message="Duplicate topic name.")
        for name, count in names.items()
        if count > 1
    ]
    for topic in request.topics:
        if names[topic.name] > 1:
            continue
        try:
            records += _create_partitions(state, topic, context)
            results.append(result(name=topic.name))
        except KafkaError as error:
            results.append(result(name=topic.name, error_code=error.error, error_message=error.message or None))
    check_record_count(records)
    return Decision(m.CreatePartitionsResponse(results=results), [] if request.validate_only else records)


def check_record_count(records: Sequence[VersionedRecord]) -> None:
    """The records of a client's request must fit into one batch."""
    if len(records) > MAX_RECORDS_PER_BATCH:
        raise KafkaError(Error.POLICY_VIOLATION, TOO_MANY_CHANGES)


def check_total_partitions(topics: Sequence[m.CreateTopicsRequest.CreatableTopic], context: Context) -> None:
    """Refuses a request that wants more partitions than one may."""
    total = 0
    for topic in topics:
        if topic.assignments:
            total += len(topic.assignments)
        else:
            default = context.settings.default_partition_count
            total += default if topic.num_partitions == -1 else max(topic.num_partitions, 0)
    if total > MAX_PARTITIONS_PER_REQUEST:
        raise KafkaError(Error.POLICY_VIOLATION, TOO_MANY_PARTITIONS)


def _create_topic(
    state: ControllerState, topic: m.CreateTopicsRequest.CreatableTopic, context: Context
) -> tuple[m.CreateTopicsResponse.CreatableTopicResult, list[VersionedRecord]]:
    if state.topic(topic.name) is not None:
        raise KafkaError(Error.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    check_topic_name(topic.name)
    colliding = state.colliding_topic(topic.name)
    if colliding is not None:
        raise KafkaError(
            Error.INVALID_TOPIC_EXCEPTION, f"Topic '{topic.name}' collides with existing topic: {colliding}"
        )
    configs = _configs(topic)
    context.rules.check_topic(configs, state.dynamic_layers(context.settings))
    partitions = _partitions(state, topic, context)
    topic_id = context.random.uuid()
    level = state.features.metadata_version
    records = [
        VersionedRecord(m.TopicRecord(name=topic.name, topic_id=topic_id), 0),
        *(_config_record(topic.name, name, value) for name, value in configs.items()),
        *(partition_to_record(partition, topic_id, index, level) for index, partition in enumerate(partitions)),
    ]
    result = m.CreateTopicsResponse.CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        num_partitions=len(partitions),
        replication_factor=len(partitions[0].replicas),
        configs=_reported_configs(state, configs, context),
        error_message=None,
    )
    return result, records


def _configs(topic: m.CreateTopicsRequest.CreatableTopic) -> dict[str, str]:
    missing = [config.name for config in topic.configs if config.value is None]
    if missing:
        raise KafkaError(Error.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(missing)}")
    return {config.name: config.value for config in topic.configs if config.value is not None}


def _partitions(
    state: ControllerState, topic: m.CreateTopicsRequest.CreatableTopic, context: Context
) -> list[PartitionImage]:
    if topic.assignments:
        return _assigned_partitions(state, topic)
    if topic.replication_factor < -1 or topic.replication_factor == 0:
        raise KafkaError(
            Error.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.num_partitions < -1 or topic.num_partitions == 0:
        raise KafkaError(Error.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    settings = context.settings
    return placed_partitions(
        state,
        context,
        settings.default_partition_count if topic.num_partitions == -1 else topic.num_partitions,
        settings.default_replication_factor if topic.replication_factor == -1 else topic.replication_factor,
    )


def _assigned_partitions(state: ControllerState, topic: m.CreateTopicsRequest.CreatableTopic) -> list[PartitionImage]:
    for given, name in ((topic.replication_factor, "replication factor"), (topic.num_partitions, "numPartitions")):
        if given != -1:
            raise KafkaError(
                Error.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {name} was not set to -1.",
            )
    partitions: dict[int, PartitionImage] = {}
    made: dict[tuple[int, ...], PartitionImage] = {}
    replication_factor = None
    for assignment in topic.assignments:
        index, replicas = assignment.partition_index, tuple(assignment.broker_ids)
        if index in partitions:
            raise KafkaError(
                Error.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {index}",
            )
        if replicas not in made or replication_factor != len(replicas):
            made[replicas] = assigned_partition(state, index, replicas, replication_factor)
        partitions[index] = made[replicas]
        replication_factor = len(replicas)
    if sorted(partitions) != list(range(len(partitions))):
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
        )
    return [partitions[index] for index in range(len(partitions))]


def _reported_configs(
    state: ControllerState, overrides: dict[str, str], context: Context
) -> list[m.CreateTopicsResponse.CreatableTopicConfigs]:
    entries = context.rules.topic_configs(overrides, state.dynamic_layers(context.settings))
    return [
        m.CreateTopicsResponse.CreatableTopicConfigs(
            name=entry.name,
            # What was asked for is told as it was written.
            value=None if entry.is_sensitive else overrides.get(entry.name, entry.value),
            read_only=entry.is_read_only,
            config_source=entry.source,
            is_sensitive=entry.is_sensitive,
        )
        for entry in entries
    ]


def _create_partitions(
    state: ControllerState, topic: m.CreatePartitionsRequest.CreatePartitionsTopic, context: Context
) -> list[VersionedRecord]:
    known = state.topic(topic.name)
    if known is None:
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION)
    first = len(known.partitions)
    if topic.count == first:
        raise KafkaError(Error.INVALID_PARTITIONS, f"Topic already has {first} partition(s).")
    if topic.count < first:
        raise KafkaError(
            Error.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {first} partition(s); {topic.count} would not be an increase.",
        )
    additional = topic.count - first
    if additional > MAX_PARTITIONS_PER_REQUEST:
        raise KafkaError(Error.POLICY_VIOLATION, TOO_MANY_PARTITIONS)
    replication_factor = len(known.partitions[0].replicas)
    if topic.assignments is None:
        partitions = placed_partitions(state, context, additional, replication_factor)
    elif len(topic.assignments) != additional:
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {additional} additional partition(s), but only {len(topic.assignments)} "
            "assignment(s) were specified.",
        )
    else:
        partitions = [
            assigned_partition(state, first + index, assignment.broker_ids, replication_factor)
            for index, assignment in enumerate(topic.assignments)
        ]
    level = state.features.metadata_version
    return [
        partition_to_record(partition, known.topic_id, first + index, level)
        for index, partition in enumerate(partitions)
    ]


def _named_topics(
    request: m.DeleteTopicsRequest, results: list[m.DeleteTopicsResponse.DeletableTopicResult]
) -> tuple[list[str], list[Uuid]]:
    """The names and ids to delete, without duplicates; errors for the others are added to `results`."""
    names, ids = Counter(request.topic_names), Counter[Uuid]()
    for topic in request.topics:
        if topic.name is not None and topic.topic_id != ZERO_UUID:
            message = "You may not specify both topic name and topic id."
            results.append(_deleted(topic.name, topic.topic_id, Error.INVALID_REQUEST, message))
        elif topic.name is not None:
            names[topic.name] += 1
        elif topic.topic_id != ZERO_UUID:
            ids[topic.topic_id] += 1
        else:
            message = "Neither topic name nor id were specified."
            results.append(_deleted(None, ZERO_UUID, Error.INVALID_REQUEST, message))
    for name, count in names.items():
        if count > 1:
            results.append(_deleted(name, ZERO_UUID, Error.INVALID_REQUEST, "Duplicate topic name."))
    for topic_id, count in ids.items():
        if count > 1:
            results.append(_deleted(None, topic_id, Error.INVALID_REQUEST, "Duplicate topic id."))
    return [name for name, count in names.items() if count == 1], [id_ for id_, count in ids.items() if count == 1]


def _refused(name: str, error: Error, message: str) -> m.CreateTopicsResponse.CreatableTopicResult:
    return m.CreateTopicsResponse.CreatableTopicResult(
        name=name, error_code=error, error_message=message or None, configs=[]
    )


def _deleted(
    name: str | None, topic_id: Uuid, error: Error, message: str | None
) -> m.DeleteTopicsResponse.DeletableTopicResult:
    return m.DeleteTopicsResponse.DeletableTopicResult(
        name=name, topic_id=topic_id, error_code=error, error_message=message
    )


def _config_record(topic_name: str, name: str, value: str) -> VersionedRecord:
    record = m.ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=topic_name, name=name, value=value)
    return VersionedRecord(record, 0)
