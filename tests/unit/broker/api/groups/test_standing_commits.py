"""Commits that are known by their bytes: exactly those that repeat the last one but for their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.api.groups.standing_commits import STANDING_BYTES_MAX, StandingCommit
from barnabas.protocol import messages as m
from barnabas.protocol.codec import decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.metadata.image import TopicsImage


class SomeTopics:
    """Has a topic of every name. Only which one it is matters here."""

    def __init__(self, *changed: str) -> None:
        self._changed = {name: object() for name in changed}

    def get(self, name: str) -> object:
        return self._changed.get(name, "as ever")


def topics(*changed: str) -> TopicsImage:
    return cast("TopicsImage", SomeTopics(*changed))


TOPICS = topics()
VERSIONS = (8, 9, 10)

int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
texts = st.text(max_size=200)


@st.composite
def commits(draw: st.DrawFn, version: int) -> m.OffsetCommitRequest:
    def a_partition() -> m.OffsetCommitRequest.OffsetCommitRequestPartition:
        return m.OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=draw(int32s),
            committed_offset=draw(int64s),
            committed_leader_epoch=draw(int32s),
            committed_metadata=draw(st.none() | texts),
        )

    def a_topic() -> m.OffsetCommitRequest.OffsetCommitRequestTopic:
        named: dict[str, Any] = {"topic_id": draw(st.binary(min_size=16, max_size=16))}
        if version < 10:
            named = {"name": draw(texts)}
        partitions = [a_partition() for _ in range(draw(st.integers(0, 3)))]
        return m.OffsetCommitRequest.OffsetCommitRequestTopic(partitions=partitions, **named)

    return m.OffsetCommitRequest(
        group_id=draw(texts),
        generation_id_or_member_epoch=draw(int32s),
        member_id=draw(texts),
        group_instance_id=draw(st.none() | texts),
        topics=[a_topic() for _ in range(draw(st.integers(0, 3)))],
    )


def stand(body: bytes, version: int) -> StandingCommit:
    """A commit as it stands after it was decoded and begun."""
    kept = StandingCommit.of(decode(m.OffsetCommitRequest, body, version), memoryview(body), version, TOPICS)
    assert kept is not None
    return kept


@given(st.data(), st.sampled_from(VERSIONS))
def test_a_commit_with_other_offsets_repeats_the_last_one_and_means_what_decoding_it_would(
    data: st.DataObject, version: int
) -> None:
    request = data.draw(commits(version))
    standing = stand(encode(request, version), version)
    for _ in range(2):
        for topic in request.topics:
            for partition in topic.partitions:
                partition.committed_offset = data.draw(int64s)
                partition.committed_leader_epoch = data.draw(int32s)
        body = encode(request, version)
        assert standing.is_repeated_by(memoryview(body), version, TOPICS)
        assert standing.request == decode(m.OffsetCommitRequest, body, version)


def a_commit() -> m.OffsetCommitRequest:
    request = m.OffsetCommitRequest
    offsets = [
        request.OffsetCommitRequestPartition(partition_index=each, committed_offset=5, committed_metadata="note")
        for each in range(2)
    ]
    topics = [request.OffsetCommitRequestTopic(name="orders", partitions=offsets)]
    return request(group_id="readers", member_id="me", group_instance_id="first", topics=topics)


DIFFERENCES: dict[str, Callable[[m.OffsetCommitRequest], None]] = {
    "another group": lambda request: setattr(request, "group_id", "Readers"),
    "another generation": lambda request: setattr(request, "generation_id_or_member_epoch", 7),
    "another member": lambda request: setattr(request, "member_id", "ME"),
    "another instance": lambda request: setattr(request, "group_instance_id", "other"),
    "another topic": lambda request: setattr(request.topics[0], "name", "Orders"),
    "another partition": lambda request: setattr(request.topics[0].partitions[1], "partition_index", 2),
    "other metadata": lambda request: setattr(request.topics[0].partitions[1], "committed_metadata", "Note"),
    "longer metadata": lambda request: setattr(request.topics[0].partitions[1], "committed_metadata", "notes"),
    "one partition more": lambda request: request.topics[0].partitions.append(request.topics[0].partitions[0]),
}


@pytest.mark.parametrize("change", DIFFERENCES.values(), ids=DIFFERENCES)
def test_a_commit_that_differs_in_more_than_offsets_is_decoded(change: Callable[[m.OffsetCommitRequest], None]) -> None:
    standing = stand(encode(a_commit(), 8), 8)
    changed = a_commit()
    change(changed)
    assert not standing.is_repeated_by(memoryview(encode(changed, 8)), 8, TOPICS)
    assert standing.request == a_commit()


def test_a_topic_that_has_changed_or_another_version_makes_a_commit_be_decoded() -> None:
    body = encode(a_commit(), 8)
    standing = stand(body, 8)
    assert not standing.is_repeated_by(memoryview(body), 8, topics("orders"))
    assert standing.is_repeated_by(memoryview(body), 8, topics("another"))
    assert not standing.is_repeated_by(memoryview(body), 9, TOPICS)
    assert standing.is_repeated_by(memoryview(body), 8, TOPICS)


def test_a_commit_that_lost_a_partition_that_is_not_there_is_decoded_again() -> None:
    body = encode(a_commit(), 8)
    standing = stand(body, 8)
    del standing.request.topics[0].partitions[1]
    assert not standing.is_repeated_by(memoryview(body), 8, TOPICS)


def test_a_commit_with_a_tag_that_nobody_knows_is_decoded_again() -> None:
    body = encode(a_commit(), 8)[:-1] + b"\x01\x07\x01x"
    assert not stand(body, 8).is_repeated_by(memoryview(body), 8, TOPICS)


def test_old_and_very_large_commits_are_not_kept() -> None:
    request = a_commit()
    assert StandingCommit.of(request, memoryview(encode(request, 7)), 7, TOPICS) is None
    request.topics[0].partitions[0].committed_metadata = "x" * STANDING_BYTES_MAX
    assert StandingCommit.of(request, memoryview(encode(request, 8)), 8, TOPICS) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_only_an_answer_without_errors_is_one_that_was_encoded_before(version: int) -> None:
    named: dict[str, Any] = {"topic_id": bytes(range(16))} if version >= 10 else {"name": "orders"}
    standing = stand(encode(m.OffsetCommitRequest(group_id="readers"), version), version)

    def response(*errors: int) -> m.OffsetCommitResponse:
        partitions = [
            m.OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=index, error_code=error)
            for index, error in enumerate(errors)
        ]
        topic = m.OffsetCommitResponse.OffsetCommitResponseTopic(partitions=partitions, **named)
        return m.OffsetCommitResponse(topics=[topic])

    for _ in range(2):
        assert standing.finish(response(0, 0)) == encode(response(0, 0), version)
        assert standing.finish(response(0, 12)) == response(0, 12)
