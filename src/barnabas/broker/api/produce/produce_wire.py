"""The bytes of Produce requests and answers, read and written by hand: this is the hottest message of all.

A request: transactional id, acks, timeout, then per topic a name (or, from v13, an id) and per partition an index and
the bytes of its batch. From v9 lengths are unsigned varints and each level ends with tags. One that names very many
partitions is not read here: `TooMuchAtOnceError` has it read in pieces.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from barnabas.broker.api.current_leader import write_leader
from barnabas.net.large_requests import TooMuchAtOnceError
from barnabas.protocol.codec import DecodeError
from barnabas.protocol.errors import Error, KafkaError
from barnabas.protocol.varint import read_uvarint, write_uvarint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.replication.hosted import HostedPartition

FIRST_VERSION_WITH_LOG_START = 5
FIRST_VERSION_WITH_MESSAGES = 8
FIRST_FLEXIBLE_VERSION = 9
FIRST_VERSION_WITH_CURRENT_LEADER = 10
FIRST_VERSION_WITH_TOPIC_IDS = 13
CURRENT_LEADER_TAG = 0
NO_TAGS = b"\0"

_I16 = Struct(">h")
_I32 = Struct(">i")
_ACKS_TIMEOUT = Struct(">hi")
_INDEX_AND_LENGTH = Struct(">ii")
_ANSWER_V3 = Struct(">ihqq")
_ANSWER_V5 = Struct(">ihqqq")
_FRAME = Struct(">ii")
_CLASSIC_TEXT_BYTES_MAX = (1 << 15) - 1
PARTITIONS_AT_ONCE = 250
"""Of a request that is read and appended in one go. The first batch in a partition opens its files, which takes a tenth
of a millisecond."""
pack_appended = Struct(">ihqqq3s").pack
"""One partition of an answer: index, no error, base offset, log append time, log start, `NO_ERRORS`."""
NO_ERRORS = b"\x01\0\0"
"""No record errors, no message, no tags."""

TopicBatches = tuple[bytes, list[tuple[int, memoryview]]]


class ProduceRequest:
    __slots__ = ("acks", "timeout_ms", "topics", "transactional_id")

    def __init__(self, acks: int, timeout_ms: int, transactional_id: str | None, topics: list[TopicBatches]) -> None:
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.transactional_id = transactional_id
        self.topics = topics

    @property
    def has_several_batches(self) -> bool:
        return len(self.topics) > 1 or (bool(self.topics) and len(self.topics[0][1]) > 1)


class NotInTransactionError(KafkaError):
    """A batch that the coordinator of its transaction has not consented to."""


def is_explained(error: KafkaError) -> bool:
    """Whether the answer has words for an error besides its code: Kafka has them where it names records of the batch,
    and where it asked the coordinator of a transaction."""
    return error.error is Error.INVALID_TIMESTAMP or isinstance(error, NotInTransactionError)


class PartitionAnswer:
    """One partition's part of the answer, and what its acknowledgement waits for."""

    __slots__ = (
        "_is_settled",
        "base_offset",
        "error",
        "hosted",
        "index",
        "last_offset",
        "leader",
        "leader_epoch",
        "log_append_time",
        "log_start",
        "message",
        "reason",
        "record_errors",
    )

    def __init__(self, index: int) -> None:
        self.index = index
        self.error: int = Error.NONE
        self.message: str | None = None
        """What the client is told of the error."""
        self.reason = ""
        """What the log is told of it."""
        self.record_errors: Sequence[tuple[int, str]] = ()
        """Numbers of records in the batch, and what is wrong with each."""
        self.base_offset = -1
        self.log_append_time = -1
        self.log_start = -1
        self.last_offset = -1
        self.leader_epoch = -1
        """In which the batch was appended."""
        self.hosted: HostedPartition | None = None
        self.leader: tuple[int, int] | None = None
        """The partition's leader and its epoch, if the client asked the wrong broker."""
        self._is_settled = False

    def refuse(self, error: KafkaError) -> None:
        self.error, self.reason = error.error, error.message
        self.message = error.message if is_explained(error) else None

    def fail(self, error: Error, reason: str) -> None:
        """The batch is not acknowledged, though it may have been written."""
        self.error, self.reason, self.message = error, reason, None

    def settle(self) -> bool:
        """Whether the outcome of the batch is known: all in-sync replicas have it, or the answer has an error."""
        if self.hosted is None or self._is_settled:
            return True
        outcome = self.hosted.outcome(self.last_offset + 1, self.leader_epoch)
        if outcome is None:
            return False
        self.error = outcome
        self._is_settled = True
        return True


Answers = list[tuple[bytes, list[PartitionAnswer]]]


def parse_classic(frame: memoryview, position: int, version: int) -> ProduceRequest:  # noqa: ARG001
    end = len(frame)
    size = _I16.unpack_from(frame, position)[0]
    position += 2
    transactional_id = None
    if size >= 0:
        transactional_id = str(frame[position : position + size], "utf-8", "replace")
        position += size
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, position)
    topic_count = _I32.unpack_from(frame, position + 6)[0]
    position += 10
    left = PARTITIONS_AT_ONCE
    if topic_count > left:
        raise TooMuchAtOnceError
    topics: list[TopicBatches] = []
    for _ in range(topic_count):
        name_size = _I16.unpack_from(frame, position)[0]
        position += 2
        if name_size < 0:
            raise DecodeError("a topic name is null")
        name = bytes(frame[position : position + name_size])
        position += name_size
        partition_count = _I32.unpack_from(frame, position)[0]
        position += 4
        left -= partition_count
        if left < 0:
            raise TooMuchAtOnceError
        batches: list[tuple[int, memoryview]] = []
        for _ in range(partition_count):
            index, length = _INDEX_AND_LENGTH.unpack_from(frame, position)
            position += 8
            length = max(length, 0)
            if position + length > end:
                raise DecodeError(f"records of {length} bytes reach past the end of the request")
            batches.append((index, frame[position : position + length]))
            position += length
        if batches:
            topics.append((name, batches))
    return ProduceRequest(acks, timeout_ms, transactional_id, topics)


def parse_flexible(frame: memoryview, position: int, version: int) -> ProduceRequest:
    """Lengths are nearly always below 128, one byte: those are read in place."""
    end = len(frame)
    transactional_id = None
    size, position = read_uvarint(frame, position)
    if size:
        transactional_id = str(frame[position : position + size - 1], "utf-8", "replace")
        position += size - 1
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, position)
    topic_count, position = read_uvarint(frame, position + 6)
    left = PARTITIONS_AT_ONCE
    if topic_count > left:
        raise TooMuchAtOnceError
    topics: list[TopicBatches] = []
    for _ in range(topic_count - 1):
        if version >= FIRST_VERSION_WITH_TOPIC_IDS:
            name_end = position + 16
        else:
            name_size = frame[position]
            position += 1
            if name_size >= 0x80:
                name_size, position = read_uvarint(frame, position - 1)
            if name_size == 0:
                raise DecodeError("a topic name is null")
            name_end = position + name_size - 1
        key = bytes(frame[position:name_end])
        partition_count = frame[name_end]
        position = name_end + 1
        if partition_count >= 0x80:
            partition_count, position = read_uvarint(frame, name_end)
        left -= partition_count
        if left < 0:
            raise TooMuchAtOnceError
        batches: list[tuple[int, memoryview]] = []
        for _ in range(partition_count - 1):
            index = _I32.unpack_from(frame, position)[0]
            low, high = frame[position + 4], frame[position + 5]
            if low >= 0x80 > high > 0:
                # Two bytes, as that of nearly every batch of some records.
                position += 6
                batch_end = position + (low & 0x7F | high << 7) - 1
            else:
                length, position = read_uvarint(frame, position + 4)
                batch_end = position + max(length - 1, 0)
            if batch_end >= end:
                raise DecodeError(f"records of {batch_end - position} bytes reach past the end of the request")
            batches.append((index, frame[position:batch_end]))
            position = batch_end + 1 if frame[batch_end] == 0 else skip_tags(frame, batch_end)
        position = position + 1 if frame[position] == 0 else skip_tags(frame, position)
        if batches:
            topics.append((key, batches))
    skip_tags(frame, position)
    return ProduceRequest(acks, timeout_ms, transactional_id, topics)


def skip_tags(frame: memoryview, position: int) -> int:
    count, position = read_uvarint(frame, position)
    for _ in range(count):
        _, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        position += size
    return position


# ── writing answers ──────────────────────────────────────────────────────────────────────────────────────────────


def encode_answer(version: int, correlation_id: int, answers: Answers, tags: bytes = NO_TAGS) -> bytes:
    """`tags` are those at the end, in flexible versions."""
    out = bytearray(8)
    if version >= FIRST_FLEXIBLE_VERSION:
        write_flexible(out, version, answers, tags)
    else:
        write_classic(out, version, answers)
    _FRAME.pack_into(out, 0, len(out) - 4, correlation_id)
    return bytes(out)


def write_classic(out: bytearray, version: int, answers: Answers) -> None:
    out += _I32.pack(len(answers))
    for topic, partitions in answers:
        out += _I16.pack(len(topic))
        out += topic
        out += _I32.pack(len(partitions))
        for a in partitions:
            if version < FIRST_VERSION_WITH_LOG_START:
                out += _ANSWER_V3.pack(a.index, a.error, a.base_offset, a.log_append_time)
                continue
            out += _ANSWER_V5.pack(a.index, a.error, a.base_offset, a.log_append_time, a.log_start)
            if version >= FIRST_VERSION_WITH_MESSAGES:
                out += _I32.pack(len(a.record_errors))
                for number, reason in a.record_errors:
                    out += _I32.pack(number)
                    write_classic_text(out, reason)
                write_classic_text(out, a.message)
    out += b"\0\0\0\0"


def write_classic_text(out: bytearray, text: str | None) -> None:
    if text is None:
        out += b"\xff\xff"
    else:
        data = text.encode()[:_CLASSIC_TEXT_BYTES_MAX]
        out += _I16.pack(len(data)) + data


def write_flexible(out: bytearray, version: int, answers: Answers, tags: bytes) -> None:
    writer = AnswerWriter(version, len(answers))
    for topic, partitions in answers:
        writer.begin_topic(topic, len(partitions))
        for answer in partitions:
            writer.add(answer)
        writer.end_topic()
    out += writer.body(tags)


class AnswerWriter:
    """An answer in a flexible version, written partition by partition as batches are appended."""

    __slots__ = ("_version", "out")

    def __init__(self, version: int, topic_count: int) -> None:
        self._version = version
        self.out = bytearray(1)
        write_uvarint(self.out, topic_count + 1)

    def begin_topic(self, topic: bytes, partition_count: int) -> None:
        if self._version < FIRST_VERSION_WITH_TOPIC_IDS:
            write_uvarint(self.out, len(topic) + 1)
        self.out += topic
        write_uvarint(self.out, partition_count + 1)

    def add(self, answer: PartitionAnswer) -> None:
        out = self.out
        out += _ANSWER_V5.pack(answer.index, answer.error, answer.base_offset, answer.log_append_time, answer.log_start)
        if answer.message is None and answer.leader is None:
            out += NO_ERRORS
            return
        write_uvarint(out, len(answer.record_errors) + 1)
        for number, reason in answer.record_errors:
            out += _I32.pack(number)
            self._add_text(reason)
            out += NO_TAGS
        if answer.message is None:
            out.append(0)
        else:
            self._add_text(answer.message)
        if answer.leader is None:
            out.append(0)
        else:
            out.append(1)
            write_leader(out, CURRENT_LEADER_TAG, answer.leader)

    def _add_text(self, text: str) -> None:
        data = text.encode()
        write_uvarint(self.out, len(data) + 1)
        self.out += data

    def end_topic(self) -> None:
        self.out.append(0)

    def body(self, tags: bytes = NO_TAGS) -> bytes:
        """What follows the correlation id. There is no throttling."""
        return bytes(self.out) + b"\0\0\0\0" + tags

    def finish(self, correlation_id: int) -> bytes:
        body = self.body()
        return _FRAME.pack(4 + len(body), correlation_id) + body
