"""Rolling and retention as a client sees them: the beginning of a partition moves."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.clients.adapter import Client, ConsumerOptions, Message, consume, values
from tests.peers import wait_until

if TYPE_CHECKING:
    from tests.peers import Peer

HOUR_MS = 3_600_000
MIB = 1 << 20
SEGMENT_BYTES_MIN = MIB
RECORD_BYTES = 105_000


def segments(node: Peer, topic: str, partition: int = 0) -> list[str]:
    return sorted(each.name for each in (node.data_dir / f"{topic}-{partition}").glob("*.log"))


def fill(client: Client, topic: str, partition: int, mib: int) -> int:
    """Write a little more than this many MiB, in batches of at most half a one; the number of records written."""
    for _ in range(2 * mib):
        client.produce(topic, [Message(b"x" * RECORD_BYTES)] * 5, partition=partition)
    return 10 * mib


def test_retention_bytes_counts_for_each_partition_of_its_own(client: Client, node: Peer, topic: str) -> None:
    limit_bytes = 2 * MIB
    client.create_topic(
        topic,
        partitions=2,
        config={
            "segment.bytes": str(SEGMENT_BYTES_MIN),
            "retention.bytes": str(limit_bytes),
            "file.delete.delay.ms": "0",
        },
    )
    for partition in range(2):
        end = fill(client, topic, partition, mib=5)
        wait_until(partial(is_below, node, topic, partition, limit_bytes), "what exceeds the limit is gone")
        beginning, high_watermark = client.offset_range(topic, partition)
        assert beginning > 0
        assert high_watermark == end
        assert (high_watermark - beginning) * RECORD_BYTES >= limit_bytes, "more was deleted than the limit asks for"
        assert consume(client, topic, 1, partition=partition)[0].offset == beginning


def is_below(node: Peer, topic: str, partition: int, limit_bytes: int) -> bool:
    """Whether a partition without its oldest segment would be smaller than the limit, so that this one stays."""
    files = [node.data_dir / f"{topic}-{partition}" / name for name in segments(node, topic, partition)]
    try:
        return sum(file.stat().st_size for file in files[1:]) < limit_bytes
    except FileNotFoundError:
        return False  # it went while we looked


@pytest.mark.parametrize(("hours", "retention_bytes"), [(168, -1), (17_520, 524_288_000)])
def test_records_older_than_the_retention_time_go_by_whole_segments(
    client: Client, node: Peer, topic: str, hours: int, retention_bytes: int
) -> None:
    client.create_topic(
        topic,
        config={
            "retention.ms": str(hours * HOUR_MS),
            "retention.bytes": str(retention_bytes),
            "segment.ms": str(HOUR_MS),
            "file.delete.delay.ms": "0",
        },
    )
    now_ms = int(time.time() * 1000)
    ages_hours = (hours + 3, hours + 1, hours - 1, 0)
    for age_hours in ages_hours:
        client.produce(topic, [Message(b"%d hours old" % age_hours, timestamp_ms=now_ms - age_hours * HOUR_MS)])
    wait_until(lambda: client.offset_range(topic) == (2, 4), "the two old records are gone")
    wait_until(lambda: len(segments(node, topic)) == 2, "their segments are gone")
    assert [r.offset for r in consume(client, topic, 2)] == [2, 3]


def test_the_active_segment_expires_too(client: Client, node: Peer, topic: str) -> None:
    client.create_topic(topic, config={"retention.ms": "300", "file.delete.delay.ms": "0"})
    client.produce(topic, values(10))
    wait_until(lambda: client.offset_range(topic) == (10, 10), "all records have expired")
    client.produce(topic, values(1))
    assert client.offset_range(topic)[1] == 11


def test_a_consumer_at_a_deleted_offset_goes_on_at_the_beginning(client: Client, topic: str) -> None:
    client.create_topic(topic, config={"retention.ms": "1000000", "segment.ms": "100000"})
    now_ms = int(time.time() * 1000)
    client.produce(topic, [Message(b"expired", timestamp_ms=now_ms - 2_000_000)])
    client.produce(topic, [Message(b"kept", timestamp_ms=now_ms)])
    wait_until(lambda: client.offset_range(topic)[0] == 1, "the first record has expired")
    received = consume(client, topic, 1, start=0, options=ConsumerOptions(out_of_range="earliest"))
    assert (received[0].offset, received[0].value) == (1, b"kept")


def test_a_shorter_retention_takes_effect_at_once(client: Client, topic: str) -> None:
    client.create_topic(topic)
    client.produce(topic, [Message(b"old", timestamp_ms=int(time.time() * 1000) - HOUR_MS)])
    assert client.offset_range(topic) == (0, 1)
    client.alter_topic_config(topic, {"retention.ms": "1000"})
    wait_until(lambda: client.offset_range(topic) == (1, 1), "the record has expired")


def test_segments_roll_by_size(client: Client, node: Peer, topic: str) -> None:
    client.create_topic(topic, config={"segment.bytes": str(SEGMENT_BYTES_MIN)})
    count = fill(client, topic, 0, mib=3)
    names = segments(node, topic)
    assert len(names) >= 3
    assert names[0] == "00000000000000000000.log"
    assert client.offset_range(topic) == (0, count)
    assert [r.offset for r in consume(client, topic, count)] == list(range(count))


def test_segments_roll_by_the_time_of_their_records(client: Client, node: Peer, topic: str) -> None:
    client.create_topic(topic, config={"segment.ms": "60000"})
    base_ms = int(time.time() * 1000) - HOUR_MS
    for minutes in (0, 0.5, 2, 2.5, 5):
        client.produce(topic, [Message(b"x", timestamp_ms=base_ms + int(minutes * 60_000))])
    assert segments(node, topic) == [f"{offset:020}.log" for offset in (0, 2, 4)]
    assert client.offset_for_time(topic, base_ms + 3 * 60_000) == 4


def test_a_smaller_segment_size_takes_effect_at_once(client: Client, node: Peer, topic: str) -> None:
    client.create_topic(topic)
    fill(client, topic, 0, mib=2)
    assert len(segments(node, topic)) == 1
    client.alter_topic_config(topic, {"segment.bytes": str(SEGMENT_BYTES_MIN)})
    client.produce(topic, values(1))
    assert len(segments(node, topic)) == 2
