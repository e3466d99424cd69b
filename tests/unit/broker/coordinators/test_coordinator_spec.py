"""A group belongs to the partition that Java's hash of its id says."""

from __future__ import annotations

import pytest

from barnabas.broker.coordinators.coordinator_spec import java_hash, partition_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("abc", 96_354),
        ("my-group", -1_906_497_762),
        ("\N{GRINNING FACE}", 1_772_899),
        ("polygenelubricants", -(1 << 31)),
    ],
)
def test_the_hash_is_that_of_java(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def test_the_smallest_hash_has_no_opposite_and_counts_as_zero() -> None:
    assert partition_of("polygenelubricants", 50) == 0


def test_a_negative_hash_counts_without_its_sign() -> None:
    assert partition_of("my-group", 50) == 1_906_497_762 % 50
