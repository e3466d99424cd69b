"""The hash that tells when the topics of a group have changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.groups.consumer.metadata_hash import TopicHashes, group_hash, topic_hash
from barnabas.metadata.image import BrokerImage, PartitionImage, TopicImage, TopicsImage
from barnabas.protocol.uuids import ZERO_UUID, Uuid
from tests.unit.groups.assignors.assignor_cases import topic

if TYPE_CHECKING:
    from collections.abc import Sequence


def brokers_in(racks: Sequence[str | None]) -> dict[int, BrokerImage]:
    return {
        number: BrokerImage(
            number, 1, ZERO_UUID, (), {}, rack, fenced=False, in_controlled_shutdown=False, directories=()
        )
        for number, rack in enumerate(racks)
    }


def topic_image(name: str, topic_id: Uuid, replicas: Sequence[Sequence[int]]) -> TopicImage:
    partitions = tuple(
        PartitionImage(tuple(each), (ZERO_UUID,) * len(each), tuple(each), each[0], leader_epoch=0, partition_epoch=0)
        for each in replicas
    )
    return TopicImage(name, topic_id, partitions)


def topics_image(*topics: TopicImage) -> TopicsImage:
    return TopicsImage({each.name: each for each in topics}, {each.topic_id: each for each in topics})


WITHOUT_RACKS = brokers_in([None, None])
ORDERS = topic_image("orders", topic(7), [[0], [1], [0]])


@pytest.mark.parametrize(
    ("image", "racks", "expected"),
    [
        (ORDERS, (None, None), -6763785249901630239),
        (topic_image("orders", topic(-7), [[0, 1], [1, 0]]), ("a", "b"), 3885339182725296394),
        (topic_image("x", topic(1), [[2, 0, 1]]), ("é", "Ω", "𝄞"), 3029456507289716083),
        (
            topic_image("long-name." * 24, topic(2**100), [[0, 1, 2]] * 20),
            ("rack-1", "rack-2", "rack-1"),
            -4911218545844578257,
        ),
    ],
    ids=["no racks", "two racks", "racks beyond ASCII", "many partitions"],
)
def test_the_hash_of_a_topic_is_kafkas(image: TopicImage, racks: Sequence[str | None], expected: int) -> None:
    assert topic_hash(image, brokers_in(racks)) == expected


@pytest.mark.parametrize(
    ("hashes", "expected"), [([], 0), ([1], 3439722301264460078), ([2**62, -5, 0], 6932921868495517547)]
)
def test_the_hash_of_a_group_is_kafkas(hashes: list[int], expected: int) -> None:
    assert group_hash(hashes) == expected


def test_only_topics_that_exist_count_and_names_count_in_order() -> None:
    other = topic_image("a", topic(8), [[0]])
    hashes = TopicHashes()
    both = hashes.of_group(["orders", "none", "a"], topics_image(ORDERS, other), WITHOUT_RACKS)
    assert both == group_hash([topic_hash(other, WITHOUT_RACKS), topic_hash(ORDERS, WITHOUT_RACKS)])
    assert hashes.of_group(["none"], topics_image(ORDERS), WITHOUT_RACKS) == 0


def test_the_hash_changes_with_partitions_with_racks_and_with_a_topic_made_again() -> None:
    hashes = TopicHashes()

    def hash_of(image: TopicImage, racks: Sequence[str | None] = (None, None)) -> int:
        return hashes.of_group([image.name], topics_image(image), brokers_in(racks))

    grown = topic_image("orders", topic(7), [[0], [1], [0], [1]])
    made_again = topic_image("orders", topic(9), [[0], [1], [0]])
    found = [
        hash_of(ORDERS),
        hash_of(grown),
        hash_of(made_again),
        hash_of(ORDERS, ("a", None)),
        hash_of(ORDERS, ("a", "b")),
    ]
    assert len(set(found)) == len(found)
    assert hash_of(ORDERS) == found[0]


def test_hashes_of_deleted_topics_are_not_kept_for_ever() -> None:
    hashes = TopicHashes()
    for number in range(1, 50):
        image = topic_image(f"t{number}", topic(number), [[0]])
        hashes.of_group([image.name], topics_image(image), WITHOUT_RACKS)
        assert len(hashes._known) <= 3
