"""One quorum of Apache Kafka's controllers and ours: either may lead, and what it decides reaches the other."""

from __future__ import annotations

import asyncio
import itertools
import re
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tools import apache_kafka
from tools.apache_kafka import KafkaNode

from barnabas.controller.controller_api import routes_for
from barnabas.controller.controller_node import ControllerNode, ControllerOptions, Environment
from barnabas.controller.decisions.context import Settings
from barnabas.log.folder.meta_properties import MetaProperties, write_meta_properties
from barnabas.metadata.image import Endpoint, MetadataImage
from barnabas.net.dispatch import Dispatcher
from barnabas.net.endpoint import Listener
from barnabas.net.listener import ConnectionCensus, ConnectionLimits, ListenerServer
from barnabas.ports import SystemClock, SystemDisk, SystemNetwork, SystemRandom, SystemThreads
from barnabas.protocol.uuids import ZERO_UUID
from barnabas.raft.consensus.node_state import QuorumTimeouts
from barnabas.raft.consensus.voter_sets import VoterEndpoint, VoterNode
from barnabas.raft.folder.format import format_voters
from barnabas.raft.folder.metadata_log import MetadataLogLimits, metadata_folder
from barnabas.raft.folder.snapshots import list_snapshots
from barnabas.raft.image_publisher import ImagePublisher
from barnabas.raft.quorum_client import QuorumSettings
from barnabas.raft.wire.quorum_peers import Address
from tests.peers import HOST, free_port, wait_until
from tests.unit.controller.cluster import RULES
from tests.unit.controller.nodes import in_event_loop
from tests.unit.controller.quorums import directory, registration

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from barnabas.controller.quorum_controller import QuorumController
    from barnabas.protocol import messages as m

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("apache_kafka_runs"), pytest.mark.timeout(240)]

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAABQ"
UNLIMITED = 2**31 - 1
PATIENT_MS = 100_000_000
"""A node with this election timeout never stands within a test."""
DEADLINE_S = 60.0


class Mixed:
    """A quorum of three, of which some are Apache Kafka's, all formatted by us."""

    def __init__(self, folder: Path, kraft_version: int = 1) -> None:
        self.folder = folder
        self.kraft_version = kraft_version
        self.ports = {number: free_port() for number in (1, 2, 3)}
        self.voters = tuple(
            VoterNode(number, directory(number), (VoterEndpoint("CONTROLLER", HOST, port),))
            for number, port in self.ports.items()
        )
        self.kafkas: list[KafkaNode] = []
        self.ours: list[OurController] = []

    def format(self, number: int) -> str:
        path = self.folder / f"node{number}"
        if not path.exists():
            path.mkdir()
            disk = SystemDisk()
            now_ms = SystemClock().now_ms()
            format_voters(disk, str(path), self.voters if self.kraft_version else None, now_ms=now_ms)
            write_meta_properties(disk, str(path), MetaProperties(CLUSTER_ID, number, directory(number)))
        return str(path)

    @property
    def servers(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports.values())

    def kafka(self, number: int, **settings: str) -> KafkaNode:
        """An Apache Kafka controller, started without waiting."""
        quorum = {"controller.quorum.bootstrap.servers": self.servers}
        if not self.kraft_version:
            voters = ",".join(f"{each}@{HOST}:{port}" for each, port in self.ports.items())
            quorum = {"controller.quorum.bootstrap.servers": "", "controller.quorum.voters": voters}
        node = KafkaNode(
            self.format(number),
            properties={
                "process.roles": "controller",
                "listeners": f"CONTROLLER://{HOST}:{self.ports[number]}",
                **quorum,
                **{name.replace("_", "."): value for name, value in settings.items()},
            },
        )
        self.kafkas.append(node)
        node.launch()
        return node

    async def barnabas(
        self, number: int, *, election_ms: int = 1000, limits: MetadataLogLimits | None = None
    ) -> OurController:
        timeouts = QuorumTimeouts(election_ms=election_ms, fetch_ms=max(2000, election_ms))
        static: tuple[VoterNode, ...] = ()
        if not self.kraft_version:
            static = tuple(voter._replace(directory_id=ZERO_UUID) for voter in self.voters)
        servers = tuple(Address(HOST, port) for port in self.ports.values())
        ours = OurController(
            number,
            self.format(number),
            self.ports[number],
            QuorumSettings(static, servers, timeouts),
            limits or MetadataLogLimits(),
        )
        self.ours.append(ours)
        await ours.start()
        return ours

    async def close(self) -> None:
        for ours in self.ours:
            await ours.stop()
        for node in self.kafkas:
            node.kill()
            node.close()

    def check_logs(self) -> None:
        """Kafka has nothing to complain about, except that one who is told to ask another calls that an error."""
        for node in self.kafkas:
            lines = node.log.splitlines()
            complaints = [
                line
                for line, next_line in itertools.pairwise([*lines, ""])
                if "ERROR" in line and "NotControllerException" not in next_line
            ]
            assert complaints == [], node.log

    def quorum_tool(self, number: int, *arguments: str) -> str:
        done = apache_kafka.run_tool(
            "org.apache.kafka.tools.MetadataQuorumCommand",
            "--bootstrap-controller",
            f"{HOST}:{self.ports[number]}",
            "describe",
            *arguments,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


class OurController:
    def __init__(self, number: int, folder: str, port: int, quorum: QuorumSettings, limits: MetadataLogLimits) -> None:
        self.number = number
        self.folder = folder
        self.port = port
        self.failures: list[Exception] = []
        self.publisher = ImagePublisher(CLUSTER_ID)
        self.publisher.attach(asyncio.get_running_loop())
        self._thread = SystemThreads().loop_thread("controller")
        environment = Environment(
            self.publisher,
            RULES,
            SystemDisk(),
            SystemClock(),
            SystemRandom(),
            SystemThreads(),
            self.failures.append,
            SystemNetwork(),
        )
        settings = Settings(node_id=number, cluster_id=CLUSTER_ID)
        self.node = ControllerNode(
            ControllerOptions(folder, directory(number), settings, limits, quorum), environment, self._thread
        )
        self._server: ListenerServer | None = None
        self._is_stopped = False

    async def start(self) -> None:
        self.node.open()
        async with asyncio.timeout(DEADLINE_S):
            await self.node.start([Endpoint("CONTROLLER", HOST, self.port, 0)], self)

    def open(self, controller: QuorumController) -> None:
        """Opens the CONTROLLER listener."""
        self._server = ListenerServer(
            self._thread.loop,
            SystemNetwork(),
            Listener("CONTROLLER", "PLAINTEXT", HOST, self.port),
            Dispatcher(routes_for(controller)).dispatch,
            ConnectionLimits(UNLIMITED, UNLIMITED, {}, 600),
            ConnectionCensus(),
            max_connections=UNLIMITED,
            max_frame_bytes=100 * 1024 * 1024,
            max_buffered_bytes=-1,
        )
        self._server.bind(50)
        self._server.open()

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()

    async def stop(self) -> None:
        if self._is_stopped:
            return
        self._is_stopped = True
        await self.node.stop()
        self.publisher.detach()
        assert self.failures == []

    async def until(self, condition: Callable[[MetadataImage], bool], what: str) -> None:
        await asyncio.to_thread(wait_until, lambda: condition(self.publisher.committed), what, DEADLINE_S)

    async def register(self, broker_id: int) -> int:
        request = registration(broker_id)
        request.cluster_id = CLUSTER_ID
        response: m.BrokerRegistrationResponse = (await self.node.ask(request)).response  # type: ignore[assignment]
        return response.error_code

    @property
    def is_active(self) -> bool:
        return self.node.quorum.quorum_client.is_leader

    @property
    def leader_id(self) -> int:
        return self.node.current_leader.leader.id


def status(text: str) -> dict[str, str]:
    return dict(re.findall(r"^(\w+):\s+(.*)$", text, re.MULTILINE))


def replication(text: str) -> dict[int, tuple[int, str]]:
    """The lag and the role of each node."""
    rows = [line.split() for line in text.splitlines()[1:] if line.strip()]
    return {int(row[0]): (int(row[3]), row[-1]) for row in rows}


def has_other_leader(ours: OurController, leader_id: int, _: MetadataImage) -> bool:
    return ours.leader_id not in (leader_id, -1)


def is_beyond(offset: int, image: MetadataImage) -> bool:
    return image.offset > offset


@pytest.mark.parametrize("kraft_version", [0, 1])
@in_event_loop
async def test_kafka_leads_and_ours_follow_register_and_start_from_its_snapshot(
    tmp_path: Path, kraft_version: int
) -> None:
    mixed = Mixed(tmp_path, kraft_version)
    try:
        mixed.kafka(1, metadata_log_max_record_bytes_between_snapshots="100")
        two = await mixed.barnabas(2, election_ms=PATIENT_MS)
        assert two.leader_id == 1
        await two.until(lambda image: {1, 2} <= set(image.controllers), "Kafka has registered both controllers")
        await two.until(lambda image: image.offset > 20, "no-ops are replicated")
        folder = tmp_path / "node1" / "__cluster_metadata-0"
        await two.until(
            lambda _: any(int(path.name[:20]) for path in folder.glob("*.checkpoint")), "Kafka has written a snapshot"
        )
        three = await mixed.barnabas(3, election_ms=PATIENT_MS)
        assert list_snapshots(SystemDisk(), metadata_folder(three.folder))[-1].end_offset > 0
        await three.until(lambda image: {1, 2, 3} <= set(image.controllers), "Kafka has registered three")
        found = status(await asyncio.to_thread(mixed.quorum_tool, 1, "--status"))
        assert found["LeaderId"] == "1"
        assert found["ClusterId"] == CLUSTER_ID
        rows = replication(await asyncio.to_thread(mixed.quorum_tool, 1, "--replication"))
        assert {number: role for number, (_, role) in rows.items()} == {1: "Leader", 2: "Follower", 3: "Follower"}
        assert all(lag <= 2 for lag, _ in rows.values())
        mixed.check_logs()
    finally:
        await mixed.close()


@pytest.mark.parametrize("kraft_version", [0, 1])
@in_event_loop
async def test_ours_leads_and_kafka_follows_registers_and_starts_from_our_snapshot(
    tmp_path: Path, kraft_version: int
) -> None:
    mixed = Mixed(tmp_path, kraft_version)
    often = MetadataLogLimits(snapshot_bytes=100)
    try:
        two, three = await asyncio.gather(mixed.barnabas(2, limits=often), mixed.barnabas(3, limits=often))
        leader = two if two.leader_id == 2 else three
        assert await leader.register(100) == 0
        await leader.until(lambda image: image.offset > 20, "no-ops are committed")
        assert list_snapshots(SystemDisk(), metadata_folder(leader.folder))[-1].end_offset > 0
        mixed.kafka(
            1, controller_quorum_election_timeout_ms=str(PATIENT_MS), controller_quorum_fetch_timeout_ms=str(PATIENT_MS)
        )
        await leader.until(lambda image: {1, 2, 3} <= set(image.controllers), "Kafka's controller has registered")
        snapshots = (tmp_path / "node1" / "__cluster_metadata-0").glob("*.checkpoint")
        assert any(int(path.name[:20]) for path in snapshots)
        found = status(await asyncio.to_thread(mixed.quorum_tool, leader.number, "--status"))
        assert found["LeaderId"] == str(leader.number)
        assert int(found["MaxFollowerLag"]) <= 2
        rows = replication(await asyncio.to_thread(mixed.quorum_tool, leader.number, "--replication"))
        assert {number: role for number, (_, role) in rows.items()} == {
            number: "Leader" if number == leader.number else "Follower" for number in (1, 2, 3)
        }
        mixed.check_logs()
    finally:
        await mixed.close()


@in_event_loop
async def test_the_leader_passes_between_kafka_and_ours_and_nothing_is_lost(tmp_path: Path) -> None:
    mixed = Mixed(tmp_path)
    try:
        one = mixed.kafka(1)
        two = await mixed.barnabas(2, election_ms=PATIENT_MS)
        assert two.leader_id == 1
        await two.until(lambda image: {1, 2} <= set(image.controllers), "both are registered")
        three = await mixed.barnabas(3, election_ms=PATIENT_MS)
        one.kill()
        # A leader that refuses connections is replaced at once, however patient the others are.
        await two.until(lambda _: two.is_active or three.is_active, "one of ours leads")
        leader, follower = (two, three) if two.is_active else (three, two)
        assert await leader.register(100) == 0
        await follower.until(lambda image: 100 in image.brokers, "the other has what ours decided")
        one.launch()
        await leader.until(
            lambda _: replication(mixed.quorum_tool(leader.number, "--replication"))[1][0] <= 2,
            "Kafka has caught up with ours",
        )
        await leader.stop()
        await follower.until(lambda _: follower.leader_id not in (-1, leader.number), "another one leads")
        if follower.leader_id == 1:
            await follower.until(lambda image: image.controller_id == 1, "Kafka's epoch is committed")
        assert 100 in follower.publisher.committed.brokers
        mixed.check_logs()
    finally:
        await mixed.close()


@in_event_loop
async def test_two_of_kafka_and_one_of_ours_elect_another_when_the_leader_dies(tmp_path: Path) -> None:
    mixed = Mixed(tmp_path)
    try:
        mixed.kafka(1)
        mixed.kafka(2)
        three = await mixed.barnabas(3)
        for _ in range(2):
            await three.until(lambda image: {1, 2, 3} <= set(image.controllers), "all are registered")
            leader = three.leader_id
            if leader == 3:
                break
            offset = three.publisher.committed.offset
            node = mixed.kafkas[leader - 1]
            node.kill()
            await three.until(partial(has_other_leader, three, leader), "another one leads")
            await three.until(partial(is_beyond, offset + 3), "the next leader commits")
            node.launch()
        mixed.check_logs()
    finally:
        await mixed.close()
