"""What time alone does to transactions, and what a restart does not do to them."""

from __future__ import annotations

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.transactions import transaction_records
from barnabas.transactions.end_transaction import AllocateProducerId
from barnabas.transactions.producer_epochs import NOBODY
from barnabas.transactions.transaction import EPOCH_MAX, NEVER_MS, TransactionState
from barnabas.transactions.transaction_shard import SWEPT_MAX, TransactionSettings
from tests.unit.transactions import requests
from tests.unit.transactions.household import BAR_0, FIRST_PRODUCER_ID, FOO_0, START_MS, Household, state_of
from tests.unit.transactions.test_producer_epochs import LAST_EPOCH, OLD_ID, with_epoch

INTERVAL_MS = 10_000
DAY_MS = 24 * 60 * 60 * 1000
HOUR_MS = 60 * 60 * 1000


# Timeouts


def test_a_transaction_that_takes_longer_than_its_timeout_is_aborted_at_the_next_search() -> None:
    house = Household()
    house.pass_time(1)
    producer = house.ongoing(timeout_ms=INTERVAL_MS)
    house.pass_time(INTERVAL_MS - 1)
    assert house.state() == "Ongoing", "not yet longer"
    house.pass_time(INTERVAL_MS)
    assert house.state() == "PrepareAbort"
    assert house.now_ms == START_MS + 2 * INTERVAL_MS
    [action] = house.actions
    assert (action.producer_epoch, action.is_commit) == (producer.epoch + 1, False)


def test_the_search_is_as_frequent_as_configured_and_only_when_something_may_be_due() -> None:
    house = Household(TransactionSettings(abort_timed_out_interval_ms=50))
    assert house.shard.next_deadline_ms == START_MS + HOUR_MS
    house.ongoing(timeout_ms=120)
    assert house.shard.next_deadline_ms == START_MS + 150
    house.pass_time(150)
    assert house.state() == "PrepareAbort"
    assert house.shard.next_deadline_ms == START_MS + HOUR_MS


def test_that_a_transaction_is_aborted_by_its_timeout_is_noted() -> None:
    house = Household(TransactionSettings(abort_timed_out_interval_ms=50))
    house.ongoing(timeout_ms=120)
    (note,) = house.shard.expire(house.now_ms + 150).notes
    assert "aborted" in note
    assert "within its timeout" in note


def test_each_transaction_has_its_own_time() -> None:
    house = Household(TransactionSettings(abort_timed_out_interval_ms=1))
    producer = house.ongoing(timeout_ms=100)
    for _ in range(5):
        house.pass_time(90)
        producer = house.committed(producer)
        assert house.add(producer, FOO_0) is Error.NONE
    house.pass_time(100)
    assert house.state() == "Ongoing"
    house.pass_time(1)
    assert house.state() == "PrepareAbort"


def test_more_partitions_give_no_more_time() -> None:
    house = Household(TransactionSettings(abort_timed_out_interval_ms=1))
    producer = house.ongoing(timeout_ms=100)
    for index in range(10):
        house.pass_time(10)
        assert house.add(producer, ("more", index)) is Error.NONE
    house.pass_time(1)
    assert house.state() == "PrepareAbort"
    assert len(house.actions[0].partitions) == 12


def test_a_producer_whose_transaction_timed_out_cannot_commit_but_go_on() -> None:
    house = Household()
    producer = house.ongoing(timeout_ms=1)
    house.pass_time(INTERVAL_MS)
    assert house.end(producer, committed=True)[0] is Error.CONCURRENT_TRANSACTIONS
    house.write_markers()
    assert house.end(producer, committed=True)[0] is Error.INVALID_TXN_STATE
    assert house.end(producer, committed=True, version=4)[0] is Error.PRODUCER_FENCED
    raised = requests.producer(producer.producer_id, producer.epoch + 1)
    assert house.end(producer, committed=False) == (Error.NONE, raised)
    assert house.init(expected=producer) == (Error.NONE, raised)


def test_before_version_2_a_producer_whose_transaction_timed_out_is_fenced() -> None:
    house = Household(transaction_version=1)
    producer = house.ongoing(timeout_ms=1)
    house.pass_time(INTERVAL_MS)
    assert house.actions[0].producer_epoch == producer.epoch + 1
    house.write_markers()
    assert house.end(producer, committed=False, version=4) == (Error.PRODUCER_FENCED, NOBODY)
    assert house.init(expected=producer) == (Error.PRODUCER_FENCED, NOBODY)
    assert house.begun().epoch == producer.epoch + 2


def test_a_transaction_that_somebody_else_decides_about_does_not_time_out() -> None:
    house = Household(TransactionSettings(two_phase_commit_enable=True))
    request = requests.init("t")
    request.enable_2pc = True
    answer = house.take(house.shard.init_producer_id(request, 6, house.new_producer_id(), "us", house.now_ms))
    house.add(requests.producer(answer.producer_id, 0), FOO_0)
    house.pass_time(NEVER_MS + 2 * INTERVAL_MS)
    assert house.state() == "Ongoing"


def test_a_timed_out_transaction_in_the_last_epoch_is_aborted_with_a_new_producer_id() -> None:
    house = with_epoch(LAST_EPOCH)
    house.add(requests.producer(OLD_ID, LAST_EPOCH), FOO_0)
    house.pass_time(7 * INTERVAL_MS)
    assert house.needs == [AllocateProducerId("t")]
    assert house.state() == "Ongoing"
    house.pass_time(2 * INTERVAL_MS)
    assert house.needs == [AllocateProducerId("t")] * 3, "until there is one"
    house.take(house.shard.abort_timed_out(house.needs[0], house.new_producer_id(), house.now_ms))
    [action] = house.write_markers()
    assert (action.producer_id, action.producer_epoch) == (OLD_ID, EPOCH_MAX)
    log = list(house.log)
    house.take(house.shard.abort_timed_out(house.needs[1], house.new_producer_id(), house.now_ms))
    assert house.log == log, "done already"
    new = requests.producer(FIRST_PRODUCER_ID + 1, 0)
    assert house.end(requests.producer(OLD_ID, LAST_EPOCH), committed=False) == (Error.NONE, new)


# Expiry


@pytest.mark.parametrize("state", ["Empty", "CompleteCommit", "CompleteAbort"])
def test_a_transactional_id_that_nobody_uses_expires(state: str) -> None:
    house = Household()
    producer = house.begun()
    if state != "Empty":
        house.add(producer, FOO_0)
        house.end(producer, committed=state == "CompleteCommit")
        house.write_markers()
    assert house.state() == state
    house.pass_time(7 * DAY_MS - 1)
    assert house.state() == state
    house.pass_time(1)
    assert house.state() == "TRANSACTIONAL_ID_NOT_FOUND"
    assert house.log[-1] == transaction_records.tombstone("t")
    house.restart()
    assert house.state() == "TRANSACTIONAL_ID_NOT_FOUND"
    assert house.add(producer, FOO_0) is Error.INVALID_PRODUCER_ID_MAPPING
    assert house.begun().producer_id != producer.producer_id


def test_a_transactional_id_in_use_does_not_expire() -> None:
    house = Household(TransactionSettings(transactional_id_expiration_ms=DAY_MS, transaction_max_timeout_ms=NEVER_MS))
    producer = house.begun()
    ongoing = house.ongoing("ongoing", timeout_ms=10 * DAY_MS)
    for _ in range(5):
        house.pass_time(DAY_MS // 2)
        producer = house.init(expected=producer)[1]
    assert house.state() == "Empty"
    assert house.state("ongoing") == "Ongoing"
    house.end(ongoing, committed=True, transactional_id="ongoing")
    house.pass_time(2 * DAY_MS)
    assert house.state("ongoing") == "PrepareCommit"
    house.write_markers()
    house.pass_time(DAY_MS + HOUR_MS)
    assert house.state("ongoing") == "TRANSACTIONAL_ID_NOT_FOUND"


def test_the_search_for_expired_ids_is_as_frequent_as_configured_and_takes_turns() -> None:
    settings = TransactionSettings(transactional_id_expiration_ms=10, remove_expired_interval_ms=1_000)
    house = Household(settings)
    for index in range(2 * SWEPT_MAX + 1):
        house.begun(f"t{index}")
    house.log.clear()
    house.now_ms = START_MS + 1_000
    for expected in (SWEPT_MAX, 2 * SWEPT_MAX, 2 * SWEPT_MAX + 1):
        assert house.shard.next_deadline_ms == house.now_ms
        house.take(house.shard.expire(house.now_ms))
        assert len(house.log) == expected
    assert house.shard.next_deadline_ms == house.now_ms + 1_000
    assert state_of(house.shard) == {}


# Restarts


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("committed", [True, False])
def test_a_decision_found_in_the_log_is_carried_out(committed: bool, version: int) -> None:
    house = Household()
    producer = house.ongoing()
    house.end(producer, committed=committed, version=version)
    [before] = house.actions
    for _ in range(2):
        house.restart()
        [action] = house.actions
        assert action == before._replace(coordinator_epoch=house.coordinator_epoch)
    house.take(house.shard.markers_written(before, house.now_ms))
    assert house.state().startswith("Prepare"), "the word of another epoch"
    house.write_markers()
    assert house.state() == ("CompleteCommit" if committed else "CompleteAbort")
    house.restart()
    assert not house.actions


def test_an_ongoing_transaction_found_in_the_log_has_its_time_from_its_start() -> None:
    house = Household()
    house.ongoing(timeout_ms=60_000)
    house.now_ms += 55_000
    house.restart()
    assert house.shard.next_deadline_ms == house.now_ms + INTERVAL_MS
    house.pass_time(INTERVAL_MS)
    assert house.state() == "PrepareAbort"


def test_a_decision_about_nothing_found_in_the_log_is_completed() -> None:
    house = Household()
    house.end(house.begun(), committed=False)
    assert house.written()[-1][0] == TransactionState.COMPLETE_ABORT
    del house.log[-1]
    house.restart()
    assert house.state() == "CompleteAbort"
    assert house.written()[-1][0] == TransactionState.COMPLETE_ABORT


def test_states_that_nobody_writes_come_to_an_end_too() -> None:
    log = []
    for state in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE):
        value = m.TransactionLogValue(
            producer_id=OLD_ID,
            producer_epoch=3,
            transaction_timeout_ms=60_000,
            transaction_status=state,
            transaction_partitions=[m.TransactionLogValue.PartitionsSchema(topic="foo", partition_ids=[0])],
            transaction_last_update_timestamp_ms=START_MS,
            transaction_start_timestamp_ms=START_MS,
        )
        log.append(transaction_records.transaction(state.title, value))
    house = Household(log=log)
    assert house.state("Dead") == "TRANSACTIONAL_ID_NOT_FOUND"
    assert house.log[-2] == transaction_records.tombstone("Dead")
    assert house.state("PrepareEpochFence") == "PrepareAbort"
    assert house.actions[0].producer_epoch == 4
    house.write_markers()
    assert house.state("PrepareEpochFence") == "CompleteAbort"


def test_a_shard_that_resigned_has_nothing_to_do() -> None:
    house = Household()
    house.ongoing()
    assert not house.shard.unload().answers
    assert house.shard.next_deadline_ms is None
    assert not house.shard.expire(house.now_ms + DAY_MS).records


def test_markers_in_the_log_of_transactions_mean_nothing() -> None:
    house = Household()
    producer = house.ongoing()
    before = state_of(house.shard)
    house.shard.commit_transaction(producer.producer_id)
    house.shard.abort_transaction(producer.producer_id)
    assert state_of(house.shard) == before


# What administrators see


def test_a_transaction_is_described_with_its_partitions() -> None:
    house = Household()
    house.now_ms += 5
    producer = house.ongoing(timeout_ms=1_234)
    [described, missing, nameless] = house.shard.describe_transactions(["t", "none", ""])
    assert described == m.DescribeTransactionsResponse.TransactionState(
        transactional_id="t",
        transaction_state="Ongoing",
        transaction_timeout_ms=1_234,
        transaction_start_time_ms=house.now_ms,
        producer_id=producer.producer_id,
        producer_epoch=0,
        topics=[
            m.DescribeTransactionsResponse.TopicData(topic="foo", partitions=[FOO_0[1]]),
            m.DescribeTransactionsResponse.TopicData(topic="bar", partitions=[BAR_0[1]]),
        ],
    )
    assert (missing.error_code, missing.transactional_id) == (Error.TRANSACTIONAL_ID_NOT_FOUND, "none")
    assert nameless.error_code == Error.INVALID_REQUEST
