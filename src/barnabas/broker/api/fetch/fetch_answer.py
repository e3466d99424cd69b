"""The bytes of a Fetch answer: heads written by hand, records as ranges of segment files.

A partition's part is a fixed head, the length of its records, the records, and in flexible versions a few tags.
Short ranges are read and sent with the heads around them; long ones leave by `sendfile`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from barnabas.broker.api.current_leader import write_leader
from barnabas.net.frames import frame_reply
from barnabas.net.parts import FilePart, release_parts
from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.varint import write_uvarint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.log.producers.aborted_txns import AbortedTxn
    from barnabas.log.segments.open_files import FileRange
    from barnabas.net.parts import Part
    from barnabas.protocol.errors import Error
    from barnabas.replication.hosted import HostedPartition

FIRST_VERSION_WITH_LOG_START = 5
FIRST_VERSION_WITH_SESSIONS = 7
FIRST_VERSION_WITH_PREFERRED_REPLICA = 11
FIRST_FLEXIBLE_VERSION = 12
FIRST_VERSION_WITH_TOPIC_IDS = 13
FIRST_VERSION_WITH_LEADER_ENDPOINTS = 16
NO_REPLICA = -1
NO_TAGS = b"\0"

INLINE_BYTES_MAX = 16 * 1024
HEAD_BYTES_MAX = 256 * 1024
"""Of a part: copying a larger one would take long."""

_I16 = Struct(">h")
_I32 = Struct(">i")
_FRAME = Struct(">ii")
_HEAD_V4 = Struct(">ihqq")
_HEAD_V5 = Struct(">ihqqq")
_ABORTED = Struct(">qq")
_NO_REPLICA = _I32.pack(NO_REPLICA)
_TAGGED_EPOCH_END = Struct(">iq")
CURRENT_LEADER_TAG = 1


class PartitionRead:
    """What a fetch found in one partition."""

    __slots__ = (
        "aborted",
        "error",
        "high_watermark",
        "index",
        "is_behind",
        "is_cold",
        "last_stable_offset",
        "log_start_offset",
        "records",
        "served_from",
    )

    is_notice = False
    diverging: tuple[int, int] | None = None
    leader: tuple[int, int] | None = None
    preferred_replica = NO_REPLICA

    def __init__(self, index: int, error: Error) -> None:
        self.index = index
        self.error = error
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1
        self.aborted: list[AbortedTxn] | None = None
        """Only for readers of committed data."""
        self.records: FileRange | None = None
        self.is_behind = False
        """Whether there are records after the reader's position, even if none were read."""
        self.is_cold = False
        self.served_from: HostedPartition | None = None
        """Where bytes for consumers are counted. Followers are not counted."""


class Notice(PartitionRead):
    """Something that the reader has to be told at once, though it gets no records: an error, an epoch in which its log
    and this one diverge, or another replica that it should read from."""

    __slots__ = ("diverging", "leader", "preferred_replica")

    is_notice = True

    def __init__(self, index: int, error: Error) -> None:
        super().__init__(index, error)
        self.diverging = None
        self.leader = None
        """The partition's leader and its epoch, if the reader asked the wrong broker."""
        self.preferred_replica = NO_REPLICA


TopicReads = list[tuple[bytes, list[PartitionRead]]]
"""By topic, as the answer names it."""


class PartsWriter:
    """Gathers bytes into `head` and turns them into a part whenever a file range comes between."""

    __slots__ = ("_range_bytes", "head", "parts")

    def __init__(self) -> None:
        self.head = bytearray(8)
        self.parts: list[Part] = []
        self._range_bytes = 0

    def cut(self) -> None:
        """Makes a part of what is in `head`."""
        self.parts.append(bytes(self.head))
        self.head = bytearray()

    def add_records(self, records: FileRange, *, is_cold: bool) -> None:
        if len(self.head) > HEAD_BYTES_MAX:
            self.cut()
        if records.length <= INLINE_BYTES_MAX and not is_cold:
            data = records.file.read(records.position, records.length)
            if len(data) != records.length:
                raise OSError(f"a segment file ended {records.length - len(data)} bytes before its log")
            self.head += data
            return
        self.cut()
        self.parts.append(FilePart(records.file, records.position, records.length, is_cold=is_cold))
        self._range_bytes += records.length

    def finish(self, correlation_id: int) -> list[Part]:
        parts = self.parts
        parts.append(bytes(self.head))
        first = parts[0]
        assert isinstance(first, bytes)
        size = self._range_bytes + sum(len(part) for part in parts if isinstance(part, bytes)) - 4
        parts[0] = _FRAME.pack(size, correlation_id) + first[8:]
        return parts


def encode_answer(
    version: int, correlation_id: int, topics: TopicReads, session_id: int = 0, tags: bytes = NO_TAGS
) -> list[Part]:
    """`tags` are those at the end, in flexible versions."""
    writer = PartsWriter()
    try:
        _write_answer(writer, version, topics, session_id, tags)
    except BaseException:
        release_parts(writer.parts)
        raise
    return writer.finish(correlation_id)


def encode_without_records(version: int, topics: TopicReads) -> bytes:
    """What follows the correlation id in an answer that holds no records."""
    writer = PartsWriter()
    _write_answer(writer, version, topics, 0, NO_TAGS)
    return bytes(writer.head[_FRAME.size :])


def _write_answer(writer: PartsWriter, version: int, topics: TopicReads, session_id: int, tags: bytes) -> None:
    write_beginning(writer, version, session_id, len(topics))
    write_partitions = partitions_writer(version)
    for topic, partitions in topics:
        write_topic_beginning(writer, version, topic, len(partitions))
        write_partitions(writer, version, partitions)
        write_end(writer, version)
    write_end(writer, version, tags)


def write_beginning(writer: PartsWriter, version: int, session_id: int, topic_count: int) -> None:
    head = writer.head
    if version >= FIRST_FLEXIBLE_VERSION:
        head += b"\0\0\0\0\0\0\0"  # header tags, throttle time, error code
        head += _I32.pack(session_id)
        write_uvarint(head, topic_count + 1)
    else:
        head += b"\0\0\0\0"
        if version >= FIRST_VERSION_WITH_SESSIONS:
            head += b"\0\0"
            head += _I32.pack(session_id)
        head += _I32.pack(topic_count)


def write_topic_beginning(writer: PartsWriter, version: int, topic: bytes, partition_count: int) -> None:
    head = writer.head
    if version >= FIRST_FLEXIBLE_VERSION:
        if version < FIRST_VERSION_WITH_TOPIC_IDS:
            write_uvarint(head, len(topic) + 1)
        head += topic
        write_uvarint(head, partition_count + 1)
    else:
        head += _I16.pack(len(topic))
        head += topic
        head += _I32.pack(partition_count)


def write_end(writer: PartsWriter, version: int, tags: bytes = NO_TAGS) -> None:
    """Of a topic, or of the answer."""
    if version >= FIRST_FLEXIBLE_VERSION:
        writer.head += tags


def partitions_writer(version: int) -> Callable[[PartsWriter, int, Sequence[PartitionRead]], None]:
    """What writes partitions of a topic in this version."""
    return _write_flexible if version >= FIRST_FLEXIBLE_VERSION else _write_classic


def encode_session_error(version: int, correlation_id: int, error: Error, session_id: int = 0) -> bytes:
    """An answer without topics: the session that the client names does not exist, or is in another epoch."""
    is_flexible = version >= FIRST_FLEXIBLE_VERSION
    body = (b"\0" if is_flexible else b"") + b"\0\0\0\0" + _I16.pack(error) + _I32.pack(session_id)
    body += b"\x01\0" if is_flexible else b"\0\0\0\0"
    return _FRAME.pack(4 + len(body), correlation_id) + body


def failure(version: int, request: m.FetchRequest, error: Error) -> m.FetchResponse:
    response = m.FetchResponse(error_code=error, session_id=request.session_id)
    if version < FIRST_VERSION_WITH_TOPIC_IDS:
        response.responses = [
            m.FetchResponse.FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    m.FetchResponse.PartitionData(
                        partition_index=asked.partition, error_code=error, high_watermark=-1, records=b""
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    return response


def encode_failure(version: int, correlation_id: int, request: m.FetchRequest, error: Error) -> bytes:
    """The answer to a request that failed as a whole.

    In versions that name topics by name, the error is repeated for each partition, as often as it was named: the oldest
    versions have no other place for it.
    """
    response = failure(version, request, error)
    header_tags = b"\0" if version >= FIRST_FLEXIBLE_VERSION else b""
    return frame_reply(correlation_id, header_tags, codec.encode(response, version))


def _add_records(writer: PartsWriter, read: PartitionRead, records: FileRange) -> None:
    if read.served_from is not None:
        read.served_from.bytes_out += records.length
    writer.add_records(records, is_cold=read.is_cold)


def _write_classic(writer: PartsWriter, version: int, partitions: Sequence[PartitionRead]) -> None:
    for read in partitions:
        writer.head += _fixed_head(version, read)
        if read.aborted is None:
            writer.head += b"\xff\xff\xff\xff"
        else:
            writer.head += _I32.pack(len(read.aborted))
            for txn in read.aborted:
                writer.head += _ABORTED.pack(txn.producer_id, txn.first_offset)
        if version >= FIRST_VERSION_WITH_PREFERRED_REPLICA:
            writer.head += _NO_REPLICA if not read.is_notice else _I32.pack(read.preferred_replica)
        if read.records is None:
            writer.head += b"\0\0\0\0"
        else:
            writer.head += _I32.pack(read.records.length)
            _add_records(writer, read, read.records)


def _write_flexible(writer: PartsWriter, version: int, partitions: Sequence[PartitionRead]) -> None:
    for read in partitions:
        writer.head += _fixed_head(version, read)
        if read.aborted:
            write_uvarint(writer.head, len(read.aborted) + 1)
            for txn in read.aborted:
                writer.head += _ABORTED.pack(txn.producer_id, txn.first_offset) + b"\0"
        else:
            writer.head.append(0 if read.aborted is None else 1)
        writer.head += _NO_REPLICA if not read.is_notice else _I32.pack(read.preferred_replica)
        if read.records is None:
            writer.head.append(1)
        else:
            write_uvarint(writer.head, read.records.length + 1)
            _add_records(writer, read, read.records)
        if not read.is_notice:
            writer.head.append(0)
        elif read.diverging is not None:
            # One tag, number 0, of 13 bytes: epoch, end offset, no tags of its own.
            writer.head += b"\x01\0\x0d" + _TAGGED_EPOCH_END.pack(*read.diverging) + b"\0"
        elif read.leader is not None:
            writer.head.append(1)
            write_leader(writer.head, CURRENT_LEADER_TAG, read.leader)
        else:
            writer.head.append(0)


def _fixed_head(version: int, read: PartitionRead) -> bytes:
    if version < FIRST_VERSION_WITH_LOG_START:
        return _HEAD_V4.pack(read.index, read.error, read.high_watermark, read.last_stable_offset)
    return _HEAD_V5.pack(read.index, read.error, read.high_watermark, read.last_stable_offset, read.log_start_offset)
