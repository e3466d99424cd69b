"""Large requests over real sockets: answered as a whole would be, in pieces, while others are served."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.net import large_requests
from barnabas.net.dispatch import Dispatcher, Route
from barnabas.net.large_requests import (
    ELEMENTS_MAX,
    SLICE_SECONDS,
    WHOLE_BYTES_MAX,
    WHOLE_WEIGHT_MAX,
    Cut,
    as_a_whole,
)
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.codec import decode
from barnabas.protocol.compiler.decoder import WEIGHT_OF_STRUCT
from barnabas.protocol.errors import Error, KafkaError
from barnabas.protocol.headers import parse_response_header
from barnabas.protocol.refusals import refusal
from tests.unit.net.test_connection import Served, framed, read_frame, run, until
from tests.wire.connection import request_frame

if TYPE_CHECKING:
    from barnabas.net.dispatch import Caller

COUNT = 50_000
CUT = Cut(("coordinator_keys",), ("coordinators",))
VERSION = 4


def keys(count: int = COUNT) -> list[str]:
    return [f"key-{number}" for number in range(count)]


def large(count: int = COUNT, correlation_id: int = 1) -> bytes:
    return request_frame(m.FindCoordinatorRequest(coordinator_keys=keys(count)), VERSION, correlation_id)


def small(correlation_id: int = 2) -> bytes:
    return request_frame(m.HeartbeatRequest(group_id="group", member_id="member"), 4, correlation_id)


class Desk:
    """What the handlers work with: it notes what they are asked."""

    def __init__(self, **finding: Any) -> None:
        self.pieces: list[int] = []
        self.heartbeats = 0
        find = finding.pop("find", find_all)
        self.served = Served(
            Dispatcher(
                {
                    ApiKey.FIND_COORDINATOR: Route(
                        ApiKey.FIND_COORDINATOR, (0, 6), find, cuts=[CUT], **finding.pop("route", {})
                    ).served_by(self),
                    ApiKey.HEARTBEAT: Route(ApiKey.HEARTBEAT, (0, 4), beat).served_by(self),
                }
            ).dispatch,
            **finding,
        )


def find_all(desk: Desk, request: m.FindCoordinatorRequest, caller: Caller) -> m.FindCoordinatorResponse:
    desk.pieces.append(len(request.coordinator_keys))
    found = m.FindCoordinatorResponse.Coordinator
    return m.FindCoordinatorResponse(coordinators=[found(key=key, host="host") for key in request.coordinator_keys])


def beat(desk: Desk, request: m.HeartbeatRequest, caller: Caller) -> m.HeartbeatResponse:
    desk.heartbeats += 1
    return m.HeartbeatResponse(throttle_time_ms=7)


def answer_of(frame: bytes) -> m.FindCoordinatorResponse:
    _, start = parse_response_header(frame, ApiKey.FIND_COORDINATOR, VERSION)
    return decode(m.FindCoordinatorResponse, frame, VERSION, start)


def test_a_large_request_is_answered_in_pieces_as_it_would_be_in_one() -> None:
    async def scenario() -> None:
        desk = Desk()
        reader, writer = await desk.served.client()
        for _ in range(2):
            desk.pieces.clear()
            writer.write(large())
            answer = answer_of(await read_frame(reader))
            assert [each.key for each in answer.coordinators] == keys()
            assert sum(desk.pieces) == COUNT
            assert max(desk.pieces) <= ELEMENTS_MAX
        assert desk.served.server.buffers.in_use_bytes == 0
        assert desk.served.server.answers_in_the_making_bytes == 0
        writer.close()
        desk.served.server.close()

    run(scenario)


def test_others_are_served_between_the_pieces_and_those_behind_on_the_connection_after_them() -> None:
    async def scenario() -> None:
        desk = Desk()
        reader, writer = await desk.served.client()
        other_reader, other_writer = await desk.served.client()
        writer.write(large() + small())
        await until(lambda: bool(desk.pieces))
        other_writer.write(small())
        await read_frame(other_reader)
        assert sum(desk.pieces) < COUNT
        assert desk.heartbeats == 1, "only the other client's"
        assert len(answer_of(await read_frame(reader)).coordinators) == COUNT
        assert (await read_frame(reader))[:4] == (2).to_bytes(4)
        writer.close()
        other_writer.close()
        desk.served.server.close()

    run(scenario)


def test_pieces_get_smaller_where_their_elements_take_long() -> None:
    def find_slowly(desk: Desk, request: m.FindCoordinatorRequest, caller: Caller) -> m.FindCoordinatorResponse:
        time.sleep(SLICE_SECONDS * len(request.coordinator_keys))
        return find_all(desk, request, caller)

    async def scenario() -> None:
        desk = Desk(find=find_slowly, route={"whole_bytes_max": 0})
        reader, writer = await desk.served.client()
        writer.write(large(20))
        assert len(answer_of(await read_frame(reader)).coordinators) == 20
        assert desk.pieces[-10:] == [1] * 9 + [0] or desk.pieces[-10:] == [1] * 10
        writer.close()
        desk.served.server.close()

    run(scenario)


def test_handlers_that_answer_later_are_awaited() -> None:
    async def find_later(desk: Desk, request: m.FindCoordinatorRequest, caller: Caller) -> m.FindCoordinatorResponse:
        await asyncio.sleep(0)
        return find_all(desk, request, caller)

    async def scenario() -> None:
        desk = Desk(find=find_later)
        reader, writer = await desk.served.client()
        writer.write(large())
        assert [each.key for each in answer_of(await read_frame(reader)).coordinators] == keys()
        writer.close()
        desk.served.server.close()

    run(scenario)


def test_nothing_of_a_request_that_is_malformed_at_its_end_takes_effect(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        desk = Desk()
        reader, writer = await desk.served.client()
        writer.write(framed(large()[4:-20]))
        assert await reader.read() == b""
        writer.close()
        assert desk.pieces == []
        assert desk.served.server.buffers.in_use_bytes == 0
        desk.served.server.close()

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert "sent a malformed FIND_COORDINATOR v4" in caplog.text


def test_a_client_that_leaves_is_answered_no_further() -> None:
    async def scenario() -> None:
        desk = Desk()
        _, writer = await desk.served.client()
        writer.write(large())
        await until(lambda: bool(desk.pieces))
        writer.close()
        server = desk.served.server
        await until(lambda: not server.answers_in_the_making)
        assert sum(desk.pieces) < COUNT
        assert server.buffers.in_use_bytes == 0
        server.close()

    run(scenario)


def test_an_answer_that_is_too_large_ends_its_connection_with_a_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_requests, "ANSWER_BYTES_MAX", 500_000)

    async def scenario() -> None:
        desk = Desk()
        reader, writer = await desk.served.client()
        writer.write(large())
        assert await reader.read() == b""
        writer.close()
        assert 0 < sum(desk.pieces) < COUNT
        assert desk.served.server.answers_in_the_making_bytes == 0
        desk.served.server.close()

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert "the answer exceeds 500000 bytes: ask for less at a time" in caplog.text


def test_a_large_answer_waits_while_those_before_it_are_not_taken() -> None:
    async def scenario() -> None:
        desk = Desk(max_buffered_bytes=4_000_000, send_buffer_bytes=8192)
        server, loop = desk.served.server, asyncio.get_running_loop()
        with socket.socket() as lazy:
            lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
            lazy.setblocking(False)
            await loop.sock_connect(lazy, ("127.0.0.1", desk.served.port))
            await loop.sock_sendall(lazy, large(200_000))
            await until(lambda: sum(desk.pieces) == 200_000 and not server.answers_in_the_making)
            desk.pieces.clear()
            reader, writer = await desk.served.client()
            writer.write(large(100_000))
            await until(lambda: bool(server.answers_in_the_making))
            other_reader, other_writer = await desk.served.client()
            for _ in range(200):
                other_writer.write(small())
                await read_frame(other_reader)
            assert 0 < sum(desk.pieces) < 100_000, "the memory is used up by what nobody takes"
        assert len(answer_of(await read_frame(reader)).coordinators) == 100_000
        for each in (writer, other_writer):
            each.close()
        server.close()

    run(scenario)


def test_a_piece_that_is_refused_as_a_whole_is_the_answer() -> None:
    left: list[int] = []

    def leave(desk: object, request: m.LeaveGroupRequest, caller: Caller) -> m.LeaveGroupResponse:
        left.append(len(request.members))
        if sum(left) > 1000:
            return m.LeaveGroupResponse(error_code=Error.NOT_COORDINATOR)
        gone = m.LeaveGroupResponse.MemberResponse
        return m.LeaveGroupResponse(members=[gone(member_id=each.member_id) for each in request.members])

    async def scenario() -> None:
        route = Route(ApiKey.LEAVE_GROUP, (0, 5), leave, cuts=[Cut(("members",), ("members",))])
        served = Served(Dispatcher({ApiKey.LEAVE_GROUP: route}).dispatch)
        reader, writer = await served.client()
        members = [m.LeaveGroupRequest.MemberIdentity(member_id=key) for key in keys()]
        writer.write(request_frame(m.LeaveGroupRequest(group_id="group", members=members), 3))
        answer = decode(m.LeaveGroupResponse, await read_frame(reader), 3, 4)
        assert (answer.error_code, answer.members) == (Error.NOT_COORDINATOR, [])
        assert sum(left) < COUNT
        writer.close()
        served.server.close()

    run(scenario)


@pytest.mark.parametrize(("count", "expected"), [(5000, Error.NONE), (5001, Error.POLICY_VIOLATION)])
def test_what_cannot_be_answered_in_pieces_comes_as_a_whole_or_is_refused(count: int, expected: Error) -> None:
    asked: list[int] = []

    async def delete(desk: object, request: m.DeleteTopicsRequest, caller: Caller) -> Any:
        asked.append(len(request.topic_names))
        return refusal(request, KafkaError(Error.NONE))

    def refuse(request: Any) -> Any:
        return refusal(request, KafkaError(Error.POLICY_VIOLATION))

    async def scenario() -> None:
        route = Route(
            ApiKey.DELETE_TOPICS,
            (1, 6),
            delete,
            cuts=[Cut(("topic_names",), ("responses",))],
            large_handler=as_a_whole(5000, refuse),
        )
        served = Served(Dispatcher({ApiKey.DELETE_TOPICS: route}).dispatch)
        reader, writer = await served.client()
        writer.write(request_frame(m.DeleteTopicsRequest(topic_names=keys(count), timeout_ms=5), 1))
        answer = decode(m.DeleteTopicsResponse, await read_frame(reader), 1, 4)
        assert [each.name for each in answer.responses] == keys(count)
        assert {each.error_code for each in answer.responses} == {expected}
        assert asked == ([count] if expected is Error.NONE else [])
        writer.close()
        served.server.close()

    run(scenario)


@pytest.mark.parametrize("sizes", [[3000, 0, 1, 2000], [4990], [999, 1000, 1001, 1, 1, 1]])
def test_what_comes_as_a_whole_has_its_inner_arrays_whole(sizes: list[int]) -> None:
    """Though the pieces that it was read in ended anywhere, in the middle of a topic too."""
    topic = m.ElectLeadersRequest.TopicPartitions
    topics = [topic(topic=f"t{at}", partitions=list(range(size))) for at, size in enumerate(sizes)]

    def elect(desk: object, request: m.ElectLeadersRequest, caller: Caller) -> Any:
        assert [(each.topic, each.partitions) for each in request.topic_partitions or ()] == [
            (each.topic, each.partitions) for each in topics
        ]
        return refusal(request, KafkaError(Error.NONE))

    async def scenario() -> None:
        cut = Cut(("topic_partitions", "partitions"), ("replica_election_results", "partition_result"))
        large = as_a_whole(len(sizes), refuse_nothing)
        route = Route(ApiKey.ELECT_LEADERS, (0, 2), elect, cuts=[cut], large_handler=large)
        served = Served(Dispatcher({ApiKey.ELECT_LEADERS: route}).dispatch)
        reader, writer = await served.client()
        writer.write(request_frame(m.ElectLeadersRequest(topic_partitions=topics), 1))
        answer = decode(m.ElectLeadersResponse, await read_frame(reader), 1, 4)
        assert [len(each.partition_result) for each in answer.replica_election_results] == sizes
        writer.close()
        served.server.close()

    run(scenario)


def test_null_stays_null_in_a_request_that_is_large_for_another_reason() -> None:
    """For some requests it means everything there is."""
    asked: list[Any] = []

    def elect(desk: object, request: m.ElectLeadersRequest, caller: Caller) -> Any:
        asked.append(request.topic_partitions)
        return refusal(request, KafkaError(Error.NONE))

    async def scenario() -> None:
        cut = Cut(("topic_partitions", "partitions"), ("replica_election_results", "partition_result"))
        route = Route(ApiKey.ELECT_LEADERS, (0, 2), elect, cuts=[cut], large_handler=as_a_whole(5, refuse_nothing))
        served = Served(Dispatcher({ApiKey.ELECT_LEADERS: route}).dispatch)
        reader, writer = await served.client()
        request = m.ElectLeadersRequest(topic_partitions=None)
        writer.write(request_frame(request, 1, client_id="c" * (WHOLE_BYTES_MAX + 1)))
        await read_frame(reader)
        assert asked == [None]
        writer.close()
        served.server.close()

    run(scenario)


def refuse_nothing(request: Any) -> Any:
    raise AssertionError("this is not too much")


@pytest.mark.parametrize(
    ("topics", "partitions"),
    [(5, WHOLE_WEIGHT_MAX // WEIGHT_OF_STRUCT // 5), (2, WHOLE_WEIGHT_MAX // WEIGHT_OF_STRUCT)],
)
def test_a_few_elements_with_very_many_in_them_are_refused_as_well(topics: int, partitions: int) -> None:
    topic = m.ElectLeadersRequest.TopicPartitions
    asked = [topic(topic=f"t{at}", partitions=list(range(partitions))) for at in range(topics)]

    def elect(desk: object, request: m.ElectLeadersRequest, caller: Caller) -> Any:
        raise AssertionError("this is too much")

    async def scenario() -> None:
        cut = Cut(("topic_partitions", "partitions"), ("replica_election_results", "partition_result"))
        large = as_a_whole(5, lambda request: refusal(request, KafkaError(Error.POLICY_VIOLATION)))
        route = Route(ApiKey.ELECT_LEADERS, (0, 2), elect, cuts=[cut], large_handler=large)
        served = Served(Dispatcher({ApiKey.ELECT_LEADERS: route}).dispatch)
        reader, writer = await served.client()
        writer.write(request_frame(m.ElectLeadersRequest(topic_partitions=asked), 1))
        answer = decode(m.ElectLeadersResponse, await read_frame(reader), 1, 4)
        assert answer.error_code == Error.POLICY_VIOLATION
        writer.close()
        served.server.close()

    run(scenario)


def test_what_is_not_cut_for_its_handler_must_not_have_very_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    bytes_max = 1_000_000
    monkeypatch.setattr(large_requests, "UNIT_BYTES_MAX", bytes_max)
    asked: list[int] = []

    def delete(desk: object, request: m.DeleteTopicsRequest, caller: Caller) -> Any:
        asked.append(len(request.topic_names))
        return refusal(request, KafkaError(Error.NONE))

    async def scenario() -> None:
        large = as_a_whole(5000, lambda request: refusal(request, KafkaError(Error.POLICY_VIOLATION)))
        cut = Cut(("topic_names",), ("responses",))
        route = Route(ApiKey.DELETE_TOPICS, (1, 6), delete, cuts=[cut], large_handler=large)
        served = Served(Dispatcher({ApiKey.DELETE_TOPICS: route}).dispatch)
        reader, writer = await served.client()
        for count, expected in ((33, Error.NONE), (34, Error.POLICY_VIOLATION)):
            names = [f"{number:030000}" for number in range(count)]
            frame = request_frame(m.DeleteTopicsRequest(topic_names=names, timeout_ms=5), 1)
            assert (len(frame) - 4 > bytes_max) == (expected is Error.POLICY_VIOLATION)
            writer.write(frame)
            answer = decode(m.DeleteTopicsResponse, await read_frame(reader), 1, 4)
            assert {each.error_code for each in answer.responses} == {expected}
        assert asked == [33]
        writer.close()
        served.server.close()

    run(scenario)


def test_an_answer_of_very_many_elements_to_a_small_request_is_encoded_with_turns_for_others() -> None:
    async def list_groups(desk: object, request: m.ListGroupsRequest, caller: Caller) -> m.ListGroupsResponse:
        return m.ListGroupsResponse(groups=[m.ListGroupsResponse.ListedGroup(group_id=key) for key in keys()])

    async def scenario() -> None:
        route = Route(ApiKey.LIST_GROUPS, (0, 5), list_groups, long_answer="groups")
        served = Served(Dispatcher({ApiKey.LIST_GROUPS: route}).dispatch)
        reader, writer = await served.client()
        writer.write(request_frame(m.ListGroupsRequest(), 5))
        frame = await read_frame(reader)
        _, start = parse_response_header(frame, ApiKey.LIST_GROUPS, 5)
        assert [each.group_id for each in decode(m.ListGroupsResponse, frame, 5, start).groups] == keys()
        writer.close()
        served.server.close()

    run(scenario)


def test_many_requests_of_one_connection_that_came_together_do_not_keep_the_others_waiting() -> None:
    order: list[str] = []

    def beat_slowly(desk: object, request: m.HeartbeatRequest, caller: Caller) -> m.HeartbeatResponse:
        order.append(request.group_id)
        if request.group_id == "many":
            time.sleep(0.01)
        return m.HeartbeatResponse()

    async def scenario() -> None:
        served = Served(Dispatcher({ApiKey.HEARTBEAT: Route(ApiKey.HEARTBEAT, (0, 4), beat_slowly)}).dispatch)
        reader, writer = await served.client()
        other_reader, other_writer = await served.client()
        await asyncio.sleep(0)
        writer.write(request_frame(m.HeartbeatRequest(group_id="many", member_id="member"), 4) * 30)
        other_writer.write(request_frame(m.HeartbeatRequest(group_id="one", member_id="member"), 4))
        await read_frame(other_reader)
        assert order.index("one") <= 5
        for _ in range(30):
            await read_frame(reader)
        writer.close()
        other_writer.close()
        served.server.close()

    run(scenario)
