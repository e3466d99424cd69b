"""What records add up to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings

from barnabas.metadata.image import MIGRATING_DIRECTORY, NO_LEADER, ConfigResource, MetadataImage, ResourceType
from barnabas.metadata.replay import ImageDraft, ReplayError
from barnabas.metadata.versions import UnsupportedMetadataVersionError
from barnabas.protocol import messages as m
from barnabas.protocol.metadata_records import RECORD_NAMES
from barnabas.protocol.uuids import Uuid
from tests.unit.metadata.records import histories

if TYPE_CHECKING:
    from barnabas.protocol.compiler.structs import Message

EMPTY = MetadataImage("cluster")
FOO, BAR, DIRECTORY = (Uuid(bytes(15) + bytes([number])) for number in (200, 201, 202))
TRANSACTION_RECORDS = {"BeginTransactionRecord", "EndTransactionRecord", "AbortTransactionRecord"}


def replay(*records: Message, image: MetadataImage = EMPTY) -> ImageDraft:
    working_copy = ImageDraft(image)
    for record in records:
        working_copy.apply(record)
    return working_copy


def image_of(*records: Message, image: MetadataImage = EMPTY) -> MetadataImage:
    return replay(*records, image=image).freeze(offset=image.offset + len(records), epoch=1, timestamp_ms=0)


def partition_record(topic_id: Uuid = FOO, partition_id: int = 0, **fields: Any) -> m.PartitionRecord:
    record = m.PartitionRecord(
        topic_id=topic_id,
        partition_id=partition_id,
        replicas=[1, 2],
        isr=[1, 2],
        leader=1,
        leader_epoch=4,
        partition_epoch=7,
        directories=[DIRECTORY, DIRECTORY],
    )
    for name, value in fields.items():
        setattr(record, name, value)
    return record


def foo_with(*partitions: m.PartitionRecord) -> MetadataImage:
    return image_of(m.TopicRecord(name="foo", topic_id=FOO), *partitions)


def test_every_kind_of_metadata_record_can_be_applied() -> None:
    handled = set(ImageDraft._handlers) | TRANSACTION_RECORDS
    assert handled == set(RECORD_NAMES.values())


def test_a_topic_is_found_by_name_and_by_id() -> None:
    image = foo_with(partition_record())
    topic = image.topics.get("foo")
    assert topic is not None
    assert topic is image.topics.by_id(FOO)
    assert topic.partitions[0].replicas == (1, 2)
    assert topic.partitions[0].directory_of(2) == DIRECTORY
    assert list(image.topics) == [topic]


def test_a_change_that_names_a_leader_begins_an_epoch_and_one_that_does_not_keeps_it() -> None:
    image = foo_with(partition_record())
    led = image_of(m.PartitionChangeRecord(topic_id=FOO, partition_id=0, leader=1), image=image)
    shrunk = image_of(m.PartitionChangeRecord(topic_id=FOO, partition_id=0, isr=[1]), image=image)
    assert [(p.leader_epoch, p.partition_epoch) for i in (led, shrunk) for p in i.topics.ids[FOO].partitions] == [
        (5, 8),
        (4, 8),
    ]


def test_partitions_may_arrive_in_any_order_but_none_may_be_missing() -> None:
    image = foo_with(partition_record(partition_id=1, leader=2), partition_record(partition_id=0))
    assert [partition.leader for partition in image.topics.ids[FOO].partitions] == [1, 2]
    with pytest.raises(ReplayError, match="topic foo is missing 1 of its 2 partitions"):
        foo_with(partition_record(partition_id=1))


def test_a_partition_of_an_old_level_has_migrating_directories() -> None:
    image = foo_with(partition_record(directories=[]))
    assert image.topics.ids[FOO].partitions[0].directories == (MIGRATING_DIRECTORY, MIGRATING_DIRECTORY)


def test_removing_a_topic_removes_its_configuration_too() -> None:
    config = m.ConfigRecord(resource_type=ResourceType.TOPIC, resource_name="foo", name="retention.ms", value="1")
    image = image_of(config, image=foo_with(partition_record()))
    assert image.configs.of_topic("foo") == {"retention.ms": "1"}
    emptied = image_of(m.RemoveTopicRecord(topic_id=FOO), image=image)
    assert len(emptied.topics) == 0
    assert emptied.configs.of_topic("foo") == {}


def test_a_topic_that_is_deleted_and_made_again_is_both_deleted_and_created() -> None:
    old = foo_with(partition_record())
    new = image_of(
        m.RemoveTopicRecord(topic_id=FOO),
        m.TopicRecord(name="foo", topic_id=BAR),
        partition_record(BAR),
        image=old,
    )
    delta = new.diff(old)
    assert [topic.topic_id for topic in delta.deleted_topics] == [FOO]
    assert [topic.topic_id for topic in delta.created_topics] == [BAR]


def test_clearing_eligible_replicas_of_one_topic_leaves_the_others() -> None:
    elr: dict[str, Any] = {"isr": [], "leader": NO_LEADER, "eligible_leader_replicas": [1], "last_known_elr": [1]}
    records = [
        m.TopicRecord(name="foo", topic_id=FOO),
        partition_record(FOO, **elr),
        m.TopicRecord(name="bar", topic_id=BAR),
        partition_record(BAR, **elr),
    ]
    one = image_of(*records, m.ClearElrRecord(topic_name="foo"))
    assert [(p.elr, p.last_known_elr) for topic in one.topics for p in topic.partitions] == [((), ()), ((1,), (1,))]
    every = image_of(*records, m.ClearElrRecord())
    assert all(not p.elr for topic in every.topics for p in topic.partitions)


@pytest.mark.parametrize(
    "record",
    [
        m.PartitionRecord(topic_id=FOO),
        m.PartitionChangeRecord(topic_id=FOO),
        m.RemoveTopicRecord(topic_id=FOO),
        m.UnregisterBrokerRecord(broker_id=1),
        m.FenceBrokerRecord(id=1),
        m.BrokerRegistrationChangeRecord(broker_id=1),
        m.RemoveAccessControlEntryRecord(id=FOO),
        m.RemoveUserScramCredentialRecord(name="u"),
        m.RemoveDelegationTokenRecord(token_id="t"),
        m.ClearElrRecord(topic_name="foo"),
        m.ProducerIdsRecord(next_producer_id=-1),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_record_about_something_that_is_not_there_is_an_error(record: Message) -> None:
    with pytest.raises(ReplayError):
        replay(record)


def test_a_registration_change_of_another_epoch_is_an_error() -> None:
    registered = m.RegisterBrokerRecord(broker_id=1, broker_epoch=5)
    with pytest.raises(ReplayError, match="broker 1 is registered with epoch 5, not 4"):
        replay(registered, m.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=4, fenced=-1))


@pytest.mark.parametrize(("feature", "level"), [("metadata.version", 31), ("unheard.of", 1), ("kraft.version", 2)])
def test_a_level_of_newer_software_is_refused(feature: str, level: int) -> None:
    with pytest.raises(UnsupportedMetadataVersionError, match=f"{feature} {level}.*too new.*Nothing was changed"):
        replay(m.FeatureLevelRecord(name=feature, feature_level=level))


def test_a_level_that_is_no_longer_supported_is_refused_as_too_old() -> None:
    with pytest.raises(UnsupportedMetadataVersionError, match=r"version 6.*7 to 30; it is too old.*upgrade it"):
        replay(m.FeatureLevelRecord(name="metadata.version", feature_level=6))


def test_what_did_not_change_is_the_same_object_in_the_next_image() -> None:
    first = image_of(
        m.TopicRecord(name="foo", topic_id=FOO),
        partition_record(),
        m.TopicRecord(name="bar", topic_id=BAR),
        partition_record(BAR),
    )
    change = m.PartitionChangeRecord(topic_id=FOO, partition_id=0, isr=[1])
    second = image_of(change, image=first)
    assert second.topics.get("bar") is first.topics.get("bar")
    assert second.topics.get("foo") is not first.topics.get("foo")
    assert second.brokers is first.brokers
    assert second.configs is first.configs
    assert image_of(m.NoOpRecord(), image=second).topics is second.topics


@given(histories(), histories())
@settings(max_examples=30, deadline=None)
def test_an_image_never_changes_after_it_was_made(one: list[Message], other: list[Message]) -> None:
    working_copy = ImageDraft(EMPTY)
    for record in one:
        working_copy.apply(record)
    image = working_copy.freeze(offset=1, epoch=1, timestamp_ms=0)
    before = repr((image.topics.names, image.configs, image.brokers, image.acls, image.client_quotas, image.features))
    for record in other:
        try:
            working_copy.apply(record)
        except ReplayError:
            continue
    after = repr((image.topics.names, image.configs, image.brokers, image.acls, image.client_quotas, image.features))
    assert after == before


@given(histories(), histories())
@settings(max_examples=30, deadline=None)
def test_the_delta_of_what_was_touched_is_the_delta_of_everything(one: list[Message], other: list[Message]) -> None:
    working_copy = ImageDraft(EMPTY)
    images: list[MetadataImage] = []
    for records in (one, other):
        for record in records:
            try:
                working_copy.apply(record)
            except ReplayError:
                continue
        images.append(working_copy.freeze(offset=len(images), epoch=1, timestamp_ms=0))
        if len(images) == 1:
            working_copy.take_delta(EMPTY, images[0])
    old, new = images
    found, expected = working_copy.take_delta(old, new), new.diff(old)
    assert sorted(found.created_topics) == sorted(expected.created_topics)
    assert sorted(found.deleted_topics) == sorted(expected.deleted_topics)
    assert sorted(found.changed_topics) == sorted(expected.changed_topics)
    assert found[3:] == expected[3:]


def test_configurations_are_found_by_what_they_belong_to() -> None:
    image = image_of(
        *(
            m.ConfigRecord(resource_type=kind, resource_name=name, name="k", value=f"{kind.name}/{name}")
            for kind, name in [
                (ResourceType.TOPIC, "t"),
                (ResourceType.BROKER, "1"),
                (ResourceType.BROKER, ""),
                (ResourceType.GROUP, "g"),
            ]
        )
    )
    configs = image.configs
    found = [configs.of_topic("t"), configs.of_broker(1), configs.of_broker(""), configs.of_group("g")]
    assert [values["k"] for values in found] == ["TOPIC/t", "BROKER/1", "BROKER/", "GROUP/g"]
    assert configs.of(ConfigResource(ResourceType.TOPIC, "other")) == {}
