"""The order in which Java's hash tables hand out what is in them.

Kafka's tools print many of their lists straight from such a table. What they print is the same every time, as the
hashes are, but it is no order that one could ask for: so it is computed here, to print the lists as they do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

K = TypeVar("K")

_BUCKETS: Final = 16
_INT_MASK: Final = 0xFFFF_FFFF
_SMALL_SET: Final = 4
_BRANCH_BITS: Final = 5
_BRANCH_MASK: Final = (1 << _BRANCH_BITS) - 1
_SHIFT_END: Final = 35


def in_hash_order(keys: Iterable[K], hash_of: Callable[[K], int], room_for: int | None = None) -> list[K]:
    """Keys as a HashMap or a HashSet has them that they are put into one after the other.

    `room_for` is the size that the table was made for, where that was said.
    """
    put = list(dict.fromkeys(keys))
    buckets = _BUCKETS if room_for is None else 1 << max(room_for - 1, 0).bit_length()
    while len(put) > int(buckets * 0.75):
        buckets *= 2
    return sorted(put, key=lambda key: _spread(hash_of(key)) & (buckets - 1))


def in_scala_set_order(names: Iterable[str]) -> list[str]:
    """Names as an immutable set of Scala's has them: as they came while there are few, then in a tree of hashes."""
    put = list(dict.fromkeys(names))
    return put if len(put) <= _SMALL_SET else _walked(put, 0)


def _walked(names: list[str], shift: int) -> list[str]:
    """One node of the tree and what is below it: first the names that are alone in their branch, then the others."""
    branches: dict[int, list[str]] = {}
    for name in names:
        branches.setdefault(_improved(string_hash(name)) >> shift & _BRANCH_MASK, []).append(name)
    alone = [branches[each][0] for each in sorted(branches) if len(branches[each]) == 1]
    crowded = [branches[each] for each in sorted(branches) if len(branches[each]) > 1]
    is_last = shift >= _SHIFT_END
    return alone + [name for each in crowded for name in (each if is_last else _walked(each, shift + _BRANCH_BITS))]


def _improved(value: int) -> int:
    """How Scala spreads the bits of a hash."""
    value = (value + ~(value << 9)) & _INT_MASK
    value ^= value >> 14
    value = (value + (value << 4)) & _INT_MASK
    return value ^ value >> 10


def string_hash(text: str) -> int:
    """`String.hashCode`, without its sign."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & _INT_MASK
    return value


def partition_hash(place: tuple[str, int]) -> int:
    """`TopicPartition.hashCode`, without its sign."""
    topic, partition = place
    return (31 * (31 + partition) + string_hash(topic)) & _INT_MASK


def int_hash(number: int) -> int:
    """`Integer.hashCode`, without its sign."""
    return number & _INT_MASK


def _spread(value: int) -> int:
    return value ^ value >> 16
