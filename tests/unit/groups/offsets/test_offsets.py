"""The offsets of one group: committed, in open transactions, expired."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.coordination.effects import ProducerId
from barnabas.groups.classic.classic_group import ClassicGroup, ClassicGroupSettings
from barnabas.groups.offsets import group_offsets as module
from barnabas.groups.offsets.group_offsets import GroupOffsets
from barnabas.groups.offsets.offset_expiry import expired_offsets
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.protocol.uuids import ZERO_UUID, Uuid
from tests.unit.groups import requests

if TYPE_CHECKING:
    from collections.abc import Mapping

RETENTION_MS = 1_000
ALICE, BOB = ProducerId(1), ProducerId(2)


def value(offset: int, commit_timestamp_ms: int = 0, **fields: object) -> m.OffsetCommitValue:
    made = m.OffsetCommitValue(offset=offset, commit_timestamp=commit_timestamp_ms)
    for name, field in fields.items():
        setattr(made, name, field)
    return made


def committed(offsets: GroupOffsets) -> Mapping[tuple[str, int], int]:
    return {
        (topic, partition): each.offset
        for topic, partitions in offsets.by_topic()
        for partition, each in partitions.items()
    }


def of_foo(offsets: GroupOffsets) -> int | None:
    found = offsets.get("foo", 0)
    return None if found is None else found.offset


def test_the_last_commit_of_a_partition_counts() -> None:
    offsets = GroupOffsets()
    offsets.commit("foo", 0, value(5))
    offsets.commit("foo", 1, value(6))
    offsets.commit("foo", 0, value(3))
    assert committed(offsets) == {("foo", 0): 3, ("foo", 1): 6}


def test_a_removed_offset_leaves_nothing_behind() -> None:
    offsets = GroupOffsets()
    offsets.commit("foo", 0, value(5))
    offsets.write(ALICE, "foo", 0, value(6))
    offsets.remove("foo", 0)
    offsets.remove("foo", 0)
    assert offsets.is_empty
    offsets.commit_transaction(ALICE)
    assert offsets.is_empty


def test_an_offset_in_an_open_transaction_shows_when_the_transaction_commits() -> None:
    offsets = GroupOffsets()
    offsets.commit("foo", 0, value(5))
    offsets.write(ALICE, "foo", 0, value(6))
    offsets.write(ALICE, "foo", 1, value(7))
    assert committed(offsets) == {("foo", 0): 5}
    assert not offsets.is_stable("foo", 0)
    assert offsets.is_stable("bar", 0)
    assert sorted(offsets.partitions()) == [("foo", 0), ("foo", 1)]
    offsets.commit_transaction(ALICE)
    assert committed(offsets) == {("foo", 0): 6, ("foo", 1): 7}
    assert offsets.is_stable("foo", 0)
    assert not offsets.has_open_transactions


def test_an_offset_of_an_aborted_transaction_never_counted() -> None:
    offsets = GroupOffsets()
    offsets.write(ALICE, "foo", 0, value(6))
    offsets.abort_transaction(ALICE)
    assert offsets.is_empty


def test_a_commit_that_came_after_a_transactions_write_is_not_undone_by_it() -> None:
    offsets = GroupOffsets()
    offsets.write(ALICE, "foo", 0, value(6))
    offsets.commit("foo", 0, value(9))
    assert not offsets.is_stable("foo", 0)
    offsets.commit_transaction(ALICE)
    assert of_foo(offsets) == 9


@pytest.mark.parametrize(("first", "second"), [(ALICE, BOB), (BOB, ALICE)])
def test_of_two_transactions_the_later_write_wins_whichever_ends_first(first: ProducerId, second: ProducerId) -> None:
    offsets = GroupOffsets()
    offsets.write(BOB, "foo", 0, value(1))
    offsets.write(ALICE, "foo", 0, value(2))
    offsets.write(BOB, "foo", 0, value(3))
    offsets.commit_transaction(first)
    offsets.commit_transaction(second)
    assert of_foo(offsets) == 3


def test_a_write_that_was_overtaken_counts_for_nothing_even_if_the_overtaking_one_is_deleted() -> None:
    offsets = GroupOffsets()
    offsets.write(ALICE, "foo", 0, value(1))
    offsets.write(BOB, "foo", 0, value(2))
    offsets.commit_transaction(BOB)
    offsets.remove("foo", 0)
    offsets.commit_transaction(ALICE)
    assert of_foo(offsets) is None


def test_whoever_asks_for_stable_offsets_is_told_to_wait_for_open_transactions() -> None:
    offsets = GroupOffsets()
    offsets.commit("foo", 0, value(5, metadata="m", leader_epoch=3))
    offsets.commit("foo", 1, value(6))
    offsets.write(ALICE, "foo", 0, value(7))
    for request in (requests.fetch("g", 0, 1), requests.fetch_all("g")):
        unstable, stable = module.fetch(offsets, request, require_stable=True).topics[0].partitions
        assert (unstable.error_code, unstable.committed_offset) == (Error.UNSTABLE_OFFSET_COMMIT, -1)
        assert (stable.error_code, stable.committed_offset) == (Error.NONE, 6)
        at_once = module.fetch(offsets, request, require_stable=False).topics[0].partitions[0]
        assert (at_once.committed_offset, at_once.committed_leader_epoch, at_once.metadata) == (5, 3, "m")


@pytest.mark.parametrize(
    ("committed_under", "asked_for", "is_found"),
    [(1, 1, True), (1, 2, False), (0, 2, True), (1, 0, True)],
    ids=["the same topic", "another topic of that name", "an id that nobody noted", "a name only"],
)
def test_an_offset_is_that_of_one_topic_not_of_another_with_its_name(
    committed_under: int, asked_for: int, is_found: bool
) -> None:
    ids = [ZERO_UUID, Uuid(bytes([1] * 16)), Uuid(bytes([2] * 16))]
    offsets = GroupOffsets()
    offsets.commit("foo", 0, value(5, topic_id=ids[committed_under]))
    fetched = module.fetch(offsets, requests.fetch("g", 0, topic_id=ids[asked_for]), require_stable=False)
    assert fetched.topics[0].topic_id == ids[asked_for]
    assert fetched.topics[0].partitions[0].committed_offset == (5 if is_found else -1)


def test_a_request_may_say_how_long_its_commit_counts() -> None:
    partition = requests.commit("g", {0: 5}, metadata=None).topics[0].partitions[0]
    topic_id = Uuid(bytes([1] * 16))
    expiring = module.committed_value(partition, topic_id, 300, now_ms=1_000)
    assert expiring == m.OffsetCommitValue(offset=5, commit_timestamp=1_000, expire_timestamp=1_300)
    lasting = module.committed_value(partition, topic_id, -1, now_ms=1_000)
    assert lasting == m.OffsetCommitValue(offset=5, leader_epoch=4, commit_timestamp=1_000, topic_id=topic_id)


def group_with(**fields: object) -> ClassicGroup:
    """A group as the log gives it back."""
    written = m.GroupMetadataValue(protocol_type="consumer", generation=3, protocol=None, leader=None)
    for name, field in fields.items():
        setattr(written, name, field)
    return ClassicGroup.from_record("g", written, ClassicGroupSettings(), now_ms=0)


def stable_group(protocol_type: str, metadata: bytes) -> ClassicGroup:
    member = m.GroupMetadataValue.MemberMetadata(member_id="a", session_timeout=10_000, subscription=metadata)
    return group_with(protocol_type=protocol_type, protocol="range", leader="a", members=[member])


def expired(group: ClassicGroup, now_ms: int, **fields: object) -> list[tuple[str, int]]:
    """Of an offset of `foo` and one of `bar`, committed at 100."""
    offsets = GroupOffsets()
    offsets.commit("foo", 0, value(5, 100, **fields))
    offsets.commit("bar", 1, value(5, 100, **fields))
    return expired_offsets(group, offsets, now_ms, RETENTION_MS)


BOTH = [("foo", 0), ("bar", 1)]


def test_offsets_of_a_group_without_members_expire_by_when_it_became_empty() -> None:
    group = group_with(current_state_timestamp=5_000)
    assert expired(group, 5_999) == []
    assert expired(group, 6_000) == BOTH


def test_offsets_of_an_empty_group_of_unknown_age_expire_by_their_last_commit() -> None:
    group = group_with(current_state_timestamp=-1)
    assert expired(group, 1_099) == []
    assert expired(group, 1_100) == BOTH


def test_offsets_of_a_group_that_never_had_members_expire_by_their_last_commit() -> None:
    for group in (
        ClassicGroup("g", ClassicGroupSettings()),
        group_with(protocol_type="", current_state_timestamp=5_000),
    ):
        assert expired(group, 1_099) == []
        assert expired(group, 1_100) == BOTH


def test_a_stable_group_of_consumers_keeps_the_offsets_of_what_it_subscribes_to() -> None:
    assert expired(stable_group("consumer", requests.subscription("foo")), 1_099) == []
    assert expired(stable_group("consumer", requests.subscription("foo")), 1_100) == [("bar", 1)]


def test_a_group_whose_topics_nobody_knows_keeps_all() -> None:
    assert expired(stable_group("consumer", b"of an assignor of one's own"), 1_000_000) == []
    assert expired(stable_group("connect", b"workers"), 1_000_000) == []


def test_a_group_in_a_rebalance_keeps_all() -> None:
    group = stable_group("consumer", requests.subscription("foo"))
    group.join(requests.join("g"), requests.client("b", version=3), "b", now_ms=500)
    assert not group.is_stable
    assert expired(group, 1_000_000) == []


def test_an_offset_that_says_when_it_expires_does_so_then() -> None:
    group = group_with(current_state_timestamp=5_000)
    assert expired(group, 299, expire_timestamp=300) == []
    assert expired(group, 300, expire_timestamp=300) == BOTH


def test_an_offset_that_a_transaction_is_about_to_change_does_not_expire() -> None:
    offsets = GroupOffsets()
    offsets.commit("foo", 0, value(5))
    offsets.write(ALICE, "foo", 0, value(6))
    assert expired_offsets(group_with(current_state_timestamp=0), offsets, 1_000_000, RETENTION_MS) == []
