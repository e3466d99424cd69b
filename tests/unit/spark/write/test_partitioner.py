"""Rows go where Kafka's default partitioner sends them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from aiokafka.partitioner import murmur2 as murmur2_of_aiokafka
from hypothesis import example, given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

from barnabas.spark.columnar.sink_columns import ColumnError
from barnabas.spark.columnar.sink_rows import BYTES, Rows
from barnabas.spark.write.partitioner import LONG_KEY_BYTES, Partitions, Sticky, assign, by_key, murmur2, murmur2_of

JAVA = {
    b"": 275_646_681,
    b"21": -973_932_308,
    b"foobar": -790_332_482,
    b"a-little-bit-long-string": -985_981_536,
    b"a-little-bit-longer-string": -1_486_304_829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58_897_971,
    b"abc": 479_470_107,
}
"""What Kafka's Java client says of these keys."""


def keys_of(keys: list[bytes]) -> pa.Array:
    return pa.array(keys, BYTES)


def rows_of(
    keys: list[bytes | None] | None = None, partitions: list[int] | None = None, value: bytes = b"", count: int = 0
) -> Rows:
    count = count or len(keys or partitions or [])
    return Rows(
        None if keys is None else pa.array(keys, BYTES),
        pa.array([value] * count, BYTES),
        None,
        None,
        None if partitions is None else np.array(partitions, np.int32),
        np.zeros(count, np.int64),
    )


def test_the_hash_is_that_of_the_java_client() -> None:
    signed = murmur2(keys_of(list(JAVA))).view(np.int32).tolist()
    assert dict(zip(JAVA, signed, strict=True)) == JAVA


@given(st.lists(st.binary(max_size=70), max_size=30))
@example([b"\xff" * length for length in range(9)])
@example([b"\x80", b"\xff\x7f", b"\x00\x00\x80"])
def test_a_column_is_hashed_as_two_other_clients_hash_each_key(keys: list[bytes]) -> None:
    hashes = murmur2(keys_of(keys)).tolist()
    assert hashes == [murmur2_of_aiokafka(key) & 0xFFFFFFFF for key in keys]
    assert hashes == [murmur2_of_kafka_python(key) & 0xFFFFFFFF for key in keys]


@given(st.lists(st.binary(max_size=20), min_size=3, max_size=20), st.data())
def test_a_slice_of_a_column_is_hashed_as_its_keys_are(keys: list[bytes], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(keys)))
    assert murmur2(keys_of(keys).slice(start)).tolist() == murmur2(keys_of(keys)).tolist()[start:]


def test_keys_that_are_too_long_to_go_in_step_with_others_are_hashed_alone() -> None:
    keys = [b"x" * (LONG_KEY_BYTES + extra) for extra in range(6)] + [b"short"]
    assert murmur2(keys_of(keys)).tolist() == [murmur2_of(key) for key in keys]


def test_a_hash_that_is_negative_in_java_gives_a_partition_all_the_same() -> None:
    keys = list(JAVA)
    assert by_key(keys_of(keys), 7).tolist() == [(JAVA[key] & 0x7FFFFFFF) % 7 for key in keys]


def test_a_partition_that_a_row_names_wins_over_its_key() -> None:
    rows = rows_of([b"foobar", b"foobar", None], [2, -1, 1])
    assert assign(rows, Partitions("t", 3, [0, 1, 2]), Sticky(100, 0)).tolist() == [2, by_foobar(3), 1]


def by_foobar(count: int) -> int:
    return (JAVA[b"foobar"] & 0x7FFFFFFF) % count


def test_a_partition_that_the_topic_does_not_have_is_an_error_that_names_it() -> None:
    with pytest.raises(ColumnError, match="column partition is 3 in a row, but topic orders has only 3 partitions"):
        assign(rows_of(partitions=[0, 3]), Partitions("orders", 3, [0, 1, 2]), Sticky(100, 0))


def test_rows_without_a_key_stay_together_until_a_batch_is_full() -> None:
    rows = rows_of(value=b"x" * 10, count=12)
    sticky = Sticky(batch_bytes=40, start=1)
    partitions = Partitions("t", 3, [0, 1, 2])
    assert assign(rows, partitions, sticky).tolist() == [1] * 4 + [2] * 4 + [0] * 4
    assert assign(rows, partitions, sticky).tolist() == [1] * 4 + [2] * 4 + [0] * 4


def test_rows_without_a_key_avoid_partitions_that_nobody_leads() -> None:
    rows = rows_of(value=b"x" * 10, count=12)
    assert set(assign(rows, Partitions("t", 3, [0, 2]), Sticky(40, 0)).tolist()) == {0, 2}


def test_keys_and_no_keys_may_be_mixed() -> None:
    rows = rows_of([None, b"foobar", None])
    assert assign(rows, Partitions("t", 5, range(5)), Sticky(100, 4)).tolist() == [4, by_foobar(5), 4]
