"""Offsets of consumer groups: who may commit, in a transaction or not, and what is kept how long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.coordination.effects import Producer, ProducerId
from barnabas.groups.consumer.consumer_group import ConsumerGroup
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.protocol.uuids import ZERO_UUID
from tests.unit.groups import requests
from tests.unit.groups.consumer.consumer_driver import GROUP, Driver, Member
from tests.unit.groups.consumer_requests import topic, topic_id

if TYPE_CHECKING:
    from collections.abc import Iterable

FOO = topic_id("foo")
ALICE = ProducerId(7)
RETENTION_MS = 7 * 24 * 60 * 60 * 1000


@pytest.fixture
def driver() -> Driver:
    return Driver(topic("foo", 2), topic("bar", 1))


@pytest.fixture
def member(driver: Driver) -> Member:
    member = Member("a")
    driver.join(member, "foo")
    return member


def transactional(
    offsets: dict[int, int], *, group_id: str = GROUP, member_id: str = "", epoch: int = -1, metadata: str = ""
) -> m.TxnOffsetCommitRequest:
    partitions = [
        m.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        for partition, offset in offsets.items()
    ]
    named = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="foo", partitions=partitions)
    return m.TxnOffsetCommitRequest(
        transactional_id="t",
        group_id=group_id,
        producer_id=ALICE,
        producer_epoch=3,
        member_id=member_id,
        generation_id=epoch,
        topics=[named],
    )


def commit_in_transaction(driver: Driver, request: m.TxnOffsetCommitRequest) -> tuple[Any, set[int]]:
    """What is to be written, and the errors of the answer."""
    effects = driver.shard.commit_offsets_in_transaction(request, "us", driver.now_ms)
    [(_, answer)] = effects.answers
    assert isinstance(answer, m.TxnOffsetCommitResponse)
    return effects, {each.error_code for named in answer.topics for each in named.partitions}


def offsets_of(driver: Driver, group_id: str = GROUP) -> dict[int, int]:
    topics = driver.shard.fetch_offsets(requests.fetch_all(group_id), require_stable=False).topics
    return {each.partition_index: each.committed_offset for named in topics for each in named.partitions}


def is_stable(driver: Driver, *partitions: int) -> bool:
    fetched = driver.shard.fetch_offsets(requests.fetch(GROUP, *partitions), require_stable=True)
    return all(each.error_code == Error.NONE for each in fetched.topics[0].partitions)


def test_offsets_in_a_transaction_count_when_it_commits(driver: Driver, member: Member) -> None:
    effects, errors = commit_in_transaction(driver, transactional({0: 5}, member_id="a", epoch=member.epoch))
    assert errors == {Error.NONE}
    assert effects.producer == Producer(ALICE, 3)
    [(key, value)] = effects.records
    assert (key, value.topic_id) == (m.OffsetCommitKey(group=GROUP, topic="foo", partition=0), ZERO_UUID)
    assert offsets_of(driver) == {}
    assert not is_stable(driver, 0)
    driver.shard.commit_transaction(ALICE)
    assert offsets_of(driver) == {0: 5}
    assert is_stable(driver, 0)


def test_offsets_in_a_transaction_that_aborts_never_counted(driver: Driver, member: Member) -> None:
    driver.shard.commit_offsets(
        requests.commit(GROUP, {0: 1}, topic_id=FOO, member_id="a", generation=member.epoch), 9, "us", driver.now_ms
    )
    commit_in_transaction(driver, transactional({0: 5, 1: 6}))
    driver.shard.abort_transaction(ALICE)
    assert offsets_of(driver) == {0: 1}
    assert is_stable(driver, 0, 1)


@pytest.mark.parametrize(
    ("member_id", "epochs_ahead", "error"),
    [("a", 1, Error.ILLEGAL_GENERATION), ("a", -1, Error.ILLEGAL_GENERATION), ("b", 0, Error.UNKNOWN_MEMBER_ID)],
)
def test_a_consumer_that_is_not_what_it_was_commits_nothing(
    driver: Driver, member: Member, member_id: str, epochs_ahead: int, error: Error
) -> None:
    request = transactional({0: 5, 1: 6}, member_id=member_id, epoch=member.epoch + epochs_ahead)
    effects, errors = commit_in_transaction(driver, request)
    assert (effects.records, effects.producer, errors) == ([], None, {error})
    assert is_stable(driver, 0, 1)


def test_a_transaction_may_leave_out_who_its_consumer_is(driver: Driver, member: Member) -> None:
    assert member.is_in
    assert commit_in_transaction(driver, transactional({0: 5}))[1] == {Error.NONE}


def test_a_transaction_makes_a_group_where_there_is_none(driver: Driver) -> None:
    assert commit_in_transaction(driver, transactional({0: 5}, epoch=4))[1] == {Error.ILLEGAL_GENERATION}
    assert driver.shard.list_groups([], []) == []
    assert commit_in_transaction(driver, transactional({0: 5}))[1] == {Error.NONE}
    assert [each.group_type for each in driver.shard.list_groups([], [])] == ["classic"]
    driver.shard.abort_transaction(ALICE)
    driver.pass_ms(RETENTION_MS)
    assert driver.shard.list_groups([], []) == []


def test_metadata_that_is_too_long_fails_its_partition_only(driver: Driver, member: Member) -> None:
    request = transactional({0: 5}, member_id="a", epoch=member.epoch)
    long = transactional({1: 6}, metadata="x" * 5_000).topics[0].partitions
    request.topics[0].partitions += long
    effects, errors = commit_in_transaction(driver, request)
    assert errors == {Error.NONE, Error.OFFSET_METADATA_TOO_LARGE}
    assert len(effects.records) == 1


def test_a_member_may_commit_with_the_epoch_it_last_heard_of_what_it_has_owned_since_then(
    driver: Driver, member: Member
) -> None:
    heard_of, other = member.epoch, Member("b")
    driver.join(other, "bar")
    driver.beat(member)
    assert member.epoch == heard_of + 1
    assert commit(driver, {0: 5}, heard_of) == {Error.NONE}
    assert commit(driver, {0: 6, 9: 1}, heard_of) == {Error.STALE_MEMBER_EPOCH}, "all or nothing"
    assert offsets_of(driver) == {0: 5}


def commit(driver: Driver, offsets: dict[int, int], epoch: int) -> set[int]:
    request = requests.commit(GROUP, offsets, topic_id=FOO, member_id="a", generation=epoch)
    effects = driver.shard.commit_offsets(request, 9, "us", driver.now_ms)
    [(_, answer)] = effects.answers
    assert isinstance(answer, m.OffsetCommitResponse)
    return {each.error_code for named in answer.topics for each in named.partitions}


def test_offsets_expire_by_their_last_commit_where_nobody_is_subscribed(driver: Driver, member: Member) -> None:
    assert commit(driver, {0: 5}, member.epoch) == {Error.NONE}
    request = requests.commit(GROUP, {0: 6}, topic="bar", member_id="a", generation=member.epoch)
    driver.shard.commit_offsets(request, 9, "us", driver.now_ms)
    keep_for(driver, member, RETENTION_MS - 600_000)
    assert topics_with_offsets(driver) == ["bar", "foo"]
    keep_for(driver, member, 1_200_000)
    assert topics_with_offsets(driver) == ["foo"]
    driver.leave(member)
    driver.pass_ms(600_000)
    assert driver.shard.list_groups([], []) == [], "the commit is older than the retention, whenever the member left"


def keep_for(driver: Driver, member: Member, duration_ms: int) -> None:
    """Lets time pass in one go, in which the member is heard of all the time."""
    group = driver.shard._groups[GROUP]
    assert isinstance(group, ConsumerGroup)
    group.keep_alive(member.member_id, driver.now_ms + duration_ms + 45_000)
    driver.pass_ms(duration_ms)
    driver.beat(member)


def topics_with_offsets(driver: Driver) -> Iterable[str]:
    topics = driver.shard.fetch_offsets(requests.fetch_all(GROUP), require_stable=False).topics
    return sorted(each.name for each in topics)


@pytest.mark.parametrize("producer_id", [-1, -2])
def test_there_is_no_transaction_without_a_producer(driver: Driver, producer_id: int) -> None:
    """What nobody writes in a transaction would count at once."""
    request = transactional({0: 5})
    request.producer_id = producer_id
    effects, errors = commit_in_transaction(driver, request)
    assert errors == {Error.INVALID_PRODUCER_ID_MAPPING}
    assert effects.records == []
