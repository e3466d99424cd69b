"""Files cut short or overwritten while the node was down: it opens them, and loses no more than was damaged."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING

import pytest

from barnabas.log.folder.checkpoints import FIRST_DIRTY_OFFSETS, TopicPartition, read_offsets
from barnabas.ports import SystemDisk
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.clients.test_compaction import COMPACTED, Later, pairs, read_all
from tests.clients.with_confluent import ConfluentClient
from tests.nodes import Node
from tests.peers import wait_until
from tests.wire.batches import base_offsets, batch
from tests.wire.connection import Connection
from tests.wire.requests import LATEST, Topic, create_topic, fetch, list_offsets, produce_request

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BATCHES = 3
SEGMENT = f"{0:020}.log"


def fill(node: Node, name: str, partitions: int) -> tuple[Topic, int]:
    """Three batches in each partition; the topic and the size of one batch."""
    data = batch([b"first", b"second"], key=b"key")
    with Connection(node.port) as connection:
        topic = create_topic(connection, name, partitions=partitions)
        for _ in range(BATCHES):
            for partition in range(partitions):
                connection.send(produce_request(topic, data, 9, partition=partition), 9)
            for _ in range(partitions):
                _, answer = connection.receive(m.ProduceResponse, 9)
                assert answer.responses[0].partition_responses[0].error_code == Error.NONE
    return topic, len(data)


def end_offsets(node: Node, topic: Topic, partitions: int) -> list[int]:
    with Connection(node.port) as connection:
        return [list_offsets(connection, topic, LATEST, partition=n).offset for n in range(partitions)]


def test_the_last_segment_cut_at_each_byte_of_its_last_batch_recovers_to_the_batch_before(
    victim: Node, topic: str
) -> None:
    """One partition for each byte, so that one restart shows them all."""
    size = len(batch([b"first", b"second"], key=b"key"))
    made, _ = fill(victim, topic, partitions=size)
    victim.kill()
    for cut in range(size):
        with (victim.data_dir / f"{topic}-{cut}" / SEGMENT).open("r+b") as segment:
            segment.truncate((BATCHES - 1) * size + cut)
    victim.start()
    assert end_offsets(victim, made, size) == [2 * (BATCHES - 1)] * size
    with Connection(victim.port) as connection:
        for partition in range(size):
            request = produce_request(made, batch([b"after"]), 9, partition=partition)
            answer = connection.call(request, 9, m.ProduceResponse).responses[0].partition_responses[0]
            assert (answer.error_code, answer.base_offset) == (Error.NONE, 4)


def test_the_last_batch_overwritten_with_garbage_recovers_to_the_batch_before(victim: Node, topic: str) -> None:
    chance = random.Random(7)
    partitions = 40
    made, size = fill(victim, topic, partitions)
    victim.kill()
    for partition in range(partitions):
        with (victim.data_dir / f"{topic}-{partition}" / SEGMENT).open("r+b") as segment:
            start = chance.randrange(size)
            if partition % 2:
                segment.seek((BATCHES - 1) * size)
                segment.write(chance.randbytes(size + partition))
            else:
                position = (BATCHES - 1) * size + 16 + start % (size - 16)
                segment.seek(position)
                before = segment.read(1)
                segment.seek(position)
                segment.write(bytes([before[0] ^ 0x5A]))
    victim.start()
    assert end_offsets(victim, made, partitions) == [2 * (BATCHES - 1)] * partitions
    with Connection(victim.port) as connection:
        assert base_offsets(fetch(connection, made).records) == [0, 2]


def test_zeros_behind_the_last_batch_are_cut_off(victim: Node, topic: str) -> None:
    """What a file system leaves of a file that grew before the power went."""
    made, _ = fill(victim, topic, 1)
    victim.kill()
    with (victim.data_dir / f"{topic}-0" / SEGMENT).open("ab") as segment:
        segment.write(bytes(4_096))
    victim.start()
    assert end_offsets(victim, made, 1) == [2 * BATCHES]


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint"])
@pytest.mark.parametrize("damage", ["absent", "garbage", "empty"])
def test_what_can_be_made_again_from_the_log_is_made_again(victim: Node, topic: str, suffix: str, damage: str) -> None:
    made, _ = fill(victim, topic, 1)
    victim.kill()
    folder = victim.data_dir / f"{topic}-0"
    for each in [*folder.glob(f"*{suffix}")]:
        if damage == "absent":
            each.unlink()
        elif damage == "garbage":
            each.write_bytes(random.Random(1).randbytes(37))
        else:
            each.write_bytes(b"")
    victim.start()
    assert end_offsets(victim, made, 1) == [2 * BATCHES]
    with Connection(victim.port) as connection:
        assert base_offsets(fetch(connection, made, offset=3).records) == [2, 4]
        assert list_offsets(connection, made, 0).offset == 0
    victim.stop()
    victim.start()
    assert end_offsets(victim, made, 1) == [2 * BATCHES]


@pytest.fixture
def metadata_folder(tmp_path: Path, topic: str) -> Iterator[Path]:
    """The folder of a node that was killed after it had made ten topics, one after the other."""
    node = Node(tmp_path / "origin")
    node.start()
    try:
        client = ConfluentClient(node.bootstrap)
        for n in range(10):
            client.create_topic(f"{topic}-{n}")
    finally:
        node.kill()
    yield node.data_dir
    shutil.rmtree(node.data_dir)


@pytest.mark.timeout(3_600)
def test_a_metadata_log_torn_at_any_byte_recovers(
    metadata_folder: Path, tmp_path: Path, topic: str, is_chaos_full: bool
) -> None:
    """The node starts, has the topics whose records are whole, and goes on from there."""
    size = (metadata_folder / "__cluster_metadata-0" / SEGMENT).stat().st_size
    chance = random.Random(5)
    cuts = sorted(chance.sample(range(size), 200 if is_chaos_full else 8))
    counts = []
    for cut in [0, *cuts, size - 1]:
        torn = tmp_path / "torn"
        shutil.copytree(metadata_folder, torn)
        with (torn / "__cluster_metadata-0" / SEGMENT).open("r+b") as log:
            log.truncate(cut)
        node = Node(torn, log_file=tmp_path / f"torn-{cut}.log")
        node.start()
        try:
            client = ConfluentClient(node.bootstrap)
            present = client.topic_names()
            assert present == {f"{topic}-{n}" for n in range(len(present))}, f"cut at byte {cut} of {size}"
            counts.append(len(present))
            client.create_topic(f"{topic}-new")
            assert f"{topic}-new" in client.topic_names()
            node.stop()
        finally:
            node.kill()
        shutil.rmtree(torn)
    assert counts == sorted(counts), "the more of the log is left, the more topics are"
    assert counts[0] == 0


def test_a_metadata_log_with_garbage_behind_it_recovers(metadata_folder: Path, topic: str) -> None:
    with (metadata_folder / "__cluster_metadata-0" / SEGMENT).open("ab") as log:
        log.write(random.Random(9).randbytes(500))
    node = Node(metadata_folder)
    node.start()
    try:
        assert ConfluentClient(node.bootstrap).topic_names() == {f"{topic}-{n}" for n in range(10)}
    finally:
        node.kill()


@pytest.mark.parametrize(
    "damaged",
    [None, b"", b"\xff garbage", b"0\n1\n{topic} 0 99999\n", b"7\n1\n{topic} 0 4\n"],
    ids=["deleted", "empty", "garbage", "beyond the end", "of an unknown version"],
)
def test_a_cleaner_whose_checkpoint_is_lost_begins_at_the_beginning_of_the_log(
    victim: Node, topic: str, damaged: bytes | None
) -> None:
    client, later = ConfluentClient(victim.bootstrap), Later()
    client.create_topic(topic, config=COMPACTED)
    for number in range(2):
        client.produce(topic, [later.message(b"%d" % number, key) for key in (b"a", b"b")])
    later.roll(client, topic, b"first")
    wait_until(lambda: [each.offset for each in read_all(client, topic)] == [2, 3, 4], "the log is compacted")
    file = victim.data_dir / FIRST_DIRTY_OFFSETS

    def clean_up_to() -> int | None:
        return read_offsets(SystemDisk(), str(file)).get(TopicPartition(topic, 0))

    wait_until(lambda: clean_up_to() == 4, "the checkpoint says so")
    victim.stop()
    if damaged is None:
        file.unlink()
    else:
        file.write_bytes(damaged.replace(b"{topic}", topic.encode()))
    victim.start()
    client.produce(topic, [later.message(b"2", b"a")])
    later.roll(client, topic, b"second")
    expected = [(3, b"b", b"1"), (4, b"first", b"rolls"), (5, b"a", b"2"), (6, b"second", b"rolls")]
    wait_until(lambda: pairs(read_all(client, topic)) == expected, "the log is compacted again")
    wait_until(lambda: clean_up_to() == 6, "the checkpoint says so again")
