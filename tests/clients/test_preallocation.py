"""`preallocate`: the file of a new segment has its full size at once, and gives back what it does not need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.clients.adapter import Client, Message, consume, values
from tests.peers import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import MakeNode
    from tests.peers import Peer

SEGMENT_BYTES = 1 << 20


def segments(node: Peer, topic: str) -> list[Path]:
    return sorted((node.data_dir / f"{topic}-0").glob("*.log"))


def test_segments_have_their_size_at_once_and_records_survive_stops_and_kills(
    make_node: MakeNode, library: type[Client], topic: str
) -> None:
    node = make_node({})
    client = library(node.bootstrap)
    client.create_topic(topic, config={"preallocate": "true", "segment.bytes": str(SEGMENT_BYTES)})
    written = values(10)
    client.produce(topic, written)
    (first,) = segments(node, topic)
    assert first.stat().st_size == SEGMENT_BYTES
    client.produce(topic, [Message(b"x" * 600_000)])
    client.produce(topic, [Message(b"y" * 600_000)])
    wait_until(lambda: len(segments(node, topic)) == 2, "the first segment is full")
    closed, active = segments(node, topic)
    assert 600_000 < closed.stat().st_size < 700_000
    assert active.stat().st_size == SEGMENT_BYTES
    node.kill()
    node.start()
    client = library(node.bootstrap)
    wait_until(lambda: client.offset_range(topic) == (0, 12), "all records are there after a kill")
    client.produce(topic, values(1, prefix="after the kill"))
    node.stop()
    assert segments(node, topic)[-1].stat().st_size < 700_000
    node.start()
    client = library(node.bootstrap)
    assert [each.value for each in consume(client, topic, 10)] == [each.value for each in written]
    assert client.offset_range(topic) == (0, 13)
