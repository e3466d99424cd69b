"""Metadata answers as bytes: every topic is encoded once, and no answer holds the event loop.

A topic's part of an answer depends on its image, on the brokers' registrations, and on the form of the answer
(`AnswerForm`: version, listener, whether permitted operations are asked for). So each form keeps the encoded
*fragments* of topics for as long as their images stay; an answer joins fragments between a head and a tail. What is
missing is encoded in slices of `SLICE_UNITS`, between which the event loop has its turn: an answer over ten thousand
partitions, in as many topics or in one, never stops the node from serving others.

An answer as it travels, and a topic inside it; what precedes the array is the head, what follows it the tail:

    throttle (v3) · brokers · cluster id (v2) · controller (v1) · [topics] · operations (v8 to v10) · error (v13)
    error · name · id (v10) · is internal (v1) · [partitions] · operations (v8)
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.api.admin.cluster_view import ClusterView
from barnabas.metadata.topic_names import INTERNAL_TOPICS
from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.authorized_operations import OPERATIONS_NOT_ASKED_FOR, TOPIC_OPERATIONS
from barnabas.protocol.errors import Error
from barnabas.protocol.varint import write_uvarint

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from barnabas.metadata.image import MetadataImage, PartitionImage, TopicImage, TopicsImage
    from barnabas.protocol.uuids import Uuid

SLICE_UNITS = 128
"""Partitions encoded, or topics passed, between two turns of the event loop: less than a millisecond."""

FORMS_MAX = 16
"""Forms of answers that are kept. Clients of one cluster use a few; the least recently used one is dropped."""

STALE_FRAGMENTS_MAX = 1024
"""Fragments of topics that are gone, before they are swept out."""

FIRST_FLEXIBLE_VERSION = 9
FIRST_VERSION_WITH_LISTENER_ERRORS = 6
FIRST_VERSION_WITH_UNREACHABLE_REPLICAS = 1

_ANSWER_TAIL_BYTES = {8: 4, 9: 5, 10: 5, 11: 1, 12: 1, 13: 3}
"""Operations, error code and the flexible versions' tag count, after the array of topics."""

_TOPIC_TAIL_BYTES = {8: 4, 9: 5, 10: 5, 11: 5, 12: 5, 13: 5}
"""Operations and tag count, after the array of partitions."""

_COUNT = Struct(">i")


class AnswerForm(NamedTuple):
    version: int
    listener_name: str
    has_topic_operations: bool


class MetadataAnswers:
    """The encoders of the forms in use."""

    __slots__ = ("_encoders",)

    def __init__(self) -> None:
        self._encoders: OrderedDict[AnswerForm, AnswerEncoder] = OrderedDict()

    def encoder(self, form: AnswerForm) -> AnswerEncoder:
        encoder = self._encoders.get(form)
        if encoder is None:
            encoder = self._encoders[form] = AnswerEncoder(form)
            if len(self._encoders) > FORMS_MAX:
                self._encoders.popitem(last=False)
        self._encoders.move_to_end(form)
        return encoder


class Fragments:
    """Encoded topics under one state of the brokers' registrations."""

    __slots__ = ("all_topics", "by_topic", "view")

    def __init__(self, view: ClusterView) -> None:
        self.view = view
        self.by_topic: dict[Uuid, tuple[TopicImage, bytes]] = {}
        self.all_topics: tuple[TopicsImage, bytes] | None = None
        """The fragments of every topic, joined."""

    def get(self, topic: TopicImage) -> bytes | None:
        known = self.by_topic.get(topic.topic_id)
        return known[1] if known is not None and known[0] is topic else None

    def sweep(self, topics: TopicsImage) -> None:
        """Forgets topics that are gone, when there are many."""
        if len(self.by_topic) > len(topics) + STALE_FRAGMENTS_MAX:
            for topic_id in [topic_id for topic_id in self.by_topic if topics.by_id(topic_id) is None]:
                del self.by_topic[topic_id]


class AnswerEncoder:
    """Encodes answers of one form."""

    __slots__ = ("_form", "_fragments", "_lock", "_operations", "_write_partition", "_write_topic")

    def __init__(self, form: AnswerForm) -> None:
        self._form = form
        self._operations = TOPIC_OPERATIONS if form.has_topic_operations else OPERATIONS_NOT_ASKED_FOR
        self._write_topic = codec.writer(m.MetadataResponse.MetadataResponseTopic, form.version)
        self._write_partition = codec.writer(m.MetadataResponse.MetadataResponsePartition, form.version)
        self._fragments = Fragments(ClusterView({}, form.listener_name))
        self._lock = asyncio.Lock()
        """Held while much is encoded, so that many clients that ask for the same wait for one of them to have it
        encoded."""

    async def all_topics(self, image: MetadataImage) -> bytes:
        """The encoded topics of an image, without their count."""
        fragments = self._fragments_for(image)
        known = fragments.all_topics
        if known is not None and known[0] is image.topics:
            return known[1]
        async with self._lock:
            known = fragments.all_topics
            if known is not None and known[0] is image.topics:
                return known[1]
            joined = b"".join(await self._encode_in_slices(fragments, image.topics))
            fragments.all_topics = image.topics, joined
            fragments.sweep(image.topics)
        return joined

    async def topics(self, image: MetadataImage, topics: Sequence[TopicImage]) -> bytes:
        """The encoded topics, in their order and without their count."""
        fragments = self._fragments_for(image)
        if len(topics) > SLICE_UNITS:
            return await self._encode_much(fragments, topics)
        missing = [topic for topic in topics if fragments.get(topic) is None]
        if len(topics) + sum(len(topic.partitions) for topic in missing) > SLICE_UNITS:
            return await self._encode_much(fragments, topics)
        for topic in missing:
            self._encode_topic(fragments, topic)
        fragments.sweep(image.topics)
        return b"".join([fragments.by_topic[topic.topic_id][1] for topic in topics])

    def refused_topics(self, topics: Iterable[m.MetadataResponse.MetadataResponseTopic]) -> bytes:
        """Topics that are answered with an error."""
        out = bytearray()
        for topic in topics:
            self._write_topic(topic, out)
        return bytes(out)

    def answer(
        self,
        image: MetadataImage,
        node_id: int,
        topic_count: int,
        encoded_topics: Sequence[bytes],
        cluster_operations: int,
    ) -> bytes:
        """The body of an answer with these topics, `topic_count` of them."""
        return b"".join(self.answer_parts(image, node_id, topic_count, encoded_topics, cluster_operations))

    def answer_parts(
        self,
        image: MetadataImage,
        node_id: int,
        topic_count: int,
        encoded_topics: Sequence[bytes],
        cluster_operations: int,
    ) -> list[bytes]:
        """The same without copying the topics."""
        empty = codec.encode(self.around_topics(image, node_id, cluster_operations), self._form.version)
        head, tail = self._split(empty, _ANSWER_TAIL_BYTES.get(self._form.version, 0))
        return [head + self._array_length(topic_count), *encoded_topics, tail]

    def around_topics(self, image: MetadataImage, node_id: int, cluster_operations: int) -> m.MetadataResponse:
        """An answer that lacks its topics."""
        view = self._fragments.view
        if view.brokers is not image.brokers:
            view = ClusterView(image.brokers, self._form.listener_name)
        return m.MetadataResponse(
            brokers=[
                m.MetadataResponse.MetadataResponseBroker(
                    node_id=node.id, host=node.host, port=node.port, rack=node.rack
                )
                for node in view.bootstrap
            ],
            cluster_id=image.cluster_id,
            controller_id=view.controller_id(node_id),
            cluster_authorized_operations=cluster_operations,
        )

    def _fragments_for(self, image: MetadataImage) -> Fragments:
        if self._fragments.view.brokers is not image.brokers and self._fragments.view.brokers != image.brokers:
            # Encoding in progress goes on with the old fragments, which are dropped when it is done.
            self._fragments = Fragments(ClusterView(image.brokers, self._form.listener_name))
        return self._fragments

    async def _encode_much(self, fragments: Fragments, topics: Iterable[TopicImage]) -> bytes:
        async with self._lock:
            return b"".join(await self._encode_in_slices(fragments, topics))

    async def _encode_in_slices(self, fragments: Fragments, topics: Iterable[TopicImage]) -> list[bytes]:
        encoded = []
        units = 0
        for topic in topics:
            fragment = fragments.get(topic)
            units += 1
            if fragment is None:
                if len(topic.partitions) > SLICE_UNITS:
                    fragment = await self._encode_large_topic(fragments, topic)
                else:
                    fragment = self._encode_topic(fragments, topic)
                    units += len(topic.partitions)
            encoded.append(fragment)
            if units >= SLICE_UNITS:
                units = 0
                await asyncio.sleep(0)
        return encoded

    def _encode_topic(self, fragments: Fragments, topic: TopicImage) -> bytes:
        encoded = self._encode_partitions(fragments.view, topic, 0, len(topic.partitions))
        return self._keep(fragments, topic, encoded)

    async def _encode_large_topic(self, fragments: Fragments, topic: TopicImage) -> bytes:
        encoded = bytearray()
        for first in range(0, len(topic.partitions), SLICE_UNITS):
            last = min(first + SLICE_UNITS, len(topic.partitions))
            encoded += self._encode_partitions(fragments.view, topic, first, last)
            await asyncio.sleep(0)
        return self._keep(fragments, topic, encoded)

    def _keep(self, fragments: Fragments, topic: TopicImage, encoded_partitions: bytearray) -> bytes:
        out = bytearray()
        self._write_topic(
            m.MetadataResponse.MetadataResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                is_internal=topic.name in INTERNAL_TOPICS,
                topic_authorized_operations=self._operations,
            ),
            out,
        )
        head, tail = self._split(bytes(out), _TOPIC_TAIL_BYTES.get(self._form.version, 0))
        fragment = b"".join([head, self._array_length(len(topic.partitions)), encoded_partitions, tail])
        fragments.by_topic[topic.topic_id] = topic, fragment
        return fragment

    def _encode_partitions(self, view: ClusterView, topic: TopicImage, first: int, last: int) -> bytearray:
        out = bytearray()
        for index in range(first, last):
            self._write_partition(describe_partition(view, index, topic.partitions[index], self._form.version), out)
        return out

    def _array_length(self, count: int) -> bytes:
        if self._form.version < FIRST_FLEXIBLE_VERSION:
            return _COUNT.pack(count)
        out = bytearray()
        write_uvarint(out, count + 1)
        return bytes(out)

    def _split(self, encoded: bytes, tail_bytes: int) -> tuple[bytes, bytes]:
        """The bytes before and after the array, which is empty in `encoded`."""
        tail_start = len(encoded) - tail_bytes
        array_start = tail_start - (1 if self._form.version >= FIRST_FLEXIBLE_VERSION else _COUNT.size)
        return encoded[:array_start], encoded[tail_start:]


def describe_partition(
    view: ClusterView, index: int, partition: PartitionImage, version: int
) -> m.MetadataResponse.MetadataResponsePartition:
    error, leader = view.leader_of(partition)
    replicas, isr = partition.replicas, partition.isr
    if version < FIRST_VERSION_WITH_LISTENER_ERRORS and error is Error.LISTENER_NOT_FOUND:
        error = Error.LEADER_NOT_AVAILABLE
    if version < FIRST_VERSION_WITH_UNREACHABLE_REPLICAS:
        # The oldest clients are only told about replicas that they can reach.
        replicas = tuple(filter(view.is_alive, replicas))
        isr = tuple(filter(view.is_alive, isr))
        if error is Error.NONE and (len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr)):
            error = Error.REPLICA_NOT_AVAILABLE
    return m.MetadataResponse.MetadataResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=view.offline_replicas(partition),
    )
