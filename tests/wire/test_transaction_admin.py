"""What an operator sees of transactions, and how one that nobody ends is aborted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error
from tests.peers import wait_until
from tests.wire.groups import find_coordinator, latest
from tests.wire.requests import GROUP, TRANSACTION_KEY
from tests.wire.transactions import (
    PRODUCE_V2,
    READ_COMMITTED,
    Described,
    Producer,
    abort_for_next,
    add_partitions_request,
    await_end,
    describe,
    describe_all,
    init,
    init_request,
    list_transactions,
    producers_of,
    read,
    write,
    write_markers,
)

if TYPE_CHECKING:
    from tests.wire.connection import Connection
    from tests.wire.requests import Topic

NOBODY = 2_000_000_000
"""A producer id that is not given out."""


def test_transactions_are_described_in_the_order_in_which_they_are_asked_for(
    group_connection: Connection, group_topic: Topic, producer: Producer
) -> None:
    write(group_connection, producer, group_topic, [b"a"], version=PRODUCE_V2)
    described = describe_all(group_connection, ["nobody", producer.transactional_id, ""])
    assert described == [
        Described(Error.TRANSACTIONAL_ID_NOT_FOUND, "", 0, 0, set()),
        Described(Error.NONE, "Ongoing", producer.id, producer.epoch, {(group_topic.name, 0)}),
        Described(Error.INVALID_REQUEST, "", 0, 0, set()),
    ]
    request = m.DescribeTransactionsRequest(transactional_ids=[producer.transactional_id])
    (open_one,) = group_connection.call(request, 0, m.DescribeTransactionsResponse).transaction_states
    assert open_one.transaction_timeout_ms == 60_000
    assert open_one.transaction_start_time_ms > 0
    abort_for_next(group_connection, producer)
    await_end(group_connection, producer.transactional_id)


@pytest.mark.parametrize("version", range(latest(ApiKey.LIST_TRANSACTIONS) + 1))
def test_transactions_are_listed_by_state_and_by_producer_id(
    group_connection: Connection, group_topic: Topic, producer: Producer, version: int
) -> None:
    idle = init(group_connection, init_request(f"{producer.transactional_id}-idle"))
    write(group_connection, producer, group_topic, [b"a"], version=PRODUCE_V2)
    both = {producer.transactional_id: (producer.id, "Ongoing"), idle.transactional_id: (idle.id, "Empty")}
    assert both.items() <= list_transactions(group_connection, version=version).items()
    mine = [producer.id, idle.id]
    assert list_transactions(group_connection, producer_ids=mine, version=version) == both
    for state, transactional_id in (("Ongoing", producer.transactional_id), ("Empty", idle.transactional_id)):
        listed = list_transactions(group_connection, states=[state], producer_ids=mine, version=version)
        assert set(listed) == {transactional_id}
    assert list_transactions(group_connection, producer_ids=[NOBODY], version=version) == {}


def test_states_that_do_not_exist_are_named_and_match_nothing(group_connection: Connection, producer: Producer) -> None:
    request = m.ListTransactionsRequest(state_filters=["Empty", "empty", "Bogus"], producer_id_filters=[producer.id])
    answer = group_connection.call(request, 2, m.ListTransactionsResponse)
    assert sorted(answer.unknown_state_filters) == ["Bogus", "empty"]
    assert [each.transactional_id for each in answer.transaction_states] == [producer.transactional_id]
    request.state_filters = ["Bogus"]
    answer = group_connection.call(request, 2, m.ListTransactionsResponse)
    assert (Error(answer.error_code), answer.transaction_states) == (Error.NONE, [])


@pytest.mark.parametrize("version", range(1, latest(ApiKey.LIST_TRANSACTIONS) + 1))
def test_transactions_are_listed_by_how_long_they_have_been_open(
    group_connection: Connection, group_topic: Topic, producer: Producer, version: int
) -> None:
    mine = [producer.id]
    write(group_connection, producer, group_topic, [b"a"], version=PRODUCE_V2)
    wait_until(
        lambda: list_transactions(group_connection, duration_ms=10, producer_ids=mine, version=version),
        "it has been open for a while",
    )
    assert list_transactions(group_connection, duration_ms=1_000_000, producer_ids=mine, version=version) == {}


def test_transactions_are_listed_by_a_pattern_of_their_whole_id(
    group_connection: Connection, producer: Producer
) -> None:
    mine, name = [producer.id], producer.transactional_id
    for pattern, is_listed in ((f"{name[:4]}.*", True), (name, True), (name[:-1], False), ("", True)):
        listed = list_transactions(group_connection, pattern=pattern, producer_ids=mine)
        assert set(listed) == ({name} if is_listed else set()), pattern
    request = m.ListTransactionsRequest(transactional_id_pattern="(")
    answer = group_connection.call(request, 2, m.ListTransactionsResponse)
    assert (Error(answer.error_code), answer.transaction_states) == (Error.INVALID_REGULAR_EXPRESSION, [])


def test_a_partition_knows_its_producers_and_where_their_transactions_began(
    group_connection: Connection, group_topic: Topic, producer: Producer
) -> None:
    assert producers_of(group_connection, group_topic.name) == (Error.NONE, {})
    write(group_connection, producer, group_topic, [b"a", b"b"], version=PRODUCE_V2)
    error, known = producers_of(group_connection, group_topic.name)
    state = known[producer.id]
    assert (error, set(known)) == (Error.NONE, {producer.id})
    assert (state.producer_epoch, state.last_sequence) == (producer.epoch, 1)
    assert (state.coordinator_epoch, state.current_txn_start_offset) == (-1, 0)
    assert state.last_timestamp > 0
    abort_for_next(group_connection, producer)
    await_end(group_connection, producer.transactional_id)
    state = producers_of(group_connection, group_topic.name)[1][producer.id]
    assert (state.producer_epoch, state.last_sequence) == (producer.epoch + 1, -1)
    assert (state.coordinator_epoch, state.current_txn_start_offset) == (0, -1)


def test_a_partition_that_does_not_exist_has_no_producers(group_connection: Connection, group_topic: Topic) -> None:
    for topic, partition in ((group_topic.name, 9), ("no-such-topic", 0)):
        assert producers_of(group_connection, topic, partition) == (Error.UNKNOWN_TOPIC_OR_PARTITION, {})


@pytest.mark.parametrize(
    ("version", "transaction_version", "epochs_later"), [(1, 0, 0), (2, 0, 0), (2, 1, 0), (2, 2, 1)]
)
def test_a_marker_ends_a_transaction_in_its_partition(
    group_connection: Connection,
    group_topic: Topic,
    producer: Producer,
    version: int,
    transaction_version: int,
    epochs_later: int,
) -> None:
    """The marker of a transaction v2 has the epoch after, so that nothing late fits."""
    write(group_connection, producer, group_topic, [b"a"], version=PRODUCE_V2)
    marked = write_markers(
        group_connection,
        producer._replace(epoch=producer.epoch + epochs_later),
        {group_topic.name: [0]},
        transaction_version=transaction_version,
        version=version,
    )
    assert marked == {(group_topic.name, 0): Error.NONE}
    assert read(group_connection, group_topic, READ_COMMITTED) == ([b"a"], [1], 2, 2, [(producer.id, 0)])


def test_markers_that_do_not_fit_are_refused(
    group_connection: Connection, group_topic: Topic, producer: Producer
) -> None:
    write(group_connection, producer, group_topic, [b"a"], version=PRODUCE_V2)
    here = {group_topic.name: [0]}
    nowhere = {group_topic.name: [9], "no-such-topic": [0]}
    unknown = Error.UNKNOWN_TOPIC_OR_PARTITION
    assert write_markers(group_connection, producer, nowhere) == {
        (group_topic.name, 9): unknown,
        ("no-such-topic", 0): unknown,
    }
    same_epoch = write_markers(group_connection, producer, here, transaction_version=2, version=2)
    assert same_epoch == {(group_topic.name, 0): Error.INVALID_PRODUCER_EPOCH}
    seen = read(group_connection, group_topic, READ_COMMITTED)
    assert (seen.values, seen.last_stable_offset, seen.high_watermark) == ([], 0, 1)


@pytest.mark.parametrize("nobody", [Producer("", -1, 0), Producer("", NOBODY, -1)])
def test_a_marker_of_no_producer_is_refused(group_connection: Connection, group_topic: Topic, nobody: Producer) -> None:
    refused = write_markers(group_connection, nobody, {group_topic.name: [0]})
    assert refused == {(group_topic.name, 0): Error.UNKNOWN_SERVER_ERROR}
    assert read(group_connection, group_topic, READ_COMMITTED) == ([], [], 0, 0, [])


def test_a_marker_of_a_transaction_version_that_cannot_be_is_refused(
    group_connection: Connection, group_topic: Topic, producer: Producer
) -> None:
    asked = {group_topic.name: [0, 77]}
    refused = write_markers(group_connection, producer, asked, transaction_version=-1, version=2)
    assert refused == {
        (group_topic.name, 0): Error.UNKNOWN_SERVER_ERROR,
        (group_topic.name, 77): Error.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_a_marker_for_no_partition_is_not_answered_for(group_connection: Connection, producer: Producer) -> None:
    request = m.WriteTxnMarkersRequest
    marker = request.WritableTxnMarker(producer_id=producer.id, producer_epoch=producer.epoch)
    assert group_connection.call(request(markers=[marker]), 2, m.WriteTxnMarkersResponse).markers == []


def test_a_transaction_that_is_named_twice_is_asked_about_with_its_last_partitions(
    group_connection: Connection, group_topic: Topic, producer: Producer
) -> None:
    request = add_partitions_request(producer, {group_topic.name: [0]}, 5)
    request.transactions += add_partitions_request(producer, {"no-such-topic": [0]}, 5).transactions
    answer = group_connection.call(request, 5, m.AddPartitionsToTxnResponse)
    found = [
        (topic.name, Error(each.partition_error_code))
        for result in answer.results_by_transaction
        for topic in result.topic_results
        for each in topic.results_by_partition
    ]
    assert found == [("no-such-topic", Error.UNKNOWN_TOPIC_OR_PARTITION)] * 2
    assert describe(group_connection, producer.transactional_id).state == "Empty"


def test_a_marker_of_an_older_epoch_or_an_older_coordinator_is_refused(
    group_connection: Connection, group_topic: Topic
) -> None:
    """A producer that the partition does not know may have left it long ago: its marker is written."""
    forgotten, here = Producer("", NOBODY, 3), {group_topic.name: [0]}
    marked = write_markers(group_connection, forgotten, here, coordinator_epoch=5)
    assert marked == {(group_topic.name, 0): Error.NONE}
    old_epoch = write_markers(group_connection, forgotten._replace(epoch=2), here, coordinator_epoch=5)
    assert old_epoch == {(group_topic.name, 0): Error.INVALID_PRODUCER_EPOCH}
    old_coordinator = write_markers(group_connection, forgotten, here, coordinator_epoch=4)
    assert old_coordinator == {(group_topic.name, 0): Error.TRANSACTION_COORDINATOR_FENCED}
    assert read(group_connection, group_topic, READ_COMMITTED) == ([], [0], 1, 1, [])


@pytest.mark.parametrize("version", range(1, latest(ApiKey.FIND_COORDINATOR) + 1))
def test_the_only_node_coordinates_every_transactional_id(
    group_connection: Connection, producer: Producer, version: int
) -> None:
    found = find_coordinator(group_connection, producer.transactional_id, TRANSACTION_KEY, version)
    assert found[:2] == (Error.NONE, 1)
    assert found == find_coordinator(group_connection, GROUP, version=version)
