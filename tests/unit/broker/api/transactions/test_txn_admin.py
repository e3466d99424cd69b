"""DescribeTransactions, ListTransactions and WriteTxnMarkers: what administrators see of transactions, and end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker.api.transactions import txn_admin
from barnabas.broker.coordinators.coordinator_spec import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.coordination.effects import Producer, ProducerId
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.unit.broker.api.stand_ins import NODE_ID
from tests.unit.broker.api.transactions.transaction_requests import ELSEWHERE, a_description, ask, errors_of, run
from tests.unit.broker.coordinators.group_household import TOPIC
from tests.unit.broker.coordinators.transaction_household import ID, Marker, Place

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.broker.coordinators.transaction_household import TransactionHousehold


def test_transactions_are_described_whether_they_are_there_or_not(tmp_path: Path) -> None:
    async def scenario(house: TransactionHousehold) -> None:
        producer = await house.init()
        await house.add(producer, (TOPIC, 0), (TOPIC, 1))
        response = await ask(house, txn_admin.describe_transactions, a_description("nobody", ID), 0)
        nobody, described = response.transaction_states
        assert (nobody.error_code, nobody.transactional_id) == (Error.TRANSACTIONAL_ID_NOT_FOUND, "nobody")
        assert (described.transaction_state, described.producer_id) == ("Ongoing", producer.producer_id)
        assert [(topic.topic, topic.partitions) for topic in described.topics] == [(TOPIC, [0, 1])]

    run(tmp_path, scenario)


def test_transactions_of_all_partitions_are_listed_by_filters(tmp_path: Path) -> None:
    async def scenario(house: TransactionHousehold) -> None:
        ids = [f"t{number}" for number in range(4)]
        producers = {each: await house.init(each) for each in ids}
        await house.add(producers["t1"], (TOPIC, 0), transactional_id="t1")

        async def listed(version: int = 2, **filters: Any) -> list[str]:
            request = m.ListTransactionsRequest(**filters)
            response = await ask(house, txn_admin.list_transactions, request, version)
            assert response.error_code == Error.NONE
            return sorted(each.transactional_id for each in response.transaction_states)

        assert await listed(0) == ids
        assert await listed(state_filters=["Ongoing"]) == ["t1"]
        assert await listed(producer_id_filters=[producers["t2"].producer_id]) == ["t2"]
        assert await listed(transactional_id_pattern="t[03]") == ["t0", "t3"]

    run(tmp_path, scenario)


def test_a_list_says_which_filters_it_does_not_know(tmp_path: Path) -> None:
    async def scenario(house: TransactionHousehold) -> None:
        await house.init()
        request = m.ListTransactionsRequest(state_filters=["Sleeping"])
        response = await ask(house, txn_admin.list_transactions, request, 2)
        assert (response.unknown_state_filters, response.transaction_states) == (["Sleeping"], [])
        request = m.ListTransactionsRequest(transactional_id_pattern="(")
        assert await errors_of(house, txn_admin.list_transactions, request, 2) == {Error.INVALID_REGULAR_EXPRESSION}

    run(tmp_path, scenario)


def test_transactions_are_not_listed_while_some_are_loaded(tmp_path: Path) -> None:
    async def scenario(house: TransactionHousehold) -> None:
        await house.init()
        house.threads.hold()
        await house.place(TRANSACTIONS_TOPIC, Place(2))
        errors = await errors_of(house, txn_admin.list_transactions, m.ListTransactionsRequest(), 2)
        assert errors == {Error.COORDINATOR_LOAD_IN_PROGRESS}

    run(tmp_path, scenario)


def a_marker(producer: Producer, topics: dict[str, list[int]], version: int) -> m.WriteTxnMarkersRequest:
    request = m.WriteTxnMarkersRequest
    marker = request.WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        coordinator_epoch=1,
        topics=[request.WritableTxnMarkerTopic(name=name, partition_indexes=parts) for name, parts in topics.items()],
        transaction_version=2 if version >= 2 else 0,
    )
    return request(markers=[marker])


def written(response: m.WriteTxnMarkersResponse) -> dict[tuple[str, int], Error]:
    ((of_producer),) = response.markers
    return {
        (topic.name, each.partition_index): Error(each.error_code)
        for topic in of_producer.topics
        for each in topic.partitions
    }


@pytest.mark.parametrize("version", [1, 2])
def test_a_tool_can_end_a_transaction_that_hangs(tmp_path: Path, version: int) -> None:
    async def scenario(house: TransactionHousehold) -> None:
        producer = await house.init()
        house.write(producer)
        ending = Producer(producer.producer_id, producer.epoch + (version == 2))
        request = a_marker(ending, {TOPIC: [0, 9, 0], OFFSETS_TOPIC: [0]}, version)
        response = await ask(house, txn_admin.write_txn_markers, request, version)
        assert written(response) == {
            (TOPIC, 0): Error.NONE,
            (TOPIC, 9): Error.UNKNOWN_TOPIC_OR_PARTITION,
            (OFFSETS_TOPIC, 0): Error.NONE,
        }
        assert house.markers_in() == [Marker(1, False, ending.epoch)]

    run(tmp_path, scenario)


def test_the_marker_of_an_old_epoch_is_refused(tmp_path: Path) -> None:
    async def scenario(house: TransactionHousehold) -> None:
        await house.init()
        producer = await house.init()
        house.write(producer)
        old = Producer(producer.producer_id, producer.epoch - 1)
        response = await ask(house, txn_admin.write_txn_markers, a_marker(old, {TOPIC: [0]}, 1), 1)
        assert written(response) == {(TOPIC, 0): Error.INVALID_PRODUCER_EPOCH}

    run(tmp_path, scenario)


@pytest.mark.parametrize("nobody", [Producer(ProducerId(-1), 0), Producer(ProducerId(5), -1)])
def test_a_request_with_a_marker_of_no_producer_writes_none(tmp_path: Path, nobody: Producer) -> None:
    async def scenario(house: TransactionHousehold) -> None:
        request = a_marker(Producer(ProducerId(7), 0), {TOPIC: [0]}, 1)
        request.markers += a_marker(nobody, {TOPIC: [0], OFFSETS_TOPIC: [0]}, 1).markers
        response = await ask(house, txn_admin.write_txn_markers, request, 1)
        topics = [topic for marker in response.markers for topic in marker.topics]
        errors = [Error(each.error_code) for topic in topics for each in topic.partitions]
        assert errors == [Error.UNKNOWN_SERVER_ERROR] * 3
        assert house.markers_in() == house.markers_in(OFFSETS_TOPIC) == []

    run(tmp_path, scenario)


def test_a_group_that_cannot_take_a_marker_has_no_leader_for_whoever_sends_it(tmp_path: Path) -> None:
    async def scenario(house: TransactionHousehold) -> None:
        producer = await house.init()
        await house.place(OFFSETS_TOPIC, ELSEWHERE)
        response = await ask(house, txn_admin.write_txn_markers, a_marker(producer, {OFFSETS_TOPIC: [0]}, 1), 1)
        assert written(response) == {(OFFSETS_TOPIC, 0): Error.NOT_LEADER_OR_FOLLOWER}

    run(tmp_path, scenario)


def test_a_marker_that_replicas_do_not_take_in_time_is_told(tmp_path: Path) -> None:
    async def scenario(house: TransactionHousehold) -> None:
        producer = await house.init()
        await house.place(TOPIC, Place(2, replicas=(NODE_ID, 2)))
        response = await ask(house, txn_admin.write_txn_markers, a_marker(producer, {TOPIC: [0]}, 1), 1)
        assert written(response) == {(TOPIC, 0): Error.REQUEST_TIMED_OUT}

    run(tmp_path, scenario, request_timeout_ms="20")
