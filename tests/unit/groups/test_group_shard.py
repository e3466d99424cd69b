"""What a shard does with groups as a whole: makes them, forgets them, keeps them over a restart. Its answers to single
requests are compared with Kafka's in `test_shard_beside_kafka`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.coordination.effects import ProducerId
from barnabas.groups import group_records, group_shard
from barnabas.groups.classic.classic_group import ClassicGroupSettings
from barnabas.groups.group_shard import GroupShard, ShardSettings
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.protocol.uuids import Uuid
from tests.unit.groups import requests

if TYPE_CHECKING:
    from barnabas.coordination.effects import Effects, Record

SETTINGS = ShardSettings(
    group=ClassicGroupSettings(group_initial_rebalance_delay_ms=0),
    offsets_retention_ms=10_000,
    offsets_retention_check_interval_ms=1_000,
)
SESSION_MS = 45_000
ALICE = ProducerId(1)


def loaded(*log: Record, now_ms: int = 0) -> GroupShard:
    """A shard that has read a log."""
    made = GroupShard(SETTINGS)
    for record in log:
        decoded = group_records.decode(*group_records.encode(record))
        assert decoded is not None
        made.replay(decoded)
    made.loaded(now_ms)
    return made


def only_answer(effects: Effects) -> Any:
    ((_, answer),) = effects.answers
    return answer


def commit(to: GroupShard, group_id: str, offsets: dict[int, int], now_ms: int = 0, **fields: Any) -> Effects:
    return to.commit_offsets(requests.commit(group_id, offsets, **fields), 9, "us", now_ms)


def offsets_of(of: GroupShard, group_id: str) -> dict[int, int]:
    topics = of.fetch_offsets(requests.fetch_all(group_id), require_stable=False).topics
    return {each.partition_index: each.committed_offset for topic in topics for each in topic.partitions}


def states(of: GroupShard) -> dict[str, str]:
    return {group.group_id: group.group_state for group in of.list_groups([], [])}


def make_stable(what: GroupShard, group_id: str, member_id: str, now_ms: int = 0) -> Effects:
    """A member joins the group alone and is assigned all of it."""
    effects = what.join(requests.join(group_id), requests.client(member_id, version=3), "joining", now_ms)
    effects.extend(what.expire(now_ms))
    effects.extend(what.sync(requests.sync(group_id, member_id), "syncing", now_ms))
    assert [answer.error_code for _, answer in effects.answers if hasattr(answer, "error_code")] == [0, 0]
    return effects


def test_a_first_join_writes_the_new_group_down() -> None:
    effects = loaded().join(requests.join("g"), requests.client("a", version=3), "us", now_ms=7)
    expected = m.GroupMetadataValue(protocol=None, leader=None, current_state_timestamp=7)
    assert effects.records == [(m.GroupMetadataKey(group="g"), expected)]


@pytest.mark.parametrize("session_timeout_ms", [-1, 0, 5_999, 1_800_001])
@pytest.mark.parametrize("member_id", ["", "nobody"])
def test_a_session_timeout_outside_the_settings_is_refused_whoever_asks(
    session_timeout_ms: int, member_id: str
) -> None:
    request = requests.join("g", session_timeout_ms=session_timeout_ms)
    request.member_id = member_id
    answer = only_answer(loaded().join(request, requests.client("a"), "us", now_ms=0))
    assert (answer.error_code, answer.member_id) == (Error.INVALID_SESSION_TIMEOUT, member_id)


def test_a_join_that_is_refused_makes_no_group() -> None:
    groups = loaded()
    effects = groups.join(requests.join("g", session_timeout_ms=1), requests.client("a"), "us", now_ms=0)
    assert only_answer(effects).error_code == Error.INVALID_SESSION_TIMEOUT
    nothing_offered = requests.join("g")
    nothing_offered.protocols = []
    effects = groups.join(nothing_offered, requests.client("a"), "us", now_ms=0)
    assert only_answer(effects).error_code == Error.INCONSISTENT_GROUP_PROTOCOL
    assert effects.records == []
    assert states(groups) == {}


def test_a_commit_of_nothing_that_is_allowed_makes_no_group() -> None:
    groups = loaded()
    effects = commit(groups, "g", {0: 1}, metadata="x" * 5_000)
    assert effects.records == []
    assert states(groups) == {}


def test_groups_members_and_offsets_are_there_again_after_a_restart() -> None:
    groups = loaded()
    log = make_stable(groups, "members", "a").records
    log += commit(groups, "members", {0: 5}, member_id="a", generation=1, metadata="m").records
    log += commit(groups, "simple", {1: 7}).records
    again = loaded(*log, now_ms=60_000)
    assert states(again) == {"members": "Stable", "simple": "Empty"}
    assert again.describe_groups(["members", "simple"], 6) == groups.describe_groups(["members", "simple"], 6)
    for group_id in ("members", "simple"):
        fetched = [each.fetch_offsets(requests.fetch_all(group_id), require_stable=True) for each in (groups, again)]
        assert fetched[0] == fetched[1]


def test_members_have_a_whole_session_after_a_restart_and_no_rebalance() -> None:
    again = loaded(*make_stable(loaded(), "g", "a").records, now_ms=1_000_000)
    assert again.expire(1_000_000 + SESSION_MS - 1).answers == []
    heartbeat = again.heartbeat(requests.heartbeat("g", "a"), "us", 1_000_000 + SESSION_MS - 1)
    assert only_answer(heartbeat).error_code == Error.NONE
    assert states(again) == {"g": "Stable"}


def test_a_member_that_is_not_heard_of_is_gone_after_its_session() -> None:
    groups = loaded()
    make_stable(groups, "g", "a")
    commit(groups, "g", {0: 5}, now_ms=40_000, member_id="a", generation=1)
    groups.expire(SESSION_MS)
    assert states(groups) == {"g": "Stable"}, "a commit is a sign of life"
    groups.expire(40_000 + SESSION_MS)
    groups.expire(groups.next_deadline_ms or 0)
    assert states(groups) == {"g": "Empty"}


def test_the_last_record_of_a_group_or_offset_counts_and_a_tombstone_takes_it_back() -> None:
    commits = [
        group_records.offset_commit("g", "foo", partition, m.OffsetCommitValue(offset=offset))
        for partition, offset in ((0, 5), (1, 6), (0, 4))
    ]
    group = make_stable(loaded(), "g", "a").records
    assert offsets_of(loaded(*commits), "g") == {0: 4, 1: 6}
    assert offsets_of(loaded(*commits, group_records.offset_tombstone("g", "foo", 0)), "g") == {1: 6}
    assert states(loaded(*group, *commits, group_records.group_tombstone("g"))) == {"g": "Empty"}
    assert states(loaded(*group, group_records.group_tombstone("g"))) == {}


def test_offsets_of_transactions_in_the_log_count_by_their_markers() -> None:
    for end, expected in (("commit", {0: 6, 1: 7}), ("abort", {0: 5}), ("none", {0: 5})):
        groups = GroupShard(SETTINGS)
        groups.replay(group_records.offset_commit("g", "foo", 0, m.OffsetCommitValue(offset=5)))
        for partition, offset in ((0, 6), (1, 7)):
            record = group_records.offset_commit("g", "foo", partition, m.OffsetCommitValue(offset=offset))
            groups.replay(record, ALICE)
        if end == "commit":
            groups.commit_transaction(ALICE)
        elif end == "abort":
            groups.abort_transaction(ALICE)
        groups.loaded(now_ms=0)
        assert offsets_of(groups, "g") == expected, end
        fetched = groups.fetch_offsets(requests.fetch("g", 0), require_stable=True).topics[0].partitions[0]
        assert fetched.error_code == (Error.UNSTABLE_OFFSET_COMMIT if end == "none" else Error.NONE), end


def test_a_group_that_an_aborted_transaction_alone_wrote_to_goes_with_the_next_look() -> None:
    groups = GroupShard(SETTINGS)
    groups.replay(group_records.offset_commit("g", "foo", 0, m.OffsetCommitValue(offset=5)), ALICE)
    groups.loaded(now_ms=0)
    assert groups.expire(1_000_000).records == [], "the transaction is open"
    groups.abort_transaction(ALICE)
    assert groups.expire(2_000_000).records == [group_records.group_tombstone("g")]
    assert states(groups) == {}


def test_deleting_a_group_takes_back_its_offsets_then_the_group() -> None:
    groups = loaded()
    commit(groups, "g", {0: 5, 1: 6})
    effects = groups.delete_groups(["g", "g", "none"], "us")
    assert effects.records == [
        group_records.offset_tombstone("g", "foo", 0),
        group_records.offset_tombstone("g", "foo", 1),
        group_records.group_tombstone("g"),
    ]
    results = [(each.group_id, each.error_code) for each in only_answer(effects).results]
    assert results == [("g", Error.NONE), ("none", Error.GROUP_ID_NOT_FOUND)]
    assert states(groups) == {}
    assert offsets_of(groups, "g") == {}


def test_only_offsets_that_exist_are_taken_back() -> None:
    groups = loaded()
    commit(groups, "g", {0: 5, 1: 6})
    effects = groups.delete_offsets(requests.delete_offsets("g", 0, 0, 7), "us")
    assert effects.records == [group_records.offset_tombstone("g", "foo", 0)]
    assert offsets_of(groups, "g") == {1: 6}


def test_expired_offsets_are_taken_back_and_their_group_with_the_last() -> None:
    groups = loaded()
    commit(groups, "g", {0: 5}, now_ms=0)
    commit(groups, "g", {1: 6}, now_ms=5_000)
    assert groups.next_deadline_ms == 1_000
    assert groups.expire(9_999).records == []
    assert groups.expire(11_000).records == [group_records.offset_tombstone("g", "foo", 0)]
    assert groups.expire(11_500).records == [], "not before the next look"
    effects = groups.expire(15_000)
    assert effects.records == [group_records.offset_tombstone("g", "foo", 1), group_records.group_tombstone("g")]
    assert states(groups) == {}


def test_offsets_outlive_the_last_member_by_their_retention() -> None:
    groups = loaded()
    make_stable(groups, "g", "a", now_ms=0)
    commit(groups, "g", {0: 5}, now_ms=0, member_id="a", generation=1)
    assert groups.expire(20_000).records == []
    groups.leave(requests.leave("g", "a"), "us", now_ms=20_000)
    assert groups.expire(29_000).records == []
    tombstones = [group_records.offset_tombstone("g", "foo", 0), group_records.group_tombstone("g")]
    assert groups.expire(30_000).records == tombstones


def test_a_group_whose_first_member_has_yet_to_come_back_with_its_id_is_not_forgotten() -> None:
    groups = loaded()
    offered = only_answer(groups.join(requests.join("g"), requests.client("a", version=4), "us", now_ms=900))
    assert offered.error_code == Error.MEMBER_ID_REQUIRED
    assert groups.expire(1_000).records == []
    groups.join(requests.join("g", "a"), requests.client("unused", version=4), "us", now_ms=1_001)
    assert states(groups) == {"g": "PreparingRebalance"}


def test_many_groups_are_looked_through_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_shard, "SWEPT_GROUPS_MAX", 2)
    groups = loaded()
    for number in range(5):
        commit(groups, f"g{number}", {0: 1})
    found = []
    now_ms = 20_000
    for _ in range(3):
        assert groups.next_deadline_ms is not None
        assert groups.next_deadline_ms <= now_ms
        found.append(len(groups.expire(now_ms).records))
    assert found == [4, 4, 2]
    assert states(groups) == {}
    assert groups.next_deadline_ms == now_ms + SETTINGS.offsets_retention_check_interval_ms


def test_offsets_of_a_deleted_topic_go_unless_they_are_of_another_of_its_name() -> None:
    old, new = Uuid(bytes([1] * 16)), Uuid(bytes([2] * 16))
    groups = loaded()
    commit(groups, "g", {0: 5}, topic_id=old)
    commit(groups, "g", {1: 6}, topic_id=new)
    commit(groups, "g", {2: 7})
    commit(groups, "g", {3: 8}, topic="bar", topic_id=old)
    effects = groups.topics_deleted({"foo": old})
    assert effects.records == [
        group_records.offset_tombstone("g", "foo", 0),
        group_records.offset_tombstone("g", "foo", 2),
    ]
    assert offsets_of(groups, "g") == {1: 6, 3: 8}


def test_an_offset_may_be_kept_for_longer_than_time_can_be_written() -> None:
    groups = loaded()
    effects = groups.commit_offsets(requests.commit("g", {0: 5}, retention_ms=(1 << 63) - 1), 2, "us", now_ms=10)
    [record] = effects.records
    assert group_records.decode(*group_records.encode(record)) == record
    assert isinstance(record.value, m.OffsetCommitValue)
    assert record.value.expire_timestamp == (1 << 63) - 1


def test_whoever_waits_when_the_shard_resigns_is_sent_elsewhere() -> None:
    groups = loaded()
    make_stable(groups, "g", "a")
    groups.join(requests.join("g"), requests.client("b", version=3), "joining", now_ms=10)
    effects = groups.unload()
    assert [(who, answer.error_code) for who, answer in effects.answers if isinstance(answer, m.JoinGroupResponse)] == [
        ("joining", Error.NOT_COORDINATOR)
    ]
    assert effects.records == []
    assert groups.next_deadline_ms is None
    assert groups.expire(1_000_000).answers == []
