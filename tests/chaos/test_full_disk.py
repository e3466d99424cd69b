"""A disk without space: produces fail with an error, reads go on, and when space returns so does everything else."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.disks import DISK_BYTES, small_disk
from tests.nodes import Node
from tests.peers import wait_until
from tests.wire.batches import batch
from tests.wire.connection import Connection
from tests.wire.requests import LATEST, Topic, create_topic, fetch, list_offsets, produce

if TYPE_CHECKING:
    from pathlib import Path

VALUE_BYTES = 100_000
API_VERSIONS = m.ApiVersionsRequest(client_software_name="test", client_software_version="1")


def fill_up(connection: Connection, topic: Topic) -> int:
    """Produce until it fails; how many records were acknowledged before."""
    for count in range(10 * DISK_BYTES // VALUE_BYTES):
        answer = produce(connection, topic, batch([b"%06d" % count + bytes(VALUE_BYTES)]))
        if answer.error_code != Error.NONE:
            assert Error(answer.error_code) == Error.KAFKA_STORAGE_ERROR
            assert answer.base_offset == -1
            return count
    raise AssertionError("the disk took more than it holds")


def numbers(connection: Connection, topic: Topic) -> list[int]:
    """The numbers of all records that can be read, in order."""
    found: list[int] = []
    while True:
        records = bytes(fetch(connection, topic, offset=len(found)).records or b"")
        position = 0
        while position < len(records):
            length = int.from_bytes(records[position + 8 : position + 12])
            if position + 12 + length > len(records):
                break
            payload = records[position + 61 : position + 12 + length]
            start = payload.index(bytes(100)) - 6
            found.append(int(payload[start : start + 6]))
            position += 12 + length
        if position == 0:
            return found


def test_a_full_disk_fails_produces_keeps_reads_and_recovers(tmp_path: Path, topic: str) -> None:
    with small_disk(tmp_path / "disk") as disk:
        filler = disk / "filler"
        node = Node(disk / "data", log_file=tmp_path / "node.log")
        node.start()
        try:
            with Connection(node.port) as connection:
                made = create_topic(connection, topic)
                filler.write_bytes(bytes(DISK_BYTES // 2))
                acknowledged = fill_up(connection, made)
                assert acknowledged > 0

                assert connection.call(API_VERSIONS, 3, m.ApiVersionsResponse).error_code == Error.NONE
                assert list_offsets(connection, made, LATEST).offset == acknowledged
                assert numbers(connection, made) == list(range(acknowledged))
                for _ in range(5):
                    assert produce(connection, made, batch([bytes(VALUE_BYTES)])).error_code != Error.NONE

                filler.unlink()
                wait_until(
                    lambda: (
                        produce(connection, made, batch([b"%06d" % acknowledged + bytes(VALUE_BYTES)])).error_code
                        == Error.NONE
                    ),
                    "produces succeed again",
                )
                wait_until(
                    lambda: create_topic(connection, f"{topic}-later").name == f"{topic}-later", "topics can be made"
                )
                assert numbers(connection, made) == list(range(acknowledged + 1))
            node.stop()
            node.start()
            with Connection(node.port) as connection:
                assert numbers(connection, made) == list(range(acknowledged + 1))
            node.stop()
        finally:
            node.kill()


def test_a_full_disk_and_a_kill_lose_nothing_acknowledged(tmp_path: Path, topic: str) -> None:
    with small_disk(tmp_path / "disk") as disk:
        filler = disk / "filler"
        node = Node(disk / "data", log_file=tmp_path / "node.log")
        node.start()
        try:
            with Connection(node.port) as connection:
                made = create_topic(connection, topic)
                filler.write_bytes(bytes(DISK_BYTES // 2))
                acknowledged = fill_up(connection, made)
            node.kill()
            filler.unlink()
            node.start()
            with Connection(node.port) as connection:
                assert numbers(connection, made) == list(range(acknowledged))
                assert produce(connection, made, batch([b"%06d" % acknowledged + bytes(100)])).error_code == Error.NONE
            node.stop()
        finally:
            node.kill()


def test_a_file_that_may_not_grow_fails_produces_keeps_reads_and_recovers(victim: Node, topic: str) -> None:
    """The same through a limit on the size of files, which needs no rights: only this partition is in trouble."""
    with Connection(victim.port) as connection:
        made = create_topic(connection, topic)
        other = create_topic(connection, f"{topic}-other")
        _, hard = resource.prlimit(victim.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(victim.pid, resource.RLIMIT_FSIZE, (4 << 20, hard))
        acknowledged = fill_up(connection, made)
        assert produce(connection, other, batch()).error_code == Error.NONE
        assert numbers(connection, made) == list(range(acknowledged))
        resource.prlimit(victim.pid, resource.RLIMIT_FSIZE, (hard, hard))
        wait_until(
            lambda: produce(connection, made, batch([b"%06d" % acknowledged + bytes(100)])).error_code == Error.NONE,
            "produces succeed again",
        )
        assert numbers(connection, made) == list(range(acknowledged + 1))
    victim.stop()
