"""Several nodes that replicate partitions: real logs, replica managers, fetch and produce handlers, listeners and
peers, on simulated time, network and disks. The controller is a stand-in: it keeps the truth about partitions, decides
on AlterPartition as Kafka's does, elects leaders from the ISR, and tells each node of it after a while.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, cast

from barnabas.broker.api import registry
from barnabas.broker.api.client_connection import ClientConnection
from barnabas.broker.api.environments import FetchEnvironment, ProduceEnvironment
from barnabas.broker.api.fetch.fetch_sessions import FetchSessions
from barnabas.broker.api.produce.batch_opener import BatchOpener
from barnabas.broker.api.produce.produce_lanes import Lanes
from barnabas.broker.flusher import Flusher
from barnabas.broker.live_config import LiveConfig
from barnabas.config.topic_config import resolve_topic_config
from barnabas.log.folder.data_dir import DataDir
from barnabas.log.segments.open_files import FilePool
from barnabas.metadata.image import (
    BrokerImage,
    ConfigResource,
    ConfigsImage,
    Endpoint,
    MetadataImage,
    PartitionImage,
    ResourceType,
    TopicImage,
    TopicsImage,
)
from barnabas.net import api_versions
from barnabas.net.dispatch import Dispatcher, Route
from barnabas.net.endpoint import Listener
from barnabas.net.frames import ConnectError, WireError
from barnabas.net.listener import ConnectionCensus, ConnectionLimits, ListenerServer
from barnabas.net.peer import Peer, PeerEnvironment, PeerSettings
from barnabas.net.purgatory import Purgatory
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.batch import build_batch, decode_records, iter_headers
from barnabas.protocol.errors import Error, KafkaError
from barnabas.protocol.record import Record
from barnabas.protocol.uuids import Uuid
from barnabas.replication.log_store import LogStore, OpenDir
from barnabas.replication.replica_manager import ReplicaManager, ReplicationEnvironment
from barnabas.testing.clock import SimulatedClock
from barnabas.testing.disk import SimulatedDisk
from barnabas.testing.event_loop import Scheduler
from barnabas.testing.network import SimulatedNetwork
from barnabas.testing.processes import InlineProcesses
from barnabas.testing.randomness import SeededRandom
from barnabas.testing.threads import SimulatedThreads
from tests.unit.broker.api.stand_ins import a_config, topic_id
from tests.unit.replication.hosting import replica_moves

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from barnabas.net.dispatch import Caller
    from barnabas.net.parts import FilePart
    from barnabas.replication.hosted import HostedPartition
    from barnabas.testing.event_loop import SimulatedLoop

CLUSTER_ID = "cluster-0123456789abcd"
PORT = 9092
UNLIMITED = 2**31 - 1
TOPIC = "t"
TIMEOUT_S = 5.0
ACKS_ALL = -1

SERVED = (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH)


def routes_for(producing: ProduceEnvironment, fetching: FetchEnvironment) -> dict[int, Route]:
    """The broker's own handlers of the APIs that replicate."""
    registry.register_all()
    routes: dict[int, Route] = {
        key: registry.ROUTES[key].served_by(producing if key == ApiKey.PRODUCE else fetching) for key in SERVED
    }

    def answer_versions(host: object, request: m.ApiVersionsRequest, caller: Caller) -> m.ApiVersionsResponse:
        return api_versions.answer(routes, caller.api_version, supported={}, finalized={}, finalized_epoch=0)

    routes[ApiKey.API_VERSIONS] = Route(ApiKey.API_VERSIONS, api_versions.VERSIONS, answer_versions)
    return routes


def warm_already(parts: Sequence[FilePart], done: Callable[[BaseException | None], None]) -> None:
    """Simulated disks have no page cache to fill."""
    done(None)


class Node:
    """One life of a node. Its disk outlives it."""

    def __init__(self, cluster: Cluster, node_id: int, life: int) -> None:
        self.id = node_id
        self.cluster = cluster
        self.name = host_of(node_id)
        self.epoch = 100 * life + node_id
        self.is_alive = True
        scheduler = cluster.scheduler
        self.loop: SimulatedLoop = scheduler.new_loop(f"{self.name}, life {life}")
        self.clock = SimulatedClock(scheduler)
        self.disk = cluster.disks[node_id]
        self.host = cluster.network.host(self.name)
        self.random = SeededRandom(f"{cluster.seed} {self.name} {life}")
        self.peers = PeerEnvironment.of(self.loop, self.host, self.random)
        self.threads = SimulatedThreads(scheduler, self.name)
        self.image = MetadataImage(CLUSTER_ID)
        self.config = a_config("/data", **cluster.settings)
        self._pending: MetadataImage | None = None
        self.loop.run(self._start(), limit_s=5)

    async def _start(self) -> None:
        pool = self.threads.pool("writes", 4)
        self.purgatory = Purgatory(self.loop)
        self.data_dir = DataDir.lock(
            "/data", disk=self.disk, clock=self.clock, files=FilePool(self.disk), random=self.random
        )
        self.directory = Uuid(f"folder of {self.id}".encode().rjust(16, b"."))
        self.store = LogStore([OpenDir(self.directory, self.data_dir)], pool.run, lambda _log: None)
        self.flusher = Flusher(self.disk, pool.run, self.store.report_failure)
        environment = ReplicationEnvironment(
            self.loop, self.connect, cast("Any", self), lambda: self.epoch, self.flusher.flush
        )
        moves = replica_moves(self.store, self.clock, pool.run, self.flusher, self.disk)
        self.replicas = ReplicaManager(self.id, self.store, self.purgatory, self.clock, pool.run, moves, environment)
        self.store.open(
            lambda partition: resolve_topic_config(self.image.configs.of_topic(partition.topic), self.config),
            threads=self.threads,
            threads_per_dir=1,
            producer_expiration_ms=86_400_000,
            on_progress=lambda _opened, _all: None,
        )
        self.sessions = FetchSessions(1000, self.purgatory, self.random)
        settings = LiveConfig(self.config, lambda _config: None)
        routes = routes_for(
            ProduceEnvironment(
                replicas=self.replicas,
                lanes=Lanes(self.replicas),
                transactions=cast("Any", None),
                opener=BatchOpener(InlineProcesses(), self.clock),
                flusher=self.flusher,
                purgatory=self.purgatory,
                settings=settings,
            ),
            FetchEnvironment(
                replicas=self.replicas,
                sessions=self.sessions,
                purgatory=self.purgatory,
                clock=self.clock,
                settings=settings,
                timestamps=cast("Any", None),
                warm=warm_already,
            ),
        )
        if self.cluster.fetch_bytes_at_once is not None:
            routes[ApiKey.FETCH].whole_bytes_max = self.cluster.fetch_bytes_at_once
        self.server = ListenerServer(
            self.loop,
            self.host,
            Listener("PLAINTEXT", "PLAINTEXT", self.name, PORT),
            Dispatcher(routes).dispatch,
            ConnectionLimits(UNLIMITED, UNLIMITED, {}, 600),
            ConnectionCensus(),
            max_connections=UNLIMITED,
            max_frame_bytes=100 * 1024 * 1024,
            max_buffered_bytes=-1,
            make_connection=ClientConnection,
        )
        self.server.bind(50)
        self.server.open()

    def connect(self, broker_id: int, name: str) -> Peer | None:
        if broker_id not in self.image.brokers:
            return None
        settings = PeerSettings(request_timeout_s=TIMEOUT_S, connection_setup_timeout_s=TIMEOUT_S)
        return Peer(f"{name} to broker {broker_id}", host_of(broker_id), PORT, self.peers, settings)

    async def send(self, request: m.AlterPartitionRequest) -> m.AlterPartitionResponse:
        """To the controller, and back."""
        return await self.cluster.controller.alter(self, request)

    def hear(self, image: MetadataImage) -> None:
        """The metadata is this now. Images that come while one is put into effect are taken together."""
        is_idle = self._pending is None
        self._pending = image
        if is_idle:
            self.loop.create_task(self._follow())

    async def _follow(self) -> None:
        while self._pending is not None and self._pending is not self.image:
            image = self._pending
            await self.replicas.apply(image, image.diff(self.image), self.config)
            self.image = image
        self._pending = None

    def partition(self, index: int = 0) -> HostedPartition:
        return self.replicas.find_by_name(TOPIC.encode(), index)

    def batches(self, index: int = 0, end: int | None = None) -> list[bytes]:
        """Its log, as it is on disk, up to an offset."""
        return log_batches(self.partition(index), end)

    def kill(self) -> None:
        """The process ends; what it wrote stays."""
        self.is_alive = False
        self.loop.kill()
        self.cluster.network.kill(self.name)
        self.data_dir.unlock()
        assert self.loop.errors == []


def log_batches(hosted: HostedPartition, end: int | None = None) -> list[bytes]:
    log = hosted.log
    end_offset = log.log_end_offset if end is None else end
    found = []
    offset = log.log_start_offset
    while offset < end_offset:
        part = log.read(offset, 10_000_000, log.end_position, whole_first_batch=True)
        assert part is not None
        data = part.file.read(part.position, part.length)
        for at, header in iter_headers(data):
            if header.next_offset > offset and header.next_offset <= end_offset:
                found.append(bytes(data[at : at + header.size]))
            offset = max(offset, header.next_offset)
    return found


def host_of(node_id: int) -> str:
    return f"node-{node_id}"


class StandInController:
    """Knows which partitions there are, and who is alive."""

    def __init__(self, cluster: Cluster, replicas: Sequence[int], partitions: int, min_isr: int) -> None:
        self.cluster = cluster
        self.offset = 0
        self.configs = ConfigsImage({ConfigResource(ResourceType.TOPIC, TOPIC): {"min.insync.replicas": str(min_isr)}})
        self.brokers: dict[int, BrokerImage] = {}
        self.partitions = [
            PartitionImage(
                replicas=tuple(replicas),
                directories=tuple(Uuid(f"folder of {each}".encode().rjust(16, b".")) for each in replicas),
                isr=tuple(replicas),
                leader=replicas[index % len(replicas)],
                leader_epoch=0,
                partition_epoch=0,
            )
            for index in range(partitions)
        ]
        self.delay_s = (0.001, 0.02)

    def register(self, *nodes: Node) -> None:
        for node in nodes:
            endpoint = Endpoint("PLAINTEXT", node.name, PORT, 0)
            self.brokers[node.id] = BrokerImage(
                node.id,
                node.epoch,
                Uuid(bytes(16)),
                (endpoint,),
                {},
                self.cluster.racks[node.id - 1],
                False,
                False,
                (node.directory,),
            )
        self._elect()
        self.publish()

    def fence(self, node_id: int) -> None:
        """A broker is gone: it leads nothing, and is in no ISR of others."""
        self.brokers[node_id] = self.brokers[node_id]._replace(fenced=True)
        for index, partition in enumerate(self.partitions):
            isr = tuple(each for each in partition.isr if each != node_id) or partition.isr
            if isr != partition.isr:
                self._change(index, isr=isr)
        self._elect()
        self.publish()

    def lead(self, index: int, leader: int) -> None:
        """Moves the lead to another in-sync replica."""
        partition = self.partitions[index]
        assert leader in partition.isr
        self._change(index, leader=leader, leader_epoch=partition.leader_epoch + 1)
        self.publish()

    def mark_throttled(self, setting: str, replicas: str) -> None:
        resource = ConfigResource(ResourceType.TOPIC, TOPIC)
        self.configs = ConfigsImage({resource: {**self.configs.of(resource), setting: replicas}})
        self.publish()

    def _elect(self) -> None:
        for index, partition in enumerate(self.partitions):
            if partition.leader in partition.isr and self._is_active(partition.leader):
                continue
            candidates = [each for each in partition.isr if self._is_active(each)]
            leader = candidates[0] if candidates else -1
            if leader != partition.leader:
                self._change(index, leader=leader, leader_epoch=partition.leader_epoch + 1)

    def _is_active(self, node_id: int) -> bool:
        return node_id in self.brokers and self.brokers[node_id].is_active

    def _change(self, index: int, **fields: Any) -> None:
        partition = self.partitions[index]
        self.partitions[index] = partition._replace(partition_epoch=partition.partition_epoch + 1, **fields)

    def publish(self) -> None:
        self.offset += 1
        topic = TopicImage(TOPIC, topic_id(TOPIC), tuple(self.partitions))
        image = MetadataImage(
            CLUSTER_ID,
            offset=self.offset,
            brokers=dict(self.brokers),
            topics=TopicsImage({TOPIC: topic}, {topic.topic_id: topic}),
            configs=self.configs,
        )
        for node in self.cluster.nodes.values():
            self.cluster.scheduler.call_later(self.cluster.chance.uniform(*self.delay_s), self._tell, node, image)

    def _tell(self, node: Node, image: MetadataImage) -> None:
        if node.is_alive and image.offset > node.image.offset:
            node.loop.call_soon(node.hear, image)

    async def alter(self, node: Node, request: m.AlterPartitionRequest) -> m.AlterPartitionResponse:
        await asyncio.sleep(self.cluster.chance.uniform(*self.delay_s))
        if self.cluster.is_cut_off(node.id):
            await asyncio.sleep(1)
            raise ConnectError("the controller cannot be reached")
        if self.brokers[node.id].epoch != request.broker_epoch or self.brokers[node.id].fenced:
            return m.AlterPartitionResponse(error_code=Error.STALE_BROKER_EPOCH)
        response = m.AlterPartitionResponse()
        for topic in request.topics:
            answer = m.AlterPartitionResponse.TopicData(topic_id=topic.topic_id)
            answer.partitions = [self._alter_one(node.id, wanted) for wanted in topic.partitions]
            response.topics.append(answer)
        self.publish()
        await asyncio.sleep(self.cluster.chance.uniform(*self.delay_s))
        return response

    def _alter_one(
        self, node_id: int, wanted: m.AlterPartitionRequest.PartitionData
    ) -> m.AlterPartitionResponse.PartitionData:
        partition = self.partitions[wanted.partition_index]
        result = m.AlterPartitionResponse.PartitionData(partition_index=wanted.partition_index)
        isr = tuple(each.broker_id for each in wanted.new_isr_with_epochs)
        if partition.leader != node_id or wanted.leader_epoch != partition.leader_epoch:
            result.error_code = Error.FENCED_LEADER_EPOCH
        elif wanted.partition_epoch != partition.partition_epoch:
            result.error_code = Error.INVALID_UPDATE_VERSION
        elif any(
            not self._is_active(each.broker_id) or each.broker_epoch not in (-1, self.brokers[each.broker_id].epoch)
            for each in wanted.new_isr_with_epochs
        ):
            result.error_code = Error.INELIGIBLE_REPLICA
        else:
            self._change(wanted.partition_index, isr=isr)
            partition = self.partitions[wanted.partition_index]
            result.leader_id, result.leader_epoch = partition.leader, partition.leader_epoch
            result.isr, result.partition_epoch = list(partition.isr), partition.partition_epoch
        return result


class Cluster:
    def __init__(
        self,
        seed: int,
        *,
        nodes: int = 3,
        partitions: int = 1,
        min_isr: int = 2,
        settings: dict[str, str] | None = None,
        racks: Sequence[str | None] | None = None,
        fetch_bytes_at_once: int | None = None,
    ) -> None:
        """Fetch requests of more than `fetch_bytes_at_once` are answered in pieces."""
        self.seed = seed
        self.fetch_bytes_at_once = fetch_bytes_at_once
        self.racks = racks or (None,) * nodes
        self.settings = {"replica_lag_time_max_ms": "2000", **(settings or {})}
        self.chance = random.Random(seed)
        self.scheduler = Scheduler()
        self.network = SimulatedNetwork(self.scheduler, seed)
        self.ids = range(1, nodes + 1)
        self.disks = {
            node_id: SimulatedDisk(SimulatedClock(self.scheduler), write_to_socket=self.network.write)
            for node_id in self.ids
        }
        self._lives = 0
        self._cut_off: set[int] = set()
        self.nodes: dict[int, Node] = {}
        self.controller = StandInController(self, tuple(self.ids), partitions, min_isr)
        self.controller.register(*(self._start(node_id) for node_id in self.ids))

    def start(self, node_id: int) -> None:
        """A new life of a node, on the disk that it had."""
        self.controller.register(self._start(node_id))

    def _start(self, node_id: int) -> Node:
        self._lives += 1
        node = self.nodes[node_id] = Node(self, node_id, self._lives)
        return node

    def kill(self, node_id: int) -> None:
        self.nodes[node_id].kill()

    def stop(self) -> None:
        for node in self.nodes.values():
            if node.is_alive:
                node.kill()

    def lose_power(self, node_id: int, keep: int = 0) -> None:
        """What was not synced is gone, but for the first `keep` bytes of each file."""
        self.kill(node_id)
        self.disks[node_id].crash(lambda unsynced: min(unsynced, keep))

    def cut_off(self, node_id: int) -> None:
        self._cut_off.add(node_id)
        self.network.isolate(host_of(node_id))

    def heal(self) -> None:
        self._cut_off.clear()
        self.network.heal_all()

    def heal_controller(self) -> None:
        """The controller is reached by everybody, also by those that are cut off from the others."""
        self._cut_off.clear()

    def in_loop(self, node_id: int, function: Callable[[], Any]) -> None:
        """Does something on a node's event loop."""

        async def call() -> None:
            function()

        self.nodes[node_id].loop.run(call(), limit_s=5)

    def is_cut_off(self, node_id: int) -> bool:
        return node_id in self._cut_off

    def leader(self, index: int = 0) -> Node:
        return self.nodes[self.controller.partitions[index].leader]

    def run_until(self, is_reached: Any, limit_s: float = 60) -> None:
        self.scheduler.run_until(is_reached, limit_s=limit_s)

    def run_for(self, seconds: float) -> None:
        self.scheduler.run_for(seconds)

    def in_sync(self, index: int = 0) -> set[int]:
        return set(self.controller.partitions[index].isr)

    def wait_until_led(self, index: int = 0, limit_s: float = 20) -> Node:
        def is_led() -> bool:
            partition = self.controller.partitions[index]
            if partition.leader < 0:
                return False
            try:
                state = self.nodes[partition.leader].partition(index).state
            except KafkaError:
                return False
            return state.is_leader and state.leader_epoch == partition.leader_epoch

        self.run_until(is_led, limit_s)
        return self.leader(index)

    def wait_until_equal(self, index: int = 0, limit_s: float = 60) -> None:
        """Until all replicas are in sync, and everything is committed everywhere."""

        def is_equal() -> bool:
            if self.in_sync(index) != set(self.ids):
                return False
            states = [self.nodes[each].partition(index).state for each in self.ids]
            ends = {state.log_end.offset for state in states}
            return len(ends) == 1 and {state.high_watermark.offset for state in states} == ends

        self.wait_until_led(index, limit_s)
        self.run_until(is_equal, limit_s)
        logs = [self.nodes[each].batches(index) for each in self.ids]
        assert all(log == logs[0] for log in logs)


class Client:
    """Asks any of the nodes, from a machine of its own."""

    def __init__(self, cluster: Cluster, name: str = "client") -> None:
        self.loop = cluster.scheduler.new_loop(name)
        self._peers = PeerEnvironment.of(self.loop, cluster.network.host(name), SeededRandom(f"{cluster.seed} {name}"))
        self._connections: dict[int, Peer] = {}

    def ask(self, node_id: int, request: Any, version: int) -> Any:
        return self.loop.run(self.send(node_id, request, version), limit_s=60)

    async def send(self, node_id: int, request: Any, version: int) -> Any:
        peer = self._connections.get(node_id)
        if peer is None:
            settings = PeerSettings(request_timeout_s=TIMEOUT_S, connection_setup_timeout_s=TIMEOUT_S)
            peer = self._connections[node_id] = Peer("node", host_of(node_id), PORT, self._peers, settings)
        return await peer.send(request, version, timeout_s=TIMEOUT_S)


class Writer:
    """An idempotent producer with one batch at a time under way, which tries until it is acknowledged. Its process is
    none of the nodes."""

    def __init__(self, cluster: Cluster, index: int, producer_id: int) -> None:
        self.cluster = cluster
        self.index = index
        self.producer_id = producer_id
        self.acknowledged: list[bytes] = []
        self.sequence = 0
        self.is_stopped = False
        self.errors: list[str] = []
        self._client = Client(cluster, f"client-{producer_id}")
        self._clock = SimulatedClock(cluster.scheduler)
        """What is older than a day when a log is opened says nothing of producers any more."""

    def start(self, count: int = 1_000_000, pause_s: float = 0.02) -> asyncio.Task[None]:
        return self._client.loop.create_task(self._run(count, pause_s))

    def write(self, count: int = 1) -> None:
        """Writes so many batches, and waits until they are acknowledged."""
        self._client.loop.run(self._run(count, 0), limit_s=60)

    async def _run(self, count: int, pause_s: float) -> None:
        for _ in range(count):
            if self.is_stopped:
                return
            await self._write_one()
            if pause_s:
                await asyncio.sleep(self.cluster.chance.uniform(0, 2 * pause_s))

    async def _write_one(self) -> None:
        values = [f"{self.producer_id}/{self.sequence + n}".encode() for n in range(self.cluster.chance.randint(1, 3))]
        batch = build_batch(
            [Record(value=value, timestamp=self._clock.now_ms()) for value in values],
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=self.sequence,
        )
        while not self.is_stopped:
            error = await self._send(batch)
            if error is Error.NONE:
                self.acknowledged += values
                self.sequence += len(values)
                return
            self.errors.append(error.name if error else "no answer")
            await asyncio.sleep(0.05)

    async def _send(self, batch: bytes) -> Error | None:
        leader = self.cluster.controller.partitions[self.index].leader
        if leader < 0:
            return None
        try:
            response = await self._client.send(leader, production(self.index, batch), 13)
        except WireError:
            return None
        return Error(response.responses[0].partition_responses[0].error_code)


def production(index: int, batch: bytes, acks: int = ACKS_ALL) -> m.ProduceRequest:
    partition = m.ProduceRequest.PartitionProduceData(index=index, records=batch)
    topic = m.ProduceRequest.TopicProduceData(topic_id=topic_id(TOPIC), name=TOPIC, partition_data=[partition])
    return m.ProduceRequest(acks=acks, timeout_ms=2000, topic_data=[topic])


def values_of(batches: Iterable[bytes]) -> list[bytes]:
    return [record.value or b"" for batch in batches for record in decode_records(batch)]
