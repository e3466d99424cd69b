"""Plans of moves: what is read and printed of them, and which replicas they limit."""

from __future__ import annotations

import pytest

from barnabas.cli.kafka.moves.generating import spread
from barnabas.cli.kafka.moves.plans import plan_json, read_brokers, read_plan
from barnabas.cli.kafka.moves.throttles import Move, moves
from barnabas.cli.kafka.tool import ToolError
from barnabas.client.admin.reassignments import Reassignment
from barnabas.client.admin.replica_folders import Replica
from barnabas.controller.decisions.placement import UsableBroker


def test_a_plan_is_printed_as_it_is_read() -> None:
    text = (
        '{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[1,2],"log_dirs":["any","/data"]},'
        '{"topic":"b","partition":3,"replicas":[2],"log_dirs":["any"]}]}'
    )
    plan = read_plan(text)
    assert plan.replicas == [(("a", 0), [1, 2]), (("b", 3), [2])]
    assert plan.folders == {Replica("a", 0, 2): "/data"}
    assert plan_json(dict(plan.replicas), plan.folders) == text


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "xyz",
            (
                "Unrecognized token 'xyz': was expecting (JSON String, Number, Array, Object or token 'null', 'true' "
                "or 'false')"
            ),
        ),
        (
            '{"a":1',
            (
                "Unexpected end-of-input: expected close marker for Object (start marker at [Source: REDACTED "
                "(`StreamReadFeature.INCLUDE_SOURCE_IN_LOCATION` disabled); line: 1, column: 1])"
            ),
        ),
        (" \n", "Expected JSON object, received "),
        ('{"partitions":[{"topic":"a","partition":0}]}', "No such field exists: `replicas`"),
        (
            '{"partitions":[{"topic":"a","partition":0,"replicas":7}]}',
            "Expected `JSON array` value, received 7",
        ),
    ],
)
def test_what_is_no_plan_is_refused_in_the_words_of_kafka(text: str, complaint: str) -> None:
    with pytest.raises(ToolError) as refused:
        read_plan(text)
    assert (refused.value.message, refused.value.is_error_output) == (f"Error: {complaint}", False)


def test_brokers_are_numbers_between_commas() -> None:
    assert read_brokers("3,1,") == [3, 1]
    with pytest.raises(ToolError, match='For input string: ""'):
        read_brokers("1,,2")


def test_moves_are_those_under_way_and_those_that_are_proposed() -> None:
    under_way = {("a", 0): Reassignment([2, 1], [2], [1]), ("b", 0): Reassignment([1, 3], [3], [])}
    found = moves(under_way, [(("a", 0), [3]), (("c", 1), [1, 2])], {("a", 0): [2, 1], ("c", 1): [1]})
    assert found == {
        ("a", 0): Move({1}, {3}),
        ("b", 0): Move({1}, {3}),
        ("c", 1): Move({1}, {2}),
    }


def test_partitions_are_spread_over_the_racks_with_as_many_replicas_as_they_have() -> None:
    brokers = [UsableBroker(number, "ab"[number % 2], fenced=False) for number in range(1, 5)]
    current = {("t", number): [1, 2] for number in range(8)}
    proposed = spread(current, brokers)
    assert proposed.keys() == current.keys()
    assert all(first % 2 != second % 2 for first, second in proposed.values())
