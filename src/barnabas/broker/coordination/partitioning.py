"""Which partition of a coordinator's topic an id belongs to: its hash as Java computes it, so that a folder that went
from Apache Kafka to here, or back, finds its groups and transactions where it left them.
"""

from __future__ import annotations

import struct
from functools import lru_cache

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"

NAMES_REMEMBERED = 10_000
"""The hash is computed character by character, and members ask for the same name again and again."""

_INT32_MIN = -(1 << 31)


@lru_cache(maxsize=NAMES_REMEMBERED)
def partition_of(name: str, partition_count: int) -> int:
    """Of a group id or a transactional id."""
    return _absolute(java_hash(name)) % partition_count


def java_hash(text: str) -> int:
    """Over UTF-16 units, in 32 bits that wrap around: a character beyond the first plane counts as two."""
    encoded = text.encode("utf-16-be", "surrogatepass")
    total = 0
    for unit in struct.unpack(f">{len(encoded) // 2}H", encoded):
        total = (31 * total + unit) & 0xFFFFFFFF
    return total - (1 << 32) if total & 0x80000000 else total


def _absolute(number: int) -> int:
    """The one number whose opposite does not fit in 32 bits counts as 0."""
    return 0 if number == _INT32_MIN else abs(number)
