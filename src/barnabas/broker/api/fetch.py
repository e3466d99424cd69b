"""Fetch: records of some partitions from given offsets on, as ranges of segment files.

A consumer that is up to date sends the same request again and again. So the request is turned into a `FetchPlan`
(partitions looked up, limits noted) that its connection keeps: the same bytes under the same metadata are not read
twice. A plan with nothing to deliver is parked until a partition grows or its time is up.

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
    encode_session_error,
    encode_without_records,
)
from barnabas.broker.connection import Connection, FilePart, Part, Slot, release_parts
from barnabas.broker.dispatch import handles_frames
from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error, KafkaError
from barnabas.replication.purgatory import Parked, Watchers

if TYPE_CHECKING:
    from barnabas.broker.dispatch import FrameHeader
    from barnabas.broker.server import Broker
    from barnabas.log.partition_log import LogPosition
    from barnabas.replication.hosted import HostedPartition

FIRST_VERSION_WITH_TOPIC_IDS = 13
CORRELATION_ID_END = 8
READ_COMMITTED = 1
PLAN_BYTES_MAX = 2048

_FRAME = Struct(">ii")


class FetchEntry:
    """One partition of a fetch."""

    __slots__ = ("error", "hosted", "index", "last_fetched_epoch", "leader_epoch", "max_bytes", "offset")

    def __init__(
        self,
        index: int,
        hosted: HostedPartition | None,
        error: Error,
        offset: int,
        max_bytes: int,
        leader_epoch: int,
        last_fetched_epoch: int,
    ) -> None:
        self.index = index
        self.hosted = hosted
        self.error = error
        self.offset = offset
        self.max_bytes = max_bytes
        self.leader_epoch = leader_epoch
        self.last_fetched_epoch = last_fetched_epoch

    def has_news(self) -> bool:
        """Whether looking at the partition may show more than that its reader is up to date."""
        hosted = self.hosted
        if hosted is None:
            return True
        state = hosted.state
        return (
            state.high_watermark.offset != self.offset
            or state.leader_id != state.local_id
            or (self.leader_epoch >= 0 and self.leader_epoch != state.leader_epoch)
            or (self.last_fetched_epoch >= 0 and self.last_fetched_epoch != hosted.log.latest_epoch)
        )


class FetchPlan:
    """A fetch request, ready to be run any number of times while the metadata generation stays."""

    __slots__ = (
        "_quiet_body",
        "_quiet_log_starts",
        "body",
        "generation",
        "is_committed",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "topics",
        "version",
        "watched",
    )

    def __init__(
        self,
        request: m.FetchRequest,
        version: int,
        topics: list[tuple[bytes, list[FetchEntry]]],
        generation: int,
        body: bytes,
    ) -> None:
        self.version = version
        self.topics = topics
        self.generation = generation
        self.body = body
        """Everything behind the correlation id: client id, tags, request. Empty if it is too long to keep."""
        self.watched: list[Watchers] = [e.hosted.watchers for _, entries in topics for e in entries if e.hosted]
        self._quiet_log_starts: list[int] | None = None
        self._quiet_body = b""
        self.max_wait_ms = request.max_wait_ms
        self.min_bytes = request.min_bytes
        self.max_bytes = request.max_bytes
        self.is_committed = request.isolation_level == READ_COMMITTED

    def quiet_answer(self, header: FrameHeader) -> bytes:
        """The answer when nothing is new: the same bytes every time, unless retention has moved a log's start."""
        log_starts = [e.hosted.log.log_start_offset for _, entries in self.topics for e in entries if e.hosted]
        if log_starts != self._quiet_log_starts:
            reads = [
                (key, [read_partition(e, self.is_committed, 0, False) for e in entries]) for key, entries in self.topics
            ]
            self._quiet_body = encode_without_records(header.api_version, reads)
            self._quiet_log_starts = log_starts
        return _FRAME.pack(4 + len(self._quiet_body), header.correlation_id) + self._quiet_body

    def has_news(self) -> bool:
        """Whether there is anything to tell: records, an error, or that nothing was asked for."""
        for _, entries in self.topics:
            for entry in entries:
                if entry.has_news():
                    return True
        return not self.topics


@handles_frames(ApiKey.FETCH, versions=(4, 18))
def fetch(broker: Broker, connection: Connection, header: FrameHeader, frame: memoryview) -> None:
    plan = plan_fetch(broker, connection, header, frame)
    if plan is None:
        return
    if plan.max_wait_ms > 0 and plan.min_bytes > 0 and not plan.has_news():
        park(broker, connection, header, plan)
        return
    reads, total_bytes, has_error = run(broker, plan)
    if total_bytes >= plan.min_bytes or has_error or plan.max_wait_ms <= 0 or not plan.topics:
        answer(broker, connection, None, header, reads)
    else:
        park(broker, connection, header, plan)


def plan_fetch(broker: Broker, connection: Connection, header: FrameHeader, frame: memoryview) -> FetchPlan | None:
    """The plan for a request, the connection's last one where it fits. None when the request was answered."""
    last = connection.last_fetch
    generation = broker.replicas.generation
    version = header.api_version
    if (
        isinstance(last, FetchPlan)
        and last.generation == generation
        and last.version == version
        and last.body == frame[CORRELATION_ID_END:]
    ):
        return last
    request, _ = codec.decode_prefix(m.FetchRequest, frame, version, header.body_offset)
    if request.session_id != 0:
        connection.reply_bytes(encode_session_error(header, Error.FETCH_SESSION_ID_NOT_FOUND))
        return None
    find = broker.replicas.find_by_id if version >= FIRST_VERSION_WITH_TOPIC_IDS else broker.replicas.find_by_name
    topics = []
    for topic in request.topics:
        key = topic.topic_id if version >= FIRST_VERSION_WITH_TOPIC_IDS else topic.topic.encode()
        entries = []
        for partition in topic.partitions:
            hosted, error = None, Error.NONE
            try:
                hosted = find(key, partition.partition)
            except KafkaError as refused:
                error = refused.error
            entries.append(
                FetchEntry(
                    partition.partition,
                    hosted,
                    error,
                    partition.fetch_offset,
                    partition.partition_max_bytes,
                    partition.current_leader_epoch,
                    partition.last_fetched_epoch,
                )
            )
        topics.append((key, entries))
    body_size = len(frame) - CORRELATION_ID_END
    plan = FetchPlan(
        request, version, topics, generation, bytes(frame[CORRELATION_ID_END:]) if body_size <= PLAN_BYTES_MAX else b""
    )
    connection.last_fetch = plan if plan.body else None
    return plan


def readable_end(hosted: HostedPartition, is_committed: bool) -> LogPosition:  # noqa: ARG001
    """How far a reader may see: the high watermark. No transactions exist, so all of that is stable."""
    return hosted.state.high_watermark


TopicReads = list[tuple[bytes, list[PartitionRead]]]


def run(broker: Broker, plan: FetchPlan) -> tuple[TopicReads, int, bool]:
    """Reads every partition of the plan within its limits: what was read, how many bytes, whether any failed."""
    budget = min(plan.max_bytes, broker.fetch_bytes_max)
    total = 0
    has_error = False
    topics: TopicReads = []
    for key, entries in plan.topics:
        reads = []
        for entry in entries:
            read = read_partition(entry, plan.is_committed, min(entry.max_bytes, budget - total), total == 0)
            if read.error or read.diverging is not None:
                has_error = True
            elif read.records is not None:
                total += read.records.length
            reads.append(read)
        topics.append((key, reads))
    return topics, total, has_error


def read_partition(entry: FetchEntry, is_committed: bool, max_bytes: int, is_first: bool) -> PartitionRead:
    hosted = entry.hosted
    if hosted is None:
        return PartitionRead(entry.index, entry.error)
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


def answer(broker: Broker, connection: Connection, slot: Slot | None, header: FrameHeader, reads: TopicReads) -> None:
    """Replies at once from the page cache, or when a thread has brought cold pages there."""
    parts = encode_answer(header, reads)
    cold = [part for part in parts if isinstance(part, FilePart) and part.is_cold]
    if cold:
        later = slot or connection.reserve()
        broker.warm(cold, lambda error: answer_warmed(later, parts, error))
    elif slot is not None:
        slot.complete(parts)
    else:
        connection.reply(parts)


def answer_warmed(slot: Slot, parts: list[Part], error: BaseException | None) -> None:
    if error is None:
        slot.complete(parts)
    else:
        release_parts(parts)
        slot.connection.refuse(f"reading records for it failed: {error}")


class DelayedFetch(Parked):
    """A fetch that waits for `min_bytes`."""

    __slots__ = ("_broker", "_header", "_plan", "_slot")

    def __init__(self, broker: Broker, slot: Slot, header: FrameHeader, plan: FetchPlan) -> None:
        super().__init__()
        self._broker = broker
        self._slot = slot
        self._header = header
        self._plan = plan

    def is_ready(self) -> bool:
        plan = self._plan
        if plan.generation != self._broker.replicas.generation:
            return True
        if not plan.has_news():
            return False
        if plan.min_bytes <= 1:
            return True
        _, total_bytes, has_error = run(self._broker, plan)
        return has_error or total_bytes >= plan.min_bytes

    def fail(self) -> None:
        self._slot.connection.close()

    def complete(self) -> None:
        slot = self._slot
        if not self.was_woken or not self._plan.has_news():
            slot.complete([self._plan.quiet_answer(self._header)])
            return
        reads, _, _ = run(self._broker, self._plan)
        answer(self._broker, slot.connection, slot, self._header, reads)


def park(broker: Broker, connection: Connection, header: FrameHeader, plan: FetchPlan) -> None:
    slot = connection.reserve()
    delayed = DelayedFetch(broker, slot, header, plan)
    slot.on_cancel = partial(broker.purgatory.cancel, delayed)
    broker.purgatory.park(delayed, plan.max_wait_ms, plan.watched)
