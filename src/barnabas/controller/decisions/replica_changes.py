"""AlterPartition and AssignReplicasToDirs, in which brokers report on their replicas, and ElectLeaders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.decisions.broker_registrations import check_broker_epoch
from barnabas.controller.decisions.broker_transitions import lose_directories
from barnabas.controller.decisions.context import Decision
from barnabas.controller.decisions.controller_state import PartitionKey
from barnabas.controller.decisions.elections import Election, Elections, Target, change_partition, has_directory
from barnabas.metadata.conversions import NO_LEADER_CHANGE, merge
from barnabas.metadata.image import NO_LEADER, RECOVERED, RECOVERING
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from barnabas.controller.decisions.context import Context
    from barnabas.controller.decisions.controller_state import ControllerState
    from barnabas.metadata.image import PartitionImage, TopicImage
    from barnabas.metadata.versions import VersionedRecord

PREFERRED = 0
UNCLEAN = 1


def alter_partition(state: ControllerState, request: m.AlterPartitionRequest, context: Context) -> Decision:
    """A broker changes the ISR of partitions that it leads."""
    check_broker_epoch(state, request.broker_id, request.broker_epoch)
    records: list[VersionedRecord] = []
    response = m.AlterPartitionResponse()
    for topic in request.topics:
        answer = m.AlterPartitionResponse.TopicData(topic_id=topic.topic_id)
        response.topics.append(answer)
        known = state.topic_by_id(topic.topic_id)
        for wanted in topic.partitions:
            result = m.AlterPartitionResponse.PartitionData(partition_index=wanted.partition_index)
            answer.partitions.append(result)
            if known is None:
                result.error_code = Error.UNKNOWN_TOPIC_ID
            elif not 0 <= wanted.partition_index < len(known.partitions):
                result.error_code = Error.UNKNOWN_TOPIC_OR_PARTITION
            else:
                key = PartitionKey(topic.topic_id, wanted.partition_index)
                records += _alter_in_sync_set(state, request.broker_id, key, wanted, result, context)
    return Decision(response, records)


def assign_replicas_to_dirs(
    state: ControllerState, request: m.AssignReplicasToDirsRequest, context: Context
) -> Decision:
    """A broker reports which of its directories its replicas are in."""
    broker = check_broker_epoch(state, request.broker_id, request.broker_epoch)
    records: list[VersionedRecord] = []
    lost: list[PartitionKey] = []
    response = m.AssignReplicasToDirsResponse()
    for directory in request.directories:
        answer = m.AssignReplicasToDirsResponse.DirectoryData(id=directory.id)
        response.directories.append(answer)
        for topic in directory.topics:
            topic_answer = m.AssignReplicasToDirsResponse.TopicData(topic_id=topic.topic_id)
            answer.topics.append(topic_answer)
            for wanted in topic.partitions:
                key = PartitionKey(topic.topic_id, wanted.partition_index)
                error = _check_replica(state, broker.id, key)
                topic_answer.partitions.append(
                    m.AssignReplicasToDirsResponse.PartitionData(
                        partition_index=wanted.partition_index, error_code=error
                    )
                )
                if error is not Error.NONE:
                    continue
                _, partition = state.topic_and_partition(key)
                target = Target(
                    directories={broker.id: directory.id},
                    emptied_broker_id=None if has_directory(broker, partition.directory_of(broker.id)) else broker.id,
                )
                record = change_partition(key, partition, target, Elections(state, context.settings).rules(key))
                if record is not None:
                    records.append(record)
                if directory.id not in broker.directories:
                    lost.append(key)
    records += lose_directories(state, context.settings, broker.id, lost)
    return Decision(response, records)


def elect_leaders(state: ControllerState, request: m.ElectLeadersRequest, context: Context) -> Decision:
    if request.topic_partitions is not None and not request.topic_partitions:
        return Decision(m.ElectLeadersResponse())
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise KafkaError(Error.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    election = Election.PREFERRED if request.election_type == PREFERRED else Election.UNCLEAN
    wanted = (
        [(topic.name, _to_be_elected(topic, election)) for topic in state.metadata.topics_by_id.values()]
        if request.topic_partitions is None
        else [(topic.topic, topic.partitions) for topic in request.topic_partitions]
    )
    records: list[VersionedRecord] = []
    response = m.ElectLeadersResponse()
    for name, partition_ids in wanted:
        answer = m.ElectLeadersResponse.ReplicaElectionResult(topic=name)
        response.replica_election_results.append(answer)
        for partition_id in partition_ids:
            result = m.ElectLeadersResponse.PartitionResult(partition_id=partition_id, error_message=None)
            try:
                records.append(_elect(state, name, partition_id, election, context))
            except KafkaError as error:
                result.error_code, result.error_message = error.error, error.message or None
            answer.partition_result.append(result)
    return Decision(response, records)


def _alter_in_sync_set(
    state: ControllerState,
    broker_id: int,
    key: PartitionKey,
    wanted: m.AlterPartitionRequest.PartitionData,
    result: m.AlterPartitionResponse.PartitionData,
    context: Context,
) -> list[VersionedRecord]:
    _, partition = state.topic_and_partition(key)
    # Version 2 has only broker ids; -1 matches any broker epoch.
    members = dict.fromkeys(wanted.new_isr, -1) | {
        member.broker_id: member.broker_epoch for member in wanted.new_isr_with_epochs
    }
    error = _check_in_sync_set(state, broker_id, partition, wanted, members)
    if error is not Error.NONE:
        result.error_code = error
        return []
    target = Target(isr=tuple(members), recovery_state=wanted.leader_recovery_state)
    record = change_partition(key, partition, target, Elections(state, context.settings).rules(key))
    if record is not None:
        change = record.message
        assert isinstance(change, m.PartitionChangeRecord)
        partition = merge(partition, change)
        if change.leader not in (broker_id, NO_LEADER_CHANGE):
            # Completing a reassignment took the leadership away, but the change was made.
            result.error_code = Error.NEW_LEADER_ELECTED
            return [record]
    result.leader_id = partition.leader
    result.leader_epoch = partition.leader_epoch
    result.isr = list(partition.isr)
    result.leader_recovery_state = partition.leader_recovery_state
    result.partition_epoch = partition.partition_epoch
    return [] if record is None else [record]


def _check_in_sync_set(
    state: ControllerState,
    broker_id: int,
    partition: PartitionImage,
    wanted: m.AlterPartitionRequest.PartitionData,
    members: dict[int, int],
) -> Error:
    if wanted.leader_epoch > partition.leader_epoch or wanted.partition_epoch > partition.partition_epoch:
        # The broker knows of newer epochs, so this controller can no longer be the active one.
        return Error.NOT_CONTROLLER
    if wanted.leader_epoch < partition.leader_epoch:
        return Error.FENCED_LEADER_EPOCH
    if broker_id != partition.leader:
        return Error.INVALID_REQUEST
    if wanted.partition_epoch < partition.partition_epoch:
        return Error.INVALID_UPDATE_VERSION
    is_recovering = wanted.leader_recovery_state == RECOVERING
    if (
        not members
        or not set(members) <= set(partition.replicas)
        or partition.leader not in members
        or (is_recovering and (len(members) > 1 or partition.leader_recovery_state == RECOVERED))
    ):
        return Error.INVALID_REQUEST
    is_eligible = all(_may_be_in_sync(state, member, epoch) for member, epoch in members.items())
    return Error.NONE if is_eligible else Error.INELIGIBLE_REPLICA


def _may_be_in_sync(state: ControllerState, broker_id: int, epoch: int) -> bool:
    broker = state.brokers.get(broker_id)
    return broker is not None and broker.is_active and epoch in (-1, broker.epoch)


def _check_replica(state: ControllerState, broker_id: int, key: PartitionKey) -> Error:
    topic = state.topic_by_id(key.topic_id)
    if topic is None:
        return Error.UNKNOWN_TOPIC_ID
    if not 0 <= key.partition_id < len(topic.partitions):
        return Error.UNKNOWN_TOPIC_OR_PARTITION
    if broker_id not in topic.partitions[key.partition_id].replicas:
        return Error.NOT_LEADER_OR_FOLLOWER
    return Error.NONE


def _is_needed(partition: PartitionImage, election: Election) -> bool:
    if election is Election.PREFERRED:
        return partition.leader != partition.replicas[0]
    return partition.leader == NO_LEADER


def _to_be_elected(topic: TopicImage, election: Election) -> list[int]:
    """The partitions of a topic that need the election: few, as a rule, of very many."""
    return [index for index, partition in enumerate(topic.partitions) if _is_needed(partition, election)]


def _elect(
    state: ControllerState, topic_name: str, partition_id: int, election: Election, context: Context
) -> VersionedRecord:
    topic = state.topic(topic_name)
    if topic is None:
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic_name}")
    if not 0 <= partition_id < len(topic.partitions):
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic_name}-{partition_id}")
    partition = topic.partitions[partition_id]
    if not _is_needed(partition, election):
        raise KafkaError(Error.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    key = PartitionKey(topic.topic_id, partition_id)
    record = change_partition(
        key, partition, Target(), Elections(state, context.settings).rules(key, election=election)
    )
    if record is None:
        if election is Election.PREFERRED:
            raise KafkaError(Error.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")
        raise KafkaError(Error.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available.")
    return record
