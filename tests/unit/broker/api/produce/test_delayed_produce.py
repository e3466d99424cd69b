"""A write that waits for the disk or for replicas keeps no bytes of its request, and goes with its connection."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from barnabas.broker.api.environments import ProduceEnvironment
from barnabas.broker.api.produce.produce import produce
from barnabas.config.topic_config import TopicConfig
from barnabas.metadata.image import TopicImage
from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.testing.clock import ManualClock
from tests.unit.broker.api.stand_ins import NODE_ID, a_partition, a_topic, topic_id
from tests.unit.log.logs import batch
from tests.unit.replication.hosting import Hosting

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.net.connection import Slot

VERSION = 9
ANOTHER_NODE = 2
COPIED_ELSEWHERE = TopicImage("t", topic_id("t"), (a_partition(replicas=(NODE_ID, ANOTHER_NODE)),))


class Line:
    """A connection as a handler sees it."""

    def __init__(self) -> None:
        self.correlation_id = 7
        self.is_closed = False
        self.slots: list[Slot] = []

    def line_up(self, slot: Slot) -> None:
        self.slots.append(slot)

    def slot_filled(self, slot: Slot) -> None:
        assert slot in self.slots or self.is_closed

    def close(self) -> None:
        self.is_closed = True
        for slot in self.slots:
            slot.cancel()
        self.slots.clear()


class SlowDisk:
    """Syncs end when the test says so."""

    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def flush(self, log: object) -> asyncio.Future[None]:
        return self.done


def a_request() -> bytearray:
    request = m.ProduceRequest
    data = request.PartitionProduceData(index=0, records=bytes(batch(b"x" * 1000)))
    topic = request.TopicProduceData(name="t", partition_data=[data])
    return bytearray(codec.encode(request(acks=-1, timeout_ms=60_000, topic_data=[topic]), VERSION))


def an_environment(hosting: Hosting, flusher: SlowDisk) -> ProduceEnvironment:
    unused: Any = None
    return ProduceEnvironment(
        replicas=hosting.replicas,
        lanes=cast("Any", SimpleNamespace(get=lambda *_: None)),
        transactions=unused,
        opener=unused,
        flusher=cast("Any", flusher),
        purgatory=hosting.purgatory,
        settings=cast("Any", SimpleNamespace(config=hosting.config)),
    )


@pytest.mark.parametrize("waits_for", ["the disk", "replicas"])
def test_a_waiting_write_keeps_no_bytes_of_its_request(tmp_path: Path, waits_for: str) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        hosting.open()
        await hosting.follow(a_topic("t") if waits_for == "the disk" else COPIED_ELSEWHERE)
        (hosted,) = hosting.replicas
        if waits_for == "the disk":
            hosted.reconfigure(TopicConfig(flush_messages=1))
        flusher = SlowDisk()
        connection = Line()
        frame = a_request()
        view = memoryview(frame)
        produce(an_environment(hosting, flusher), cast("Any", connection), VERSION, view, 0)
        assert len(connection.slots) == 1, "it waits"
        view.release()
        frame.clear()  # BufferError while anybody holds a part of it
        connection.close()
        hosting.crash()

    asyncio.run(scenario())


def test_a_write_whose_client_left_while_it_was_synced_does_not_wait_for_replicas(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        hosting.open()
        await hosting.follow(COPIED_ELSEWHERE)
        (hosted,) = hosting.replicas
        hosted.reconfigure(TopicConfig(flush_messages=1))
        flusher = SlowDisk()
        connection = Line()
        produce(an_environment(hosting, flusher), cast("Any", connection), VERSION, memoryview(a_request()), 0)
        connection.close()
        flusher.done.set_result(None)
        await asyncio.sleep(0.01)
        assert len(hosting.purgatory) == 0
        assert not hosted.watchers
        hosting.crash()

    asyncio.run(scenario())


def answered(connection: Line) -> m.ProduceResponse.PartitionProduceResponse:
    """What stands in the answer that left."""
    (slot,) = connection.slots
    assert slot.parts is not None, "it has been answered"
    response = codec.decode(m.ProduceResponse, b"".join(cast("Any", slot.parts)), VERSION, offset=9)
    return response.responses[0].partition_responses[0]


@pytest.mark.parametrize(
    ("leader", "leader_epoch", "error"),
    [
        (NODE_ID, 3, Error.NONE),
        (NODE_ID, 5, Error.NOT_LEADER_OR_FOLLOWER),
        (ANOTHER_NODE, 4, Error.NOT_LEADER_OR_FOLLOWER),
    ],
    ids=["led on", "led again", "led by another"],
)
def test_a_write_counts_in_the_epoch_in_which_it_was_appended(
    tmp_path: Path, leader: int, leader_epoch: int, error: Error
) -> None:
    """In an epoch between, other records may have taken its place, though the high watermark is past it now."""

    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        hosting.open()
        both = (NODE_ID, ANOTHER_NODE)
        await hosting.follow(TopicImage("t", topic_id("t"), (a_partition(NODE_ID, both),)))
        connection = Line()
        produce(an_environment(hosting, SlowDisk()), cast("Any", connection), VERSION, memoryview(a_request()), 0)
        assert len(hosting.purgatory) == 1
        alone = a_partition(leader, both, isr=(leader,))._replace(leader_epoch=leader_epoch, partition_epoch=7)
        await hosting.follow(TopicImage("t", topic_id("t"), (alone,)))
        await asyncio.sleep(0.01)
        assert Error(answered(connection).error_code) is error
        hosting.crash()

    asyncio.run(scenario())


def test_a_write_to_a_topic_that_is_deleted_meanwhile_is_not_waited_for(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        hosting.open()
        await hosting.follow(TopicImage("t", topic_id("t"), (a_partition(NODE_ID, (NODE_ID, ANOTHER_NODE)),)))
        connection = Line()
        produce(an_environment(hosting, SlowDisk()), cast("Any", connection), VERSION, memoryview(a_request()), 0)
        await hosting.follow()
        await asyncio.sleep(0.01)
        assert Error(answered(connection).error_code) is Error.UNKNOWN_TOPIC_OR_PARTITION
        hosting.crash()

    asyncio.run(scenario())
