"""What a transaction's coordinator and the leaders of its partitions refuse, with nothing changed by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error
from tests.wire.batches import CONTROL, TRANSACTIONAL, batch
from tests.wire.groups import Joined, fetch_offsets, join, join_request, latest, leave, sync
from tests.wire.requests import ADDS_MANY_TRANSACTIONS, produce_request
from tests.wire.transactions import (
    OFFSETS_V1,
    OFFSETS_V2,
    PRODUCE_V1,
    PRODUCE_V2,
    READ_UNCOMMITTED,
    Described,
    Producer,
    abort,
    abort_for_next,
    add_group,
    add_partitions,
    add_partitions_request,
    ask_partitions,
    await_end,
    await_transactions,
    commit,
    commit_for_next,
    commit_offsets,
    describe,
    init,
    init_request,
    offsets_request,
    read,
    refused_init,
    verify_partitions_request,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.wire.connection import Connection
    from tests.wire.requests import Topic

    Connect = Callable[[], Connection]

FENCED_BY_NAME = 2
"""The first version of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn that tells PRODUCER_FENCED from a wrong epoch."""
ABORTABLE = 11
"""The first version of Produce that tells what an abort puts right."""
MAX_TIMEOUT_MS = 900_000


@pytest.mark.parametrize("version", [PRODUCE_V1, PRODUCE_V2])
def test_the_coordinator_is_asked_before_anything_else_of_a_write_is_looked_at(
    group_connection: Connection, producer: Producer, group_topic: Topic, version: int
) -> None:
    records = batch(attributes=TRANSACTIONAL, producer_id=producer.id, producer_epoch=producer.epoch, base_sequence=0)
    request = produce_request(group_topic, records, version, acks=2)
    request.transactional_id = producer.transactional_id
    (topic,) = group_connection.call(request, version, m.ProduceResponse).responses
    error = Error(topic.partition_responses[0].error_code)
    described = describe(group_connection, producer.transactional_id)
    if version == PRODUCE_V1:
        assert (error, described.partitions) == (Error.TRANSACTION_ABORTABLE, set())
    else:
        assert (error, described.partitions) == (Error.INVALID_REQUIRED_ACKS, {(group_topic.name, 0)})
        abort_for_next(group_connection, producer)


@pytest.fixture
def older(group_connection: Connection, producer: Producer) -> Producer:
    """What the producer was before it was restarted; the newer one is `producer` with the epoch after."""
    assert init(group_connection, init_request(producer.transactional_id)).epoch == producer.epoch + 1
    return producer


@pytest.fixture
def newer(older: Producer) -> Producer:
    return older._replace(epoch=older.epoch + 1)


def strangers(producer: Producer) -> dict[str, tuple[Producer, Error]]:
    """Producers that are not this one, and what they are told."""
    return {
        "an unknown transactional id": (
            producer._replace(transactional_id="nobody"),
            Error.INVALID_PRODUCER_ID_MAPPING,
        ),
        "an empty transactional id": (producer._replace(transactional_id=""), Error.INVALID_REQUEST),
        "another producer id": (producer._replace(id=producer.id + 10_000), Error.INVALID_PRODUCER_ID_MAPPING),
        "an epoch before": (producer._replace(epoch=producer.epoch - 1), Error.PRODUCER_FENCED),
        "an epoch to come": (producer._replace(epoch=producer.epoch + 1), Error.PRODUCER_FENCED),
    }


@pytest.mark.parametrize("version", range(latest(ApiKey.INIT_PRODUCER_ID) + 1))
def test_an_empty_transactional_id_and_a_timeout_out_of_range_are_refused(
    group_connection: Connection, transactional_id: str, version: int
) -> None:
    await_transactions(group_connection, transactional_id)
    assert refused_init(group_connection, init_request(""), version) == Error.INVALID_REQUEST
    for timeout_ms in (0, -1, MAX_TIMEOUT_MS + 1):
        request = init_request(transactional_id, timeout_ms=timeout_ms)
        assert refused_init(group_connection, request, version) == Error.INVALID_TRANSACTION_TIMEOUT
    assert describe(group_connection, transactional_id).error == Error.TRANSACTIONAL_ID_NOT_FOUND
    assert init(group_connection, init_request(transactional_id, timeout_ms=MAX_TIMEOUT_MS), version).epoch == 0


@pytest.mark.parametrize("version", range(3, latest(ApiKey.INIT_PRODUCER_ID) + 1))
def test_a_producer_that_says_who_it_was_must_be_right(
    group_connection: Connection, newer: Producer, version: int
) -> None:
    """It asks for a new epoch after an error. One before it was fenced; one that asks twice gets the same answer."""

    def asking(producer_id: int, epoch: int) -> m.InitProducerIdRequest:
        return init_request(newer.transactional_id, producer_id=producer_id, epoch=epoch)

    fenced = Error.PRODUCER_FENCED if version >= 4 else Error.INVALID_PRODUCER_EPOCH
    assert refused_init(group_connection, asking(newer.id, -1), version) == Error.INVALID_REQUEST
    assert refused_init(group_connection, asking(-1, newer.epoch), version) == Error.INVALID_REQUEST
    assert refused_init(group_connection, asking(newer.id + 1, newer.epoch), version) == fenced
    assert refused_init(group_connection, asking(newer.id, newer.epoch + 1), version) == fenced
    assert refused_init(group_connection, asking(newer.id, newer.epoch - 1), version) == fenced
    untouched = Described(Error.NONE, "Empty", newer.id, newer.epoch, set())
    assert describe(group_connection, newer.transactional_id) == untouched
    bumped = newer._replace(epoch=newer.epoch + 1)
    for _ in range(2):
        assert init(group_connection, asking(newer.id, newer.epoch), version) == bumped


@pytest.mark.parametrize("version", range(latest(ApiKey.ADD_PARTITIONS_TO_TXN) + 1))
def test_partitions_are_added_for_their_producer_only(
    group_connection: Connection, group_topic: Topic, newer: Producer, version: int
) -> None:
    for stranger, expected in strangers(newer).values():
        told = expected
        if expected is Error.PRODUCER_FENCED and version < FENCED_BY_NAME:
            told = Error.INVALID_PRODUCER_EPOCH
        request = add_partitions_request(stranger, {group_topic.name: [0]}, version)
        assert ask_partitions(group_connection, request, version) == {(group_topic.name, 0): told}
    assert describe(group_connection, newer.transactional_id).state == "Empty"


@pytest.mark.parametrize("version", [0, 3, latest(ApiKey.ADD_PARTITIONS_TO_TXN)])
def test_no_partition_is_added_when_one_of_them_cannot_be(
    group_connection: Connection, group_topic: Topic, producer: Producer, version: int
) -> None:
    """Internal topics are for brokers alone, which add them in the versions of their own."""
    known = (group_topic.name, 0)
    refused = {
        ("no-such-topic", 0): Error.UNKNOWN_TOPIC_OR_PARTITION,
        (group_topic.name, 9): Error.UNKNOWN_TOPIC_OR_PARTITION,
    }
    if version < ADDS_MANY_TRANSACTIONS:
        refused["__consumer_offsets", 0] = Error.TOPIC_AUTHORIZATION_FAILED
    for unknown, error in refused.items():
        topics: dict[str, list[int]] = {group_topic.name: [0]}
        topics.setdefault(unknown[0], []).append(unknown[1])
        request = add_partitions_request(producer, topics, version)
        answered = ask_partitions(group_connection, request, version)
        assert answered == {known: Error.OPERATION_NOT_ATTEMPTED, unknown: error}
    assert describe(group_connection, producer.transactional_id).state == "Empty"


@pytest.mark.parametrize("version", range(4, latest(ApiKey.ADD_PARTITIONS_TO_TXN) + 1))
def test_a_leader_asks_whether_a_partition_is_in_the_transaction_without_adding_it(
    group_connection: Connection, group_topic: Topic, producer: Producer, version: int
) -> None:
    request = verify_partitions_request(producer, {group_topic.name: [0, 1]}, version)
    added, other = (group_topic.name, 0), (group_topic.name, 1)
    answered = ask_partitions(group_connection, request, version)
    assert answered == dict.fromkeys((added, other), Error.TRANSACTION_ABORTABLE)
    assert describe(group_connection, producer.transactional_id).state == "Empty"
    add_partitions(group_connection, producer, {group_topic.name: [0]})
    answered = ask_partitions(group_connection, request, version)
    assert answered == {added: Error.NONE, other: Error.TRANSACTION_ABORTABLE}
    assert describe(group_connection, producer.transactional_id).partitions == {added}


@pytest.mark.parametrize("version", range(latest(ApiKey.ADD_OFFSETS_TO_TXN) + 1))
def test_a_group_is_added_for_its_producer_only(
    group_connection: Connection, group: str, newer: Producer, version: int
) -> None:
    for stranger, expected in strangers(newer).values():
        told = expected
        if expected is Error.PRODUCER_FENCED and version < FENCED_BY_NAME:
            told = Error.INVALID_PRODUCER_EPOCH
        assert add_group(group_connection, stranger, group, version) == told
    assert describe(group_connection, newer.transactional_id).state == "Empty"


@pytest.mark.parametrize("version", range(latest(ApiKey.END_TXN) + 1))
def test_a_transaction_is_ended_by_its_producer_only(
    group_connection: Connection, group_topic: Topic, newer: Producer, version: int
) -> None:
    add_partitions(group_connection, newer, {group_topic.name: [0]})
    for stranger, expected in strangers(newer).values():
        told = expected
        if expected is Error.PRODUCER_FENCED and version < FENCED_BY_NAME:
            told = Error.INVALID_PRODUCER_EPOCH
        for end in (commit, abort):
            assert end(group_connection, stranger, version) == told
    still_open = Described(Error.NONE, "Ongoing", newer.id, newer.epoch, {(group_topic.name, 0)})
    assert describe(group_connection, newer.transactional_id) == still_open


@pytest.mark.parametrize("version", [3, 8, 9, 10, PRODUCE_V1])
def test_a_write_to_a_partition_that_is_not_in_the_transaction_is_refused(
    group_connection: Connection, group_topic: Topic, producer: Producer, version: int
) -> None:
    add_partitions(group_connection, producer, {group_topic.name: [0]})
    refused = write(group_connection, producer, group_topic, [b"a"], partition=1, version=version)
    told = Error.TRANSACTION_ABORTABLE if version >= ABORTABLE else Error.INVALID_TXN_STATE
    assert (Error(refused.error_code), refused.base_offset) == (told, -1)
    assert read(group_connection, group_topic, READ_UNCOMMITTED, partition=1).high_watermark == 0
    assert describe(group_connection, producer.transactional_id).partitions == {(group_topic.name, 0)}


@pytest.mark.parametrize("version", [PRODUCE_V1, PRODUCE_V2, latest(ApiKey.PRODUCE)])
def test_records_of_a_transaction_are_written_by_its_producer_only(
    group_connection: Connection, group_topic: Topic, newer: Producer, version: int
) -> None:
    for stranger, expected in strangers(newer).values():
        refused = write(group_connection, stranger, group_topic, [b"a"], version=version)
        told = Error.INVALID_PRODUCER_EPOCH if expected is Error.PRODUCER_FENCED else expected
        assert (Error(refused.error_code), refused.base_offset) == (told, -1)
    assert read(group_connection, group_topic, READ_UNCOMMITTED).high_watermark == 0
    assert describe(group_connection, newer.transactional_id).state == "Empty"


@pytest.mark.parametrize("version", [PRODUCE_V1, PRODUCE_V2])
def test_a_write_that_comes_after_the_end_is_refused(
    group_connection: Connection, group_topic: Topic, producer: Producer, version: int
) -> None:
    """It would be in a transaction that nobody ends."""
    write(group_connection, producer, group_topic, [b"a"], version=PRODUCE_V2)
    commit_for_next(group_connection, producer)
    await_end(group_connection, producer.transactional_id)
    late = write(group_connection, producer, group_topic, [b"b"], sequence=1, version=version)
    assert Error(late.error_code) == Error.INVALID_PRODUCER_EPOCH
    seen = read(group_connection, group_topic, READ_UNCOMMITTED)
    assert (seen.high_watermark, seen.last_stable_offset) == (2, 2)


def test_a_write_that_comes_after_the_end_of_a_transaction_v1_is_refused(
    group_connection: Connection, group_topic: Topic, producer: Producer
) -> None:
    add_partitions(group_connection, producer, {group_topic.name: [0]})
    write(group_connection, producer, group_topic, [b"a"])
    assert abort(group_connection, producer) == Error.NONE
    await_end(group_connection, producer.transactional_id)
    late = write(group_connection, producer, group_topic, [b"b"], sequence=1)
    assert Error(late.error_code) == Error.TRANSACTION_ABORTABLE
    seen = read(group_connection, group_topic, READ_UNCOMMITTED)
    assert (seen.high_watermark, seen.last_stable_offset) == (2, 2)


@pytest.mark.parametrize(
    ("attributes", "is_named", "error"),
    [
        (TRANSACTIONAL, False, Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (TRANSACTIONAL | CONTROL, True, Error.INVALID_RECORD),
    ],
    ids=["a transactional batch without a transactional id", "a marker"],
)
def test_batches_that_a_producer_must_not_send_are_refused(
    group_connection: Connection,
    group_topic: Topic,
    producer: Producer,
    attributes: int,
    is_named: bool,
    error: Error,
) -> None:
    records = batch(attributes=attributes, producer_id=producer.id, producer_epoch=producer.epoch, base_sequence=0)
    request = produce_request(group_topic, records, PRODUCE_V2)
    request.transactional_id = producer.transactional_id if is_named else None
    answer = group_connection.call(request, PRODUCE_V2, m.ProduceResponse).responses[0].partition_responses[0]
    assert (Error(answer.error_code), answer.base_offset) == (error, -1)
    assert read(group_connection, group_topic, READ_UNCOMMITTED).high_watermark == 0


@pytest.mark.parametrize("version", range(latest(ApiKey.TXN_OFFSET_COMMIT) + 1))
def test_offsets_are_committed_by_the_transaction_of_their_producer_only(
    group_connection: Connection, group_topic: Topic, group: str, newer: Producer, version: int
) -> None:
    add_group(group_connection, newer, group)
    for stranger, expected in strangers(newer).values():
        request = offsets_request(stranger, group, group_topic.name, {0: 1})
        told = Error.INVALID_PRODUCER_EPOCH if expected is Error.PRODUCER_FENCED else expected
        assert commit_offsets(group_connection, request, version) == {0: told}
    refused = offsets_request(newer, "", group_topic.name, {0: 1})
    assert commit_offsets(group_connection, refused, version) == {0: Error.INVALID_GROUP_ID}
    refused = offsets_request(newer, group, "no-such-topic", {0: 1})
    assert commit_offsets(group_connection, refused, version) == {0: Error.UNKNOWN_TOPIC_OR_PARTITION}
    refused = offsets_request(newer, group, group_topic.name, {0: 1}, metadata="x" * 5_000)
    assert commit_offsets(group_connection, refused, version) == {0: Error.OFFSET_METADATA_TOO_LARGE}
    assert commit(group_connection, newer) == Error.NONE
    await_end(group_connection, newer.transactional_id)
    assert fetch_offsets(group_connection, group, group_topic, [0])[0].offset == -1


@pytest.mark.parametrize("version", range(OFFSETS_V1 + 1))
def test_offsets_of_a_group_that_is_not_in_the_transaction_are_refused(
    group_connection: Connection, group_topic: Topic, group: str, producer: Producer, version: int
) -> None:
    """From the next version on the group joins the transaction by that."""
    request = offsets_request(producer, group, group_topic.name, {0: 1})
    told = Error.TRANSACTION_ABORTABLE if version >= OFFSETS_V1 else Error.INVALID_TXN_STATE
    assert commit_offsets(group_connection, request, version) == {0: told}
    assert describe(group_connection, producer.transactional_id).state == "Empty"
    assert commit_offsets(group_connection, request, OFFSETS_V2) == {0: Error.NONE}
    assert len(describe(group_connection, producer.transactional_id).partitions) == 1


@pytest.fixture
def member(group_connect: Connect, group_connection: Connection, group: str) -> Joined:
    """The only member of a classic group, static."""
    joined = join(group_connect(), join_request(group, instance_id="i"))
    assert sync(joined, {joined.member_id: b""})[0] == Error.NONE
    return joined


@pytest.mark.parametrize("version", range(3, latest(ApiKey.TXN_OFFSET_COMMIT) + 1))
def test_offsets_of_a_member_that_is_no_longer_in_its_generation_are_refused(
    group_connect: Connect,
    group_connection: Connection,
    group_topic: Topic,
    producer: Producer,
    member: Joined,
    version: int,
) -> None:
    add_group(group_connection, producer, member.group)

    def told(generation: int, member_id: str, instance_id: str | None = None) -> Error:
        request = offsets_request(
            producer,
            member.group,
            group_topic.name,
            {0: 1},
            generation=generation,
            member_id=member_id,
            instance_id=instance_id,
        )
        return commit_offsets(group_connection, request, version)[0]

    assert told(member.generation + 1, member.member_id) == Error.ILLEGAL_GENERATION
    assert told(member.generation, "nobody") == Error.UNKNOWN_MEMBER_ID
    assert told(member.generation, "nobody", "i") == Error.FENCED_INSTANCE_ID
    assert told(member.generation, member.member_id) == Error.NONE
    assert told(member.generation, member.member_id, "i") == Error.NONE
    newer = join(group_connect(), join_request(member.group, instance_id="i"))
    assert told(member.generation, member.member_id, "i") == Error.FENCED_INSTANCE_ID
    assert leave(newer) == Error.NONE
    assert told(member.generation, newer.member_id) == Error.UNKNOWN_MEMBER_ID
    assert abort(group_connection, producer) == Error.NONE
