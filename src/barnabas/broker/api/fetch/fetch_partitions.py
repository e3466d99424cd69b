"""The partitions of a fetch: found by name or id, and read within limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.api.fetch.fetch_answer import FIRST_VERSION_WITH_TOPIC_IDS, PartitionRead
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from barnabas.broker.api.fetch.fetch_sessions import FetchSession
    from barnabas.protocol import messages as m
    from barnabas.protocol.uuids import Uuid
    from barnabas.replication.hosted import HostedPartition
    from barnabas.replication.replica_manager import ReplicaManager

UNKNOWN_PARTITION_ERRORS = (Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_ID)
NOT_TOLD = -1

TopicKey = bytes
"""A topic as a request names it: the bytes of its name, or its id."""
Entries = dict[tuple[TopicKey, int], "FetchEntry"]
TopicEntries = list[tuple[TopicKey, list["FetchEntry"]]]


class FetchEntry:
    """One partition of a fetch. In a session it follows the partition: a change marks it, to be looked at by the next
    request or by one that waits."""

    __slots__ = (
        "error",
        "hosted",
        "index",
        "last_fetched_epoch",
        "leader_epoch",
        "max_bytes",
        "offset",
        "session",
        "told_high_watermark",
        "told_log_start",
        "topic",
    )

    def __init__(self, topic: TopicKey, asked: m.FetchRequest.FetchPartition) -> None:
        self.topic = topic
        self.index = asked.partition
        self.hosted: HostedPartition | None = None
        self.error = Error.NONE
        self.told_high_watermark = NOT_TOLD
        self.told_log_start = NOT_TOLD
        self.session: FetchSession | None = None
        self.offset = asked.fetch_offset
        self.max_bytes = asked.partition_max_bytes
        self.leader_epoch = asked.current_leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch

    @property
    def has_to_be_found(self) -> bool:
        """Whether the partition was not found, or is no longer hosted here: looking it up again may find one."""
        return self.hosted is None or self.hosted.is_removed

    def find(self, replicas: ReplicaManager, version: int) -> None:
        """Looks the partition up. What is found stays until it is removed."""
        find = replicas.find_by_id if version >= FIRST_VERSION_WITH_TOPIC_IDS else replicas.find_by_name
        try:
            self.hosted, self.error = find(self.topic, self.index), Error.NONE
        except KafkaError as refused:
            self.hosted, self.error = None, refused.error

    def mark(self) -> None:
        if self.session is not None:
            self.session.mark(self)

    @property
    def is_unknown(self) -> bool:
        return self.hosted is None and self.error in UNKNOWN_PARTITION_ERRORS


def topic_key(name: str, topic_id: Uuid, version: int) -> TopicKey:
    return topic_id if version >= FIRST_VERSION_WITH_TOPIC_IDS else name.encode()


def look_up(replicas: ReplicaManager, request: m.FetchRequest, version: int) -> Entries:
    """The partitions that a request names. If one is named twice, the last mention counts, in the position of the
    first."""
    entries: Entries = {}
    for topic in request.topics:
        key = topic_key(topic.topic, topic.topic_id, version)
        for asked in topic.partitions:
            entry = entries[key, asked.partition] = FetchEntry(key, asked)
            entry.find(replicas, version)
    return entries


def group_by_topic(entries: Entries) -> TopicEntries:
    """Consecutive partitions of one topic are grouped, and partitions that do not exist come last. Otherwise the order
    is kept, because limits are used up in that order."""
    known = [(key, entry) for key, entry in entries.items() if not entry.is_unknown]
    if len(known) < len(entries):
        known += [(key, entry) for key, entry in entries.items() if entry.is_unknown]
    topics: TopicEntries = []
    for (topic, _), entry in known:
        add_to_topics(topics, topic, entry)
    return topics


def add_to_topics(topics: TopicEntries, topic: TopicKey, entry: FetchEntry) -> None:
    if topics and topics[-1][0] == topic:
        topics[-1][1].append(entry)
    else:
        topics.append((topic, [entry]))


def may_have_news(entry: FetchEntry, is_committed: bool) -> bool:
    """Whether reading the partition could find anything else than that its reader is up to date."""
    hosted = entry.hosted
    if hosted is None:
        return True
    state = hosted.state
    return (
        (state.high_watermark.offset != entry.offset and not (is_committed and is_held_back(entry.offset, hosted)))
        or state.leader_id != state.local_id
        or (entry.leader_epoch >= 0 and entry.leader_epoch != state.leader_epoch)
        or (entry.last_fetched_epoch >= 0 and entry.last_fetched_epoch != hosted.log.latest_epoch)
    )


def is_held_back(offset: int, hosted: HostedPartition) -> bool:
    """Whether all that follows an offset belongs to transactions that a reader of committed data must not see yet."""
    return hosted.last_stable_offset <= offset < hosted.state.high_watermark.offset


def readable_end(hosted: HostedPartition, is_committed: bool) -> int:
    """How far a reader may see: the high watermark, or with committed data only, the first open transaction."""
    return hosted.last_stable_offset if is_committed else hosted.state.high_watermark.offset


def read_partition(entry: FetchEntry, is_committed: bool, max_bytes: int, is_first: bool) -> PartitionRead:
    hosted = entry.hosted
    if hosted is None:
        read = PartitionRead(entry.index, entry.error)
        read.aborted = [] if entry.is_unknown else None
        return read
    state = hosted.state
    if not state.is_leader:
        return PartitionRead(entry.index, Error.NOT_LEADER_OR_FOLLOWER)
    error = state.check_reader_epoch(entry.leader_epoch)
    if error:
        return PartitionRead(entry.index, error)
    log = hosted.log
    read = PartitionRead(entry.index, Error.NONE)
    end = state.high_watermark
    read.high_watermark = end.offset
    read.last_stable_offset = log.last_stable_offset(end.offset)
    read.log_start_offset = log.log_start_offset
    if is_committed:
        read.aborted = []
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
    readable = read.last_stable_offset if is_committed else end.offset
    read.is_behind = entry.offset < readable
    if read.is_behind and (max_bytes > 0 or is_first):
        try:
            if readable != end.offset:
                end = log.last_stable_position(end)
            read.records = log.read(entry.offset, max_bytes, end, whole_first_batch=is_first)
            if read.records is not None:
                read.is_cold = log.is_cold(read.records)
                if is_committed:
                    read.aborted = log.aborted_in(read.records, entry.offset)
        except KafkaError as failed:
            return PartitionRead(entry.index, failed.error)
    return read
