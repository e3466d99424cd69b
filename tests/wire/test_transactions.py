"""Transactions on the wire: what their records and offsets look like before and after the end, in every version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.batch import decode_records
from barnabas.protocol.errors import Error
from tests.peers import wait_until
from tests.wire.batches import TRANSACTIONAL, base_offsets, split
from tests.wire.groups import Committed, fetch_offsets, latest
from tests.wire.requests import create_topic, fetch_request
from tests.wire.transactions import (
    END_V1,
    END_V2,
    OFFSETS_V2,
    PRODUCE_V2,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Described,
    Producer,
    abort,
    abort_for_next,
    add_group,
    add_partitions,
    await_end,
    await_transactions,
    commit,
    commit_for_next,
    commit_offsets,
    describe,
    init,
    init_request,
    latest_offset,
    offsets_request,
    producers_of,
    read,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.wire.connection import Connection
    from tests.wire.requests import Topic

    Connect = Callable[[], Connection]

STEPS = (
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
)
EVERY_VERSION = [(api, version) for api in STEPS for version in range(latest(api) + 1)]
ABORT_KEY, COMMIT_KEY = b"\x00\x00\x00\x00", b"\x00\x00\x00\x01"


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION, ids=lambda each: getattr(each, "name", f"v{each}"))
def test_records_and_offsets_become_visible_together_in_every_version(
    group_connection: Connection, group_topic: Topic, group: str, transactional_id: str, api: ApiKey, version: int
) -> None:
    await_transactions(group_connection, transactional_id)
    versions = dict.fromkeys(STEPS, 3) | {api: version}
    producer = init(group_connection, init_request(transactional_id), versions[ApiKey.INIT_PRODUCER_ID])
    partitions = {group_topic.name: [0, 1]}
    added = add_partitions(group_connection, producer, partitions, versions[ApiKey.ADD_PARTITIONS_TO_TXN])
    assert added == {(group_topic.name, 0): Error.NONE, (group_topic.name, 1): Error.NONE}
    for partition in range(2):
        assert write(group_connection, producer, group_topic, [b"a", b"b"], partition=partition).base_offset == 0
    assert add_group(group_connection, producer, group, versions[ApiKey.ADD_OFFSETS_TO_TXN]) == Error.NONE
    request = offsets_request(producer, group, group_topic.name, {0: 7})
    assert commit_offsets(group_connection, request, versions[ApiKey.TXN_OFFSET_COMMIT]) == {0: Error.NONE}
    assert fetch_offsets(group_connection, group, group_topic, [0])[0].offset == -1
    assert commit(group_connection, producer, versions[ApiKey.END_TXN]) == Error.NONE
    await_end(group_connection, transactional_id)
    for partition in range(2):
        seen = read(group_connection, group_topic, READ_COMMITTED, partition=partition)
        assert seen == ([b"a", b"b"], [2], 3, 3, [])
    assert fetch_offsets(group_connection, group, group_topic, [0]) == {0: Committed(7)}


def test_an_open_transaction_holds_readers_of_committed_records_at_its_first_offset(
    group_connection: Connection, group_topic: Topic, producer: Producer
) -> None:
    other = init(group_connection, init_request(f"{producer.transactional_id}-b"))
    write(group_connection, other, group_topic, [b"before"], version=PRODUCE_V2)
    commit_for_next(group_connection, other)
    await_end(group_connection, other.transactional_id)
    write(group_connection, producer, group_topic, [b"open"], version=PRODUCE_V2)
    later = init(group_connection, init_request(f"{producer.transactional_id}-c"))
    write(group_connection, later, group_topic, [b"later"], version=PRODUCE_V2)
    commit_for_next(group_connection, later)
    await_end(group_connection, later.transactional_id)
    assert read(group_connection, group_topic, READ_COMMITTED) == ([b"before"], [1], 2, 5, [])
    assert read(group_connection, group_topic, READ_UNCOMMITTED) == ([b"before", b"open", b"later"], [1, 4], 2, 5, None)
    assert latest_offset(group_connection, group_topic, READ_COMMITTED) == 2
    assert latest_offset(group_connection, group_topic, READ_UNCOMMITTED) == 5
    commit_for_next(group_connection, producer)
    await_end(group_connection, producer.transactional_id)
    seen = read(group_connection, group_topic, READ_COMMITTED)
    assert seen == ([b"before", b"open", b"later"], [1, 4, 5], 6, 6, [])
    assert latest_offset(group_connection, group_topic, READ_COMMITTED) == 6


def test_a_reader_that_waits_for_committed_records_gets_them_when_the_transaction_commits(
    group_connect: Connect, group_connection: Connection, group_topic: Topic, producer: Producer
) -> None:
    write(group_connection, producer, group_topic, [b"a"], version=PRODUCE_V2)
    reader = group_connect()
    request = fetch_request(group_topic, 17, max_wait_ms=25_000)
    request.isolation_level = READ_COMMITTED
    reader.send(request, 17)
    commit_for_next(group_connection, producer)
    _, answer = reader.receive(m.FetchResponse, 17)
    assert base_offsets(answer.responses[0].partitions[0].records) == [0, 1]


@pytest.mark.parametrize("version", [4, 6, 11, 12, 13, latest(ApiKey.FETCH)])
def test_readers_of_committed_records_are_told_which_of_them_were_aborted(
    group_connection: Connection, group_topic: Topic, producer: Producer, version: int
) -> None:
    """It is they who leave them out; the list covers what is in the answer and no more."""
    write(group_connection, producer, group_topic, [b"no", b"no"], version=PRODUCE_V2)
    following = abort_for_next(group_connection, producer)
    write(group_connection, following, group_topic, [b"yes"], version=PRODUCE_V2)
    following = commit_for_next(group_connection, following)
    write(group_connection, following, group_topic, [b"no"], version=PRODUCE_V2)
    abort_for_next(group_connection, following)
    await_end(group_connection, producer.transactional_id)
    values, control = [b"no", b"no", b"yes", b"no"], [2, 4, 6]
    aborted = [(producer.id, 0), (producer.id, 5)]
    committed = read(group_connection, group_topic, READ_COMMITTED, version=version)
    assert committed == (values, control, 7, 7, aborted)
    assert read(group_connection, group_topic, READ_UNCOMMITTED, version=version) == (values, control, 7, 7, None)
    after_the_first = read(group_connection, group_topic, READ_COMMITTED, offset=3, version=version)
    assert after_the_first == ([b"yes", b"no"], [4, 6], 7, 7, [(producer.id, 5)])
    assert read(group_connection, group_topic, READ_COMMITTED, offset=7, version=version).aborted == []


def test_the_marker_at_the_end_says_how_it_ended_and_who_wrote_it(
    group_connection: Connection, group_topic: Topic, producer: Producer
) -> None:
    write(group_connection, producer, group_topic, [b"a"], version=PRODUCE_V2)
    following = abort_for_next(group_connection, producer)
    write(group_connection, following, group_topic, [b"b"], version=PRODUCE_V2)
    commit_for_next(group_connection, following)
    await_end(group_connection, producer.transactional_id)
    request = fetch_request(group_topic, 12)
    data = group_connection.call(request, 12, m.FetchResponse).responses[0].partitions[0]
    markers = [each for each in split(data.records) if each.is_control]
    assert [each.attributes & TRANSACTIONAL for each in markers] == [TRANSACTIONAL, TRANSACTIONAL]
    records = [decode_records(each.data) for each in markers]
    assert [[record.key for record in each] for each in records] == [[ABORT_KEY], [COMMIT_KEY]]


@pytest.mark.parametrize("version", range(PRODUCE_V2, latest(ApiKey.PRODUCE) + 1))
def test_partitions_join_a_transaction_v2_when_they_are_written_to(
    group_connection: Connection, group_topic: Topic, producer: Producer, version: int
) -> None:
    """Its end answers with the epoch of the next one, and sequences begin anew."""
    assert write(group_connection, producer, group_topic, [b"a"], version=version).error_code == Error.NONE
    assert write(group_connection, producer, group_topic, [b"b"], partition=1, version=version).error_code == Error.NONE
    everything = {(group_topic.name, 0), (group_topic.name, 1)}
    open_one = Described(Error.NONE, "Ongoing", producer.id, producer.epoch, everything)
    assert describe(group_connection, producer.transactional_id) == open_one
    assert write(group_connection, producer, group_topic, [b"c"], sequence=1, version=version).base_offset == 1
    following = commit_for_next(group_connection, producer)
    assert (following.id, following.epoch) == (producer.id, producer.epoch + 1)
    assert write(group_connection, following, group_topic, [b"d"], version=version).base_offset == 3
    abort_for_next(group_connection, following)
    ended = await_end(group_connection, producer.transactional_id)
    assert ended == Described(Error.NONE, "CompleteAbort", producer.id, producer.epoch + 2, set())
    assert read(group_connection, group_topic, READ_COMMITTED).aborted == [(producer.id, 3)]


def test_a_producer_of_transactions_v1_keeps_its_epoch_and_counts_its_sequences_on(
    group_connection: Connection, group_topic: Topic, producer: Producer
) -> None:
    for number in range(3):
        added = add_partitions(group_connection, producer, {group_topic.name: [0]})
        assert added == {(group_topic.name, 0): Error.NONE}
        written = write(group_connection, producer, group_topic, [b"a"], sequence=number)
        assert (written.error_code, written.base_offset) == (Error.NONE, 2 * number)
        end = abort if number == 1 else commit
        assert end(group_connection, producer) == Error.NONE
        ended = await_end(group_connection, producer.transactional_id)
        assert (ended.producer_id, ended.epoch) == (producer.id, producer.epoch)
    assert read(group_connection, group_topic, READ_COMMITTED) == ([b"a"] * 3, [1, 3, 5], 6, 6, [(producer.id, 2)])


def test_a_batch_that_is_sent_again_within_a_transaction_is_stored_once(
    group_connection: Connection, group_topic: Topic, producer: Producer
) -> None:
    for _ in range(2):
        assert write(group_connection, producer, group_topic, [b"a"], version=PRODUCE_V2).base_offset == 0
    commit_for_next(group_connection, producer)
    await_end(group_connection, producer.transactional_id)
    assert read(group_connection, group_topic, READ_COMMITTED).values == [b"a"]


@pytest.mark.parametrize(("end", "ended"), [(commit, "CompleteCommit"), (abort, "CompleteAbort")])
def test_the_same_end_of_a_transaction_v1_may_be_asked_for_again_and_no_other(
    group_connection: Connection,
    group_topic: Topic,
    producer: Producer,
    end: Callable[[Connection, Producer], Error],
    ended: str,
) -> None:
    add_partitions(group_connection, producer, {group_topic.name: [0]})
    assert end(group_connection, producer) == Error.NONE
    assert await_end(group_connection, producer.transactional_id).state == ended
    assert end(group_connection, producer) == Error.NONE
    other = abort if end is commit else commit
    assert other(group_connection, producer) == Error.INVALID_TXN_STATE
    assert describe(group_connection, producer.transactional_id).state == ended


@pytest.mark.parametrize(("end", "ended"), [(commit, "CompleteCommit"), (abort, "CompleteAbort")])
def test_the_same_end_of_a_transaction_v2_may_be_asked_for_again_and_no_other(
    group_connection: Connection,
    group_topic: Topic,
    producer: Producer,
    end: Callable[[Connection, Producer, int], Error],
    ended: str,
) -> None:
    write(group_connection, producer, group_topic, [b"a"], version=PRODUCE_V2)
    for _ in range(2):
        assert end(group_connection, producer, END_V2) == Error.NONE
        assert await_end(group_connection, producer.transactional_id).state == ended
    other = abort if end is commit else commit
    assert other(group_connection, producer, END_V2) == Error.INVALID_TXN_STATE
    after = describe(group_connection, producer.transactional_id)
    assert after == Described(Error.NONE, ended, producer.id, producer.epoch + 1, set())


def test_a_transaction_without_anything_in_it_cannot_be_committed(
    group_connection: Connection, producer: Producer
) -> None:
    """Nor aborted, but for v2, where the abort is for the new epoch."""
    for version in range(END_V2 + 1):
        assert commit(group_connection, producer, version) == Error.INVALID_TXN_STATE
    for version in range(END_V1 + 1):
        assert abort(group_connection, producer, version) == Error.INVALID_TXN_STATE
    untouched = Described(Error.NONE, "Empty", producer.id, producer.epoch, set())
    assert describe(group_connection, producer.transactional_id) == untouched
    assert abort_for_next(group_connection, producer).epoch == producer.epoch + 1


def test_a_new_producer_aborts_what_the_one_before_left_open(
    group_connection: Connection, group_topic: Topic, group: str, producer: Producer
) -> None:
    write(group_connection, producer, group_topic, [b"a"], version=PRODUCE_V2)
    request = offsets_request(producer, group, group_topic.name, {0: 1})
    assert commit_offsets(group_connection, request, OFFSETS_V2) == {0: Error.NONE}
    newer = init(group_connection, init_request(producer.transactional_id))
    assert (newer.id, newer.epoch) == (producer.id, producer.epoch + 2)
    assert read(group_connection, group_topic, READ_COMMITTED) == ([b"a"], [1], 2, 2, [(producer.id, 0)])
    assert fetch_offsets(group_connection, group, group_topic, [0])[0].offset == -1


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(
    group_connection: Connection, group_topic: Topic, group: str, transactional_id: str
) -> None:
    await_transactions(group_connection, transactional_id)
    slow = init(group_connection, init_request(transactional_id, timeout_ms=100))
    write(group_connection, slow, group_topic, [b"a"], version=PRODUCE_V2)
    ended = await_end(group_connection, transactional_id)
    assert (ended.state, ended.producer_id) == ("CompleteAbort", slow.id)
    assert ended.epoch > slow.epoch
    assert commit(group_connection, slow, END_V1) == Error.PRODUCER_FENCED
    assert commit(group_connection, slow, END_V2) == Error.INVALID_TXN_STATE
    late = write(group_connection, slow, group_topic, [b"b"], sequence=1, version=PRODUCE_V2)
    assert Error(late.error_code) == Error.INVALID_PRODUCER_EPOCH
    assert read(group_connection, group_topic, READ_COMMITTED) == ([b"a"], [1], 2, 2, [(slow.id, 0)])
    assert init(group_connection, init_request(transactional_id)).epoch > ended.epoch


def test_offsets_of_a_transaction_count_from_its_commit_on(
    group_connection: Connection, group_topic: Topic, group: str, producer: Producer
) -> None:
    """Until then a reader that wants stable offsets is told to come again."""
    request = offsets_request(producer, group, group_topic.name, {0: 5}, metadata="here")
    assert commit_offsets(group_connection, request, OFFSETS_V2) == {0: Error.NONE}
    assert fetch_offsets(group_connection, group, group_topic, [0]) == {0: Committed(-1)}
    assert stable_offset(group_connection, group, group_topic) == (Error.UNSTABLE_OFFSET_COMMIT, -1)
    following = commit_for_next(group_connection, producer)
    await_end(group_connection, producer.transactional_id)
    wait_until(
        lambda: stable_offset(group_connection, group, group_topic) == (Error.NONE, 5), "the group has the offset"
    )
    assert fetch_offsets(group_connection, group, group_topic, [0]) == {0: Committed(5, metadata="here")}
    request = offsets_request(following, group, group_topic.name, {0: 9})
    assert commit_offsets(group_connection, request, OFFSETS_V2) == {0: Error.NONE}
    assert stable_offset(group_connection, group, group_topic) == (Error.UNSTABLE_OFFSET_COMMIT, -1)
    abort_for_next(group_connection, following)
    wait_until(
        lambda: stable_offset(group_connection, group, group_topic) == (Error.NONE, 5), "the group has its offset again"
    )


def stable_offset(connection: Connection, group: str, topic: Topic) -> tuple[Error, int]:
    request = m.OffsetFetchRequest
    wanted = request.OffsetFetchRequestTopics(name=topic.name, partition_indexes=[0])
    asked = request(groups=[request.OffsetFetchRequestGroup(group_id=group, topics=[wanted])], require_stable=True)
    (answered,) = connection.call(asked, 9, m.OffsetFetchResponse).groups
    (found,) = answered.topics[0].partitions
    return Error(found.error_code), found.committed_offset


def test_a_topic_that_is_deleted_meanwhile_does_not_keep_a_transaction_from_ending(
    group_connection: Connection, group_topic: Topic, producer: Producer
) -> None:
    doomed = create_topic(group_connection, f"{group_topic.name}-doomed")
    for topic in (doomed, group_topic):
        assert write(group_connection, producer, topic, [b"a"], version=PRODUCE_V2).error_code == Error.NONE
    request = m.DeleteTopicsRequest(
        topics=[m.DeleteTopicsRequest.DeleteTopicState(name=doomed.name)], timeout_ms=30_000
    )
    (deleted,) = group_connection.call(request, 6, m.DeleteTopicsResponse).responses
    assert deleted.error_code == Error.NONE
    wait_until(
        lambda: producers_of(group_connection, doomed.name)[0] == Error.UNKNOWN_TOPIC_OR_PARTITION, "the topic is gone"
    )
    commit_for_next(group_connection, producer)
    assert await_end(group_connection, producer.transactional_id).state == "CompleteCommit"
    assert read(group_connection, group_topic, READ_COMMITTED).values == [b"a"]
