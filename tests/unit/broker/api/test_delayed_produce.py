"""A write that waits for the disk or for replicas keeps no bytes of its request, and goes with its connection."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from barnabas.broker.api.produce import produce
from barnabas.config.topic import TopicConfig
from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.replication.partition import BrokerId
from barnabas.testing.clock import ManualClock
from tests.unit.broker.api.stand_ins import a_topic
from tests.unit.log.logs import batch
from tests.unit.replication.hosting import Hosting

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.broker.connection import Slot

VERSION = 9


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


def a_broker(hosting: Hosting, flusher: SlowDisk) -> Any:
    lanes = SimpleNamespace(get=lambda *_: None)
    return SimpleNamespace(
        replicas=hosting.replicas,
        purgatory=hosting.purgatory,
        flusher=flusher,
        api=SimpleNamespace(lanes=lanes),
    )


@pytest.mark.parametrize("waits_for", ["the disk", "replicas"])
def test_a_waiting_write_keeps_no_bytes_of_its_request(tmp_path: Path, waits_for: str) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        hosting.open()
        await hosting.follow(a_topic("t"))
        (hosted,) = hosting.replicas
        if waits_for == "the disk":
            hosted.log.config = TopicConfig(flush_messages=1)
        else:
            hosted.state.isr = frozenset((hosted.state.local_id, BrokerId(2)))
        flusher = SlowDisk()
        connection = Line()
        frame = a_request()
        view = memoryview(frame)
        produce(a_broker(hosting, flusher), cast("Any", connection), VERSION, view, 0)
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
        await hosting.follow(a_topic("t"))
        (hosted,) = hosting.replicas
        hosted.log.config = TopicConfig(flush_messages=1)
        hosted.state.isr = frozenset((hosted.state.local_id, BrokerId(2)))
        flusher = SlowDisk()
        connection = Line()
        produce(a_broker(hosting, flusher), cast("Any", connection), VERSION, memoryview(a_request()), 0)
        connection.close()
        flusher.done.set_result(None)
        await asyncio.sleep(0.01)
        assert len(hosting.purgatory) == 0
        assert not hosted.watchers
        hosting.crash()

    asyncio.run(scenario())
