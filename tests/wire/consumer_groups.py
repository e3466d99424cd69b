"""What a member of a next-generation group says: a heartbeat for everything, with nothing retried."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.peers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from barnabas.protocol.uuids import Uuid
    from tests.wire.connection import Connection

JOIN, LEAVE, LEAVE_FOR_A_WHILE = 0, -1, -2
"""What a member says in the place of its epoch; the last is for static members that come back."""
GROUP_RESOURCE = 32
REBALANCE_TIMEOUT_MS = 10_000

Owned = frozenset[tuple["Uuid", int]]


class Answer(NamedTuple):
    error: Error
    member_id: str | None = None
    epoch: int = 0
    interval_ms: int = 0
    assigned: Owned | None = None
    """None where the coordinator has nothing new to tell."""


@dataclass(slots=True)
class ConsumerMember:
    """A member that does at once what it is told, and tells so in its next heartbeat."""

    connection: Connection
    group: str
    member_id: str
    epoch: int
    instance_id: str | None = None
    owned: Owned = field(default_factory=frozenset)
    reported: Owned = field(default_factory=frozenset)


def partitions(owned: Iterable[tuple[Uuid, int]]) -> list[m.ConsumerGroupHeartbeatRequest.TopicPartitions]:
    by_topic: dict[Uuid, list[int]] = {}
    for topic_id, partition in sorted(owned):
        by_topic.setdefault(topic_id, []).append(partition)
    struct = m.ConsumerGroupHeartbeatRequest.TopicPartitions
    return [struct(topic_id=topic_id, partitions=indexes) for topic_id, indexes in by_topic.items()]


def joining(
    group: str,
    member_id: str,
    topics: Sequence[str] | None,
    *,
    regex: str | None = None,
    instance_id: str | None = None,
    assignor: str | None = None,
    rebalance_timeout_ms: int = REBALANCE_TIMEOUT_MS,
) -> m.ConsumerGroupHeartbeatRequest:
    """The heartbeat with which a member enters a group."""
    return m.ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member_id,
        member_epoch=JOIN,
        instance_id=instance_id,
        rebalance_timeout_ms=rebalance_timeout_ms,
        subscribed_topic_names=None if topics is None else list(topics),
        subscribed_topic_regex=regex,
        server_assignor=assignor,
        topic_partitions=[],
    )


def ask(connection: Connection, request: m.ConsumerGroupHeartbeatRequest, version: int = 1) -> Answer:
    answer = connection.call(request, version, m.ConsumerGroupHeartbeatResponse)
    if answer.error_code:
        assert (answer.member_id, answer.member_epoch, answer.assignment) == (None, 0, None)
        return Answer(Error(answer.error_code))
    assigned = None
    if answer.assignment is not None:
        assigned = frozenset((t.topic_id, p) for t in answer.assignment.topic_partitions for p in t.partitions)
    return Answer(Error.NONE, answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms, assigned)


def enter(connection: Connection, request: m.ConsumerGroupHeartbeatRequest, version: int = 1) -> ConsumerMember:
    answer = ask(connection, request, version)
    assert answer.error == Error.NONE
    assert answer.member_id is not None
    return ConsumerMember(
        connection,
        request.group_id,
        answer.member_id,
        answer.epoch,
        request.instance_id,
        answer.assigned or frozenset(),
    )


def beat(member: ConsumerMember, version: int = 1, *, topics: Sequence[str] | None = None) -> Error:
    """A heartbeat that tells what the member owns if that has changed, and takes what it is given."""
    request = bare(member)
    request.subscribed_topic_names = None if topics is None else list(topics)
    if member.owned != member.reported:
        request.topic_partitions = partitions(member.owned)
    answer = ask(member.connection, request, version)
    if answer.error == Error.NONE:
        member.epoch, member.reported = answer.epoch, member.owned
        member.owned = member.owned if answer.assigned is None else answer.assigned
    return answer.error


def bare(member: ConsumerMember, epoch: int | None = None) -> m.ConsumerGroupHeartbeatRequest:
    """A heartbeat of which nothing but the member's being there is news."""
    return m.ConsumerGroupHeartbeatRequest(
        group_id=member.group,
        member_id=member.member_id,
        member_epoch=member.epoch if epoch is None else epoch,
        instance_id=member.instance_id,
    )


def leave(member: ConsumerMember, epoch: int = LEAVE) -> Error:
    answer = ask(member.connection, bare(member, epoch))
    if answer.error == Error.NONE:
        assert (answer.member_id, answer.epoch) == (member.member_id, epoch)
    return answer.error


def reconcile(*members: ConsumerMember) -> None:
    """Have all beat until the group is stable; at no time do two own one partition."""

    def is_stable() -> bool:
        for member in members:
            assert beat(member) == Error.NONE
            owned = [each for other in members for each in other.owned]
            assert len(owned) == len({*owned}), "a partition has two owners"
        return describe(members[0].connection, members[0].group).group_state == "Stable"

    wait_until(is_stable, f"{members[0].group} is stable")


def describe(connection: Connection, group: str, version: int = 1) -> m.ConsumerGroupDescribeResponse.DescribedGroup:
    request = m.ConsumerGroupDescribeRequest(group_ids=[group])
    (described,) = connection.call(request, version, m.ConsumerGroupDescribeResponse).groups
    assert described.group_id == group
    return described


def configure(connection: Connection, group: str, config: dict[str, str]) -> Error:
    """Change settings of one group, be it there or not."""
    request = m.IncrementalAlterConfigsRequest
    resource = request.AlterConfigsResource(
        resource_type=GROUP_RESOURCE,
        resource_name=group,
        configs=[request.AlterableConfig(name=name, config_operation=0, value=value) for name, value in config.items()],
    )
    (altered,) = connection.call(request(resources=[resource]), 1, m.IncrementalAlterConfigsResponse).responses
    return Error(altered.error_code)
