"""Which partitions `kafka-get-offsets` means, and what Java's readers make of texts."""

from __future__ import annotations

import pytest

from barnabas.cli.kafka.java import java_json
from barnabas.cli.kafka.java.java_ids import IdError, read_id
from barnabas.cli.kafka.partitions.partition_patterns import EVERY_PARTITION, read_partitions, read_rules
from barnabas.cli.kafka.tool import ToolError
from barnabas.protocol import uuids

NOT_SIXTEEN = "is not equal to the expected 16 bytes of a base64-encoded UUID"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("orders", [("orders", 0), ("orders", 9)]),
        ("orders:0", [("orders", 0)]),
        ("orders:1-3", [("orders", 1), ("orders", 2)]),
        ("orders:-2", [("orders", 0), ("orders", 1)]),
        ("orders:8-", [("orders", 8), ("orders", 9)]),
        (":9", [("orders", 9), ("payments", 9)]),
        ("orders:0,payments:1,", [("orders", 0), ("payments", 1)]),
        ("", [("orders", 0), ("payments", 9)]),
    ],
)
def test_a_rule_allows_partitions_of_topics(text: str, meant: list[tuple[str, int]]) -> None:
    rules = read_rules(text)
    allowed = {
        (topic, partition)
        for topic in ("orders", "payments")
        for partition in range(10)
        if any(rule.allows(topic, partition) for rule in rules)
    }
    assert set(meant) <= allowed
    if ":" in text:
        assert set(meant) == allowed


def test_nothing_but_commas_allows_nothing() -> None:
    assert read_rules(",,") == []


@pytest.mark.parametrize("text", ["a:b", "a:1:2", "a:1-2-3"])
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(ToolError, match="Invalid rule specification"):
        read_rules(text)


def test_no_partitions_are_all() -> None:
    assert read_partitions("") is EVERY_PARTITION
    assert read_partitions("0,2,") == {0, 2}
    with pytest.raises(ToolError):
        read_partitions("0,,2")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("A" * 25, f"Input string with prefix `{'A' * 24}` is too long to be decoded as a base64 UUID"),
        ("A", "Input byte[] should at least have 2 bytes for base64 bytes"),
        ("AAAAA", "Last unit does not have enough valid bits"),
        ("A*AA", "Illegal base64 character 2a"),
        ("AAAAAAAA", f"Input string `AAAAAAAA` decoded as 6 bytes, which {NOT_SIXTEEN}"),
    ],
)
def test_what_is_no_id_is_refused_in_javas_words(text: str, problem: str) -> None:
    with pytest.raises(IdError) as refused:
        read_id(text)
    assert str(refused.value) == problem


@pytest.mark.parametrize("text", ["AAAAAAAAAAAAAAAAAAAAAw", "AAAAAAAAAAAAAAAAAAAAAw==", "AAAAAAAAAAAAAAAAAAAAAx"])
def test_bits_behind_the_last_byte_of_an_id_do_not_count(text: str) -> None:
    assert uuids.to_text(read_id(text)) == "AAAAAAAAAAAAAAAAAAAAAw"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "The input string is not a valid JSON"),
        (" \n", "Expected JSON object, received "),
        ("[1, 2.50]", "Expected JSON object, received [1,2.5]"),
        ("{]", "The input string is not a valid JSON"),
        ("NaN", "The input string is not a valid JSON"),
    ],
)
def test_what_is_no_object_of_json_is_refused_in_kafkas_words(text: str, complaint: str) -> None:
    with pytest.raises(ToolError) as refused:
        java_json.as_object(java_json.parse(text))
    assert refused.value.message == complaint


def test_what_follows_an_object_is_left_alone() -> None:
    assert java_json.as_object(java_json.parse('{"a": 1} and more')) == {"a": 1}
    with pytest.raises(ToolError, match="Expected `Integer` value, received 3000000000"):
        java_json.as_int(3_000_000_000)
    assert java_json.as_long(3_000_000_000) == 3_000_000_000
