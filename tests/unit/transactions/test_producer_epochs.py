"""InitProducerId: which id and epoch a producer gets, and who is fenced by that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.transactions import transaction_records
from barnabas.transactions.producer_epochs import NOBODY
from barnabas.transactions.transaction import EPOCH_MAX, NEVER_MS, TransactionState
from barnabas.transactions.transaction_shard import TransactionSettings
from tests.unit.transactions import requests
from tests.unit.transactions.household import FIRST_PRODUCER_ID, FOO_0, START_MS, Household

if TYPE_CHECKING:
    from barnabas.coordination.effects import Producer
    from barnabas.transactions.transaction_shard import TransactionShard

OLD_ID, NEW_ID = 500, FIRST_PRODUCER_ID + 1
LAST_EPOCH = EPOCH_MAX - 1
"""The last that a producer may have."""


def with_epoch(epoch: int, state: TransactionState = TransactionState.EMPTY, transaction_version: int = 2) -> Household:
    """A transactional id whose producer has come far."""
    value = m.TransactionLogValue(
        producer_id=OLD_ID,
        previous_producer_id=OLD_ID,
        producer_epoch=epoch,
        transaction_timeout_ms=60_000,
        transaction_status=state,
        transaction_last_update_timestamp_ms=START_MS,
        transaction_start_timestamp_ms=-1,
        client_transaction_version=2,
    )
    return Household(log=[transaction_records.transaction("t", value)], transaction_version=transaction_version)


def test_a_new_transactional_id_gets_a_new_producer_id_in_epoch_0() -> None:
    house = Household()
    assert house.init() == (Error.NONE, (NEW_ID, 0))
    [(state, value)] = house.written()
    assert state == TransactionState.EMPTY
    assert (value.producer_id, value.previous_producer_id, value.next_producer_id) == (NEW_ID, NEW_ID, -1)
    assert value.transaction_partitions is None
    assert (value.transaction_last_update_timestamp_ms, value.transaction_start_timestamp_ms) == (START_MS, -1)


def test_each_producer_that_begins_gets_the_next_epoch_of_the_same_id() -> None:
    house = Household()
    assert [house.begun() for _ in range(3)] == [(NEW_ID, 0), (NEW_ID, 1), (NEW_ID, 2)]
    house.restart()
    assert house.begun() == (NEW_ID, 3)


def test_transactional_ids_do_not_share_producer_ids() -> None:
    house = Household()
    assert house.begun("one").producer_id != house.begun("other").producer_id


@pytest.mark.parametrize(
    ("transactional_id", "expected", "timeout_ms", "error"),
    [
        ("", NOBODY, 60_000, Error.INVALID_REQUEST),
        (None, NOBODY, 60_000, Error.INVALID_REQUEST),
        ("t", requests.producer(-1, 5), 60_000, Error.INVALID_REQUEST),
        ("t", requests.producer(5, -1), 60_000, Error.INVALID_REQUEST),
        ("t", NOBODY, 0, Error.INVALID_TRANSACTION_TIMEOUT),
        ("t", NOBODY, -1, Error.INVALID_TRANSACTION_TIMEOUT),
        ("t", NOBODY, 900_001, Error.INVALID_TRANSACTION_TIMEOUT),
        ("t", NOBODY, 900_000, Error.NONE),
    ],
)
def test_what_a_request_must_not_say(
    transactional_id: str | None, expected: Producer, timeout_ms: int, error: Error
) -> None:
    house = Household()
    answered, producer = house.init(transactional_id, expected, timeout_ms=timeout_ms)
    assert answered is error
    assert (producer == NOBODY, not house.log) == (error is not Error.NONE,) * 2


def test_two_phase_commit_is_for_brokers_that_allow_it() -> None:
    request = requests.init("t", timeout_ms=1)
    request.enable_2pc = True
    for is_allowed in (False, True):
        house = Household(TransactionSettings(two_phase_commit_enable=is_allowed))
        taken_id = house.taken_id(request, 6)
        answer = house.take(house.shard.init_producer_id(request, 6, taken_id, "us", house.now_ms))
        assert answer.error_code == (Error.NONE if is_allowed else Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    assert house.written()[-1][1].transaction_timeout_ms == NEVER_MS
    request.keep_prepared_txn = True
    answer = house.take(house.shard.init_producer_id(request, 6, None, "us", house.now_ms))
    assert answer.error_code == Error.UNSUPPORTED_VERSION


def test_a_producer_that_goes_on_gets_the_next_epoch_and_again_when_it_asks_again() -> None:
    house = Household()
    producer = house.begun()
    assert house.init(expected=producer) == (Error.NONE, (NEW_ID, 1))
    assert house.init(expected=producer) == (Error.NONE, (NEW_ID, 1))
    assert house.init(expected=requests.producer(NEW_ID, 1)) == (Error.NONE, (NEW_ID, 2))
    assert house.init(expected=producer) == (Error.PRODUCER_FENCED, NOBODY)


def test_a_producer_cannot_go_on_when_somebody_else_began() -> None:
    house = Household()
    producer = house.begun()
    house.begun()
    log = list(house.log)
    for version, error in ((3, Error.INVALID_PRODUCER_EPOCH), (4, Error.PRODUCER_FENCED), (5, Error.PRODUCER_FENCED)):
        assert house.init(expected=producer, version=version) == (error, NOBODY)
    assert house.init(expected=requests.producer(OLD_ID, 0)) == (Error.PRODUCER_FENCED, NOBODY)
    assert house.log == log


def test_a_producer_that_outlived_its_transactional_id_gets_a_new_producer_id() -> None:
    assert Household().init(expected=requests.producer(OLD_ID, 12)) == (Error.NONE, (NEW_ID, 0))


@pytest.mark.parametrize("expected", [NOBODY, requests.producer(OLD_ID, LAST_EPOCH)])
def test_a_producer_without_epochs_left_gets_a_new_id(expected: Producer) -> None:
    house = with_epoch(LAST_EPOCH)
    assert house.init(expected=expected) == (Error.NONE, (NEW_ID, 0))
    assert house.written()[-1][1].previous_producer_id == OLD_ID


def test_a_producer_that_missed_its_new_id_asks_again() -> None:
    house = with_epoch(LAST_EPOCH - 1)
    assert house.init() == (Error.NONE, (OLD_ID, LAST_EPOCH))
    last = requests.producer(OLD_ID, LAST_EPOCH)
    assert house.init(expected=last) == (Error.NONE, (NEW_ID, 0))
    assert house.init(expected=last) == (Error.NONE, (NEW_ID, 0))
    assert house.init(expected=requests.producer(OLD_ID, LAST_EPOCH - 1)) == (Error.PRODUCER_FENCED, NOBODY)


def test_the_last_epoch_is_given_again_to_a_producer_that_missed_it() -> None:
    house = with_epoch(LAST_EPOCH - 1)
    before = requests.producer(OLD_ID, LAST_EPOCH - 1)
    assert house.init(expected=before) == (Error.NONE, (OLD_ID, LAST_EPOCH))
    assert house.init(expected=before) == (Error.NONE, (OLD_ID, LAST_EPOCH))
    assert house.init(expected=requests.producer(OLD_ID, 3)) == (Error.PRODUCER_FENCED, NOBODY)


def test_a_step_that_lacks_a_new_producer_id_has_the_client_ask_again() -> None:
    """The driver looked, and the state changed before it came back."""
    for house in (Household(), with_epoch(LAST_EPOCH)):
        log = list(house.log)
        effects = house.shard.init_producer_id(requests.init("t"), 5, None, "us", house.now_ms)
        assert house.take(effects).error_code == Error.CONCURRENT_TRANSACTIONS
        assert house.log == log


def test_a_producer_id_that_turns_out_to_be_unneeded_is_not_taken() -> None:
    house = Household()
    producer = house.ongoing()
    request = requests.end("t", producer, committed=True)
    house.take(house.shard.end(request, 5, requests.producer(99, 0).producer_id, "us", house.now_ms))
    assert house.written()[-1][1].next_producer_id == -1
    house.write_markers()
    effects = house.shard.init_producer_id(requests.init("t"), 5, requests.producer(98, 0).producer_id, "us", 1)
    assert house.take(effects).producer_id == producer.producer_id


def test_a_producer_that_begins_has_an_ongoing_transaction_aborted_first() -> None:
    house = Household()
    zombie = house.ongoing()
    assert house.init() == (Error.CONCURRENT_TRANSACTIONS, NOBODY)
    assert house.state() == "PrepareAbort"
    [action] = house.actions
    assert (action.producer_id, action.producer_epoch, action.is_commit) == (NEW_ID, zombie.epoch + 1, False)
    assert house.init() == (Error.CONCURRENT_TRANSACTIONS, NOBODY), "until all partitions know"
    assert house.actions == [action], "asked for once"
    house.write_markers()
    assert house.state() == "CompleteAbort"
    assert house.init() == (Error.NONE, (NEW_ID, zombie.epoch + 2))
    assert house.add(zombie, FOO_0) is Error.PRODUCER_FENCED
    assert house.end(zombie, committed=True) == (Error.PRODUCER_FENCED, NOBODY)


def test_before_version_2_a_fenced_producer_cannot_ask_for_the_epoch_that_fenced_it() -> None:
    for transaction_version, error in ((0, Error.PRODUCER_FENCED), (1, Error.PRODUCER_FENCED), (2, Error.NONE)):
        house = Household(transaction_version=transaction_version)
        zombie = house.ongoing()
        house.init()
        assert house.actions[0].producer_epoch == zombie.epoch + 1
        assert house.actions[0].transaction_version == (2 if transaction_version == 2 else 0)
        house.write_markers()
        assert house.init(expected=zombie)[0] is error


@pytest.mark.parametrize(("transaction_version", "new_id_at_once"), [(1, False), (2, True)])
def test_fencing_the_last_epoch_leads_to_a_new_id(transaction_version: int, new_id_at_once: bool) -> None:
    house = with_epoch(LAST_EPOCH, transaction_version=transaction_version)
    zombie = requests.producer(OLD_ID, LAST_EPOCH)
    assert house.add(zombie, FOO_0) is Error.NONE
    assert house.init()[0] is Error.CONCURRENT_TRANSACTIONS
    [action] = house.write_markers()
    assert (action.producer_id, action.producer_epoch) == (OLD_ID, EPOCH_MAX)
    value = house.written()[-1][1]
    assert (value.producer_id != OLD_ID, value.producer_epoch == 0) == (new_id_at_once, new_id_at_once)
    error, producer = house.init()
    assert error is Error.NONE
    assert producer.producer_id not in (OLD_ID, NOBODY.producer_id)
    assert house.add(zombie, FOO_0) is Error.INVALID_PRODUCER_ID_MAPPING


def test_only_steps_that_use_a_new_producer_id_ask_for_one() -> None:
    def needs(shard: TransactionShard, expected: Producer = NOBODY) -> bool:
        return shard.needs_producer_id(requests.init("t", expected), 5)

    house = Household()
    assert needs(house.shard)
    assert not house.shard.needs_producer_id(requests.init(""), 5)
    assert not house.shard.needs_producer_id(requests.end("t", requests.producer(1, 0), committed=True), 5)
    producer = house.ongoing()
    assert not needs(house.shard)
    assert not house.shard.needs_producer_id(requests.end("t", producer, committed=True), 5)

    last = requests.producer(OLD_ID, LAST_EPOCH)
    house = with_epoch(LAST_EPOCH)
    assert needs(house.shard)
    assert needs(house.shard, last)
    assert not needs(house.shard, requests.producer(OLD_ID, 7))
    assert not needs(house.shard, requests.producer(OLD_ID + 1, LAST_EPOCH))
    assert house.shard.needs_producer_id(requests.end("t", last, committed=False), 5)
    assert not house.shard.needs_producer_id(requests.end("t", last, committed=False), 4)
    house.add(last, FOO_0)
    assert needs(house.shard), "to abort what is ongoing"
    house.end(last, committed=True)
    assert not needs(house.shard), "while partitions do not know yet"
