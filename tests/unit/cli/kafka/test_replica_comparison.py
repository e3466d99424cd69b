"""What `kafka-replica-verification` says of replicas that are the same, behind, or different."""

from __future__ import annotations

import pytest

from barnabas.cli.kafka.partitions.replica_comparison import ComparisonError, compare_replicas
from barnabas.client.admin.replica_batches import ReplicaBatches
from barnabas.protocol.batch import BatchHeader, build_batch, read_header
from barnabas.protocol.record import Record

PLACE = ("orders", 0)


def header(base_offset: int, value: bytes = b"value") -> BatchHeader:
    return read_header(build_batch([Record(value, timestamp=0)], base_offset=base_offset))


def replica(*headers: BatchHeader, high_watermark: int = 3) -> ReplicaBatches:
    return ReplicaBatches(high_watermark, list(headers))


def test_equal_replicas_are_compared_up_to_the_high_watermark() -> None:
    batches = [header(0), header(1), header(2), header(3)]
    assert compare_replicas(PLACE, 0, {1: replica(*batches), 2: replica(*batches)}) == (3, [])


def test_nothing_is_compared_that_one_replica_lacks() -> None:
    assert compare_replicas(PLACE, 0, {1: replica(header(0), header(1)), 2: replica(header(0))}) == (1, [])
    assert compare_replicas(PLACE, 5, {1: replica(), 2: replica()}) == (5, [])


def test_other_content_is_told_and_other_offsets_are_the_end() -> None:
    end, (problem,) = compare_replicas(PLACE, 0, {1: replica(header(0)), 2: replica(header(0, b"other"))})
    assert end == 1
    assert problem.startswith("partition orders-0 has unmatched checksum at offset 0; replica 1's checksum ")
    with pytest.raises(ComparisonError) as ended:
        compare_replicas(PLACE, 0, {1: replica(header(0)), 2: replica(header(1))})
    assert str(ended.value) == "partition orders-0: replica 1's offset 0 doesn't match replica 2's offset 1"
