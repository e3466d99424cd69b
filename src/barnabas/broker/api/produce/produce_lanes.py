"""Lanes: what Produce requests have in common, looked up instead of read.

Producers send one batch to one partition at a time, and of such a request all but the batch itself is the same every
time: transactional id, acks, timeout, topic, partition. These bytes are the key of a *lane*, which holds what they
stand for: the partition, and the bytes of the answer. A lane lives as long as its partition is hosted here.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from barnabas.broker.api.produce.produce_wire import FIRST_FLEXIBLE_VERSION, FIRST_VERSION_WITH_TOPIC_IDS
from barnabas.metadata.topic_names import INTERNAL_TOPICS
from barnabas.protocol.errors import KafkaError
from barnabas.replication.hosted import ACKS_ALL

if TYPE_CHECKING:
    from barnabas.log.append_batches import Appended
    from barnabas.replication.hosted import HostedPartition
    from barnabas.replication.replica_manager import ReplicaManager

LANES_MAX = 10_000
NO_TAGS = b"\0\0\0"
"""Of the partition, of the topic, of the request: how a request of one batch ends."""

_SHORT_SIZE_MAX = 0x7F
"""The largest size that takes one byte."""
_ONE_ELEMENT = 2
_ACKS_TIMEOUT = Struct(">hi")
_INDEX = Struct(">i")
_FRAME = Struct(">ii")
_ANSWER = Struct(">ihqqq")
_ANSWER_TAIL = b"\x01\0\0\0\0\0\0\0\0"
"""No record errors, no message, no tags; no tags of the topic; no throttling; no tags of the answer."""


class Lane:
    __slots__ = ("_head", "_size", "acks", "has_transactional_id", "hosted", "index", "timeout_ms", "topic")

    def __init__(
        self,
        topic: bytes,
        index: int,
        acks: int,
        timeout_ms: int,
        hosted: HostedPartition,
        version: int,
        *,
        has_transactional_id: bool,
    ) -> None:
        self.topic = topic
        self.has_transactional_id = has_transactional_id
        self.index = index
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.hosted = hosted
        named = topic if version >= FIRST_VERSION_WITH_TOPIC_IDS else bytes([len(topic) + 1]) + topic
        self._head = b"\0\x02" + named + b"\x02"
        self._size = 4 + len(self._head) + _ANSWER.size + len(_ANSWER_TAIL)

    def encode(self, correlation_id: int, appended: Appended) -> bytes:
        base_offset, _, log_append_time_ms, log_start_offset, _ = appended
        return (
            _FRAME.pack(self._size, correlation_id)
            + self._head
            + _ANSWER.pack(self.index, 0, base_offset, log_append_time_ms, log_start_offset)
            + _ANSWER_TAIL
        )


def find_lane_end(frame: memoryview, body: int, version: int) -> int:
    """Where the part that identifies the lane ends, just before the length of the batch; 0 for requests of other forms.

    transactional id (null: 1) acks (2) timeout (4) one topic (1) its name or id, one partition (1) its index (4)
    """
    if version < FIRST_FLEXIBLE_VERSION or len(frame) < body + 32:
        return 0
    if id_size := frame[body]:
        body += id_size - 1
        if id_size > _SHORT_SIZE_MAX or len(frame) < body + 32:
            return 0
    if frame[body + 7] != _ONE_ELEMENT:
        return 0
    end = body + 29 if version >= FIRST_VERSION_WITH_TOPIC_IDS else body + 13 + frame[body + 8]
    if end >= len(frame) or frame[end - 5] != _ONE_ELEMENT:
        return 0
    return end


class Lanes:
    """The lanes of a broker."""

    __slots__ = ("_by_id", "_by_name", "_removals", "_replicas")

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas
        self._removals = 0
        self._by_name: dict[bytes, Lane] = {}
        self._by_id: dict[bytes, Lane] = {}

    def get(self, frame: memoryview, body: int, end: int, version: int) -> Lane | None:
        if self._removals != self._replicas.removals:
            self._removals = self._replicas.removals
            self._by_name = without_removed(self._by_name)
            self._by_id = without_removed(self._by_id)
        lanes = self._by_id if version >= FIRST_VERSION_WITH_TOPIC_IDS else self._by_name
        key = bytes(frame[body:end])
        lane = lanes.get(key)
        return lane if lane is not None else self._open(key, version, lanes)

    def _open(self, key: bytes, version: int, lanes: dict[bytes, Lane]) -> Lane | None:
        start = max(key[0], 1)
        acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(key, start)
        index = _INDEX.unpack_from(key, len(key) - 4)[0]
        if acks not in (1, ACKS_ALL):
            return None
        is_by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
        topic = key[start + 7 : start + 23] if is_by_id else key[start + 8 : len(key) - 5]
        if (not is_by_id and len(topic) + 1 != key[start + 7]) or len(topic) >= _SHORT_SIZE_MAX:
            return None
        try:
            hosted = self._replicas.find_by_id(topic, index) if is_by_id else self._replicas.find_by_name(topic, index)
        except KafkaError:
            return None
        if hosted.topic in INTERNAL_TOPICS:
            return None
        if len(lanes) >= LANES_MAX:
            lanes.clear()
        lane = lanes[key] = Lane(topic, index, acks, timeout_ms, hosted, version, has_transactional_id=key[0] > 0)
        return lane


def without_removed(lanes: dict[bytes, Lane]) -> dict[bytes, Lane]:
    return {key: lane for key, lane in lanes.items() if not lane.hosted.is_removed}
