"""A peer in simulated time: in order, in time, within its limits, and back after every kind of loss."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import struct
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.net.frames import (
    AnswerTimeoutError,
    AuthenticationError,
    ConnectError,
    ConnectionLostError,
    UnsupportedVersionError,
    api_versions_request,
)
from barnabas.net.peer import Peer, PeerBusyError, PeerClosedError, PeerEnvironment, PeerSettings
from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.testing.clock import SimulatedClock
from barnabas.testing.disk import SimulatedDisk
from barnabas.testing.event_loop import Scheduler
from barnabas.testing.network import Delay, SimulatedNetwork
from barnabas.testing.randomness import SeededRandom
from tests.unit.net.serving import FETCH_VERSION, METADATA_VERSIONS, Served, heartbeat, metadata

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from barnabas.net.frames import VersionRange
    from barnabas.net.peer_link import PeerLink
    from barnabas.testing.network import SimulatedHost, SimulatedSocket

PORT = 9093
HERE, THERE = "here", "there"


class World:
    """A node here that has a peer, and one there that may serve it."""

    def __init__(self, seed: int = 1, **settings: Any) -> None:
        self.scheduler = Scheduler()
        self.network = SimulatedNetwork(self.scheduler, seed)
        self.here = self.scheduler.new_loop(HERE)
        self.there = self.scheduler.new_loop(THERE)
        self.environment = PeerEnvironment.of(self.here, self.network.host(HERE), SeededRandom(seed))
        self.network.host(THERE)
        self.peer = Peer("node 2", THERE, PORT, self.environment, PeerSettings(**settings))
        self.served: Served | None = None

    def serve(self) -> Served:
        self.served = Served(self.there, self.network.host(THERE), THERE, PORT)
        return self.served

    def serve_file(self, content: bytes) -> tuple[Served, SimulatedDisk]:
        """Fetch answers with this content."""
        disk = SimulatedDisk(SimulatedClock(self.scheduler), write_to_socket=self.network.write)
        disk.make_folder("/log")
        disk.pwrite(disk.open(f"/log/{0:020}.log", os.O_RDWR | os.O_CREAT), content, 0)
        served = self.serve()
        served.offer_file(disk, "/log", len(content))
        return served, disk

    def run(self, scenario: Coroutine[Any, Any, None], limit_s: float = 60.0) -> None:
        async def whole() -> None:
            await scenario
            await self.peer.close()
            assert self.environment.space.pool.in_use_bytes == 0, "every buffer was given back"

        self.here.run(whole(), limit_s=limit_s)
        assert self.here.errors == self.there.errors == []

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():  # noqa: ASYNC110 (simulated time costs nothing)
            await asyncio.sleep(0.001)


def test_answers_come_to_those_who_asked_in_the_newest_version_that_both_sides_know() -> None:
    world = World()
    world.serve()

    async def scenario() -> None:
        response: m.MetadataResponse = await world.peer.send(metadata("orders"))
        assert (response.cluster_id, response.controller_id) == ("orders", METADATA_VERSIONS[1])
        response = await world.peer.send(metadata("orders"), 5)
        assert response.controller_id == 5
        assert await world.peer.newest_version(ApiKey.METADATA, at_most=7) == 7

    world.run(scenario())


def test_a_request_may_be_made_when_its_version_is_known() -> None:
    world = World()
    world.serve()

    async def scenario() -> None:
        for at_most, expected in ((None, METADATA_VERSIONS[1]), (4, 4)):
            response: m.MetadataResponse = await world.peer.send_made(
                ApiKey.METADATA, lambda version: metadata(f"in {version}"), at_most=at_most
            )
            assert response.cluster_id == f"in {expected}"

        def cannot(version: int) -> m.MetadataRequest:
            raise ValueError("no such thing")

        with pytest.raises(ValueError, match="no such thing"):
            await world.peer.send_made(ApiKey.METADATA, cannot)
        assert world.peer.is_connected

    world.run(scenario())


def test_what_the_other_side_does_not_speak_is_said_without_asking_it() -> None:
    world = World()
    served = world.serve()

    async def scenario() -> None:
        with pytest.raises(UnsupportedVersionError, match=r"node 2 at there:9093 does not support Metadata v12"):
            await world.peer.send(metadata("orders"), 12)
        with pytest.raises(UnsupportedVersionError, match=r"node 2 at there:9093 does not support Vote"):
            await world.peer.send(m.VoteRequest())
        assert (await world.peer.send(metadata("orders"))).cluster_id == "orders"
        assert served.asked == ["orders"]

    world.run(scenario())


def test_many_requests_are_under_way_at_once_on_one_connection_and_leave_in_their_order() -> None:
    world = World(in_flight_max=10)
    served = world.serve()

    async def scenario() -> None:
        names = [f"topic-{number}" for number in range(100)]
        responses = await asyncio.gather(*(world.peer.send(metadata(name)) for name in names))
        assert [response.cluster_id for response in responses] == names
        assert served.asked == names
        assert len(served.server.connections) == 1

    world.run(scenario())


def test_no_more_are_under_way_than_may_be_and_no_more_wait_than_may_wait() -> None:
    world = World(in_flight_max=2, queue_max=3)
    served = world.serve()

    async def scenario() -> None:
        sent = [asyncio.ensure_future(world.peer.send(heartbeat("g", number))) for number in range(3)]
        await world.until(lambda: world.peer.in_flight == 2)
        assert world.peer.queued == 1
        sent += [asyncio.ensure_future(world.peer.send(heartbeat("g", number))) for number in (3, 4)]
        await asyncio.sleep(1)
        assert (world.peer.in_flight, world.peer.queued, len(served.asked)) == (2, 3, 2)
        with pytest.raises(
            PeerBusyError, match="node 2 at there:9093: Heartbeat was not sent: 3 requests already queued"
        ):
            await world.peer.send(heartbeat("g"))
        served.gate("g").set()
        assert [(await each).throttle_time_ms for each in sent] == [0, 1, 2, 3, 4]

    world.run(scenario())


def test_a_raw_answer_comes_as_it_is_in_a_buffer_of_the_pool() -> None:
    world = World()
    content = bytes(range(256)) * 8192
    served, disk = world.serve_file(content)

    async def scenario() -> None:
        await world.peer.newest_version(ApiKey.FETCH)
        for size in (10, 5_000, 100_000, len(content)):
            served.offer_file(disk, "/log", size)
            response = await world.peer.send_raw(ApiKey.FETCH, FETCH_VERSION, b"")
            assert response.body == content[:size]
            assert response.version == FETCH_VERSION
            pool = world.environment.space.pool
            assert pool.in_use_bytes >= size
            response.release()
            response.release()
            assert pool.in_use_bytes == 0
        with await world.peer.send_raw(ApiKey.FETCH, FETCH_VERSION, memoryview(b"")) as response:
            assert len(response.body) == len(content)
        with pytest.raises(ValueError, match="released"):
            len(response.body)

    world.run(scenario())


def test_raw_answers_and_decoded_ones_take_turns_on_one_connection() -> None:
    world = World()
    world.serve_file(b"x" * 50_000)

    async def fetch() -> int:
        with await world.peer.send_raw(ApiKey.FETCH, FETCH_VERSION, b"") as response:
            return len(response.body)

    async def scenario() -> None:
        asked: list[Coroutine[Any, Any, Any]] = []
        for number in range(20):
            asked += [world.peer.send(metadata(f"t{number}")), fetch(), fetch()]
        answers = await asyncio.gather(*asked)
        assert answers[1::3] == answers[2::3] == [50_000] * 20
        assert [answer.cluster_id for answer in answers[::3]] == [f"t{number}" for number in range(20)]

    world.run(scenario())


def test_records_of_a_decoded_answer_outlive_the_buffer_they_came_in() -> None:
    """Decoding leaves records where they are: they must not lie in a buffer that the next answer overwrites."""
    partition = m.FetchResponse.PartitionData(partition_index=0, records=memoryview(b"r" * 100_000))
    topic = m.FetchResponse.FetchableTopicResponse(topic="t", partitions=[partition])
    answer = codec.encode(m.FetchResponse(responses=[topic]), 11)
    world = World()
    served = world.serve()

    def answer_fetch(host: object, connection: Any, version: int, frame: memoryview, body: int) -> None:
        connection.reply([struct.pack(">ii", 4 + len(answer), connection.correlation_id), answer])

    served.routes[ApiKey.FETCH].frame_handler = answer_fetch

    async def scenario() -> None:
        request = m.FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=0, topics=[])
        response: m.FetchResponse = await world.peer.send(request)
        await asyncio.gather(*(world.peer.send(metadata("x" * 200)) for _ in range(20)))
        assert bytes(response.responses[0].partitions[0].records or b"") == b"r" * 100_000

    world.run(scenario())


# ── losing and finding the other side ────────────────────────────────────────────────────────────────────────────


def test_nobody_there_fails_what_waits_at_once_and_attempts_come_ever_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()

    async def scenario() -> None:
        starts = []
        for _ in range(9):
            with pytest.raises(ConnectError, match="cannot connect to node 2 at there:9093: Connection refused"):
                await world.peer.send(metadata("orders"))
            starts.append(world.scheduler.now)
        gaps = [later - earlier for earlier, later in itertools.pairwise(starts)]
        for gap, expected in zip(gaps, (0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0), strict=True):
            assert 0.8 * expected - 0.005 <= gap <= 1.2 * expected + 0.005
        world.serve()
        assert (await world.peer.send(metadata("orders"))).cluster_id == "orders"
        world.network.reset(HERE, THERE)
        await asyncio.sleep(5)
        before = world.scheduler.now
        await world.peer.send(metadata("orders"))
        assert world.scheduler.now - before < 0.05, "one that has answered begins anew"

    with caplog.at_level(logging.INFO, "barnabas.peer"):
        world.run(scenario())
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2, "a peer that cannot be reached is not complained about at every attempt"
    assert messages[0].startswith("cannot connect to node 2 at there:9093: Connection refused")
    assert "connected after 9 failed attempts" in messages[1]


def test_requests_that_come_during_the_pause_wait_for_the_next_attempt() -> None:
    world = World(reconnect_backoff_s=2.0, reconnect_backoff_max_s=2.0)

    async def scenario() -> None:
        with pytest.raises(ConnectError):
            await world.peer.send(metadata("orders"))
        waiting = [asyncio.ensure_future(world.peer.send(metadata(f"t{number}"))) for number in range(3)]
        await asyncio.sleep(1)
        served = world.serve()
        assert [(await each).cluster_id for each in waiting] == ["t0", "t1", "t2"]
        assert served.asked == ["t0", "t1", "t2"]

    world.run(scenario())


@pytest.mark.parametrize("fault", ["reset", "kill"])
def test_a_lost_connection_fails_what_is_under_way_and_the_rest_goes_on_the_next(fault: str) -> None:
    world = World(in_flight_max=2)
    world.serve()

    async def scenario() -> None:
        under_way = [asyncio.ensure_future(world.peer.send(heartbeat("g"))) for _ in range(2)]
        queued = [asyncio.ensure_future(world.peer.send(metadata("orders"))) for _ in range(3)]
        await world.until(lambda: world.peer.in_flight == 2)
        assert world.peer.queued == 3
        if fault == "reset":
            world.network.reset(HERE, THERE)
        else:
            world.network.kill(THERE)
            world.serve()
        for each in under_way:
            with pytest.raises(
                ConnectionLostError, match=r"node 2 at there:9093: no answer to Heartbeat v4: connection lost: "
            ):
                await each
        assert [(await each).cluster_id for each in queued] == ["orders"] * 3

    world.run(scenario())


def test_a_connection_that_is_closed_while_nobody_asks_is_made_again_when_somebody_does() -> None:
    world = World()
    world.serve()

    async def scenario() -> None:
        await world.peer.send(metadata("orders"))
        world.network.kill(THERE)
        await asyncio.sleep(60)
        assert not world.peer.is_connected
        connects = [line for line in world.network.trace if "connects" in line]
        assert len(connects) == 1, "nobody connects for its own sake"
        world.serve()
        assert (await world.peer.send(metadata("again"))).cluster_id == "again"

    world.run(scenario(), limit_s=100)


def test_an_answer_that_does_not_come_in_time_ends_the_connection() -> None:
    world = World()
    world.serve()

    async def scenario() -> None:
        await world.peer.send(metadata("orders"))
        world.network.silence(HERE, THERE)
        patient = asyncio.ensure_future(world.peer.send(metadata("patient")))
        before = world.scheduler.now
        with pytest.raises(AnswerTimeoutError, match=r"node 2 at there:9093 did not answer Metadata v9 within 2 s"):
            await world.peer.send(metadata("hasty"), timeout_s=2)
        assert world.scheduler.now - before == pytest.approx(2)
        with pytest.raises(ConnectionLostError, match="did not answer Metadata v9 within 2 s"):
            await patient
        assert (await world.peer.send(metadata("orders"))).cluster_id == "orders", "a new connection is not silent"

    world.run(scenario())


def test_what_could_not_be_sent_in_time_fails_alone() -> None:
    world = World(in_flight_max=1)
    served = world.serve()

    async def scenario() -> None:
        first = asyncio.ensure_future(world.peer.send(heartbeat("g")))
        await world.until(lambda: world.peer.in_flight == 1)
        with pytest.raises(AnswerTimeoutError, match="Metadata could not be sent within 1 s: 1 requests are in flight"):
            await world.peer.send(metadata("orders"), timeout_s=1)
        served.gate("g").set()
        await first
        assert "orders" not in served.asked

    world.run(scenario())


def test_a_peer_behind_a_cut_is_given_up_after_the_time_for_connecting() -> None:
    world = World()
    world.serve()
    world.network.cut_one_way(THERE, HERE)

    async def scenario() -> None:
        with pytest.raises(ConnectError, match="no connection within 10 s"):
            await world.peer.send(metadata("orders"))
        with pytest.raises(AnswerTimeoutError, match="could not be sent within 1 s: cannot connect to node 2"):
            await world.peer.send(metadata("orders"), timeout_s=1)
        world.network.heal_all()
        assert (await world.peer.send(metadata("orders"))).cluster_id == "orders"

    world.run(scenario())


class CountingNetwork:
    """Remembers which of a host's addresses was asked for."""

    def __init__(self, network: SimulatedHost) -> None:
        self.attempts: list[int] = []
        self.listen = network.listen
        self.addresses = network.addresses
        self._connect = network.connect

    async def connect(self, host: str, port: int, *, attempt: int = 0, **options: Any) -> SimulatedSocket:
        self.attempts.append(attempt)
        return await self._connect(host, port, attempt=attempt, **options)


def test_a_failed_attempt_moves_on_to_the_next_address_and_a_good_one_stays() -> None:
    world = World()
    network = CountingNetwork(world.network.host(HERE))
    peer = Peer("node 2", THERE, PORT, world.environment._replace(network=network))

    async def scenario() -> None:
        for _ in range(2):
            with pytest.raises(ConnectError):
                await peer.send(metadata("orders"))
        world.serve()
        for _ in range(3):
            await peer.send(metadata("orders"))
            world.network.reset(HERE, THERE)
            await world.until(lambda: not peer.is_connected)
        assert network.attempts == [0, 1, 2, 2, 2]
        await peer.close()

    world.run(scenario())


def test_whoever_is_cancelled_is_forgotten_and_harms_nobody() -> None:
    world = World(in_flight_max=1)
    served = world.serve()

    async def scenario() -> None:
        under_way = asyncio.ensure_future(world.peer.send(heartbeat("g")))
        await world.until(lambda: world.peer.in_flight == 1)
        queued = asyncio.ensure_future(world.peer.send(metadata("never sent")))
        behind = asyncio.ensure_future(world.peer.send(metadata("behind")))
        await asyncio.sleep(0.1)
        under_way.cancel()
        queued.cancel()
        await asyncio.sleep(0.1)
        assert (world.peer.in_flight, world.peer.queued) == (1, 1)
        served.gate("g").set()
        assert (await behind).cluster_id == "behind"
        assert served.asked == ["g", "behind"]

    world.run(scenario())


def test_a_raw_answer_that_nobody_waits_for_any_more_gives_its_buffer_back() -> None:
    world = World()
    world.serve_file(b"x" * 300_000)

    async def scenario() -> None:
        await world.peer.send(metadata("orders"))
        for wait_s in [number / 1000 for number in range(20)]:
            fetching = asyncio.ensure_future(world.peer.send_raw(ApiKey.FETCH, FETCH_VERSION, b""))
            await asyncio.sleep(wait_s)
            fetching.cancel()
            (result,) = await asyncio.gather(fetching, return_exceptions=True)
            if not isinstance(result, BaseException):
                result.release()
            await world.peer.send(metadata("orders"))

    world.run(scenario())


def test_closing_tells_those_who_wait_and_those_who_come_later() -> None:
    world = World(in_flight_max=1)
    world.serve()

    async def scenario() -> None:
        under_way, queued = (asyncio.ensure_future(world.peer.send(heartbeat("g"))) for _ in range(2))
        await world.until(lambda: world.peer.in_flight == 1)
        await world.peer.close()
        with pytest.raises(PeerClosedError, match=r"no answer to Heartbeat v4.*closed by this node"):
            await under_way
        with pytest.raises(PeerClosedError, match="Heartbeat was not sent: the peer was closed"):
            await queued
        with pytest.raises(PeerClosedError):
            await world.peer.send(metadata("orders"))
        connecting = Peer("node 3", THERE, PORT + 1, world.environment)
        world.network.cut(HERE, THERE)
        waiting = asyncio.ensure_future(connecting.send(metadata("orders")))
        await asyncio.sleep(0.5)
        await connecting.close()
        with pytest.raises(PeerClosedError):
            await waiting

    world.run(scenario())


# ── an other side that misbehaves ────────────────────────────────────────────────────────────────────────────────


class Script:
    """The other side, written by hand. Answers ApiVersions, and then does as the test says."""

    def __init__(self, world: World, misbehave: Callable[[SimulatedSocket, int], None]) -> None:
        self._acceptor = world.network.host(THERE).listen(THERE, PORT, backlog=10)
        self._loop = world.there
        self._misbehave = misbehave
        self.requests = 0
        self._loop.add_reader(self._acceptor.fileno(), self._accept)

    def _accept(self) -> None:
        stream, _, _ = self._acceptor.accept()
        received = bytearray()
        self._loop.add_reader(stream.fileno(), lambda: self._read(stream, received))

    def _read(self, stream: SimulatedSocket, received: bytearray) -> None:
        buffer = bytearray(100_000)
        try:
            size = stream.recv_into(buffer)
        except OSError:
            size = 0
        if not size:
            self._loop.remove_reader(stream.fileno())
            stream.close()
            return
        received += buffer[:size]
        while len(received) >= 4 and len(received) >= 4 + (length := struct.unpack_from(">i", received)[0]):
            api_key, _, correlation_id = struct.unpack_from(">hhi", received, 4)
            del received[: 4 + length]
            if api_key == ApiKey.API_VERSIONS:
                stream.send(versions_answer(correlation_id))
            else:
                self.requests += 1
                self._misbehave(stream, correlation_id)


def send(stream: SimulatedSocket, data: bytes) -> None:
    assert stream.send(data) == len(data)


def versions_answer(correlation_id: int) -> bytes:
    keys = [m.ApiVersionsResponse.ApiVersion(api_key=key, min_version=0, max_version=3) for key in (3, 18)]
    body = codec.encode(m.ApiVersionsResponse(api_keys=keys), 4)
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


def metadata_answer(correlation_id: int, extra: bytes = b"") -> bytes:
    body = codec.encode(m.MetadataResponse(cluster_id="c"), 3) + extra
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (lambda number: metadata_answer(number + 1), "with correlation id 2, expected 1"),
        (lambda number: metadata_answer(number, b"x"), "malformed response to Metadata v3"),
        (lambda number: struct.pack(">ii", 4, number), "malformed response to Metadata v3"),
        (lambda number: struct.pack(">ii", 2, number), "a response of 2 bytes"),
        (lambda _: struct.pack(">i", -7), "a response of -7 bytes"),
        (lambda _: struct.pack(">i", 1_000_001), r"allowed: 4 to 1000000"),
    ],
)
def test_an_answer_that_cannot_be_right_ends_the_connection_with_a_line_in_the_log(
    answer: Callable[[int], bytes], complaint: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(response_bytes_max=1_000_000)
    Script(world, lambda stream, number: send(stream, answer(number)))

    async def scenario() -> None:
        with pytest.raises(ConnectionLostError, match=complaint):
            await world.peer.send(metadata("orders"))
        assert not world.peer.is_connected
        (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        assert line.startswith("node 2 at there:9093: closing the connection: ")

    world.run(scenario())


def test_a_length_alone_makes_no_large_buffer_and_a_broken_off_answer_gives_its_buffer_back() -> None:
    world = World(response_bytes_max=1 << 30, request_timeout_s=5.0)
    pool = world.environment.space.pool
    Script(world, lambda stream, number: send(stream, struct.pack(">ii", 1 << 30, number) + bytes(200_000)))

    async def scenario() -> None:
        asking = asyncio.ensure_future(world.peer.send(metadata("orders")))
        await asyncio.sleep(4)
        assert 200_000 < pool.in_use_bytes <= 2 * 1024 * 1024
        with pytest.raises(AnswerTimeoutError):
            await asking

    world.run(scenario())


@pytest.mark.parametrize("extra", [b"\0", b"\0\0\0\5hello", bytes(20_000)])
def test_bytes_that_nobody_asked_for_end_the_connection(extra: bytes, caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    script = Script(world, lambda stream, number: send(stream, metadata_answer(number) + extra))

    async def scenario() -> None:
        for _ in range(2):
            assert (await world.peer.send(metadata("orders"))).cluster_id == "c"
            await world.until(lambda: not world.peer.is_connected)
            await asyncio.sleep(0.1)
        assert script.requests == 2

    with caplog.at_level(logging.WARNING, "barnabas.peer"):
        world.run(scenario())
    assert "unexpected bytes" in caplog.text


def test_a_side_that_answers_and_leaves_is_not_knocked_at_without_a_pause() -> None:
    world = World()

    def answer_and_leave(stream: SimulatedSocket, number: int) -> None:
        stream.send(metadata_answer(number))
        world.there.call_soon(world.network.reset, HERE, THERE)

    Script(world, answer_and_leave)

    async def scenario() -> None:
        world.network.delay = Delay(0.0001, 0.0001)
        for _ in range(10):
            with pytest.raises(ConnectionLostError):
                await world.peer.send(metadata("orders"))
        assert world.scheduler.now >= 9 * 0.8 * 0.05

    world.run(scenario())


class Guarded:
    """A security that has to be shown a word, as SASL would be."""

    def __init__(self) -> None:
        self.words = ["wrong", "right"]

    def tls_context(self) -> None:
        return None

    async def authenticate(self, link: PeerLink, versions: Mapping[int, VersionRange]) -> None:
        response = await link.ask(metadata(self.words.pop(0)), versions[ApiKey.METADATA].highest)
        if response.cluster_id != "right":
            raise AuthenticationError("the word is wrong")


def test_nothing_is_sent_before_the_other_side_knows_who_asks() -> None:
    world = World()
    served = world.serve()
    environment = world.environment._replace(security=Guarded())
    peer = Peer("node 2", THERE, PORT, environment)

    async def scenario() -> None:
        with pytest.raises(AuthenticationError, match="cannot connect to node 2 at there:9093: the word is wrong"):
            await peer.send(metadata("orders"))
        assert (await peer.send(metadata("orders"))).cluster_id == "orders"
        assert served.asked == ["wrong", "right", "orders"]
        await peer.close()

    world.run(scenario())


def test_a_request_that_is_never_answered_is_refused() -> None:
    world = World()

    async def scenario() -> None:
        with pytest.raises(ValueError, match="acks=0"):
            await world.peer.send(m.ProduceRequest(acks=0, timeout_ms=1, topic_data=[]))
        with pytest.raises(ValueError, match="is not a request"):
            await world.peer.send(m.MetadataResponse())
        assert api_versions_request("x").client_software_name == "barnabas"

    world.run(scenario())
