"""A transaction coordinator and a group coordinator over real logs, with what they see of their broker around them."""

from __future__ import annotations

import itertools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.api.environments import TransactionEnvironment
from barnabas.broker.broker_peers import BrokerPeers
from barnabas.broker.coordinators.coordinator_spec import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, partition_of
from barnabas.broker.coordinators.marker_delivery import MarkerDelivery
from barnabas.broker.coordinators.transaction_coordinator import TransactionCoordinator
from barnabas.broker.coordinators.transaction_markers import MarkerWriter
from barnabas.broker.coordinators.transaction_verification import TransactionVerification
from barnabas.broker.producer_ids import ProducerIds
from barnabas.coordination.effects import Producer, ProducerId
from barnabas.log.producers.producer_state import NOT_NEEDED
from barnabas.metadata.image import FeaturesImage, TopicImage
from barnabas.net.peer import PeerEnvironment
from barnabas.ports import SystemNetwork, SystemRandom
from barnabas.protocol import messages as m
from barnabas.protocol.batch import build_batch, decode_records, iter_headers
from barnabas.protocol.control_records import ControlRecordType, decode_key
from barnabas.protocol.errors import Error, KafkaError
from barnabas.protocol.record import Record
from barnabas.replication.hosted import ACKS_ALL
from barnabas.transactions.transaction import TRANSACTION_VERSION_1
from tests.unit.broker.api.stand_ins import NODE_ID, ScriptedChannel, a_partition, topic_id
from tests.unit.broker.coordinators.group_household import PARTITIONS, TOPIC, Household

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from barnabas.metadata.image import ConfigResource, MetadataImage
    from barnabas.protocol.batch import BatchHeader
    from barnabas.replication.hosted import HostedPartition
    from barnabas.transactions.transaction import TopicPartition

ID = "payments"
TIMEOUT_MS = 60_000
BLOCK_LENGTH = 1000
END_V1, END_V2 = 4, 5
INTERNAL = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)


class Place(NamedTuple):
    """What the metadata says of the partitions of a topic."""

    epoch: int = 1
    leader: int = NODE_ID
    replicas: tuple[int, ...] = (NODE_ID,)
    isr: tuple[int, ...] | None = None
    leader_epoch: int | None = None
    """Where it is not that of the metadata: the in-sync replicas change without a new one."""


class Marker(NamedTuple):
    offset: int
    is_commit: bool
    producer_epoch: int


class TransactionHousehold(Household):
    """Must be made in a running event loop."""

    def __init__(self, root: Path, **settings: str) -> None:
        super().__init__(root, **settings)
        starts = itertools.count(1000, BLOCK_LENGTH)

        def allocate(_: object) -> m.AllocateProducerIdsResponse:
            return m.AllocateProducerIdsResponse(producer_id_start=next(starts), producer_id_len=BLOCK_LENGTH)

        self.producer_ids = ProducerIds(NODE_ID, ScriptedChannel(allocate), lambda: self.image)
        self.markers = MarkerWriter(self.environment, self.groups)
        self.peers = BrokerPeers(
            PeerEnvironment.of(self.loop, SystemNetwork(), SystemRandom()), lambda: self.image, lambda: self.config
        )
        self.delivery = MarkerDelivery(NODE_ID, self.environment, self.markers, self.peers)
        self.transactions = TransactionCoordinator(self.environment, self.delivery, self.producer_ids)
        self.verification = TransactionVerification(NODE_ID, self.environment, self.transactions, self.peers)
        self.transaction_version = 2
        self.places = dict.fromkeys((*INTERNAL, TOPIC), Place())
        self.configs: Mapping[ConfigResource, Mapping[str, str]] = {}

    @property
    def for_transaction_handlers(self) -> TransactionEnvironment:
        return TransactionEnvironment(
            transactions=self.transactions,
            verification=self.verification,
            markers=self.markers,
            producer_ids=self.producer_ids,
            groups=self.groups,
            replicas=self.replicas,
            metadata=self,
            settings=self,
        )

    @property
    def image(self) -> MetadataImage:
        features = FeaturesImage(30, {"transaction.version": self.transaction_version})
        return self.hosting.image._replace(features=features)

    async def place(self, topic: str, place: Place | None) -> None:
        """The metadata says who leads the partitions of a topic, or that there is none."""
        if place is None:
            del self.places[topic]
        else:
            self.places[topic] = place
        await self.follow()

    async def follow(self) -> None:
        topics = []
        for name, (epoch, leader, replicas, isr, given) in self.places.items():
            leader_epoch = epoch if given is None else given
            partition = a_partition(leader, replicas, isr)._replace(leader_epoch=leader_epoch, partition_epoch=epoch)
            topics.append(TopicImage(name, topic_id(name), (partition,) * PARTITIONS))
        before = self.image
        await self.hosting.follow(*topics, configs=self.configs)
        delta = self.image.diff(before)
        self.peers.image_changed(self.image, delta)
        self.delivery.image_changed(self.image, delta)

    async def _is_loaded(self) -> bool:
        try:
            await self.transactions.read_all(lambda _: None)
        except KafkaError as refused:
            if refused.error is Error.COORDINATOR_LOAD_IN_PROGRESS:
                return False
            raise
        return await super()._is_loaded()

    def hosted(self, topic: str, partition: int = 0) -> HostedPartition:
        return self.replicas.partitions_of(topic)[partition]

    def partition_of_group(self, group_id: str) -> TopicPartition:
        return OFFSETS_TOPIC, partition_of(group_id, PARTITIONS)

    # What a producer does

    async def init(self, transactional_id: str = ID, *, timeout_ms: int = TIMEOUT_MS) -> Producer:
        request = m.InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        new_id = await self.transactions.new_producer_id(request, 5)
        response: m.InitProducerIdResponse = await self.transactions.step(
            transactional_id, lambda shard, to, now_ms: shard.init_producer_id(request, 5, new_id, to, now_ms)
        )
        assert Error(response.error_code) is Error.NONE
        return Producer(ProducerId(response.producer_id), response.producer_epoch)

    async def add(self, producer: Producer, *partitions: TopicPartition, transactional_id: str = ID) -> None:
        errors = await self.transactions.add_partitions(transactional_id, producer, partitions, TRANSACTION_VERSION_1)
        assert set(errors.values()) == {Error.NONE}

    def write(self, producer: Producer, topic: str = TOPIC, partition: int = 0) -> None:
        """One record, verified before."""
        batch = build_batch(
            [Record(value=b"v")],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=0,
            is_transactional=True,
        )
        self.hosted(topic, partition).append(memoryview(bytearray(batch)), ACKS_ALL, NOT_NEEDED)

    async def end(
        self, producer: Producer, *, commit: bool = True, version: int = END_V1, transactional_id: str = ID
    ) -> m.EndTxnResponse:
        request = m.EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=commit,
        )
        new_id = await self.transactions.new_producer_id(request, version)
        response: m.EndTxnResponse = await self.transactions.step(
            transactional_id, lambda shard, to, now_ms: shard.end(request, version, new_id, to, now_ms)
        )
        return response

    # What others see

    async def state(self, transactional_id: str = ID) -> str:
        (described,) = await self.transactions.read(
            transactional_id, lambda shard: shard.describe_transactions([transactional_id])
        )
        return described.transaction_state

    async def is_in_state(self, state: str, transactional_id: str = ID) -> bool:
        return await self.state(transactional_id) == state

    def batches(self, topic: str, partition: int = 0) -> list[BatchHeader]:
        return [header for _, header in iter_headers(self._content(topic, partition))]

    def _content(self, topic: str, partition: int) -> bytes:
        log = self.hosted(topic, partition).log
        with open(f"{log.folder}/{0:020}.log", "rb") as file:
            return file.read()

    def markers_in(self, topic: str = TOPIC, partition: int = 0) -> list[Marker]:
        data = self._content(topic, partition)
        found = []
        for position, header in iter_headers(data):
            if header.is_control:
                (record,) = decode_records(memoryview(data)[position : position + header.size])
                is_commit = decode_key(record.key or b"") is ControlRecordType.COMMIT
                found.append(Marker(header.base_offset, is_commit, header.producer_epoch))
        return found

    async def stop(self) -> None:
        self.transactions.close()
        self.delivery.close()
        self.verification.close()
        await self.peers.close()
        await self.producer_ids.close()
        await super().stop()


@asynccontextmanager
async def transaction_household(root: Path, **settings: str) -> AsyncIterator[TransactionHousehold]:
    """Coordinators that serve their partitions, until the end of the block. Settings without dots."""
    house = TransactionHousehold(root, **settings)
    try:
        await house.follow()
        await house.loaded()
        yield house
    finally:
        await house.stop()
