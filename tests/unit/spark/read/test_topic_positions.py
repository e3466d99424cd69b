"""Positions as JSON, in Spark's own form."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.uuids import ZERO_UUID, from_text
from barnabas.spark.read.topic_positions import (
    MalformedJsonError,
    Offsets,
    from_json,
    parse_offsets,
    parse_partitions,
    to_json,
    topic_ids_from_json,
)

OFFSETS = st.dictionaries(
    st.tuples(st.text(min_size=1, max_size=8), st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1), max_size=20
)


def test_a_position_looks_in_a_checkpoint_as_that_of_sparks_own_source() -> None:
    assert to_json({("orders", 1): 7, ("orders", 0): 23, ("clicks", 10): 1, ("clicks", 9): 0}) == {
        "clicks": {"9": 0, "10": 1},
        "orders": {"0": 23, "1": 7},
    }


@given(OFFSETS)
def test_a_position_survives_the_checkpoint(offsets: Offsets) -> None:
    assert from_json(json.loads(json.dumps(to_json(offsets)))) == offsets


def test_a_position_in_a_checkpoint_says_which_topics_it_means() -> None:
    orders = from_text("kVNNOy-yTtGxH7KCdVXEbw")
    position = to_json({("orders", 0): 23, ("old", 0): 1}, {"orders": orders, "old": ZERO_UUID, "others": orders})
    assert position == {
        "old": {"0": 1},
        "orders": {"0": 23},
        "topic ids": {"orders": "kVNNOy-yTtGxH7KCdVXEbw"},
    }
    assert from_json(position) == {("orders", 0): 23, ("old", 0): 1}
    assert topic_ids_from_json(position) == {"orders": orders}
    assert topic_ids_from_json({"orders": {"0": 23}}) == {}


def test_a_position_of_a_checkpoint_may_be_given_as_an_option() -> None:
    assert parse_offsets('{"orders": {"0": 23}, "topic ids": {"orders": "kVNNOy-yTtGxH7KCdVXEbw"}}') == {
        ("orders", 0): 23
    }


@given(OFFSETS)
def test_equal_positions_give_equal_texts(offsets: Offsets) -> None:
    backwards = dict(reversed(offsets.items()))
    assert json.dumps(to_json(offsets)) == json.dumps(to_json(backwards))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "expected topics"),
        ("3", "expected topics"),
        ("{}", "it names no partition"),
        ('{"orders": {}}', "it names no partition"),
        ('{"orders": [0]}', "topic 'orders' has [0] instead of partitions"),
        ('{"orders": {"first": 0}}', "topic 'orders' has \"first\" instead of a partition number"),
        ('{"orders": {"-1": 0}}', 'has "-1" instead of a partition number'),
        ('{"orders": {"99999999999": 0}}', "instead of a partition number"),
        ('{"orders": {"0": 1.5}}', "orders-0 has 1.5 instead of a whole number"),
        ('{"orders": {"0": true}}', "orders-0 has true"),
        ('{"orders": {"0": null}}', "orders-0 has null"),
        ('{"orders": {"0": -3}}', "orders-0 has -3"),
        ('{"orders": {"0": 1, "0": 2}}', "'0' is named twice"),
        ('{"orders": {"0": 1}, "orders": {"1": 2}}', "'orders' is named twice"),
        ("", "it is not JSON"),
        ("{'orders': {'0': 1}}", "it is not JSON"),
    ],
)
def test_malformed_offsets_are_refused_with_the_place_that_is_wrong(text: str, said: str) -> None:
    with pytest.raises(MalformedJsonError) as raised:
        parse_offsets(text)
    assert said in str(raised.value)


@pytest.mark.parametrize("text", ["[]", "{}", '{"orders": 0}', '{"orders": ["x"]}', '{"orders": [true]}', "{"])
def test_malformed_partitions_are_refused(text: str) -> None:
    with pytest.raises(MalformedJsonError):
        parse_partitions(text)


@given(st.text(max_size=60))
def test_no_text_does_worse_than_be_refused(text: str) -> None:
    for parse in (parse_offsets, parse_partitions):
        with contextlib.suppress(MalformedJsonError):
            parse(text)
