"""The batches that simulated producers write, and one attempt to write one of them at its partition's leader.

Each value is unlike any other, so that it can be found again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.net.frames import WireError
from barnabas.protocol import messages as m
from barnabas.protocol.batch import build_plain_batch, read_header
from barnabas.protocol.errors import Error
from barnabas.testing.simulator.load.client import NEW_LEADER
from barnabas.testing.simulator.load.history import Fate, SentBatch

if TYPE_CHECKING:
    from barnabas.protocol.uuids import Uuid
    from barnabas.testing.simulator.load.client import ClusterClient, Leader
    from barnabas.testing.simulator.load.history import TopicPartition

ACKS_ALL = -1
PRODUCE_TIMEOUT_MS = 3_000


class OutgoingBatch:
    """A batch as it is sent, again and again until its fate is known, with what the history keeps of it."""

    __slots__ = ("data", "first_sent_s", "sent")

    def __init__(self, data: bytes, sent: SentBatch, now_s: float) -> None:
        self.data = data
        self.sent = sent
        self.first_sent_s = now_s


def make_batch(
    partition: TopicPartition,
    values: list[bytes],
    *,
    producer_id: int,
    epoch: int,
    base_sequence: int,
    timestamp_ms: int,
    now_s: float,
    is_transactional: bool = False,
) -> OutgoingBatch:
    data = build_plain_batch(
        [(None, value) for value in values],
        timestamp_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
    )
    sent = SentBatch(partition, producer_id, epoch, base_sequence, len(values), read_header(data).crc)
    return OutgoingBatch(bytes(data), sent, now_s)


def produce_request(batch: OutgoingBatch, topic_id: Uuid, *, transactional_id: str | None = None) -> m.ProduceRequest:
    topic, index = batch.sent.partition
    data = m.ProduceRequest.PartitionProduceData(index=index, records=batch.data)
    topics = [m.ProduceRequest.TopicProduceData(name=topic, topic_id=topic_id, partition_data=[data])]
    return m.ProduceRequest(
        transactional_id=transactional_id, acks=ACKS_ALL, timeout_ms=PRODUCE_TIMEOUT_MS, topic_data=topics
    )


async def attempt(
    client: ClusterClient,
    leader: Leader | None,
    batch: OutgoingBatch,
    *,
    version: int,
    transactional_id: str | None = None,
) -> Error | None:
    """Sends a batch once, to whom the client takes for its leader; to nobody if it knows none. The error of the answer,
    which is noted with the batch if it is an acknowledgement; None without an answer. A new leader that the answer
    names is known afterwards."""
    if leader is None:
        return None
    sent = batch.sent
    partition = sent.partition
    request = produce_request(batch, client.topic_ids[partition.topic], transactional_id=transactional_id)
    try:
        response = await client.ask(leader.broker, request, version)
    except WireError:
        await client.refresh()
        return None
    answer = response.responses[0].partition_responses[0]
    error = Error(answer.error_code)
    if error is Error.NONE or error is Error.DUPLICATE_SEQUENCE_NUMBER:
        sent.fate = Fate.DONE
        sent.offset = answer.base_offset
        sent.told_s = client.now_s
        return Error.NONE
    if error in NEW_LEADER:
        client.take_hints(response.node_endpoints)
        client.heard_of(partition, answer.current_leader.leader_id, answer.current_leader.leader_epoch)
        if client.leader_of(partition) == leader:
            await client.refresh()
    return error
