"""Several whole brokers, with their listeners and peers, on simulated time, network and disks.

In place of a controller there is a test that says what the metadata is: it publishes records, and every broker replays
them. Nothing is replicated, so each partition has one replica at a time.
"""

from __future__ import annotations

import asyncio
import os
from itertools import count
from typing import TYPE_CHECKING, Any

from barnabas.broker.api.client_connection import ClientConnection
from barnabas.broker.api.registry import register_all, routes_for
from barnabas.broker.broker import Broker, BrokerEnvironment
from barnabas.config.broker_config import BrokerConfig
from barnabas.log.folder.data_dir import DataDir
from barnabas.log.segments.open_files import FilePool
from barnabas.metadata.image import Endpoint
from barnabas.net.endpoint import Listener
from barnabas.net.peer import Peer, PeerEnvironment, PeerSettings
from barnabas.node.listener_servers import ListenerServers
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.protocol.uuids import Uuid
from barnabas.raft.folder.metadata_batches import DecodedBatch
from barnabas.raft.image_publisher import ImagePublisher
from barnabas.replication.log_store import OpenDir
from barnabas.testing.clock import SimulatedClock
from barnabas.testing.disk import SimulatedDisk
from barnabas.testing.event_loop import Scheduler
from barnabas.testing.network import SimulatedNetwork
from barnabas.testing.processes import InlineProcesses
from barnabas.testing.randomness import SeededRandom
from barnabas.testing.threads import SimulatedThreads
from tests.unit.broker.api.stand_ins import CLUSTER_ID, topic_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    from barnabas.metadata.image import MetadataImage
    from barnabas.protocol.compiler.structs import Message
    from barnabas.protocol.envelopes import ForwardedClient
    from barnabas.replication.hosted import HostedPartition

PORT = 9092
BLOCK_LENGTH = 1000
LIMIT_S = 300.0


class OneBroker:
    """One life of a broker."""

    def __init__(self, cluster: SeveralBrokers, broker_id: int, settings: Mapping[str, str]) -> None:
        self.cluster = cluster
        self.id = broker_id
        self.name = f"broker-{broker_id}"
        self.loop = cluster.scheduler.new_loop(self.name)
        self.publisher = ImagePublisher(CLUSTER_ID)
        self.failures: list[BaseException] = []
        self.asked_controller: list[Message] = []
        self.is_following = False
        """The metadata, from the moment it starts."""
        self._folder = Uuid(self.name.encode().rjust(16, b"."))
        self._settings = settings

    async def start(self) -> None:
        cluster = self.cluster
        clock, random = SimulatedClock(cluster.scheduler), SeededRandom(f"{cluster.seed} {self.name}")
        self.disk = disk = SimulatedDisk(clock, write_to_socket=cluster.network.write)
        disk.make_folders("/data")
        data_dir = DataDir.lock("/data/logs", disk=disk, clock=clock, files=FilePool(disk), random=random)
        host = cluster.network.host(self.name)
        overrides = {"node.id": str(self.id), **self._settings}
        config, _ = BrokerConfig.for_single_node(data_dir="/data/logs", port=PORT, overrides=overrides)
        listener = Listener("PLAINTEXT", "PLAINTEXT", self.name, PORT)
        self.servers = ListenerServers(config, [listener], self.loop, host, ClientConnection)
        self.servers.bind()
        self.broker = Broker(
            config,
            BrokerEnvironment(
                CLUSTER_ID,
                [OpenDir(self._folder, data_dir)],
                (),
                "/data/metadata",
                self.publisher,
                self,
                clock,
                disk,
                host,
                random,
                SimulatedThreads(cluster.scheduler, self.name),
                InlineProcesses(),
                lambda _: None,
                lambda _: None,
                self.failures.append,
            ),
        )
        self.broker.subscribe()
        self.publisher.apply(cluster.log)
        self.is_following = True
        previous_epoch = await self.broker.open_logs()
        await self.broker.start([Endpoint("PLAINTEXT", self.name, PORT, 0)], previous_epoch)
        self.servers.open(routes_for(self.broker.environments()))

    async def stop(self) -> None:
        async def take_step(step: Awaitable[None]) -> None:
            await step

        self.servers.stop_accepting()
        await self.broker.leave(take_step)
        await self.servers.close()
        await self.broker.close(take_step)
        self.broker.release()

    async def send(self, request: Message) -> Any:
        """What the controller answers, as the broker's channel to it."""
        self.asked_controller.append(request)
        response = self.cluster.decide(self, request)
        await self.publisher.wait_for_offset(self.cluster.last_offset)
        return response

    async def forward(self, request: Message, client: ForwardedClient) -> Any:
        return await self.send(request)

    @property
    def image(self) -> MetadataImage:
        return self.publisher.image

    def hosted(self, topic: str, partition: int = 0) -> HostedPartition:
        return self.broker._replicas.partitions_of(topic)[partition]

    def log_bytes(self, topic: str, partition: int = 0) -> bytes:
        """The content of a partition's first segment."""
        path = f"{self.hosted(topic, partition).log.folder}/{0:020}.log"
        return self.disk.pread(self.disk.open(path, os.O_RDONLY), self.disk.size(path), 0)

    def kill(self) -> None:
        self.loop.kill()
        self.cluster.network.kill(self.name)


class SeveralBrokers:
    """Brokers 1, 2, …, which all know each other when the test begins, and a client beside them."""

    def __init__(self, number: int = 3, seed: int = 1, /, **settings: str) -> None:
        register_all()
        self.seed = seed
        self.scheduler = Scheduler()
        self.network = SimulatedNetwork(self.scheduler, seed)
        self.log: list[DecodedBatch] = []
        self.last_offset = -1
        self.refuses: Callable[[Message], Error] = lambda _request: Error.NONE
        """The controller's mood."""
        self._blocks = count(1000, BLOCK_LENGTH)
        self._epochs: dict[tuple[str, int], int] = {}
        self.client_loop = self.scheduler.new_loop("client")
        self._client = PeerEnvironment.of(self.client_loop, self.network.host("client"), SeededRandom(f"{seed} client"))
        self.brokers = {
            each: OneBroker(self, each, {name.replace("_", "."): value for name, value in settings.items()})
            for each in range(1, number + 1)
        }
        self.publish(
            m.FeatureLevelRecord(name="metadata.version", feature_level=30),
            m.FeatureLevelRecord(name="transaction.version", feature_level=2),
            m.FeatureLevelRecord(name="group.version", feature_level=1),
        )
        for broker in self.brokers.values():
            broker.loop.run(broker.start(), limit_s=LIMIT_S)

    # ── the metadata ─────────────────────────────────────────────────────────────────────────────────────────

    def publish(self, *records: Message) -> None:
        base_offset = self.last_offset + 1
        self.last_offset += len(records)
        batch = DecodedBatch(base_offset, self.last_offset, 1, 1_700_000_000_000, False, 100, records)
        self.log.append(batch)
        for broker in self.brokers.values():
            if broker.is_following:
                broker.publisher.apply([batch])

    def decide(self, broker: OneBroker, request: Any) -> Any:
        error = self.refuses(request)
        match request:
            case m.BrokerRegistrationRequest():
                self.publish(registration(request, self.last_offset + 1))
                return m.BrokerRegistrationResponse(broker_epoch=self.last_offset)
            case m.BrokerHeartbeatRequest():
                return m.BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False, should_shut_down=True)
            case m.AllocateProducerIdsRequest():
                if error is not Error.NONE:
                    return m.AllocateProducerIdsResponse(error_code=error)
                return m.AllocateProducerIdsResponse(producer_id_start=next(self._blocks), producer_id_len=BLOCK_LENGTH)
            case m.CreateTopicsRequest():
                result = m.CreateTopicsResponse.CreatableTopicResult
                return m.CreateTopicsResponse(
                    topics=[
                        result(name=topic.name, error_code=Error.INVALID_REPLICATION_FACTOR) for topic in request.topics
                    ]
                )
            case m.AssignReplicasToDirsRequest():
                return m.AssignReplicasToDirsResponse()
        raise AssertionError(f"broker {broker.id} asked the controller {request}")

    def place(self, topic: str, *leaders: int) -> None:
        """Each partition has one replica, on its leader."""
        records: list[Message] = []
        if (topic, 0) not in self._epochs:
            records.append(m.TopicRecord(name=topic, topic_id=topic_id(topic)))
        for index, leader in enumerate(leaders):
            epoch = self._epochs.get((topic, index))
            self._epochs[topic, index] = 0 if epoch is None else epoch + 1
            if epoch is None:
                records.append(
                    m.PartitionRecord(
                        partition_id=index,
                        topic_id=topic_id(topic),
                        replicas=[leader],
                        isr=[leader],
                        leader=leader,
                        leader_epoch=0,
                        partition_epoch=0,
                        directories=[Uuid(bytes(16))],
                    )
                )
            else:
                records.append(
                    m.PartitionChangeRecord(
                        partition_id=index,
                        topic_id=topic_id(topic),
                        replicas=[leader],
                        isr=[leader],
                        leader=leader,
                        directories=[Uuid(bytes(16))],
                    )
                )
        self.publish(*records)

    def lead(self, topic: str, *leaders: int) -> None:
        """Who leads each partition, or -1, where its replicas stay."""
        self.publish(
            *(
                m.PartitionChangeRecord(partition_id=index, topic_id=topic_id(topic), leader=leader)
                for index, leader in enumerate(leaders)
            )
        )

    def remove(self, topic: str) -> None:
        self.publish(m.RemoveTopicRecord(topic_id=topic_id(topic)))
        self._epochs = {key: epoch for key, epoch in self._epochs.items() if key[0] != topic}

    # ── the client ───────────────────────────────────────────────────────────────────────────────────────────

    def client(self, broker_id: int) -> Peer:
        """A connection of its own."""
        settings = PeerSettings(client_id="client", request_timeout_s=60)
        return Peer("the broker", f"broker-{broker_id}", PORT, self._client, settings)

    def run(self, scenario: Coroutine[Any, Any, None]) -> None:
        """Runs a test in simulated time, and stops the brokers that are left."""
        self.client_loop.run(scenario, limit_s=LIMIT_S)
        for broker in self.brokers.values():
            broker.loop.run(broker.stop(), limit_s=LIMIT_S)
            assert broker.failures == []
            assert broker.loop.errors == []

    def kill(self, broker_id: int) -> None:
        self.brokers.pop(broker_id).kill()


def registration(request: m.BrokerRegistrationRequest, epoch: int) -> m.RegisterBrokerRecord:
    endpoint = m.RegisterBrokerRecord.BrokerEndpoint
    return m.RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=epoch,
        end_points=[endpoint(name=each.name, host=each.host, port=each.port) for each in request.listeners],
        log_dirs=request.log_dirs,
        fenced=False,
    )


async def until(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while True:
            met = condition()
            if met if isinstance(met, bool) else await met:
                return
            await asyncio.sleep(0.01)
