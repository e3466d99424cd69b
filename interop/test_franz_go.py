"""franz-go: round trips, groups and transactions, and what its admin client tells of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from interop.clusters import ON_BOTH

if TYPE_CHECKING:
    from interop.programs import Program

PARTITIONS = 4


@ON_BOTH
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_as_they_were_sent(franz_go: Program, topic: str, codec: str) -> None:
    seen = franz_go.run("round-trip", topic=topic, codec=codec)
    assert len(seen["sent"]) == 300
    assert seen["received"] == seen["sent"]


def test_a_topic_is_made_changed_enlarged_and_deleted(franz_go: Program, topic: str) -> None:
    assert franz_go.run("topic", topic=topic) == {"created_again": True, "retention": "3600000", "partitions": 3}


@ON_BOTH
@pytest.mark.parametrize("balancer", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_members_share_a_topic_and_hand_it_over(franz_go: Program, topic: str, group: str, balancer: str) -> None:
    seen = franz_go.run("group", topic=topic, group=group, balancer=balancer)
    assert sorted(seen["shared"][0] + seen["shared"][1]) == list(range(PARTITIONS))
    assert seen["received"] == sorted(f"{partition}@{offset}" for partition in range(PARTITIONS) for offset in range(2))
    if balancer == "cooperative-sticky":
        assert seen["revoked_from_second"] == 0


def test_a_group_is_listed_with_its_lag_and_deleted(franz_go: Program, topic: str, group: str) -> None:
    seen = franz_go.run("lag", topic=topic, group=group)
    assert (seen["listed"], seen["described"], seen["lag"]) == ("Empty", "Empty", 2 * PARTITIONS)
    assert group not in seen["listed_when_deleted"]


@ON_BOTH
def test_only_what_is_committed_is_read_by_who_asks_for_that(franz_go: Program, topic: str) -> None:
    seen = franz_go.run("commit-and-abort", topic=topic)
    assert seen == {"committed": ["first", "last"], "all": ["first", "aborted", "last"]}


@ON_BOTH
def test_a_group_session_commits_output_and_place_together(franz_go: Program, topic: str, group: str) -> None:
    seen = franz_go.run("group-session", topic=topic, group=group, records=20, batch=5)
    assert seen["output"] == [f"value-{i:02}" for i in range(20)]
    assert (seen["offset"], seen["ends"][:2]) == (20, [False, True])


@ON_BOTH
def test_a_zombie_is_fenced_and_what_it_wrote_is_aborted(franz_go: Program, topic: str) -> None:
    assert franz_go.run("zombie", topic=topic) == {"fenced": True, "committed": ["successor"]}
