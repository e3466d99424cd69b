"""All kinds of clients at once, as many of each as a `Mix` says."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from barnabas.broker.coordinators.coordinator_spec import OFFSETS_TOPIC, partition_of
from barnabas.net.frames import WireError
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.testing.clock import SimulatedClock
from barnabas.testing.simulator.load.classic_member import ClassicMember
from barnabas.testing.simulator.load.client import ClusterClient
from barnabas.testing.simulator.load.consumer_member import ConsumerMember
from barnabas.testing.simulator.load.history import NO_EPOCH, Fate, History, TopicPartition
from barnabas.testing.simulator.load.idempotent_producer import IdempotentProducer
from barnabas.testing.simulator.load.reader import Reader
from barnabas.testing.simulator.load.transactional_producer import VERSION_1, VERSION_2, TransactionalProducer

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

    from barnabas.testing.simulator.cluster import SimulatedCluster

TOPIC: Final = "records"
CREATE_TIMEOUT_MS: Final = 10_000


class Mix(NamedTuple):
    """How many clients there are of each kind, and how much they have to work with."""

    partitions: int = 3
    replication_factor: int = 3
    min_insync_replicas: int = 2
    producers: int = 2
    producer_pause_s: float = 14.0
    transactional: int = 2
    transaction_pause_s: float = 2.0
    readers: int = 2
    """The first reads what is committed, from any replica; the second everything, from leaders; and so on."""
    reader_pause_s: float = 4.0
    classic_members: int = 2
    consumer_members: int = 2


class Client(Protocol):
    client: ClusterClient
    is_stopped: bool

    async def run(self) -> None: ...


class MixedLoad:
    def __init__(self, cluster: SimulatedCluster, mix: Mix | None = None) -> None:
        self.history = History()
        self._cluster = cluster
        self._mix = mix or Mix()
        self._clock = SimulatedClock(cluster.scheduler)
        self._partitions = [TopicPartition(TOPIC, index) for index in range(self._mix.partitions)]
        self._preparing: asyncio.Task[None] | None = None
        self._clients: dict[str, Client] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._is_stopped = False

    def start(self) -> None:
        organiser = self._client("organiser")
        self._preparing = organiser.loop.create_task(self._prepare(organiser))

    def stop(self) -> None:
        self._is_stopped = True
        for name, each in self._clients.items():
            if not isinstance(each, Reader):
                self._cluster.trace.note(name, "begins nothing new")
                each.is_stopped = True
        self._stop_readers()

    @property
    def is_drained(self) -> bool:
        """Readers go on until the producers have ended."""
        if not self._is_stopped or self._preparing is None or not self._preparing.done():
            return False
        self._raise_failures()
        self._stop_readers()
        return all(task.done() for task in self._running.values())

    @property
    def acknowledged_records(self) -> int:
        self._raise_failures()
        return self.history.acknowledged_records

    @property
    def counts(self) -> Mapping[str, int]:
        history = self.history
        return {
            "batches": len(history.batches),
            "transactions": len(history.transactions),
            "committed transactions": sum(each.told_committed is True for each in history.transactions),
            "commits": sum(each.fate is Fate.DONE for each in history.commits),
            "rebalances": len(history.generations) + len(history.grants),
            "reads": sum(bool(each.records) for each in history.reads),
        }

    def describe(self) -> str:
        running = [name for name, task in self._running.items() if not task.done()]
        return f"still at work: {', '.join(running) or 'nobody'}"

    # ── making clients ───────────────────────────────────────────────────────────────────────────────────────

    def _client(self, name: str) -> ClusterClient:
        machine = self._cluster.client(name)
        chance = random.Random(f"{self._cluster.seed} {name}")
        return ClusterClient(
            name,
            machine.environment,
            self._cluster.bootstrap,
            chance,
            coordinator_epoch=self._coordinator_epoch,
            leader_epoch=self._leader_epoch,
        )

    def _leader_epoch(self, node_id: int, partition: TopicPartition) -> int:
        """In which leader epoch a node leads a partition; -1 if it does not, or not any more."""
        for hosted in self._cluster.nodes[node_id].partitions:
            if hosted.topic == partition.topic and hosted.index == partition.partition and hosted.state.is_leader:
                return hosted.state.leader_epoch
        return NO_EPOCH

    def _coordinator_epoch(self, node_id: int, group: str) -> int:
        """The same of the partition of a group."""
        image = self._cluster.nodes[node_id].image
        offsets = image.topics.names.get(OFFSETS_TOPIC) if image is not None else None
        if offsets is None:
            return NO_EPOCH
        return self._leader_epoch(node_id, TopicPartition(OFFSETS_TOPIC, partition_of(group, len(offsets.partitions))))

    async def _prepare(self, organiser: ClusterClient) -> None:
        """Creates the topic, and lets everybody begin."""
        await self._create_topic(organiser)
        mix, history, now_ms = self._mix, self.history, self._clock.now_ms
        for number in range(mix.producers):
            client = self._client(f"producer-{number}")
            self._add(IdempotentProducer(client, self._partitions, history, now_ms, pause_s=mix.producer_pause_s))
        for number in range(mix.transactional):
            client = self._client(f"transactional-{number}")
            self._add(
                TransactionalProducer(
                    client,
                    client.name,
                    self._partitions,
                    history,
                    now_ms,
                    protocol=(VERSION_2, VERSION_1)[number % 2],
                    pause_s=mix.transaction_pause_s,
                )
            )
        for number in range(mix.readers):
            is_first_kind = number % 2 == 0
            self._add(
                Reader(
                    self._client(f"reader-{number}"),
                    self._partitions,
                    history,
                    is_committed_only=is_first_kind,
                    reads_followers=is_first_kind,
                    pause_s=mix.reader_pause_s,
                )
            )
        for kind, number in ((ClassicMember, mix.classic_members), (ConsumerMember, mix.consumer_members)):
            group = f"{kind.__name__.removesuffix('Member').lower()}-group"
            for each in range(number):
                self._add(kind(self._client(f"{group}-{each}"), group, self._partitions, history))
        if self._is_stopped:
            self.stop()

    def _add(self, client: Client) -> None:
        name = client.client.name
        self._clients[name] = client
        self._running[name] = client.client.loop.create_task(client.run())

    async def _create_topic(self, organiser: ClusterClient) -> None:
        mix = self._mix
        request = m.CreateTopicsRequest
        topic = request.CreatableTopic(
            name=TOPIC,
            num_partitions=mix.partitions,
            replication_factor=mix.replication_factor,
            configs=[request.CreatableTopicConfig(name="min.insync.replicas", value=str(mix.min_insync_replicas))],
        )
        attempts = 0
        while True:
            await organiser.refresh()
            if TOPIC in organiser.topic_ids:
                return
            for broker in organiser.brokers[:1]:
                try:
                    response = await organiser.ask(broker, request(topics=[topic], timeout_ms=CREATE_TIMEOUT_MS))
                except WireError:
                    continue
                error = Error(response.topics[0].error_code)
                self._cluster.trace.note(organiser.name, f"creates the topic {TOPIC}: {error.name}")
            await organiser.back_off(attempts)
            attempts += 1

    def _stop_readers(self) -> None:
        """Once nobody writes any more."""
        writers = [name for name, each in self._clients.items() if not isinstance(each, Reader)]
        if all(self._running[name].done() for name in writers):
            for each in self._clients.values():
                each.is_stopped = True

    def _raise_failures(self) -> None:
        """A client that fails is an error of the simulator."""
        for task in self._running.values():
            if task.done() and not task.cancelled():
                task.result()
        if self._preparing is not None and self._preparing.done():
            self._preparing.result()
