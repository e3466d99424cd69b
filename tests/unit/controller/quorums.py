"""Quorums of several whole controllers in simulated time: real listeners, peers, logs and decisions, on simulated
networks and disks that crash."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from barnabas.controller.controller_api import routes_for
from barnabas.controller.controller_node import ControllerNode, ControllerOptions, Environment
from barnabas.controller.decisions.context import NO_GRACE, Settings
from barnabas.metadata.image import Endpoint, MetadataImage
from barnabas.metadata.versions import SUPPORTED_FEATURES
from barnabas.net.dispatch import Dispatcher
from barnabas.net.endpoint import Listener
from barnabas.net.listener import ConnectionCensus, ConnectionLimits, ListenerServer
from barnabas.net.peer import Peer, PeerEnvironment
from barnabas.protocol import messages as m
from barnabas.protocol.uuids import ZERO_UUID, Uuid
from barnabas.raft.consensus.voter_sets import VoterEndpoint, VoterNode
from barnabas.raft.folder.format import format_voters
from barnabas.raft.image_publisher import ImagePublisher
from barnabas.raft.observer import ObserverEnvironment, ObserverOptions, QuorumObserver
from barnabas.raft.quorum_client import QuorumIdentity, QuorumSettings
from barnabas.raft.wire.quorum_peers import Address
from barnabas.testing.clock import SimulatedClock
from barnabas.testing.disk import SimulatedDisk
from barnabas.testing.event_loop import Scheduler
from barnabas.testing.network import SimulatedNetwork
from barnabas.testing.randomness import SeededRandom
from barnabas.testing.threads import SimulatedThreads
from tests.unit.controller.cluster import CLUSTER_ID, RULES
from tests.unit.controller.nodes import QUIET

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from barnabas.controller.quorum_controller import QuorumController
    from barnabas.raft.folder.metadata_log import MetadataLogLimits
    from barnabas.testing.event_loop import SimulatedLoop

FOLDER = "/data"
UNLIMITED = 2**31 - 1
SYNC_S = 0.002


def directory(number: int) -> Uuid:
    return Uuid(bytes([number]) * 16)


def voter_node(number: int, port: int = 9093) -> VoterNode:
    return VoterNode(number, directory(number), (VoterEndpoint("CONTROLLER", f"c{number}", port),))


def registration(broker_id: int, incarnation: int = 0) -> m.BrokerRegistrationRequest:
    request = m.BrokerRegistrationRequest
    return request(
        broker_id=broker_id,
        cluster_id=CLUSTER_ID,
        incarnation_id=Uuid((broker_id + (incarnation << 32)).to_bytes(16)),
        listeners=[request.Listener(name="PLAINTEXT", host="localhost", port=9090)],
        features=[
            request.Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
        ],
        log_dirs=[Uuid((broker_id + 1000).to_bytes(16))],
    )


class QuorumNode:
    """A controller, or an observer, over many lives: its disk outlives them."""

    def __init__(self, quorum: Quorum, number: int, *, votes: bool = True) -> None:
        self.quorum = quorum
        self.number = number
        self.votes = votes
        self.name = f"c{number}"
        self.port = 9093
        self.life = 0
        self.is_running = False
        self.disk = SimulatedDisk(SimulatedClock(quorum.scheduler), write_to_socket=quorum.network.write)
        self.disk.make_folder(FOLDER)
        self.disk.sync_dir("/")
        self.failures: list[Exception] = []
        self.cluster_id = CLUSTER_ID
        self.limits = quorum.limits
        self.publisher = ImagePublisher(CLUSTER_ID)
        self.clock = SimulatedClock(quorum.scheduler)

    def format(self) -> None:
        voters = self.quorum.voters if self.quorum.kraft_version else None
        format_voters(self.disk, FOLDER, voters, now_ms=SimulatedClock(self.quorum.scheduler).now_ms())
        self.disk.sync_dir(FOLDER)

    @property
    def settings(self) -> QuorumSettings:
        static: tuple[VoterNode, ...] = ()
        if not self.quorum.kraft_version:
            static = tuple(node._replace(directory_id=ZERO_UUID) for node in self.quorum.voters)
        servers = tuple(Address(f"c{node.id}", 9093) for node in self.quorum.voters)
        return QuorumSettings(static, servers)

    def launch(self) -> None:
        """Begins a life; `is_running` when it has caught up."""
        self.life += 1
        quorum, name = self.quorum, f"{self.name}, life {self.life}"
        self.threads = SimulatedThreads(quorum.scheduler, name)
        self.threads.takes_s = lambda _pool: SYNC_S
        self.thread = self.threads.loop_thread("controller")
        self.outside = quorum.scheduler.new_loop(f"{name} main")
        quorum.loops += (self.thread.loop, self.outside)
        self.random = SeededRandom(f"{quorum.seed} {name}")
        self.publisher = ImagePublisher(self.cluster_id)
        self.publisher.attach(self.outside)
        self.node: ControllerNode | QuorumObserver = self._controller() if self.votes else self._observer()
        self.node.open()
        self.is_running = False
        self.starting = self.outside.create_task(self._start())

    async def _start(self) -> None:
        if isinstance(self.node, ControllerNode):
            await self.node.start([Endpoint("CONTROLLER", self.name, self.port, 0)], self)
        else:
            await self.node.start()
        self.is_running = True

    def _controller(self) -> ControllerNode:
        host = self.quorum.network.host(self.name)
        environment = Environment(
            self.publisher,
            RULES,
            self.disk,
            self.clock,
            self.random,
            self.threads,
            self.failures.append,
            host,
        )
        settings = Settings(
            node_id=self.number,
            cluster_id=self.cluster_id,
            disconnect_grace_ms=self.quorum.disconnect_grace_ms,
            # As of a node whose properties file names nobody else. The voters in its log count.
            sole_broker_id=self.number,
        )
        options = ControllerOptions(FOLDER, directory(self.number), settings, self.limits, self.settings)
        return ControllerNode(options, environment, self.thread)

    def _observer(self) -> QuorumObserver:
        environment = ObserverEnvironment(
            self.publisher,
            self.disk,
            self.clock,
            self.random,
            self.threads,
            self.quorum.network.host(self.name),
            self.failures.append,
        )
        identity = QuorumIdentity(self.number, directory(self.number), self.cluster_id)
        return QuorumObserver(ObserverOptions(FOLDER, identity, self.settings, self.limits), environment, self.thread)

    def open(self, controller: QuorumController) -> None:
        """Opens the CONTROLLER listener."""
        self.dispatcher = Dispatcher(routes_for(controller))
        self.server = ListenerServer(
            self.thread.loop,
            self.quorum.network.host(self.name),
            Listener("CONTROLLER", "PLAINTEXT", self.name, self.port),
            self.dispatcher.dispatch,
            ConnectionLimits(UNLIMITED, UNLIMITED, {}, 600),
            ConnectionCensus(),
            max_connections=UNLIMITED,
            max_frame_bytes=100 * 1024 * 1024,
            max_buffered_bytes=-1,
        )
        self.server.bind(50)
        self.server.open()

    async def close(self) -> None:
        await self.dispatcher.close()
        self.server.close()

    def kill(self) -> None:
        """As SIGKILL and a power failure: what was not synced is lost."""
        self.is_running = False
        self.thread.loop.kill()
        self.outside.kill()
        self.quorum.network.kill(self.name)
        self.disk.crash()

    def stop(self) -> None:
        """A clean stop."""

        async def stop() -> None:
            await self.node.stop()

        self.is_running = False
        self.outside.run(stop(), limit_s=30)
        self.quorum.network.kill(self.name)

    @property
    def controller(self) -> QuorumController:
        assert isinstance(self.node, ControllerNode)
        return self.node.quorum

    @property
    def is_active(self) -> bool:
        return self.votes and self.is_running and self.controller.quorum_client.is_leader

    @property
    def image(self) -> MetadataImage:
        """What is committed, as far as this node knows."""
        return self.publisher.committed

    def run(self, work: Coroutine[Any, Any, Any], limit_s: float = 60) -> Any:
        return self.outside.run(work, limit_s=limit_s)

    def ask(self, request: Any) -> Any:
        assert isinstance(self.node, ControllerNode)
        return self.run(self.node.ask(request)).response

    def register(self, broker_id: int) -> int:
        """Has the controller decide something: that there is a broker of this id."""
        response: m.BrokerRegistrationResponse = self.ask(registration(broker_id))
        return response.error_code


class Quorum:
    made: ClassVar[list[Quorum]] = []
    """Those of this test, to be buried after it."""

    def __init__(
        self,
        seed: int = 1,
        voters: int = 3,
        *,
        observers: int = 0,
        kraft_version: int = 1,
        limits: MetadataLogLimits = QUIET,
        disconnect_grace_ms: int = NO_GRACE,
    ) -> None:
        self.made.append(self)
        self.disconnect_grace_ms = disconnect_grace_ms
        self.seed = seed
        self.kraft_version = kraft_version
        self.limits = limits
        self.scheduler = Scheduler()
        self.network = SimulatedNetwork(self.scheduler, seed)
        self.voters = [voter_node(number) for number in range(1, voters + 1)]
        self.nodes = {number: QuorumNode(self, number) for number in range(1, voters + 1)}
        for number in range(voters + 1, voters + 1 + observers):
            self.nodes[number] = QuorumNode(self, number, votes=False)
        for node in self.nodes.values():
            if node.votes:
                node.format()
        self.loops: list[SimulatedLoop] = []
        self.client_loop: SimulatedLoop = self.scheduler.new_loop("client")

    def start(self, *numbers: int) -> None:
        """Starts nodes, all of them by default, and waits until they have caught up."""
        chosen = [self.nodes[number] for number in numbers or self.nodes]
        for node in chosen:
            node.launch()
        self.until(lambda: all(node.is_running for node in chosen))

    def until(self, condition: Callable[[], bool], limit_s: float = 60) -> None:
        self.scheduler.run_until(condition, limit_s=limit_s)

    def run_for(self, seconds: float) -> None:
        self.scheduler.run_for(seconds)

    @property
    def active(self) -> QuorumNode:
        """The node that leads; waits for one."""
        self.until(lambda: any(node.is_active for node in self.nodes.values()))
        leaders = [node for node in self.nodes.values() if node.is_active]
        return max(leaders, key=lambda node: node.controller.quorum_client.driver.epoch)

    def others(self) -> list[QuorumNode]:
        active = self.active
        return [node for node in self.nodes.values() if node is not active and node.is_running]

    def peer(self, number: int) -> Peer:
        """Another node's way to one of these."""
        environment = PeerEnvironment.of(self.client_loop, self.network.host("client"), SeededRandom("client"))
        return Peer(f"node {number}", f"c{number}", self.nodes[number].port, environment)

    def send(self, number: int, request: Any) -> Any:
        peer = self.peer(number)

        async def ask() -> Any:
            try:
                return await peer.send(request)
            finally:
                await peer.close()

        return self.client_loop.run(ask(), limit_s=30)

    def agree_on(self, *broker_ids: int, limit_s: float = 30) -> None:
        """Waits until every running node has exactly these brokers."""
        running = [node for node in self.nodes.values() if node.is_running]
        self.until(lambda: all(set(node.image.brokers) == set(broker_ids) for node in running), limit_s)

    @classmethod
    def bury(cls) -> None:
        """Ends everything that still runs, without a word."""
        for quorum in cls.made:
            for loop in quorum.loops:
                loop.kill()
        cls.made.clear()

    def check(self) -> None:
        """Nothing has failed in any node."""
        for node in self.nodes.values():
            assert node.failures == []
