"""Encoded metadata answers are what the codec would have written, are not made twice, and never hold the loop."""

from __future__ import annotations

import asyncio
import gc
import time
from typing import TYPE_CHECKING

import pytest

from barnabas.broker.api.admin.cluster_view import ClusterView
from barnabas.broker.api.admin.metadata_answer import (
    FORMS_MAX,
    STALE_FRAGMENTS_MAX,
    AnswerEncoder,
    AnswerForm,
    MetadataAnswers,
    describe_partition,
)
from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.authorized_operations import CLUSTER_OPERATIONS, OPERATIONS_NOT_ASKED_FOR, TOPIC_OPERATIONS
from tests.unit.broker.api.stand_ins import CLUSTER_ID, NODE_ID, a_registration, a_topic, an_image

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from barnabas.broker.api.admin.metadata_answer import Fragments
    from barnabas.metadata.image import MetadataImage, TopicImage

HOLD_MS_MAX = 5.0
ATTEMPTS = 12


async def whole_answer(
    encoder: AnswerEncoder, image: MetadataImage, cluster_operations: int = OPERATIONS_NOT_ASKED_FOR
) -> bytes:
    return encoder.answer(image, NODE_ID, len(image.topics), [await encoder.all_topics(image)], cluster_operations)


@pytest.mark.parametrize("version", range(14))
def test_an_answer_reads_back_as_the_message_in_every_version(version: int) -> None:
    image = an_image([a_topic("one"), a_topic("two", 3), a_topic("__consumer_offsets", 2)], [a_registration(rack="r")])
    encoder = AnswerEncoder(AnswerForm(version, "PLAINTEXT", has_topic_operations=version >= 8))
    cluster_operations = CLUSTER_OPERATIONS if 8 <= version <= 10 else OPERATIONS_NOT_ASKED_FOR
    view = ClusterView(image.brokers, "PLAINTEXT")
    expected = m.MetadataResponse(
        brokers=[m.MetadataResponse.MetadataResponseBroker(node_id=NODE_ID, host="host-1", port=9092, rack="r")],
        cluster_id=CLUSTER_ID,
        controller_id=NODE_ID,
        topics=[
            m.MetadataResponse.MetadataResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                is_internal=topic.name.startswith("__"),
                partitions=[describe_partition(view, i, p, version) for i, p in enumerate(topic.partitions)],
                topic_authorized_operations=TOPIC_OPERATIONS if version >= 8 else OPERATIONS_NOT_ASKED_FOR,
            )
            for topic in image.topics
        ],
        cluster_authorized_operations=cluster_operations,
    )
    assert asyncio.run(whole_answer(encoder, image, cluster_operations)) == codec.encode(expected, version)


@pytest.mark.parametrize("version", [8, 13])
def test_a_topic_of_many_partitions_is_encoded_as_one(version: int) -> None:
    image = an_image([a_topic("small"), a_topic("large", 1_001), a_topic("other")])
    encoder = AnswerEncoder(AnswerForm(version, "PLAINTEXT", has_topic_operations=False))
    answer = codec.decode(m.MetadataResponse, asyncio.run(whole_answer(encoder, image)), version)
    assert [len(topic.partitions) for topic in answer.topics] == [1, 1_001, 1]
    assert [p.partition_index for p in answer.topics[1].partitions] == list(range(1_001))


def test_only_topics_that_changed_are_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = [a_topic(f"topic-{number}") for number in range(100)]
    before, after = an_image(topics), an_image([*topics[:-1], a_topic("topic-99", 2)])
    after = after._replace(brokers=before.brokers)
    encoded: list[str] = []
    encode = AnswerEncoder._encode_topic

    def note_and_encode(encoder: AnswerEncoder, fragments: Fragments, topic: TopicImage) -> bytes:
        encoded.append(topic.name)
        return encode(encoder, fragments, topic)

    monkeypatch.setattr(AnswerEncoder, "_encode_topic", note_and_encode)

    async def ask_three_times() -> None:
        encoder = AnswerEncoder(AnswerForm(12, "PLAINTEXT", has_topic_operations=False))
        await encoder.all_topics(before)
        assert len(encoded) == 100
        encoded.clear()
        await encoder.all_topics(after)
        await encoder.topics(after, [topics[0]])

    asyncio.run(ask_three_times())
    assert encoded == ["topic-99"]


def test_a_change_of_the_brokers_reaches_every_topic() -> None:
    topics = [a_topic("t")]
    encoder = AnswerEncoder(AnswerForm(12, "PLAINTEXT", has_topic_operations=False))

    async def offline_replicas(image: MetadataImage) -> list[int]:
        answer = codec.decode(m.MetadataResponse, await whole_answer(encoder, image), 12)
        return list(answer.topics[0].partitions[0].offline_replicas)

    assert asyncio.run(offline_replicas(an_image(topics))) == []
    assert asyncio.run(offline_replicas(an_image(topics, [a_registration(fenced=True)]))) == [NODE_ID]


def test_a_crowd_that_asks_at_once_gets_one_and_the_same_encoding() -> None:
    image = an_image([a_topic(f"topic-{number}") for number in range(2_000)])

    async def ask() -> list[bytes]:
        encoder = AnswerEncoder(AnswerForm(12, "PLAINTEXT", has_topic_operations=False))
        return await asyncio.gather(*(encoder.all_topics(image) for _ in range(20)))

    first, *others = asyncio.run(ask())
    assert all(other is first for other in others)


def test_topics_that_are_gone_are_forgotten() -> None:
    encoder = AnswerEncoder(AnswerForm(12, "PLAINTEXT", has_topic_operations=False))

    async def ask_for_many_that_go() -> None:
        for number in range(STALE_FRAGMENTS_MAX + 2):
            image = an_image([a_topic(f"t{number}")])
            await encoder.topics(image, [a_topic(f"t{number}")])

    asyncio.run(ask_for_many_that_go())
    assert len(encoder._fragments.by_topic) <= STALE_FRAGMENTS_MAX + 1


def test_the_number_of_forms_that_are_kept_is_limited() -> None:
    answers = MetadataAnswers()
    first = answers.encoder(AnswerForm(0, "L0", has_topic_operations=False))
    for number in range(FORMS_MAX):
        answers.encoder(AnswerForm(1, f"L{number}", has_topic_operations=False))
    assert answers.encoder(AnswerForm(1, "L1", has_topic_operations=False)) is not first
    assert answers.encoder(AnswerForm(0, "L0", has_topic_operations=False)) is not first


async def longest_turn_ms(work: Awaitable[object]) -> float:
    """The longest time between two turns of the event loop while something is awaited.

    Time of this thread's own, so that a busy machine does not count against the code.
    """
    longest = 0.0
    last = time.thread_time()

    async def take_turns() -> None:
        nonlocal longest, last
        while True:
            now = time.thread_time()
            longest, last = max(longest, now - last), now
            await asyncio.sleep(0)

    turns = asyncio.ensure_future(take_turns())
    await work
    turns.cancel()
    return max(longest, time.thread_time() - last) * 1000


def best_of_attempts(make_work: Callable[[], Awaitable[object]]) -> float:
    async def measure() -> float:
        return await longest_turn_ms(make_work())

    # A node has few objects to look through for garbage; the process of the tests has those of all tests before.
    gc.disable()
    try:
        return min(asyncio.run(measure()) for _ in range(ATTEMPTS))
    finally:
        gc.enable()


@pytest.mark.parametrize("shape", [(10_000, 1), (1, 10_000), (100, 100)], ids=["wide", "deep", "square"])
def test_ten_thousand_partitions_never_hold_the_loop(shape: tuple[int, int]) -> None:
    topic_count, partition_count = shape
    image = an_image([a_topic(f"topic-{number}", partition_count) for number in range(topic_count)])

    def from_scratch() -> Awaitable[object]:
        return whole_answer(AnswerEncoder(AnswerForm(12, "PLAINTEXT", has_topic_operations=False)), image)

    assert best_of_attempts(from_scratch) < HOLD_MS_MAX

    warm = AnswerEncoder(AnswerForm(12, "PLAINTEXT", has_topic_operations=False))
    asyncio.run(whole_answer(warm, image))
    assert best_of_attempts(lambda: whole_answer(warm, image)) < HOLD_MS_MAX
    names = list(image.topics)
    assert best_of_attempts(lambda: warm.topics(image, names)) < HOLD_MS_MAX
