"""The APIs of transactions in the form that each version has, and what they refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker.api.transactions import end_txn, init_producer_id, txn_admin, txn_offsets, txn_partitions
from barnabas.broker.coordinators.coordinator_spec import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.coordination.effects import Producer, ProducerId
from barnabas.protocol.errors import Error
from tests.unit.broker.api.transactions.transaction_requests import (
    ELSEWHERE,
    GROUP,
    Handler,
    a_commit,
    a_description,
    a_group,
    an_addition,
    an_end,
    an_init,
    ask,
    errors_of,
    run,
)
from tests.unit.broker.coordinators.group_household import TOPIC
from tests.unit.broker.coordinators.transaction_household import END_V1, END_V2, ID, Place

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from barnabas.protocol import messages as m
    from barnabas.protocol.compiler.structs import Message
    from tests.unit.broker.coordinators.transaction_household import TransactionHousehold

EVERY_API: list[tuple[Handler, Callable[[int], Message], tuple[int, int]]] = [
    (init_producer_id.init_producer_id, lambda _: an_init(), (0, 5)),
    (txn_partitions.add_partitions_to_txn, an_addition, (0, 5)),
    (txn_partitions.add_offsets_to_txn, lambda _: a_group(), (0, 4)),
    (end_txn.end_txn, lambda _: an_end(), (0, 5)),
    (txn_offsets.txn_offset_commit, lambda _: a_commit(), (0, 5)),
    (txn_admin.describe_transactions, lambda _: a_description(ID), (0, 0)),
]
EVERY_VERSION = [
    pytest.param(handler, make, version, id=f"{handler.__name__} v{version}")
    for handler, make, (low, high) in EVERY_API
    for version in range(low, high + 1)
]


@pytest.mark.parametrize(("handler", "make", "version"), EVERY_VERSION)
def test_a_transaction_that_another_node_coordinates_is_answered_so(
    tmp_path: Path, handler: Handler, make: Callable[[int], Message], version: int
) -> None:
    async def scenario(house: TransactionHousehold) -> None:
        await house.place(TRANSACTIONS_TOPIC, ELSEWHERE)
        # A group's coordinator would ask that of the transaction, if it could be reached.
        is_asked_about = handler is txn_offsets.txn_offset_commit
        expected = Error.COORDINATOR_NOT_AVAILABLE if is_asked_about else Error.NOT_COORDINATOR
        assert await errors_of(house, handler, make(version), version) - {Error.NONE} == {expected}

    run(tmp_path, scenario)


@pytest.mark.parametrize(("handler", "make", "version"), EVERY_VERSION)
def test_while_a_transaction_is_loaded_clients_are_told_to_wait(
    tmp_path: Path, handler: Handler, make: Callable[[int], Message], version: int
) -> None:
    async def scenario(house: TransactionHousehold) -> None:
        await house.init()
        house.threads.hold()
        await house.place(TRANSACTIONS_TOPIC, Place(2))
        is_old_commit = handler is txn_offsets.txn_offset_commit and version < 2
        expected = Error.COORDINATOR_NOT_AVAILABLE if is_old_commit else Error.COORDINATOR_LOAD_IN_PROGRESS
        assert await errors_of(house, handler, make(version), version) - {Error.NONE} == {expected}

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    ("handler", "request_", "version"),
    [
        (init_producer_id.init_producer_id, an_init(""), 5),
        (txn_partitions.add_partitions_to_txn, an_addition(3, transactional_id=""), 3),
        (txn_partitions.add_partitions_to_txn, an_addition(5, transactional_id=""), 5),
        (txn_partitions.add_offsets_to_txn, a_group(transactional_id=""), 4),
        (end_txn.end_txn, an_end(transactional_id=""), 5),
        (txn_admin.describe_transactions, a_description(""), 0),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_the_empty_transactional_id_is_refused(
    tmp_path: Path, handler: Handler, request_: Message, version: int
) -> None:
    async def scenario(house: TransactionHousehold) -> None:
        assert await errors_of(house, handler, request_, version) - {0} == {Error.INVALID_REQUEST}

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    ("handler", "make", "knows_fencing_from", "newest"),
    [
        (txn_partitions.add_partitions_to_txn, an_addition, 2, 5),
        (txn_partitions.add_offsets_to_txn, lambda _, producer: a_group(producer), 2, 4),
        (end_txn.end_txn, lambda _, producer: an_end(producer), 2, 5),
    ],
    ids=["add_partitions_to_txn", "add_offsets_to_txn", "end_txn"],
)
def test_a_fenced_producer_is_told_so_in_words_that_it_knows(
    tmp_path: Path, handler: Handler, make: Callable[..., Message], knows_fencing_from: int, newest: int
) -> None:
    async def scenario(house: TransactionHousehold) -> None:
        fenced = await house.init()
        await house.init()
        for version in range(newest + 1):
            expected = Error.PRODUCER_FENCED if version >= knows_fencing_from else Error.INVALID_PRODUCER_EPOCH
            assert await errors_of(house, handler, make(version, fenced), version) - {Error.NONE} == {expected}

    run(tmp_path, scenario)


# ── producers ────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_producer_of_a_transactional_id_keeps_its_id_and_gets_the_next_epoch(tmp_path: Path) -> None:
    async def scenario(house: TransactionHousehold) -> None:
        answers = [await ask(house, init_producer_id.init_producer_id, an_init(), 5) for _ in range(2)]
        assert [(each.error_code, each.producer_id, each.producer_epoch) for each in answers] == [
            (Error.NONE, 1000, 0),
            (Error.NONE, 1000, 1),
        ]

    run(tmp_path, scenario)


def test_a_timeout_beyond_the_limit_is_refused_whoever_coordinates(tmp_path: Path) -> None:
    async def scenario(house: TransactionHousehold) -> None:
        await house.place(TRANSACTIONS_TOPIC, ELSEWHERE)
        response = await ask(house, init_producer_id.init_producer_id, an_init(timeout_ms=2001), 5)
        assert (response.error_code, response.producer_id) == (Error.INVALID_TRANSACTION_TIMEOUT, -1)

    run(tmp_path, scenario, transaction_max_timeout_ms="2000")


# ── partitions ───────────────────────────────────────────────────────────────────────────────────────────────


def added(response: m.AddPartitionsToTxnResponse, version: int) -> dict[tuple[str, int], Error]:
    results = response.results_by_topic_v3_and_below
    if version >= 4:
        ((of_transaction),) = response.results_by_transaction
        results = of_transaction.topic_results
    return {
        (topic.name, each.partition_index): Error(each.partition_error_code)
        for topic in results
        for each in topic.results_by_partition
    }


@pytest.mark.parametrize("version", [0, 3, 4, 5])
def test_partitions_join_all_or_none(tmp_path: Path, version: int) -> None:
    async def scenario(house: TransactionHousehold) -> None:
        producer = await house.init()
        request = an_addition(version, producer, {TOPIC: [0, 9], "gone": [0]})
        response = await ask(house, txn_partitions.add_partitions_to_txn, request, version)
        assert added(response, version) == {
            (TOPIC, 0): Error.OPERATION_NOT_ATTEMPTED,
            (TOPIC, 9): Error.UNKNOWN_TOPIC_OR_PARTITION,
            ("gone", 0): Error.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert await house.state() == "Empty"
        request = an_addition(version, producer, {TOPIC: [0, 1]})
        response = await ask(house, txn_partitions.add_partitions_to_txn, request, version)
        assert added(response, version) == {(TOPIC, 0): Error.NONE, (TOPIC, 1): Error.NONE}
        assert await house.state() == "Ongoing"

    run(tmp_path, scenario)


def test_only_brokers_add_partitions_of_internal_topics(tmp_path: Path) -> None:
    async def scenario(house: TransactionHousehold) -> None:
        producer = await house.init()
        for version, error in ((3, Error.TOPIC_AUTHORIZATION_FAILED), (4, Error.NONE)):
            request = an_addition(version, producer, {OFFSETS_TOPIC: [0]})
            response = await ask(house, txn_partitions.add_partitions_to_txn, request, version)
            assert added(response, version) == {(OFFSETS_TOPIC, 0): error}

    run(tmp_path, scenario)


def test_brokers_ask_for_several_transactions_and_may_only_ask(tmp_path: Path) -> None:
    async def scenario(house: TransactionHousehold) -> None:
        producers = [await house.init(), await house.init("other")]
        request = an_addition(5, producers[0])
        other = an_addition(5, producers[1], transactional_id="other")
        other.transactions[0].verify_only = True
        request.transactions = [*request.transactions, *other.transactions]
        response = await ask(house, txn_partitions.add_partitions_to_txn, request, 5)
        assert [
            (each.transactional_id, each.topic_results[0].results_by_partition[0].partition_error_code)
            for each in response.results_by_transaction
        ] == [(ID, Error.NONE), ("other", Error.TRANSACTION_ABORTABLE)]
        assert await house.state("other") == "Empty"

    run(tmp_path, scenario)


# ── offsets ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("commit", [True, False])
def test_offsets_of_a_transaction_count_when_it_commits(tmp_path: Path, version: int, *, commit: bool) -> None:
    async def scenario(house: TransactionHousehold) -> None:
        producer = await house.init()
        if version < 5:
            added_group = await ask(house, txn_partitions.add_offsets_to_txn, a_group(producer), 4)
            assert added_group.error_code == Error.NONE
        for _ in range(2):
            errors = await errors_of(house, txn_offsets.txn_offset_commit, a_commit(producer), version)
            assert errors == {Error.NONE}
        assert await house.committed(GROUP) == -1
        await house.end(producer, commit=commit)
        assert await house.committed(GROUP) == (5 if commit else -1)
        assert len(house.markers_in(*house.partition_of_group(GROUP))) == 1

    run(tmp_path, scenario)


@pytest.mark.parametrize("version", range(5))
def test_offsets_of_a_group_that_is_not_in_the_transaction_are_refused(tmp_path: Path, version: int) -> None:
    async def scenario(house: TransactionHousehold) -> None:
        producer = await house.init()
        expected = Error.TRANSACTION_ABORTABLE if version >= 4 else Error.INVALID_TXN_STATE
        errors = await errors_of(house, txn_offsets.txn_offset_commit, a_commit(producer), version)
        assert errors == {expected}
        assert house.batches_of(GROUP) == []

    run(tmp_path, scenario)


@pytest.mark.parametrize("version", [4, 5])
def test_offsets_of_a_fenced_producer_are_refused_and_the_group_goes_on(tmp_path: Path, version: int) -> None:
    async def scenario(house: TransactionHousehold) -> None:
        fenced = await house.init()
        await house.commit(GROUP, 3)
        await house.init()
        errors = await errors_of(house, txn_offsets.txn_offset_commit, a_commit(fenced), version)
        assert errors == {Error.INVALID_PRODUCER_EPOCH}
        assert await house.committed(GROUP) == 3

    run(tmp_path, scenario)


@pytest.mark.parametrize(("version", "end_version"), [(4, END_V1), (5, END_V2)])
def test_offsets_come_too_late_when_the_transaction_ends_while_its_coordinator_is_asked(
    tmp_path: Path, version: int, end_version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(house: TransactionHousehold) -> None:
        producer = await house.init()
        await house.add(producer, house.partition_of_group(GROUP))
        ask_coordinator = house.verification.check_partitions

        async def answer_late(*arguments: Any, **named: Any) -> Any:
            answer = await ask_coordinator(*arguments, **named)
            await house.end(producer, version=end_version)
            return answer

        monkeypatch.setattr(house.verification, "check_partitions", answer_late)
        errors = await errors_of(house, txn_offsets.txn_offset_commit, a_commit(producer), version)
        assert errors == {Error.INVALID_TXN_STATE}
        assert not any(header.is_transactional and not header.is_control for header in house.batches_of(GROUP))

    run(tmp_path, scenario)


def test_without_verification_offsets_need_no_coordinator_but_a_producer_that_is_not_fenced(tmp_path: Path) -> None:
    async def scenario(house: TransactionHousehold) -> None:
        await house.place(TRANSACTIONS_TOPIC, ELSEWHERE)
        assert await errors_of(house, txn_offsets.txn_offset_commit, a_commit(Producer(ProducerId(5), 2)), 4) == {0}
        errors = await errors_of(house, txn_offsets.txn_offset_commit, a_commit(Producer(ProducerId(5), 1)), 4)
        assert errors == {Error.INVALID_PRODUCER_EPOCH}
        assert await house.committed(GROUP) == -1, "the group is still served"

    run(tmp_path, scenario, transaction_partition_verification_enable="false")


def test_offsets_of_what_does_not_exist_are_refused_beside_those_of_what_does(tmp_path: Path) -> None:
    async def scenario(house: TransactionHousehold) -> None:
        producer = await house.init()
        request = a_commit(producer, 0, 7)
        request.topics = [*request.topics, *a_commit(producer, topic="gone").topics]
        response = await ask(house, txn_offsets.txn_offset_commit, request, 5)
        unknown = Error.UNKNOWN_TOPIC_OR_PARTITION
        assert {
            topic.name: [(each.partition_index, each.error_code) for each in topic.partitions]
            for topic in response.topics
        } == {TOPIC: [(7, unknown), (0, Error.NONE)], "gone": [(0, unknown)]}

    run(tmp_path, scenario)


def test_offsets_in_a_transaction_are_those_of_a_group(tmp_path: Path) -> None:
    async def scenario(house: TransactionHousehold) -> None:
        producer = await house.init()
        nobody = a_commit(producer, group_id="")
        assert await errors_of(house, txn_offsets.txn_offset_commit, nobody, 5) == {Error.INVALID_GROUP_ID}
        await house.place(OFFSETS_TOPIC, ELSEWHERE)
        elsewhere = a_commit(producer)
        assert await errors_of(house, txn_offsets.txn_offset_commit, elsewhere, 5) == {Error.NOT_COORDINATOR}

    run(tmp_path, scenario)
