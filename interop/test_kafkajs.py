"""KafkaJS: round trips, groups and transactions, and what its admin client tells of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from interop.clusters import ON_BOTH

if TYPE_CHECKING:
    from interop.programs import Program

PARTITIONS = 4


@ON_BOTH
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_records_come_back_as_they_were_sent(kafkajs: Program, topic: str, codec: str) -> None:
    seen = kafkajs.run("round-trip", topic=topic, codec=codec)
    assert seen["baseOffsets"] == ["0", "0", "0"]
    assert [each.pop("offset") for each in seen["received"]] == [*range(100)] * 3
    assert seen["received"] == sorted(seen["sent"], key=lambda record: record["partition"])


def test_a_topic_is_made_changed_enlarged_and_deleted(kafkajs: Program, topic: str) -> None:
    seen = kafkajs.run("topic", topic=topic)
    assert seen == {"again": False, "partitions": 3, "retention": "3600000", "ends": ["0", "0", "0"]}


@ON_BOTH
def test_members_share_a_topic_and_hand_it_over(kafkajs: Program, topic: str, group: str) -> None:
    seen = kafkajs.run("group", topic=topic, group=group)
    assert sorted(seen["shared"][0] + seen["shared"][1]) == list(range(PARTITIONS))
    assert (seen["state"], seen["members"]) == ("Stable", 2)
    assert seen["received"] == sorted(f"{partition}@{offset}" for partition in range(PARTITIONS) for offset in range(2))


def test_offsets_of_a_group_are_set_reset_and_deleted(kafkajs: Program, topic: str, group: str) -> None:
    """KafkaJS commits the mark of the earliest offset instead of looking up where that is."""
    seen = kafkajs.run("offsets", topic=topic, group=group)
    assert seen == {"set": [-1, 1, -1, -1], "reset": [-2, -2, -2, -2], "listed": True, "deleted": True}


@ON_BOTH
def test_only_what_is_committed_is_read_by_who_asks_for_that(kafkajs: Program, topic: str) -> None:
    seen = kafkajs.run("commit-and-abort", topic=topic)
    assert seen == {"committed": ["first", "last"], "all": ["first", "aborted", "last"]}


@ON_BOTH
def test_output_and_place_are_committed_together(kafkajs: Program, topic: str, group: str) -> None:
    seen = kafkajs.run("send-offsets", topic=topic, group=group)
    assert seen == {"places": [-1, 7], "written": ["commit"]}


@ON_BOTH
def test_a_zombie_is_fenced_and_what_it_wrote_is_aborted(kafkajs: Program, topic: str) -> None:
    seen = kafkajs.run("zombie", topic=topic)
    assert seen == {"refusal": "INVALID_PRODUCER_EPOCH", "committed": ["successor"]}
