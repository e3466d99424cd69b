from __future__ import annotations

from barnabas.cli.kafka.java.java_order import in_hash_order, int_hash, partition_hash, string_hash


def test_hashes_are_javas() -> None:
    assert string_hash("") == 0
    assert string_hash("hello") == 99_162_322
    assert string_hash("\N{GRINNING FACE}") == 31 * 0xD83D + 0xDE00
    assert int_hash(-1) == 0xFFFF_FFFF
    assert partition_hash(("a", 2)) == 31 * (31 + 2) + 97


def test_a_table_that_is_made_for_its_keys_has_fewer_buckets() -> None:
    names = ["bb", "ccc", "a", "dddd"]
    assert in_hash_order(names, len, room_for=4) == ["a", "bb", "ccc", "dddd"]
    assert in_hash_order([16, 1, 0], int_hash) == [16, 0, 1]
    assert in_hash_order([16, 1, 0], int_hash, room_for=20) == [0, 1, 16]


def test_a_table_that_is_three_quarters_full_grows() -> None:
    assert in_hash_order([16, *range(11)], int_hash) == [16, *range(11)]
    assert in_hash_order([16, *range(12)], int_hash) == [*range(12), 16]
