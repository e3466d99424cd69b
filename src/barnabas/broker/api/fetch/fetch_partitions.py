"""The partitions of a fetch: found by name or id, and read within limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.api.fetch.fetch_answer import (
    FIRST_VERSION_WITH_PREFERRED_REPLICA,
    FIRST_VERSION_WITH_TOPIC_IDS,
    Notice,
    PartitionRead,
)
from barnabas.log.segments.segment_list import UNRESOLVED, LogPosition
from barnabas.protocol.errors import Error, KafkaError
from barnabas.replication.partition import NO_EPOCH, BrokerId
from barnabas.replication.throttle import is_marked

if TYPE_CHECKING:
    from barnabas.broker.api.fetch.fetch_answer import TopicReads
    from barnabas.broker.api.fetch.fetch_sessions import FetchSession
    from barnabas.protocol import messages as m
    from barnabas.protocol.uuids import Uuid
    from barnabas.replication.hosted import HostedPartition
    from barnabas.replication.partition import Pulse
    from barnabas.replication.replica_manager import ReplicaManager
    from barnabas.replication.throttle import ReplicationThrottle

FIRST_VERSION_WITH_REPLICA_STATE = 15
CONSUMER = -1
UNKNOWN_PARTITION_ERRORS = (Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_ID)
WRONG_BROKER_ERRORS = (Error.NOT_LEADER_OR_FOLLOWER, Error.FENCED_LEADER_EPOCH)
NOT_TOLD = -1

TopicKey = bytes
"""A topic as a request names it: the bytes of its name, or its id."""
Entries = dict[tuple[TopicKey, int], "FetchEntry"]
TopicEntries = list[tuple[TopicKey, list["FetchEntry"]]]


class FetchingReplica(NamedTuple):
    """A follower that fetches, in the epoch of its registration."""

    broker_id: BrokerId
    broker_epoch: int
    throttle: ReplicationThrottle


class FetchEntry:
    """One partition of a fetch. In a session it follows the partition: a change marks it, to be looked at by the next
    request or by one that waits."""

    __slots__ = (
        "error",
        "hosted",
        "index",
        "last_fetched_epoch",
        "leader_epoch",
        "log_start_offset",
        "max_bytes",
        "offset",
        "rack",
        "replica",
        "session",
        "told_high_watermark",
        "told_log_start",
        "topic",
    )

    def __init__(
        self,
        topic: TopicKey,
        asked: m.FetchRequest.FetchPartition,
        replica: FetchingReplica | None = None,
        rack: str | None = None,
    ) -> None:
        self.topic = topic
        self.replica = replica
        """Who copies the partition; None for a consumer."""
        self.rack = rack
        """Where the consumer is, if it is to be sent to a replica near to it; empty if that does not matter. None if it
        does not know that it can read from followers."""
        self.log_start_offset = asked.log_start_offset
        self.index = asked.partition
        self.hosted: HostedPartition | None = None
        self.error = Error.NONE
        self.told_high_watermark = NOT_TOLD
        self.told_log_start = NOT_TOLD
        self.session: FetchSession | None = None
        self.offset = asked.fetch_offset
        self.max_bytes = asked.partition_max_bytes
        self.leader_epoch = max(asked.current_leader_epoch, NO_EPOCH)  # anything below 0 asks for no check
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

    def mark_high_watermark(self) -> None:
        if self.session is not None:
            self.session.mark_high_watermark(self)

    def subscribe(self) -> None:
        if self.hosted is None:
            return
        if self.replica is None:
            self.hosted.subscribers[self] = None
        else:
            self.hosted.copying[self] = None

    def unsubscribe(self) -> None:
        if self.hosted is not None:
            self.hosted.subscribers.pop(self, None)
            self.hosted.copying.pop(self, None)

    @property
    def is_unknown(self) -> bool:
        return self.hosted is None and self.error in UNKNOWN_PARTITION_ERRORS


def topic_key(name: str, topic_id: Uuid, version: int) -> TopicKey:
    return topic_id if version >= FIRST_VERSION_WITH_TOPIC_IDS else name.encode()


def look_up(replicas: ReplicaManager, request: m.FetchRequest, version: int) -> Entries:
    """The partitions that a request names. If one is named twice, the last mention counts, in the position of the
    first."""
    entries: Entries = {}
    replica = fetching_replica(replicas, request, version)
    rack = None
    if version >= FIRST_VERSION_WITH_PREFERRED_REPLICA:
        rack = request.rack_id if replicas.selects_by_rack else ""
    for topic in request.topics:
        key = topic_key(topic.topic, topic.topic_id, version)
        for asked in topic.partitions:
            entry = entries[key, asked.partition] = FetchEntry(key, asked, replica, rack)
            entry.find(replicas, version)
    return entries


def fetching_replica(replicas: ReplicaManager, request: m.FetchRequest, version: int) -> FetchingReplica | None:
    if version < FIRST_VERSION_WITH_REPLICA_STATE:
        broker_id, broker_epoch = request.replica_id, -1
    else:
        broker_id, broker_epoch = request.replica_state.replica_id, request.replica_state.replica_epoch
    if broker_id <= CONSUMER:
        return None
    return FetchingReplica(BrokerId(broker_id), broker_epoch, replicas.leader_throttle)


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
    if entry.replica is not None:
        return state.log_end.offset != entry.offset or check_follower(hosted, entry, entry.replica) is not None
    if entry.rack and state.nearest_replica(entry.rack, entry.offset) is not None:
        return True
    return (
        (state.high_watermark.offset != entry.offset and not (is_committed and is_held_back(entry.offset, hosted)))
        or (state.leader_id != state.local_id and not is_readable_follower(hosted, entry))
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
        unknown = Notice(entry.index, entry.error)
        unknown.aborted = [] if entry.is_unknown else None
        return unknown
    if entry.replica is not None:
        return read_for_follower(hosted, entry, entry.replica, max_bytes, is_first)
    state = hosted.state
    if not state.is_leader and not is_readable_follower(hosted, entry):
        return Notice(entry.index, Error.NOT_LEADER_OR_FOLLOWER)
    error = state.check_reader_epoch(entry.leader_epoch)
    if error:
        return Notice(entry.index, error)
    if entry.rack and (nearest := state.nearest_replica(entry.rack, entry.offset)) is not None:
        return referral(hosted, entry, nearest)
    log = hosted.log
    read = PartitionRead(entry.index, Error.NONE)
    end = state.high_watermark
    read.high_watermark = end.offset
    read.last_stable_offset = log.last_stable_offset(end.offset)
    read.log_start_offset = log.log_start_offset
    if is_committed:
        read.aborted = []
    if (entry.last_fetched_epoch >= 0 and entry.last_fetched_epoch != log.latest_epoch) or not (
        log.log_start_offset <= entry.offset <= log.log_end_offset
    ):
        refusal = check_place(hosted, entry)
        if refusal is not None:
            return refusal
    readable = read.last_stable_offset if is_committed else end.offset
    read.is_behind = entry.offset < readable
    if read.is_behind and (max_bytes > 0 or is_first):
        try:
            if end.segment == UNRESOLVED:
                end = hosted.high_watermark_position()
            if readable != end.offset:
                end = log.last_stable_position(end)
            read.records = log.read(entry.offset, max_bytes, end, whole_first_batch=is_first)
            if read.records is not None:
                read.is_cold = log.is_cold(read.records)
                read.served_from = hosted
                if is_committed:
                    read.aborted = log.aborted_in(read.records, entry.offset)
        except KafkaError as failed:
            return Notice(entry.index, failed.error)
    return read


def is_readable_follower(hosted: HostedPartition, entry: FetchEntry) -> bool:
    """Whether a consumer that knows that it can is served by a replica that does not lead: up to the high watermark, as
    far as that is known here (KIP-392)."""
    return entry.rack is not None and not hosted.is_removed and hosted.offline_reason is None


def check_place(hosted: HostedPartition, entry: FetchEntry) -> Notice | None:
    """What a reader is told whose offset is not in the log, or whose log has another past; None if there is nothing to
    say against it."""
    log = hosted.log
    if entry.last_fetched_epoch >= 0 and (
        entry.last_fetched_epoch != log.latest_epoch or entry.offset > log.log_end_offset
    ):
        epoch, end_offset = log.end_offset_for_epoch(entry.last_fetched_epoch)
        if end_offset < 0 or entry.offset < log.log_start_offset:
            return Notice(entry.index, Error.OFFSET_OUT_OF_RANGE)
        if epoch < entry.last_fetched_epoch or end_offset < entry.offset:
            notice = Notice(entry.index, Error.NONE)
            tell_ends(notice, hosted)
            notice.diverging = (epoch, end_offset)
            return notice
    if not log.log_start_offset <= entry.offset <= log.log_end_offset:
        return Notice(entry.index, Error.OFFSET_OUT_OF_RANGE)
    return None


def referral(hosted: HostedPartition, entry: FetchEntry, replica: BrokerId) -> Notice:
    """Sends a consumer to another replica."""
    notice = Notice(entry.index, Error.NONE)
    tell_ends(notice, hosted)
    notice.preferred_replica = replica
    return notice


def tell_ends(read: PartitionRead, hosted: HostedPartition) -> None:
    """How far the log goes."""
    high_watermark = hosted.state.high_watermark.offset
    read.high_watermark = high_watermark
    read.last_stable_offset = hosted.log.last_stable_offset(high_watermark)
    read.log_start_offset = hosted.log.log_start_offset


def name_leaders(replicas: ReplicaManager, reads: TopicReads) -> list[int]:
    """Tells readers that asked the wrong broker which broker leads. Returns all these leaders."""
    leaders: list[int] = []
    for topic, partitions in reads:
        for read in partitions:
            if read.is_notice and isinstance(read, Notice) and read.error in WRONG_BROKER_ERRORS:
                read.leader = replicas.leader_of(topic, read.index, is_by_id=True)
                leaders.append(read.leader[0])
    return leaders


# ── followers ────────────────────────────────────────────────────────────────────────────────────────────────────


def check_follower(hosted: HostedPartition, entry: FetchEntry, replica: FetchingReplica) -> Notice | None:
    """Why a follower may not copy what it asks for, if so."""
    state = hosted.state
    error = Error.NONE if state.is_leader else Error.NOT_LEADER_OR_FOLLOWER
    error = (
        error
        or state.check_reader_epoch(entry.leader_epoch)
        or state.check_follower(replica.broker_id, replica.broker_epoch, entry.leader_epoch)
    )
    if error:
        return Notice(entry.index, error)
    return check_place(hosted, entry)


def note_follower(entry: FetchEntry, pulse: Pulse) -> None:
    """A follower names a partition in a request: that says how much of it the follower has."""
    hosted, replica = entry.hosted, entry.replica
    if hosted is None or replica is None or check_follower(hosted, entry, replica) is not None:
        return
    hosted.follower_fetched(
        replica.broker_id,
        entry.offset,
        log_start_offset=entry.log_start_offset,
        broker_epoch=replica.broker_epoch,
        pulse=pulse,
    )


def read_for_follower(
    hosted: HostedPartition, entry: FetchEntry, replica: FetchingReplica, max_bytes: int, is_first: bool
) -> PartitionRead:
    """A follower copies everything, committed or not."""
    refusal = check_follower(hosted, entry, replica)
    if refusal is not None:
        return refusal
    log = hosted.log
    read = PartitionRead(entry.index, Error.NONE)
    tell_ends(read, hosted)
    read.is_behind = entry.offset < log.log_end_offset
    if not read.is_behind or (max_bytes <= 0 and not is_first) or is_throttled(hosted, replica):
        return read
    try:
        read.records = log.read(entry.offset, max_bytes, log.end_position, whole_first_batch=is_first)
        if read.records is not None:
            read.is_cold = log.is_cold(read.records)
            hosted.resolve(LogPosition(entry.offset, read.records.segment, read.records.position))
            record_throttled(hosted, replica, read.records.length)
    except KafkaError as failed:
        return Notice(entry.index, failed.error)
    return read


def is_throttled(hosted: HostedPartition, replica: FetchingReplica) -> bool:
    """Whether a follower that is not in sync has to wait until less is sent to others like it."""
    return (
        replica.throttle.limit_bytes is not None
        and replica.broker_id not in hosted.state.isr
        and is_marked(hosted, hosted.log.config.leader_replication_throttled_replicas, hosted.state.local_id)
        and replica.throttle.is_exceeded(hosted.log.clock.monotonic())
    )


def record_throttled(hosted: HostedPartition, replica: FetchingReplica, size: int) -> None:
    if replica.throttle.limit_bytes is not None and is_marked(
        hosted, hosted.log.config.leader_replication_throttled_replicas, hosted.state.local_id
    ):
        replica.throttle.record(size, hosted.log.clock.monotonic())
