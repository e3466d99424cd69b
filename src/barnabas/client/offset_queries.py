"""What readers and administrators ask of a cluster: where partitions start and end, and how far groups have come.

    ends = list_offsets(cluster, {("orders", 0): LATEST, ("orders", 1): LATEST}, READ_COMMITTED)
    commit_offsets(cluster, "report", {position: at.offset for position, at in ends.items() if at})

All calls retry as `Cluster` does, and may be repeated without harm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.client.broker_connection import TRANSIENT, Connection
from barnabas.client.cluster import Call, Fault, TopicPartition
from barnabas.client.retries import LEADERSHIP_ERRORS, RETRIED, Attempts, RetriableError, failure_of, retrying
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from barnabas.client.cluster import Cluster

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
"""Asked for in place of a timestamp: the offset after the last, the first, that of the record with the latest time,
the first that is not only in remote storage, the last that is there, the first that is to go there next."""
EARLIEST_LOCAL_VERSION: Final = 8
"""The first version of ListOffsets that knows of remote storage."""

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1

CONSUMER: Final = -1
"""The replica id of those that are no replica."""
_NO_OFFSET: Final = -1
_NO_EPOCH: Final = -1

_OFFSETS_BY_NAME_VERSION_MAX: Final = 9
"""OffsetCommit and OffsetFetch name topics by their ids from version 10 on; offsets are kept here under names."""
_GROUPS_IN_A_LIST: Final = 8
"""The first version of OffsetFetch that asks for several groups."""


class OffsetAndTimestamp(NamedTuple):
    """A place in a partition. The timestamp is -1 where an end was asked for rather than a time."""

    offset: int
    timestamp_ms: int = -1
    leader_epoch: int = _NO_EPOCH


class CommittedOffset(NamedTuple):
    """How far a group has come in a partition: the offset that it reads next."""

    offset: int
    leader_epoch: int = _NO_EPOCH
    metadata: str = ""


def list_offsets(
    cluster: Cluster,
    places: Mapping[TopicPartition, int],
    isolation_level: int = READ_UNCOMMITTED,
    *,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """Where each partition starts (EARLIEST), ends (LATEST), or has its first record of a time (in ms) or later.

    None where no record is that late. For a reader of committed data a partition ends where the first open
    transaction begins.
    """
    found: dict[TopicPartition, OffsetAndTimestamp | None] = {}

    def attempt(attempts: Attempts) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        missing = [place for place in places if place not in found]
        questions = [
            _Question(connection, {place: places[place] for place in led})
            for connection, led in cluster.leaders(missing, attempts).items()
        ]
        # All leaders are asked before the first answer is waited for.
        failures = [failure for each in questions for failure in _ask_offsets(cluster, each, isolation_level)]
        failures += [failure for each in questions for failure in _take_offsets(cluster, each, attempts, found)]
        if failures:
            raise next((each for each in failures if not isinstance(each, RetriableError)), failures[0])
        return {place: found[place] for place in places}

    return retrying(cluster.settings, attempt, timeout_ms)


def local_start(cluster: Cluster, place: TopicPartition, *, timeout_ms: int | None = None) -> int:
    """The first offset of a partition that its leader reads from a disk of its own.

    What lies before has been moved to remote storage, from where it may come late. A leader that knows nothing of such
    storage has everything.
    """
    versions = cluster.leader(*place, timeout_ms=timeout_ms).versions()
    knows_remote = versions[ApiKey.LIST_OFFSETS].highest >= EARLIEST_LOCAL_VERSION
    which = EARLIEST_LOCAL if knows_remote else EARLIEST
    found = list_offsets(cluster, {place: which}, timeout_ms=timeout_ms)[place]
    assert found is not None  # only a time may be later than all records
    return found.offset


def committed_offsets(
    cluster: Cluster,
    group: str,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    require_stable: bool = True,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, CommittedOffset]:
    """How far a group has come, in these partitions or in all; those without a committed offset are left out.

    With `require_stable` the call waits while a transaction that commits offsets in one of them is open.
    """
    wanted = None if partitions is None else by_topic(partitions)

    def make_request(version: int) -> m.OffsetFetchRequest:
        if version < _GROUPS_IN_A_LIST:
            old = m.OffsetFetchRequest.OffsetFetchRequestTopic
            old_topics = _topic_structs(wanted, lambda name, numbers: old(name=name, partition_indexes=numbers))
            return m.OffsetFetchRequest(group_id=group, topics=old_topics, require_stable=require_stable)
        struct = m.OffsetFetchRequest.OffsetFetchRequestTopics
        topics = _topic_structs(wanted, lambda name, numbers: struct(name=name, partition_indexes=numbers))
        asked = m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=topics)
        return m.OffsetFetchRequest(groups=[asked], require_stable=require_stable)

    call = Call(ApiKey.OFFSET_FETCH, make_request, _offset_fetch_error, _OFFSETS_BY_NAME_VERSION_MAX)
    response: m.OffsetFetchResponse = cluster.ask_coordinator(group, call, timeout_ms=timeout_ms)
    committed: dict[TopicPartition, CommittedOffset] = {}
    for topic in _fetched_topics(response):
        for each in topic.partitions:
            if each.committed_offset != _NO_OFFSET:
                place = (topic.name, each.partition_index)
                committed[place] = CommittedOffset(
                    each.committed_offset, each.committed_leader_epoch, each.metadata or ""
                )
    return committed


def commit_offsets(
    cluster: Cluster,
    group: str,
    offsets: Mapping[TopicPartition, int | CommittedOffset],
    *,
    timeout_ms: int | None = None,
) -> None:
    """Set how far a group has come, as somebody who is no member of it. A group that has members refuses."""
    if not offsets:
        return
    request_class = m.OffsetCommitRequest

    def struct_of(place: TopicPartition) -> m.OffsetCommitRequest.OffsetCommitRequestPartition:
        given = offsets[place]
        commit = given if isinstance(given, CommittedOffset) else CommittedOffset(given)
        return request_class.OffsetCommitRequestPartition(
            partition_index=place[1],
            committed_offset=commit.offset,
            committed_leader_epoch=commit.leader_epoch,
            committed_metadata=commit.metadata,
        )

    topics = [
        request_class.OffsetCommitRequestTopic(name=name, partitions=[struct_of((name, number)) for number in numbers])
        for name, numbers in by_topic(offsets).items()
    ]
    request = request_class(group_id=group, topics=topics)
    call = Call(ApiKey.OFFSET_COMMIT, lambda _: request, _first_partition_error, _OFFSETS_BY_NAME_VERSION_MAX)
    cluster.ask_coordinator(group, call, timeout_ms=timeout_ms)


def delete_group(cluster: Cluster, group: str, *, timeout_ms: int | None = None) -> bool:
    """Delete a group with its offsets; whether it was there. A group that has members refuses."""
    call = Call(
        ApiKey.DELETE_GROUPS,
        lambda _: m.DeleteGroupsRequest(groups_names=[group]),
        lambda response: int(response.results[0].error_code),
    )
    return _unless_absent(lambda: cluster.ask_coordinator(group, call, timeout_ms=timeout_ms))


class _Question(NamedTuple):
    """What one leader is asked: the place or time that is wanted in each of its partitions."""

    connection: Connection
    places: dict[TopicPartition, int]


def _ask_offsets(cluster: Cluster, question: _Question, isolation_level: int) -> list[KafkaError]:
    """Send the question; what failed, if something did, in which case nothing will be answered."""
    request_class = m.ListOffsetsRequest

    def struct_of(place: TopicPartition) -> m.ListOffsetsRequest.ListOffsetsPartition:
        return request_class.ListOffsetsPartition(
            partition_index=place[1],
            current_leader_epoch=cluster.leader_epoch(*place),
            timestamp=question.places[place],
        )

    topics = [
        request_class.ListOffsetsTopic(name=name, partitions=[struct_of((name, number)) for number in numbers])
        for name, numbers in by_topic(question.places).items()
    ]
    request = request_class(
        replica_id=CONSUMER,
        isolation_level=isolation_level,
        topics=topics,
        timeout_ms=cluster.settings.request_timeout_ms,
    )
    try:
        question.connection.send_nowait(request)
    except TRANSIENT as failure:
        return [_lost(cluster, question, failure)]
    return []


def _take_offsets(
    cluster: Cluster,
    question: _Question,
    attempts: Attempts,
    found: dict[TopicPartition, OffsetAndTimestamp | None],
) -> list[KafkaError]:
    """Receive the answer and add what it says; what failed, for each partition of which it says nothing yet."""
    if not question.connection.in_flight:
        return []  # it could not be asked
    try:
        response: m.ListOffsetsResponse = question.connection.receive(attempts.request_timeout_s)
    except TRANSIENT as failure:
        return [_lost(cluster, question, failure)]
    failures: list[KafkaError] = []
    for topic in response.topics:
        for each in topic.partitions:
            error = Error(each.error_code)
            if error is Error.NONE:
                place = OffsetAndTimestamp(each.offset, each.timestamp, each.leader_epoch)
                found[topic.name, each.partition_index] = None if each.offset == _NO_OFFSET else place
                continue
            if error in LEADERSHIP_ERRORS:
                cluster.forget_topic(topic.name)
            where = f"{topic.name}-{each.partition_index}: ListOffsets at {question.connection.address}"
            failures.append(failure_of(error, where))
    return failures


def _lost(cluster: Cluster, question: _Question, failure: Exception) -> KafkaError:
    for topic in by_topic(question.places):
        cluster.forget_topic(topic)
    names = ", ".join(f"{topic}-{partition}" for topic, partition in question.places)
    return failure_of(Error.NETWORK_EXCEPTION, f"{names}: {failure}")


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def _topic_structs(
    topics: Mapping[str, list[int]] | None, struct_of: Callable[[str, list[int]], Any]
) -> list[Any] | None:
    """Topics as a request has them; None, which asks for all, stays None."""
    return None if topics is None else [struct_of(name, numbers) for name, numbers in topics.items()]


def _fetched_topics(response: m.OffsetFetchResponse) -> Sequence[Any]:
    return response.groups[0].topics if response.groups else response.topics


def _offset_fetch_error(response: m.OffsetFetchResponse) -> int | Fault:
    whole = response.groups[0].error_code if response.groups else response.error_code
    return whole or _first_error(_fetched_topics(response))


def _first_partition_error(response: Any) -> int | Fault:
    return _first_error(response.topics)


def _first_error(topics: Sequence[Any]) -> int | Fault:
    """The error of the first partition that has one; one that will not pass goes before one that may."""
    faults = [
        Fault(int(each.error_code), f"{topic.name}-{each.partition_index}")
        for topic in topics
        for each in topic.partitions
        if each.error_code != Error.NONE
    ]
    lasting = (fault for fault in faults if Error(fault.code) not in RETRIED)
    return next(lasting, faults[0] if faults else int(Error.NONE))


def _unless_absent(ask: Callable[[], object]) -> bool:
    """Whether there was a group to ask about."""
    try:
        ask()
    except KafkaError as failure:
        if failure.error is not Error.GROUP_ID_NOT_FOUND:
            raise
        return False
    return True
