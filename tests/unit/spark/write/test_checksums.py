"""A checksum tells rows apart, and does not mind their order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from barnabas.spark.columnar.sink_rows import BYTES, Rows
from barnabas.spark.write.checksums import WIDTHS, checksum, hashes_of

if TYPE_CHECKING:
    import random

Row = tuple[bytes | None, bytes | None]

some_rows = st.lists(st.tuples(st.none() | st.binary(max_size=40), st.none() | st.binary(max_size=600)), max_size=20)


def rows_of(rows: list[Row]) -> Rows:
    keys, values = (pa.array([row[side] for row in rows], BYTES) for side in range(2))
    return Rows(keys, values, None, None, None, np.zeros(len(rows), np.int64))


@given(some_rows, st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(rows: list[Row], shuffling: random.Random) -> None:
    shuffled = list(rows)
    shuffling.shuffle(shuffled)
    assert checksum(rows_of(shuffled)) == checksum(rows_of(rows))


@given(some_rows, some_rows)
def test_other_rows_have_another_checksum(rows: list[Row], others: list[Row]) -> None:
    def as_key(row: Row) -> tuple[bool, bytes, bool, bytes]:
        return row[0] is None, row[0] or b"", row[1] is None, row[1] or b""

    same = sorted(rows, key=as_key) == sorted(others, key=as_key)
    assert (checksum(rows_of(rows)) == checksum(rows_of(others))) == same


def test_what_changes_places_between_rows_is_noticed() -> None:
    assert checksum(rows_of([(b"a", b"1"), (b"b", b"2")])) != checksum(rows_of([(b"a", b"2"), (b"b", b"1")]))
    assert checksum(rows_of([(None, b"a,1"), (None, b"b,2")])) != checksum(rows_of([(None, b"a,2"), (None, b"b,1")]))


def test_nothing_zeros_and_null_are_three_things() -> None:
    elements = [None, *(bytes(length) for length in range(WIDTHS[-1] + 3))]
    assert len(set(hashes_of(pa.array(elements, BYTES)).tolist())) == len(elements)


@given(st.lists(st.none() | st.binary(max_size=600), min_size=1, max_size=20), st.data())
def test_the_hash_of_an_element_does_not_depend_on_what_is_around_it(
    elements: list[bytes | None], data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(elements) - 1))
    column = pa.array(elements, BYTES)
    assert hashes_of(column.slice(place))[0] == hashes_of(pa.array([elements[place]], BYTES))[0]
    assert hashes_of(column)[place] == hashes_of(pa.array([elements[place]], BYTES))[0]
