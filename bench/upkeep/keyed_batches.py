"""Batches of records with keys, made as fast as a broker takes them.

All records of a load have the same length, so a batch is a template in which only the digits of the keys and the
checksum change. Records compress as little as their random values do.
"""

from __future__ import annotations

import os
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import crc32c
import numpy as np

from bench.wire import varint

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

KEY_DIGITS: Final = 10
HEADER_BYTES: Final = 61
CRC_AT: Final = 17
CHECKED_FROM: Final = 21
RECORD_OVERHEAD_MAX: Final = 16
"""Lengths, attributes and deltas of a record, beside its key and value."""
_DIGIT_VALUES: Final = 10 ** np.arange(KEY_DIGITS - 1, -1, -1, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class KeyedLoad:
    records: int
    keys: int
    record_bytes: int
    """Of a value; a key has ten bytes more."""
    batch_bytes: int = 1 << 20
    """At most: topics take no larger batches by default."""

    @property
    def records_per_batch(self) -> int:
        return max(1, (self.batch_bytes - HEADER_BYTES) // (self.record_bytes + KEY_DIGITS + RECORD_OVERHEAD_MAX))


def batches(load: KeyedLoad) -> Iterator[tuple[bytes, int]]:
    """Each batch with the number of its records. Keys come in an order that spreads them, the same in every run."""
    template, places = _template(load.records_per_batch, load.record_bytes)
    digits_at = places[:, None] + np.arange(KEY_DIGITS)
    stride = _stride(load.keys)
    for first in range(0, load.records, load.records_per_batch):
        count = min(load.records_per_batch, load.records - first)
        if count < load.records_per_batch:
            template, places = _template(count, load.record_bytes)
            digits_at = places[:, None] + np.arange(KEY_DIGITS)
        keys = (np.arange(first, first + count, dtype=np.int64) * stride) % load.keys
        template[digits_at] = (keys[:, None] // _DIGIT_VALUES % 10 + ord("0")).astype(np.uint8)
        checksum = crc32c.crc32c(template[CHECKED_FROM:].data)
        template[CRC_AT : CRC_AT + 4] = np.frombuffer(struct.pack(">I", checksum), np.uint8)
        yield template.tobytes(), count


def _template(count: int, record_bytes: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """A batch of so many records, and where the key of each is."""
    now_ms = int(time.time() * 1000)
    value = os.urandom(record_bytes)
    after_key = varint(record_bytes) + value + b"\x00"
    parts: list[bytes] = []
    places: list[int] = []
    at = HEADER_BYTES
    for delta in range(count):
        before_key = b"\x00\x00" + varint(delta) + varint(KEY_DIGITS)
        head = varint(len(before_key) + KEY_DIGITS + len(after_key)) + before_key
        parts += (head, bytes(KEY_DIGITS), after_key)
        places.append(at + len(head))
        at += len(head) + KEY_DIGITS + len(after_key)
    header = struct.pack(">qiibIhiqqqhii", 0, at - 12, -1, 2, 0, 0, count - 1, now_ms, now_ms, -1, -1, -1, count)
    return np.frombuffer(bytearray(header + b"".join(parts)), np.uint8), np.array(places, np.int64)


def _stride(keys: int) -> int:
    """A number that has no divisor in common with that of the keys, so that each comes once in so many records."""
    stride = int(keys * 0.618) | 1
    while np.gcd(stride, keys) != 1:
        stride += 2
    return stride
