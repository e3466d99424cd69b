"""An image and the records of its snapshot say the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings

from barnabas.metadata.image import MetadataImage
from barnabas.metadata.replay import ImageDraft
from barnabas.metadata.snapshot_records import snapshot_records
from barnabas.protocol import messages as m
from barnabas.protocol.metadata_records import decode_record, encode_record
from barnabas.protocol.uuids import Uuid
from tests.unit.metadata.records import histories

if TYPE_CHECKING:
    from barnabas.protocol.compiler.structs import Message

EMPTY = MetadataImage("cluster")
LEVEL = m.FeatureLevelRecord(name="metadata.version", feature_level=30)


def image_of(records: list[Message]) -> MetadataImage:
    replay = ImageDraft(EMPTY)
    for record in records:
        replay.apply(record)
    return replay.freeze(offset=len(records) - 1, epoch=3, timestamp_ms=99)


@given(histories(max_size=40))
@settings(max_examples=60, deadline=None)
def test_replaying_the_snapshot_of_an_image_gives_the_image(history: list[Message]) -> None:
    image = image_of([LEVEL, *history])
    written = [encode_record(record, version) for record, version in snapshot_records(image)]
    again = image_of([decode_record(data)[0] for data in written])
    assert again == image._replace(offset=again.offset)


def test_feature_levels_come_first_since_they_say_which_versions_follow() -> None:
    image = image_of([m.RegisterBrokerRecord(broker_id=1), LEVEL])
    assert next(record.message for record in snapshot_records(image)) == LEVEL


@pytest.mark.parametrize(
    ("level", "broker_version", "partition_version"),
    [(7, 1, 0), (8, 2, 0), (17, 3, 1), (22, 3, 1), (23, 3, 2), (29, 3, 2), (30, 4, 2)],
)
def test_record_versions_follow_the_metadata_version(level: int, broker_version: int, partition_version: int) -> None:
    topic_id = Uuid(b"t" * 16)
    image = image_of(
        [
            m.FeatureLevelRecord(name="metadata.version", feature_level=level),
            m.RegisterBrokerRecord(broker_id=1),
            m.TopicRecord(name="t", topic_id=topic_id),
            m.PartitionRecord(topic_id=topic_id, partition_id=0, replicas=[1], isr=[1], leader=1),
        ]
    )
    versions = {type(record.message).__name__: record.version for record in snapshot_records(image)}
    assert (versions["RegisterBrokerRecord"], versions["PartitionRecord"]) == (broker_version, partition_version)
    for record, version in snapshot_records(image):
        encode_record(record, version)
