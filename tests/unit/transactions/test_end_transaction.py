"""AddPartitionsToTxn and EndTxn: what belongs to a transaction, and how it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.protocol.errors import Error
from barnabas.transactions.end_transaction import WriteMarkers
from barnabas.transactions.producer_epochs import NOBODY
from barnabas.transactions.transaction import EPOCH_MAX, TransactionState
from tests.unit.transactions import requests
from tests.unit.transactions.household import BAR_0, FIRST_PRODUCER_ID, FOO_0, FOO_1, Household
from tests.unit.transactions.test_producer_epochs import LAST_EPOCH, OLD_ID, with_epoch

if TYPE_CHECKING:
    from barnabas.coordination.effects import Producer

PRODUCER_ID = FIRST_PRODUCER_ID + 1
BEFORE_V2 = requests.END_VERSION_BEFORE_V2
STRANGER = requests.producer(4_321, 0)


def prepared(*, committed: bool, version: int = 5) -> tuple[Household, Producer]:
    house = Household()
    producer = house.ongoing()
    assert house.end(producer, committed=committed, version=version)[0] is Error.NONE
    return house, producer


def completed(*, committed: bool, version: int = 5) -> tuple[Household, Producer]:
    house, producer = prepared(committed=committed, version=version)
    house.write_markers()
    return house, producer


# Partitions


def test_the_first_partition_begins_the_transaction_and_more_may_follow() -> None:
    house = Household()
    producer = house.begun()
    house.now_ms += 5
    assert house.add(producer, FOO_0) is Error.NONE
    house.now_ms += 5
    assert house.add(producer, FOO_1, BAR_0, FOO_0) is Error.NONE
    [_, (first_state, first), (_, second)] = house.written()
    assert first_state == TransactionState.ONGOING
    assert second.transaction_partitions is not None
    assert {(topic.topic, *topic.partition_ids) for topic in second.transaction_partitions} == {
        ("foo", 0, 1),
        ("bar", 0),
    }
    assert second.transaction_start_timestamp_ms == first.transaction_start_timestamp_ms == house.now_ms - 5
    assert second.transaction_last_update_timestamp_ms == house.now_ms


def test_partitions_that_are_there_already_are_not_written_again() -> None:
    house = Household()
    producer = house.ongoing()
    log = list(house.log)
    assert house.add(producer, BAR_0) is Error.NONE
    assert house.log == log


def test_an_answer_names_each_partition_in_its_topic() -> None:
    house = Household()
    producer = house.begun()
    answer = house.take(house.shard.add_partitions("t", producer, [FOO_1, BAR_0, FOO_0], 2, "us", house.now_ms))
    [result] = answer.results_by_transaction
    named = {
        topic.name: [each.partition_index for each in topic.results_by_partition] for topic in result.topic_results
    }
    assert named == {"foo": [1, 0], "bar": [0]}


def test_who_may_add_and_verify_partitions() -> None:
    house = Household()
    producer = house.ongoing()
    assert house.add(STRANGER, FOO_1) is Error.INVALID_PRODUCER_ID_MAPPING
    assert house.add(producer, FOO_1, transactional_id="other") is Error.INVALID_PRODUCER_ID_MAPPING
    assert house.add(producer, FOO_1, transactional_id="") is Error.INVALID_REQUEST
    for epoch in (producer.epoch - 1, producer.epoch + 1):
        wrong = requests.producer(PRODUCER_ID, epoch)
        assert house.add(wrong, FOO_1) is Error.PRODUCER_FENCED
        assert house.shard.verify_partitions("t", wrong, [FOO_0]) == {FOO_0: Error.PRODUCER_FENCED}
    verify = house.shard.verify_partitions
    assert verify("t", producer, [FOO_0, FOO_1]) == {FOO_0: Error.NONE, FOO_1: Error.TRANSACTION_ABORTABLE}
    assert verify("t", STRANGER, [FOO_0]) == {FOO_0: Error.INVALID_PRODUCER_ID_MAPPING}
    assert verify("other", producer, [FOO_0]) == {FOO_0: Error.INVALID_PRODUCER_ID_MAPPING}
    assert verify("", producer, [FOO_0]) == {FOO_0: Error.INVALID_REQUEST}


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", [BEFORE_V2, 5])
def test_nothing_is_added_until_all_partitions_know_how_the_last_transaction_ended(
    committed: bool, version: int
) -> None:
    house, producer = prepared(committed=committed, version=version)
    present = requests.producer(PRODUCER_ID, producer.epoch + (version == 5))
    for anybody in (producer, present, STRANGER):
        assert house.add(anybody, FOO_0) is Error.CONCURRENT_TRANSACTIONS
    assert house.shard.verify_partitions("t", present, [FOO_0]) == {FOO_0: Error.CONCURRENT_TRANSACTIONS}
    house.write_markers()
    assert house.shard.verify_partitions("t", present, [FOO_0]) == {FOO_0: Error.TRANSACTION_ABORTABLE}
    assert house.add(present, FOO_0) is Error.NONE


# Ends


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize(("version", "epoch"), [(0, 0), (BEFORE_V2, 0), (5, 1)])
def test_an_end_is_written_then_marked_then_complete(committed: bool, version: int, epoch: int) -> None:
    house = Household()
    producer = house.ongoing()
    error, after = house.end(producer, committed=committed, version=version)
    assert error is Error.NONE
    assert after == ((PRODUCER_ID, epoch) if version >= 5 else NOBODY)
    assert house.state() == ("PrepareCommit" if committed else "PrepareAbort")
    [action] = house.actions
    assert action == WriteMarkers(
        transactional_id="t",
        producer_id=requests.producer(PRODUCER_ID, 0).producer_id,
        producer_epoch=epoch,
        coordinator_epoch=house.coordinator_epoch,
        is_commit=committed,
        partitions=(FOO_0, BAR_0),
        transaction_version=2 if version >= 5 else 0,
    )
    house.write_markers()
    assert house.state() == ("CompleteCommit" if committed else "CompleteAbort")
    value = house.written()[-1][1]
    assert value.transaction_partitions == []
    assert value.producer_epoch == epoch
    assert not house.actions


def test_markers_of_something_else_complete_nothing() -> None:
    house, _ = prepared(committed=True)
    [action] = house.actions
    others = (
        action._replace(transactional_id="other"),
        action._replace(producer_epoch=action.producer_epoch - 1),
        action._replace(is_commit=False),
        action._replace(coordinator_epoch=action.coordinator_epoch - 1),
    )
    for other in others:
        assert house.take(house.shard.markers_written(other, house.now_ms)) is None
        assert house.state() == "PrepareCommit"
    house.write_markers()
    log = list(house.log)
    house.take(house.shard.markers_written(action, house.now_ms))
    assert house.log == log, "told twice"


ENDS_BEFORE_V2 = [
    (TransactionState.EMPTY, True, Error.INVALID_TXN_STATE),
    (TransactionState.EMPTY, False, Error.INVALID_TXN_STATE),
    (TransactionState.PREPARE_COMMIT, True, Error.CONCURRENT_TRANSACTIONS),
    (TransactionState.PREPARE_COMMIT, False, Error.CONCURRENT_TRANSACTIONS),
    (TransactionState.PREPARE_ABORT, True, Error.CONCURRENT_TRANSACTIONS),
    (TransactionState.PREPARE_ABORT, False, Error.CONCURRENT_TRANSACTIONS),
    (TransactionState.COMPLETE_COMMIT, True, Error.NONE),
    (TransactionState.COMPLETE_COMMIT, False, Error.INVALID_TXN_STATE),
    (TransactionState.COMPLETE_ABORT, True, Error.INVALID_TXN_STATE),
    (TransactionState.COMPLETE_ABORT, False, Error.NONE),
]


@pytest.mark.parametrize(("state", "committed", "error"), ENDS_BEFORE_V2)
def test_ends_before_version_2_of_what_is_not_ongoing(state: TransactionState, committed: bool, error: Error) -> None:
    house, producer = in_state(state, version=BEFORE_V2)
    log = list(house.log)
    assert house.end(producer, committed=committed, version=BEFORE_V2) == (error, NOBODY)
    assert house.log == log


ENDS_WITH_PRESENT_EPOCH = [
    (TransactionState.EMPTY, True, Error.INVALID_TXN_STATE),
    (TransactionState.EMPTY, False, Error.NONE),
    (TransactionState.PREPARE_COMMIT, True, Error.CONCURRENT_TRANSACTIONS),
    (TransactionState.PREPARE_ABORT, False, Error.CONCURRENT_TRANSACTIONS),
    (TransactionState.COMPLETE_COMMIT, True, Error.INVALID_TXN_STATE),
    (TransactionState.COMPLETE_COMMIT, False, Error.NONE),
    (TransactionState.COMPLETE_ABORT, True, Error.INVALID_TXN_STATE),
    (TransactionState.COMPLETE_ABORT, False, Error.NONE),
]


@pytest.mark.parametrize(("state", "committed", "error"), ENDS_WITH_PRESENT_EPOCH)
def test_an_abort_of_nothing_in_version_2_gives_a_new_epoch(
    state: TransactionState, committed: bool, error: Error
) -> None:
    house, producer = in_state(state)
    present = requests.producer(PRODUCER_ID, producer.epoch + (state is not TransactionState.EMPTY))
    length = len(house.log)
    answered = house.end(present, committed=committed)
    assert answered[0] is error
    if error is Error.NONE:
        assert answered[1] == (PRODUCER_ID, present.epoch + 1)
        states = [state for state, _ in house.written()[length:]]
        assert states == [TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT]
        assert not house.actions, "no partition is there to know"
        assert house.written()[-1][1].transaction_start_timestamp_ms == house.now_ms
    else:
        assert len(house.log) == length


REPEATED_ENDS = [
    (TransactionState.PREPARE_COMMIT, True, Error.CONCURRENT_TRANSACTIONS),
    (TransactionState.PREPARE_COMMIT, False, Error.CONCURRENT_TRANSACTIONS),
    (TransactionState.COMPLETE_COMMIT, True, Error.NONE),
    (TransactionState.COMPLETE_COMMIT, False, Error.INVALID_TXN_STATE),
    (TransactionState.COMPLETE_ABORT, True, Error.INVALID_TXN_STATE),
    (TransactionState.COMPLETE_ABORT, False, Error.NONE),
]


@pytest.mark.parametrize(("state", "committed", "error"), REPEATED_ENDS)
def test_an_end_in_version_2_that_is_asked_for_again(state: TransactionState, committed: bool, error: Error) -> None:
    house, producer = in_state(state)
    log = list(house.log)
    after = requests.producer(PRODUCER_ID, producer.epoch + 1) if error is Error.NONE else NOBODY
    assert house.end(producer, committed=committed) == (error, after)
    house.restart()
    assert house.end(producer, committed=committed)[0] is error, "the log knows it too"
    assert house.log == log


def in_state(state: TransactionState, *, version: int = 5) -> tuple[Household, Producer]:
    """The producer has the epoch with which it asked for the end."""
    if state is TransactionState.EMPTY:
        house = Household()
        return house, house.begun()
    committed = state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
    complete = state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
    return (completed if complete else prepared)(committed=committed, version=version)


@pytest.mark.parametrize("committed", [True, False])
def test_who_may_end_a_transaction(committed: bool) -> None:
    house = Household()
    producer = house.ongoing()
    log = list(house.log)
    for version in (0, 1, 2, BEFORE_V2, 5):
        fenced = Error.INVALID_PRODUCER_EPOCH if version < 2 else Error.PRODUCER_FENCED
        for epoch in (producer.epoch - 1, producer.epoch + 1):
            wrong = requests.producer(PRODUCER_ID, epoch)
            assert house.end(wrong, committed=committed, version=version) == (fenced, NOBODY)
        mapping = (Error.INVALID_PRODUCER_ID_MAPPING, NOBODY)
        assert house.end(STRANGER, committed=committed, version=version) == mapping
        assert house.end(producer, committed=committed, transactional_id="other", version=version) == mapping
        empty = house.end(producer, committed=committed, transactional_id="", version=version)
        assert empty == (Error.INVALID_REQUEST, NOBODY)
    assert house.log == log


def test_an_ongoing_transaction_without_partitions_ends_at_once() -> None:
    house = Household()
    producer = house.begun()
    house.take(house.shard.add_partitions("t", producer, [], 2, "us", house.now_ms))
    assert house.state() == "Ongoing"
    house.end(producer, committed=True)
    assert house.state() == "CompleteCommit"


def test_the_versions_of_transactions_may_change_from_one_to_the_next() -> None:
    house = Household()
    producer = house.ongoing()
    producer = house.committed(producer, version=BEFORE_V2)
    assert house.add(producer, FOO_0, transaction_version=0) is Error.NONE
    assert house.written()[-1][1].client_transaction_version == 0
    producer = house.committed(producer)
    assert producer == (PRODUCER_ID, 1)
    assert house.written()[-1][1].client_transaction_version == 2
    assert house.add(producer, FOO_0) is Error.NONE
    house.committed(producer, version=BEFORE_V2)
    assert house.written()[-1][1].client_transaction_version == 0


@pytest.mark.parametrize("committed", [True, False])
def test_the_end_of_a_transaction_in_the_last_epoch_gives_a_new_producer_id(committed: bool) -> None:
    house = with_epoch(LAST_EPOCH)
    producer = requests.producer(OLD_ID, LAST_EPOCH)
    house.add(producer, FOO_0)
    error, after = house.end(producer, committed=committed)
    assert (error, after) == (Error.NONE, (PRODUCER_ID, 0))
    value = house.written()[-1][1]
    assert (value.producer_id, value.producer_epoch, value.next_producer_id) == (OLD_ID, EPOCH_MAX, PRODUCER_ID)
    assert (house.actions[0].producer_id, house.actions[0].producer_epoch) == (OLD_ID, EPOCH_MAX)
    house.restart()
    house.write_markers()
    value = house.written()[-1][1]
    assert (value.producer_id, value.producer_epoch, value.next_producer_id) == (PRODUCER_ID, 0, -1)
    assert value.previous_producer_id == OLD_ID
    assert house.end(producer, committed=committed) == (Error.NONE, after), "asked again"
    assert house.end(producer, committed=not committed) == (Error.INVALID_TXN_STATE, NOBODY)
    assert house.init(expected=producer)[0] is Error.PRODUCER_FENCED, "the log does not keep the last epoch"
    assert house.add(after, FOO_0) is Error.NONE
    assert house.end(producer, committed=committed) == (Error.INVALID_PRODUCER_ID_MAPPING, NOBODY)


def test_an_end_that_lacks_a_new_producer_id_is_asked_for_again() -> None:
    house = with_epoch(LAST_EPOCH)
    producer = requests.producer(OLD_ID, LAST_EPOCH)
    house.add(producer, FOO_0)
    effects = house.shard.end(requests.end("t", producer, committed=True), 5, None, "us", house.now_ms)
    assert house.take(effects).error_code == Error.CONCURRENT_TRANSACTIONS
    assert house.state() == "Ongoing"


def test_before_version_2_the_last_epoch_goes_on() -> None:
    house = with_epoch(LAST_EPOCH)
    producer = requests.producer(OLD_ID, LAST_EPOCH)
    house.add(producer, FOO_0)
    assert house.end(producer, committed=True, version=BEFORE_V2) == (Error.NONE, NOBODY)
    house.write_markers()
    assert house.add(producer, FOO_0) is Error.NONE
