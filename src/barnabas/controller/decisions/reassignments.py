"""AlterPartitionReassignments: other brokers get a partition's replicas. ListPartitionReassignments: which of that is
under way.

At first, replicas are added beside those that are there. When all of them are in sync, which the leader reports with
AlterPartition, the others are dropped (`elections.change_partition`). Until then, a reassignment can be replaced by
another one, or cancelled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.decisions.assignments import check_assignment
from barnabas.controller.decisions.context import Decision
from barnabas.controller.decisions.controller_state import PartitionKey
from barnabas.controller.decisions.elections import Election, Elections, Target, change_partition, default_directory
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from barnabas.controller.decisions.context import Context
    from barnabas.controller.decisions.controller_state import ControllerState
    from barnabas.metadata.image import MetadataImage, PartitionImage, TopicImage
    from barnabas.metadata.versions import VersionedRecord

DECIDED_AT_ONCE = 64
"""Partitions, of which a request may have thousands."""


def alter_partition_reassignments(
    state: ControllerState, request: m.AlterPartitionReassignmentsRequest, context: Context
) -> Decision:
    if not request.topics:
        return Decision(m.AlterPartitionReassignmentsResponse())
    response = m.AlterPartitionReassignmentsResponse(
        error_message=None, allow_replication_factor_change=request.allow_replication_factor_change
    )
    return Decision(response, parts=_altered(state, request, response, context))


def _altered(
    state: ControllerState,
    request: m.AlterPartitionReassignmentsRequest,
    response: m.AlterPartitionReassignmentsResponse,
    context: Context,
) -> Iterator[list[VersionedRecord]]:
    """The records, part by part; the response grows with them. What a request names twice, the second time sees the
    partition as it was."""
    elections = Elections(state, context.settings)
    answers = m.AlterPartitionReassignmentsResponse
    for topic in request.topics:
        answer = answers.ReassignableTopicResponse(name=topic.name)
        response.responses.append(answer)
        for start in range(0, len(topic.partitions), DECIDED_AT_ONCE):
            records = []
            for wanted in topic.partitions[start : start + DECIDED_AT_ONCE]:
                result = answers.ReassignablePartitionResponse(
                    partition_index=wanted.partition_index, error_message=None
                )
                answer.partitions.append(result)
                try:
                    records += _alter(state, elections, topic.name, wanted, request)
                except KafkaError as refused:
                    result.error_code, result.error_message = refused.error, refused.message or None
            yield records


def _alter(
    state: ControllerState,
    elections: Elections,
    name: str,
    wanted: m.AlterPartitionReassignmentsRequest.ReassignablePartition,
    request: m.AlterPartitionReassignmentsRequest,
) -> list[VersionedRecord]:
    topic = state.topic(name)
    if topic is None:
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    if not 0 <= wanted.partition_index < len(topic.partitions):
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{wanted.partition_index}.")
    key = PartitionKey(topic.topic_id, wanted.partition_index)
    partition = topic.partitions[wanted.partition_index]
    rules = elections.rules(key)
    if wanted.replicas is None:
        allows_unclean = rules.election is Election.UNCLEAN
        target = _cancelled(partition, f"{name}-{wanted.partition_index}", allows_unclean=allows_unclean)
    else:
        check_assignment(state, wanted.replicas, None)
        if not request.allow_replication_factor_change:
            _check_factor(partition, wanted.replicas)
        target = _reassigned(state, partition, wanted.replicas)
    record = change_partition(key, partition, target, rules)
    return [] if record is None else [record]


def _reassigned(state: ControllerState, partition: PartitionImage, replicas: Sequence[int]) -> Target:
    """Replicas that are being added already still are, unless they are not wanted any more."""
    removing = tuple(replica for replica in partition.replicas if replica not in replicas)
    adding = tuple(
        replica for replica in replicas if replica not in partition.replicas or replica in partition.adding_replicas
    )
    added = (replica for replica in replicas if replica not in partition.replicas)
    return Target(
        replicas=(*replicas, *removing),
        adding=adding,
        removing=removing,
        directories={replica: default_directory(state.brokers[replica]) for replica in added},
    )


def _cancelled(partition: PartitionImage, name: str, *, allows_unclean: bool) -> Target:
    """What was to be removed stays, and what was to be added goes."""
    if not is_under_way(partition):
        raise KafkaError(Error.NO_REASSIGNMENT_IN_PROGRESS)
    adding = partition.adding_replicas
    replicas = tuple(replica for replica in partition.replicas if replica not in adding)
    isr = tuple(replica for replica in partition.isr if replica not in adding)
    if not isr and not allows_unclean:
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT,
            f"Unable to revert partition assignment for {name} because it would require an unclean leader election.",
        )
    return Target(replicas=replicas, adding=(), removing=(), isr=isr or replicas[:1])


def _check_factor(partition: PartitionImage, replicas: Sequence[int]) -> None:
    current = [replica for replica in partition.replicas if replica not in partition.removing_replicas]
    if len(current) != len(replicas):
        raise KafkaError(
            Error.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {len(current)} to {len(replicas)}",
        )


def is_under_way(partition: PartitionImage) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


def listed_reassignments(
    image: MetadataImage, request: m.ListPartitionReassignmentsRequest
) -> Iterator[m.ListPartitionReassignmentsResponse.OngoingTopicReassignment | None]:
    """The topics with partitions that are being reassigned, of those that are asked for. There is a None after every
    few partitions, so that whoever asks can let others go on."""
    wanted: Iterable[tuple[TopicImage | None, Iterable[int]]]
    if request.topics is None:
        wanted = ((topic, range(len(topic.partitions))) for topic in image.topics)
    else:
        wanted = ((image.topics.get(topic.name), topic.partition_indexes) for topic in request.topics)
    answers = m.ListPartitionReassignmentsResponse
    for topic, indexes in wanted:
        if topic is None:
            continue
        found = answers.OngoingTopicReassignment(name=topic.name)
        for number, index in enumerate(indexes):
            if number % DECIDED_AT_ONCE == 0:
                yield None
            if 0 <= index < len(topic.partitions) and is_under_way(partition := topic.partitions[index]):
                found.partitions.append(
                    answers.OngoingPartitionReassignment(
                        partition_index=index,
                        replicas=list(partition.replicas),
                        adding_replicas=list(partition.adding_replicas),
                        removing_replicas=list(partition.removing_replicas),
                    )
                )
        if found.partitions:
            yield found
