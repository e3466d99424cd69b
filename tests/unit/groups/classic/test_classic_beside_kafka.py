"""A classic group and a group on Apache Kafka live through the same, and their members are told the same."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pytest
from tools import apache_kafka

from barnabas.client.broker_connection import Connection
from barnabas.groups.classic.classic_group import ClassicGroupSettings
from barnabas.groups.classic.classic_members import ClientInfo
from barnabas.protocol import messages as m
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.errors import Error
from tests.unit.groups.classic.classic_driver import REBALANCE_MS, SESSION_MS, Driver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from barnabas.protocol.compiler.structs import Message
    from tests.unit.groups.classic.classic_driver import Call

    Answer = Callable[[], Any]

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("apache_kafka_runs")]

SETTINGS = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0", "group.max.size": "2"}
SECONDS_MAX = 60.0
RANGE = (("range", b"R"), ("roundrobin", b"RR"))


class Coordinator(Protocol):
    def ask(self, request: Message, version: int) -> Answer:
        """Sends a request. What is returned waits for the answer to it."""


class Theirs:
    """A connection for each request, so that one that waits does not hold up the others."""

    def __init__(self, node: apache_kafka.KafkaNode) -> None:
        self.host, port = node.bootstrap.split(":")
        self.port = int(port)
        self.connections: list[Connection] = []

    def ask(self, request: Message, version: int) -> Answer:
        connection = Connection(self.host, self.port, client_id="app", timeout_s=SECONDS_MAX)
        self.connections.append(connection)
        connection.send_nowait(request, version)
        return connection.receive

    def close(self) -> None:
        for connection in self.connections:
            connection.close()


class Ours:
    def __init__(self) -> None:
        self.driver = Driver(ClassicGroupSettings(group_initial_rebalance_delay_ms=0, group_max_size=2))

    def ask(self, request: Message, version: int) -> Answer:
        """Through bytes and back, as no version may hold what it cannot say."""
        request = decode(type(request), encode(request, version), version)
        call: Call[Any] = self.driver.call()
        group, now_ms = self.driver.group, self.driver.now_ms
        if isinstance(request, m.JoinGroupRequest):
            self.driver.ids_made += 1
            client = ClientInfo("app", "/10.0.0.1", version, f"new-{self.driver.ids_made}")
            self.driver.take(group.join(request, client, call, now_ms))
        elif isinstance(request, m.SyncGroupRequest):
            self.driver.take(group.sync(request, call, now_ms))
        elif isinstance(request, m.HeartbeatRequest):
            self.driver.take(group.heartbeat(request, call, now_ms))
        else:
            assert isinstance(request, m.LeaveGroupRequest)
            self.driver.take(group.leave(request, call, now_ms))

        def answer() -> Any:
            self.driver.pass_time(0)
            return decode(type(call.response), encode(call.response, version), version)

        return answer


class Joined(NamedTuple):
    """What a join was answered, but for the ids, which each coordinator makes up for itself."""

    error: str
    generation: int
    protocol: tuple[str | None, str]
    has_id: bool
    leads: bool
    members: int
    skips_assignment: bool


class Script:
    """Speaks for the members of a group, and writes down what they are told."""

    def __init__(self, coordinator: Coordinator, group_id: str) -> None:
        self.coordinator = coordinator
        self.group_id = group_id
        self.told: list[object] = []

    def join(
        self,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        version: int = 9,
        protocols: tuple[tuple[str, bytes], ...] = RANGE,
        protocol_type: str = "consumer",
        session_timeout_ms: int = SESSION_MS,
    ) -> Answer:
        request = m.JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=[
                m.JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in protocols
            ],
        )
        return self.coordinator.ask(request, version)

    def joined(self, answer: Answer) -> m.JoinGroupResponse:
        response: m.JoinGroupResponse = answer()
        self.told.append(
            Joined(
                Error(response.error_code).name,
                response.generation_id,
                (response.protocol_type, response.protocol_name or ""),
                bool(response.member_id),
                response.leader == response.member_id != "",
                len(response.members),
                response.skip_assignment,
            )
        )
        return response

    def come_in(self) -> Answer:
        """Joins as a new dynamic member does."""
        return self.join(self.joined(self.join()).member_id)

    def sync(
        self, joined: m.JoinGroupResponse, *, instance_id: str | None = None, protocol_name: str = "range"
    ) -> Answer:
        """The leader assigns to each member what it knows it by."""
        assignments = [
            m.SyncGroupRequest.SyncGroupRequestAssignment(
                member_id=member.member_id, assignment=(member.group_instance_id or "dynamic").encode()
            )
            for member in joined.members
        ]
        request = m.SyncGroupRequest(
            group_id=self.group_id,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=instance_id,
            protocol_type="consumer",
            protocol_name=protocol_name,
            assignments=assignments,
        )
        return self.coordinator.ask(request, 5)

    def synced(self, answer: Answer) -> None:
        response: m.SyncGroupResponse = answer()
        self.told.append((Error(response.error_code).name, response.protocol_name, response.assignment))

    def _heartbeat(self, member_id: str, generation: int, instance_id: str | None) -> str:
        request = m.HeartbeatRequest(
            group_id=self.group_id, member_id=member_id, generation_id=generation, group_instance_id=instance_id
        )
        return Error(self.coordinator.ask(request, 4)().error_code).name

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None = None) -> None:
        self.told.append(self._heartbeat(member_id, generation, instance_id))

    def hear_of_rebalance(self, joined: m.JoinGroupResponse, instance_id: str | None = None) -> None:
        """Waits until somebody's join, which is not answered yet, has arrived."""
        deadline = time.monotonic() + SECONDS_MAX
        while self._heartbeat(joined.member_id, joined.generation_id, instance_id) != "REBALANCE_IN_PROGRESS":
            assert time.monotonic() < deadline

    def leave(self, *identities: tuple[str, str | None]) -> None:
        members = [
            m.LeaveGroupRequest.MemberIdentity(member_id=member_id, group_instance_id=instance_id)
            for member_id, instance_id in identities
        ]
        response = self.coordinator.ask(m.LeaveGroupRequest(group_id=self.group_id, members=members), 5)()
        self.told.append([Error(member.error_code).name for member in response.members])


def two_come_and_go(script: Script) -> None:
    first = script.joined(script.come_in())
    script.synced(script.sync(first))
    script.heartbeat(first.member_id, 1)
    script.heartbeat(first.member_id, 0)
    script.heartbeat(first.member_id, 2)
    script.heartbeat("stranger", 1)
    second_joins = script.come_in()
    script.hear_of_rebalance(first)
    script.synced(script.sync(first))
    first = script.joined(script.join(first.member_id))
    second = script.joined(second_joins)
    script.synced(script.sync(first, protocol_name="roundrobin"))
    assigned = script.sync(second)
    script.synced(script.sync(first))
    script.synced(assigned)
    script.joined(script.join(second.member_id))
    script.joined(script.join(second.member_id, protocols=(("sticky", b""),)))
    script.joined(script.join(second.member_id, protocol_type="connect"))
    script.joined(script.join("stranger"))
    script.joined(script.join())  # the group is full
    script.leave((second.member_id, None), ("stranger", None), ("", None))
    script.heartbeat(first.member_id, 2)
    script.synced(script.sync(script.joined(script.join(first.member_id))))
    script.leave((first.member_id, None))
    script.heartbeat(first.member_id, 3)
    script.joined(script.join(first.member_id))
    script.leave((first.member_id, None))


def static_members_restart(script: Script) -> None:
    one = script.joined(script.join(instance_id="one"))
    script.synced(script.sync(one, instance_id="one"))
    two_joins = script.join(instance_id="two")
    script.hear_of_rebalance(one, "one")
    one = script.joined(script.join(one.member_id, instance_id="one"))
    two = script.joined(two_joins)
    two_syncs = script.sync(two, instance_id="two")
    script.synced(script.sync(one, instance_id="one"))
    script.synced(two_syncs)
    script.joined(script.join(instance_id="two"))  # a full group has no room for one that it does not know the id of
    script.leave(("", "nobody"), (two.member_id, "one"), ("", "two"))
    script.hear_of_rebalance(one, "one")
    one = script.joined(script.join(one.member_id, instance_id="one"))
    script.synced(script.sync(one, instance_id="one"))
    back = script.joined(script.join(instance_id="one"))
    script.heartbeat(one.member_id, 3, "one")
    script.heartbeat(one.member_id, 3)
    script.joined(script.join(one.member_id, instance_id="one"))
    script.joined(script.join(back.member_id, instance_id="two"))
    script.synced(script.sync(back, instance_id="one"))
    older = script.joined(script.join(instance_id="one", version=8))
    script.heartbeat(older.member_id, 3, "one")
    script.joined(script.join(instance_id="one", protocols=(("range", b"other topics"),)))
    script.joined(script.join(instance_id="one", protocols=(("roundrobin", b""),)))


def refused(script: Script) -> None:
    for version in (0, 3, 4, 9):
        script.joined(script.join(version=version, session_timeout_ms=5_999))
        script.joined(script.join(version=version, protocol_type=""))
        script.joined(script.join(version=version, protocols=()))
        script.joined(script.join("stranger", version=version))
    given = script.joined(script.join()).member_id
    script.joined(script.join(given, instance_id="one"))
    script.heartbeat(given, 0)
    script.leave((given, None), (given, None))


def old_clients(script: Script) -> None:
    one = script.joined(script.join(version=2))
    script.synced(script.sync(one))
    script.joined(script.join(one.member_id, version=2))


@pytest.fixture(scope="module")
def kafka() -> Iterator[apache_kafka.KafkaNode]:
    with apache_kafka.KafkaNode(properties=SETTINGS) as node:
        host, port = node.bootstrap.split(":")
        deadline = time.monotonic() + SECONDS_MAX
        with Connection(host, int(port)) as connection:
            request = m.FindCoordinatorRequest(coordinator_keys=["any"])
            while connection.send(request, 4).coordinators[0].error_code != Error.NONE:
                assert time.monotonic() < deadline, "there is no coordinator"
            probe = m.HeartbeatRequest(group_id="any", member_id="nobody")
            while connection.send(probe, 4).error_code != Error.UNKNOWN_MEMBER_ID:
                assert time.monotonic() < deadline, "the coordinator does not get ready"
        yield node


GROUP_NUMBERS = itertools.count(1)


@pytest.mark.parametrize("scenario", [two_come_and_go, static_members_restart, refused, old_clients])
def test_members_are_told_what_kafka_tells_them(
    kafka: apache_kafka.KafkaNode, scenario: Callable[[Script], None]
) -> None:
    ours = Script(Ours(), "ours")
    scenario(ours)
    coordinator = Theirs(kafka)
    theirs = Script(coordinator, f"theirs-{next(GROUP_NUMBERS)}")
    try:
        scenario(theirs)
    finally:
        coordinator.close()
    assert ours.told == theirs.told
