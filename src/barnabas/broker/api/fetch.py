"""Fetch: records of some partitions from given offsets on, as ranges of segment files.

A consumer that is up to date sends the same request again and again. So its connection keeps the last one as a
`StandingFetch`, with partitions looked up and limits noted: the same bytes under the same metadata are not read
twice. One with nothing to deliver is parked until a partition grows or its time is up.

v5 answers the log start offset · v7 has sessions (here always 0: full fetches) · v9 fences by leader epoch ·
v11 names the client's rack · v12 is flexible and tells of diverging logs · v13 names topics by id
"""

from __future__ import annotations

from functools import partial
from struct import Struct
from typing import TYPE_CHECKING

from barnabas.broker.api.fetch_answer import (
    PartitionRead,
    encode_answer,
    encode_failure,
    encode_session_error,
    encode_without_records,
)
from barnabas.broker.connection import Connection, FilePart, Part, Slot, release_parts
from barnabas.broker.dispatch import handles_frames
from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from barnabas.broker.server import Broker
    from barnabas.log.partition_log import LogPosition
    from barnabas.replication.hosted import HostedPartition
    from barnabas.replication.purgatory import Watchers

FIRST_VERSION_WITH_TOPIC_IDS = 13
CORRELATION_ID_END = 8
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
ISOLATION_LEVELS = (READ_UNCOMMITTED, READ_COMMITTED)
FULL_FETCH_EPOCHS = (0, -1)
"""The session epochs of a fetch that names all it wants: the first of a session, and one outside of any."""
UNKNOWN_PARTITION_ERRORS = (Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_ID)
STANDING_BYTES_MAX = 2048

_FRAME = Struct(">ii")

TopicReads = list[tuple[bytes, list[PartitionRead]]]
Entries = dict[tuple[bytes, int], "FetchEntry"]


class FetchEntry:
    """One partition of a fetch."""

    __slots__ = ("error", "hosted", "index", "last_fetched_epoch", "leader_epoch", "max_bytes", "offset", "quiet_start")

    def __init__(self, index: int, hosted: HostedPartition | None, error: Error, offset: int, max_bytes: int) -> None:
        self.index = index
        self.hosted = hosted
        self.error = error
        self.offset = offset
        self.max_bytes = max_bytes
        self.leader_epoch = -1
        self.last_fetched_epoch = -1
        self.quiet_start = -1
        """The log start offset in the kept answer that has no records."""


class StandingFetch(Slot):
    """A fetch request of one connection: run when it comes, parked while there is too little, run again.

    It serves for every later request of the same bytes, unless the first still waits for its answer.
    """

    __slots__ = (
        "_broker",
        "_quiet_body",
        "body",
        "correlation_id",
        "entries",
        "generation",
        "is_committed",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "topics",
        "version",
        "watchers",
    )

    def __init__(
        self,
        broker: Broker,
        connection: Connection,
        request: m.FetchRequest,
        version: int,
        topics: list[tuple[bytes, list[FetchEntry]]],
        body: bytes,
    ) -> None:
        super().__init__(connection)
        self._broker = broker
        self._quiet_body = b""
        self.body = body
        """Everything behind the correlation id: client id, tags, request. Empty if it is too long to keep."""
        self.correlation_id = -1
        self.generation = broker.replicas.generation
        self.version = version
        self.topics = topics
        self.entries = [entry for _, entries in topics for entry in entries]
        self.watchers: list[Watchers] = [entry.hosted.watchers for entry in self.entries if entry.hosted]
        self.max_wait_ms = request.max_wait_ms
        self.min_bytes = request.min_bytes
        self.max_bytes = request.max_bytes
        self.is_committed = request.isolation_level == READ_COMMITTED

    def start(self, correlation_id: int) -> None:
        """Answers at once, or waits for more."""
        self.correlation_id = correlation_id
        may_wait = self.max_wait_ms > 0 and self.entries
        if may_wait and self.min_bytes > 0 and not self.has_news():
            self._park()
            return
        reads, total_bytes, has_error = self._run()
        if may_wait and total_bytes < self.min_bytes and not has_error:
            self._park()
        else:
            self._answer(reads)

    def has_news(self) -> bool:
        """Whether looking at the partitions may show more than that their reader is up to date."""
        for entry in self.entries:
            hosted = entry.hosted
            if hosted is None:
                return True
            state = hosted.state
            if (
                state.high_watermark.offset != entry.offset
                or state.leader_id != state.local_id
                or (entry.leader_epoch >= 0 and entry.leader_epoch != state.leader_epoch)
                or (entry.last_fetched_epoch >= 0 and entry.last_fetched_epoch != hosted.log.latest_epoch)
            ):
                return True
        return False

    # ── while it is parked ───────────────────────────────────────────────────────────────────────────────────

    def _park(self) -> None:
        self.connection.line_up(self)
        self._broker.purgatory.park(self, self.max_wait_ms, self.watchers)

    def is_ready(self) -> bool:
        if self.generation != self._broker.replicas.generation:
            return True
        if not self.has_news():
            return False
        if self.min_bytes <= 1:
            return True
        _, total_bytes, has_error = self._run()
        return has_error or total_bytes >= self.min_bytes

    def complete(self) -> None:
        if self.has_news():
            self._answer(self._run()[0])
        else:
            self.fill([self._quiet_answer()])

    def cancel(self) -> None:
        self._broker.purgatory.cancel(self)

    # ── answering ────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> tuple[TopicReads, int, bool]:
        """Reads every partition within the limits: what was read, how many bytes, whether any failed."""
        budget = min(self.max_bytes, self._broker.fetch_bytes_max)
        total = 0
        has_error = False
        topics: TopicReads = []
        for key, entries in self.topics:
            reads = []
            for entry in entries:
                read = read_partition(entry, self.is_committed, min(entry.max_bytes, budget - total), total == 0)
                if read.error or read.diverging is not None:
                    has_error = True
                elif read.records is not None:
                    total += read.records.length
                reads.append(read)
            topics.append((key, reads))
        return topics, total, has_error

    def _quiet_answer(self) -> bytes:
        """The answer when nothing is new: the same bytes every time, unless retention has moved a log's start."""
        for entry in self.entries:
            assert entry.hosted is not None
            if entry.hosted.log.log_start_offset != entry.quiet_start:
                self._write_quiet_answer()
                break
        return _FRAME.pack(4 + len(self._quiet_body), self.correlation_id) + self._quiet_body

    def _write_quiet_answer(self) -> None:
        reads = []
        for key, entries in self.topics:
            partitions = [read_partition(entry, self.is_committed, 0, False) for entry in entries]
            for entry, read in zip(entries, partitions, strict=True):
                entry.quiet_start = read.log_start_offset
            reads.append((key, partitions))
        self._quiet_body = encode_without_records(self.version, reads)

    def _answer(self, reads: TopicReads) -> None:
        """Replies at once from the page cache, or when a thread has brought cold pages there."""
        parts = encode_answer(self.version, self.correlation_id, reads)
        cold = [part for part in parts if isinstance(part, FilePart) and part.is_cold]
        if cold:
            if not self.is_in_line:
                self.connection.line_up(self)
            self._broker.warm(cold, partial(self._answer_warmed, parts))
        elif self.is_in_line:
            self.fill(parts)
        else:
            self.connection.reply(parts)

    def _answer_warmed(self, parts: list[Part], error: BaseException | None) -> None:
        if error is None:
            self.fill(parts)
        else:
            release_parts(parts)
            self.connection.refuse(f"reading records for it failed: {error}")


@handles_frames(ApiKey.FETCH, versions=(4, 18))
def fetch(broker: Broker, connection: Connection, version: int, frame: memoryview, body: int) -> None:
    last = connection.last_fetch
    if (
        isinstance(last, StandingFetch)
        and last.generation == broker.replicas.generation
        and last.version == version
        and last.body == frame[CORRELATION_ID_END:]
        and not last.is_in_line
    ):
        last.start(connection.correlation_id)
        return
    request, _ = codec.decode_prefix(m.FetchRequest, frame, version, body)
    if request.session_epoch not in FULL_FETCH_EPOCHS:
        connection.reply_bytes(
            encode_session_error(version, connection.correlation_id, Error.FETCH_SESSION_ID_NOT_FOUND)
        )
        return
    known, unknown = look_up(broker, request, version)
    if known and request.isolation_level not in ISOLATION_LEVELS:
        connection.reply_bytes(encode_failure(version, connection.correlation_id, request, Error.UNKNOWN_SERVER_ERROR))
        return
    may_keep = len(frame) - CORRELATION_ID_END <= STANDING_BYTES_MAX
    kept = bytes(frame[CORRELATION_ID_END:]) if may_keep else b""
    new = StandingFetch(broker, connection, request, version, group_by_topic(known | unknown), kept)
    connection.last_fetch = new if may_keep else None
    new.start(connection.correlation_id)


def look_up(broker: Broker, request: m.FetchRequest, version: int) -> tuple[Entries, Entries]:
    """The partitions of a request: those of the cluster, and those that it does not have.

    Of a partition that is named twice the last mention counts, in the place of the first.
    """
    find = broker.replicas.find_by_id if version >= FIRST_VERSION_WITH_TOPIC_IDS else broker.replicas.find_by_name
    known: Entries = {}
    unknown: Entries = {}
    for topic in request.topics:
        key = topic.topic_id if version >= FIRST_VERSION_WITH_TOPIC_IDS else topic.topic.encode()
        for asked in topic.partitions:
            hosted, error = None, Error.NONE
            entries = known
            try:
                hosted = find(key, asked.partition)
            except KafkaError as refused:
                error = refused.error
                if error in UNKNOWN_PARTITION_ERRORS:
                    entries = unknown
            entry = FetchEntry(asked.partition, hosted, error, asked.fetch_offset, asked.partition_max_bytes)
            entry.leader_epoch = asked.current_leader_epoch
            entry.last_fetched_epoch = asked.last_fetched_epoch
            entries[key, asked.partition] = entry
    return known, unknown


def group_by_topic(entries: Entries) -> list[tuple[bytes, list[FetchEntry]]]:
    """Neighbours of one topic come together. The order stays, for it is the one in which limits are used up."""
    topics: list[tuple[bytes, list[FetchEntry]]] = []
    last = None
    for (topic, _), entry in entries.items():
        if topic != last:
            last, neighbours = topic, [entry]
            topics.append((topic, neighbours))
        else:
            neighbours.append(entry)
    return topics


def readable_end(hosted: HostedPartition, is_committed: bool) -> LogPosition:  # noqa: ARG001
    """How far a reader may see: the high watermark. No transactions exist, so all of that is stable."""
    return hosted.state.high_watermark


def read_partition(entry: FetchEntry, is_committed: bool, max_bytes: int, is_first: bool) -> PartitionRead:
    hosted = entry.hosted
    if hosted is None:
        read = PartitionRead(entry.index, entry.error)
        read.has_aborted_list = entry.error in UNKNOWN_PARTITION_ERRORS
        return read
    state = hosted.state
    if not state.is_leader:
        return PartitionRead(entry.index, Error.NOT_LEADER_OR_FOLLOWER)
    error = state.check_reader_epoch(entry.leader_epoch)
    if error:
        return PartitionRead(entry.index, error)
    log = hosted.log
    read = PartitionRead(entry.index, Error.NONE)
    read.high_watermark = read.last_stable_offset = state.high_watermark.offset
    read.log_start_offset = log.log_start_offset
    read.has_aborted_list = is_committed
    if entry.last_fetched_epoch >= 0 and (
        entry.last_fetched_epoch != log.latest_epoch or entry.offset > log.log_end_offset
    ):
        epoch, end_offset = log.end_offset_for_epoch(entry.last_fetched_epoch)
        if end_offset < 0:
            return PartitionRead(entry.index, Error.OFFSET_OUT_OF_RANGE)
        if epoch < entry.last_fetched_epoch or end_offset < entry.offset:
            read.diverging = (epoch, end_offset)
            return read
    if not log.log_start_offset <= entry.offset <= log.log_end_offset:
        return PartitionRead(entry.index, Error.OFFSET_OUT_OF_RANGE)
    end = readable_end(hosted, is_committed)
    if entry.offset < end.offset and (max_bytes > 0 or is_first):
        try:
            read.records = log.read(entry.offset, max_bytes, end, whole_first_batch=is_first)
        except KafkaError as failed:
            return PartitionRead(entry.index, failed.error)
        read.is_cold = read.records is not None and log.is_cold(read.records)
    return read
