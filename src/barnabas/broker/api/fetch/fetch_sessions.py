"""Fetch sessions: a reader need not repeat what it has asked for, and is not told again what it knows.

A full fetch with session epoch 0 opens a session, and its answer carries the session's id. From then on a request names
only the partitions that are new, changed or no longer wanted, and an answer only those with records, an error, or a
high watermark or log start that the reader has not been told. Each request has the next epoch, so that one that was
lost or repeated is noticed, and the reader starts over with a full fetch.

The number of sessions is limited (`max.incremental.fetch.session.cache.slots`). When there is no room, a new one
replaces one that has not been used for long, or one that is old and has fewer partitions; otherwise its reader goes on
with full fetches. Followers come first, as full fetches of theirs cost the most: a follower's session replaces that of
any consumer, and is itself never replaced by a consumer's while it is in use.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from barnabas.broker.api.fetch.fetch_answer import FIRST_VERSION_WITH_TOPIC_IDS
from barnabas.broker.api.fetch.fetch_partitions import NOT_TOLD, read_partition, topic_key
from barnabas.protocol.errors import Error
from barnabas.replication.partition import Pulse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.broker.api.fetch.fetch_answer import PartitionRead, TopicReads
    from barnabas.broker.api.fetch.fetch_partitions import Entries, FetchEntry, TopicKey
    from barnabas.net.purgatory import Purgatory, Watchers
    from barnabas.ports import Random
    from barnabas.protocol import messages as m
    from barnabas.replication.replica_manager import ReplicaManager

NO_SESSION = 0
FINAL_EPOCH = -1
INITIAL_EPOCH = 0
EPOCH_MAX = 2**31 - 1
SESSION_ID_MAX = 2**31 - 1
EVICTION_MS = 120_000
PARTITIONS_MAX = 20_000
"""A reader of more goes on with full fetches."""
READ_AT_ONCE = 1000
"""Marked partitions that one request visits; the others are next in line."""
HIGH_WATERMARK_PAUSE_S = 0.005
"""A follower that waits for records is told of a high watermark that moved after this pause: under load the next
records come earlier, and the high watermark with them."""


class FetchSession:
    """The partitions of one reader, and which of them have to be looked at.

    A follower has thousands of partitions in a session, and few of them have news at a time. So each entry follows
    its partition: a change puts it into `_marked`, and a request visits only those. An entry stays marked as long as
    there is something to tell with every answer: records to read, or an error.
    """

    __slots__ = (
        "_generation",
        "_high_watermark_timer",
        "_marked",
        "_purgatory",
        "_tells_high_watermarks",
        "created_ms",
        "entries",
        "epoch",
        "id",
        "is_of_follower",
        "last_used_ms",
        "pulse",
        "uses_topic_ids",
        "watchers",
    )

    def __init__(
        self,
        session_id: int,
        entries: Entries,
        purgatory: Purgatory,
        generation: int,
        now_ms: int,
        *,
        uses_topic_ids: bool,
        pulse: Pulse | None = None,
    ) -> None:
        """`pulse` is given if the session is a follower's."""
        self.id = session_id
        self.entries: Entries = {}
        self.watchers: Watchers = {}
        """The request of this session that waits, if any."""
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = self.last_used_ms = now_ms
        self.epoch = 1
        """The epoch of the next request."""
        self._marked: dict[FetchEntry, None] = {}
        """In the order in which they use up the limits of a request."""
        self._purgatory = purgatory
        self.is_of_follower = pulse is not None
        self.pulse = pulse or Pulse(0)
        """When the follower last sent a request, if the session is a follower's."""
        self._tells_high_watermarks = False
        self._high_watermark_timer: asyncio.TimerHandle | None = None
        self._generation = generation
        """The generation of the replica manager when entries without a partition were last looked up."""
        for key, entry in entries.items():
            self._put(key, entry)

    def mark(self, entry: FetchEntry) -> None:
        self._marked[entry] = None
        if self.watchers:
            self._purgatory.wake(self.watchers)

    def mark_high_watermark(self, entry: FetchEntry) -> None:
        """A follower is to be told of a high watermark, soon."""
        self._marked[entry] = None
        if self._high_watermark_timer is None:
            loop = asyncio.get_running_loop()
            self._high_watermark_timer = loop.call_later(HIGH_WATERMARK_PAUSE_S, self._tell_high_watermarks)

    def _tell_high_watermarks(self) -> None:
        self._high_watermark_timer = None
        self._tells_high_watermarks = True
        if self.watchers:
            self._purgatory.wake(self.watchers)

    def has_high_watermarks_to_tell(self, reads: SessionReads) -> bool:
        return self._tells_high_watermarks and any(
            entry.replica is not None and read.high_watermark != entry.told_high_watermark
            for entry, read in reads.visited
        )

    @property
    def is_too_large(self) -> bool:
        return len(self.entries) > PARTITIONS_MAX

    def add(self, named: Entries) -> None:
        """Takes over what a request adds and changes."""
        for key, entry in named.items():
            known = self.entries.get(key)
            if known is not None:
                entry.told_high_watermark = known.told_high_watermark
                entry.told_log_start = known.told_log_start
                self._remove(known)
            self._put(key, entry)

    def forget(self, topics: Iterable[m.FetchRequest.ForgottenTopic], version: int) -> None:
        for forgotten in topics:
            topic = topic_key(forgotten.topic, forgotten.topic_id, version)
            for index in forgotten.partitions:
                dropped = self.entries.pop((topic, index), None)
                if dropped is not None:
                    self._remove(dropped)

    def read(self, replicas: ReplicaManager, version: int, max_bytes: int, *, is_committed: bool) -> SessionReads:
        """Reads the marked partitions within the limits; the others have nothing new."""
        self._find_lost(replicas, version)
        reads = SessionReads()
        unknown: list[FetchEntry] = []
        for entry in self._marked:
            if entry.is_unknown:
                if len(unknown) < READ_AT_ONCE:
                    unknown.append(entry)
                continue
            if len(reads.visited) == READ_AT_ONCE:
                reads.has_more = True
                break
            total = reads.total_bytes
            if total and total >= max_bytes:
                break
            reads.add(entry, read_partition(entry, is_committed, min(entry.max_bytes, max_bytes - total), total == 0))
        for entry in unknown:
            reads.add(entry, read_partition(entry, is_committed, 0, False))
        return reads

    def news(self, reads: SessionReads) -> TopicReads:
        """The part of what was read that the reader does not know; from now on it does. A partition that had records
        goes to the end of the line, so that it does not use up the limits of the next fetch as well."""
        told: TopicReads = []
        last = None
        self._tells_high_watermarks &= len(reads.visited) < len(self._marked)
        for entry, read in reads.visited:
            self._marked.pop(entry)
            if read.is_behind or read.is_notice:
                self._marked[entry] = None
            if tell(entry, read):
                if entry.topic != last:
                    last, neighbours = entry.topic, [read]
                    told.append((last, neighbours))
                else:
                    neighbours.append(read)
        return told

    def close(self) -> None:
        """Stops following its partitions."""
        if self._high_watermark_timer is not None:
            self._high_watermark_timer.cancel()
            self._high_watermark_timer = None
        for entry in self.entries.values():
            self._remove(entry)

    def _find_lost(self, replicas: ReplicaManager, version: int) -> None:
        """Entries without a partition are always marked, as their error is told every time."""
        for entry in [each for each in self._marked if each.has_to_be_found]:
            if entry.hosted is not None or self._generation != replicas.generation:
                entry.find(replicas, version)
                entry.subscribe()
        self._generation = replicas.generation

    def _put(self, key: tuple[TopicKey, int], entry: FetchEntry) -> None:
        self.entries[key] = entry
        entry.session = self
        self._marked[entry] = None
        entry.subscribe()

    def _remove(self, entry: FetchEntry) -> None:
        self._marked.pop(entry, None)
        entry.session = None
        entry.unsubscribe()


class SessionReads:
    """What a request found in the partitions that it visited."""

    __slots__ = ("has_error", "has_more", "total_bytes", "visited")

    def __init__(self) -> None:
        self.visited: list[tuple[FetchEntry, PartitionRead]] = []
        self.total_bytes = 0
        self.has_error = False
        self.has_more = False
        """Whether partitions were left for the next request."""

    def add(self, entry: FetchEntry, read: PartitionRead) -> None:
        self.visited.append((entry, read))
        if read.is_notice:
            self.has_error = True
        elif read.records is not None:
            self.total_bytes += read.records.length


class FetchSessions:
    """All sessions of a broker."""

    __slots__ = ("_by_id", "_purgatory", "_random", "_slots_max", "evictions")

    def __init__(self, slots_max: int, purgatory: Purgatory, random: Random) -> None:
        self._slots_max = slots_max
        self._purgatory = purgatory
        self._random = random
        self._by_id: dict[int, FetchSession] = {}
        self.evictions = 0
        """Sessions that made room for others."""

    def __len__(self) -> int:
        return len(self._by_id)

    def partition_count(self) -> int:
        """The partitions of all sessions. Another thread may ask."""
        return sum(len(session.entries) for session in list(self._by_id.values()))

    def open(
        self, entries: Entries, generation: int, now_ms: int, *, uses_topic_ids: bool, pulse: Pulse | None = None
    ) -> FetchSession | None:
        """A new session of these partitions; None when there is no room for one. `pulse` is that of a follower."""
        if len(entries) > PARTITIONS_MAX:
            return None
        if len(self._by_id) >= self._slots_max and not self._make_room(len(entries), now_ms, pulse is not None):
            return None
        session_id = 1 + self._random.below(SESSION_ID_MAX)
        while session_id in self._by_id:
            session_id = 1 + self._random.below(SESSION_ID_MAX)
        session = self._by_id[session_id] = FetchSession(
            session_id, entries, self._purgatory, generation, now_ms, uses_topic_ids=uses_topic_ids, pulse=pulse
        )
        return session

    def get(self, session_id: int) -> FetchSession | None:
        return self._by_id.get(session_id)

    def close(self, session_id: int) -> None:
        session = self._by_id.pop(session_id, None)
        if session is not None:
            session.close()

    def take(self, request: m.FetchRequest, version: int, now_ms: int) -> FetchSession | Error:
        """The session that an incremental request belongs to, or why it belongs to none."""
        session = self._by_id.get(request.session_id)
        if session is None:
            return Error.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != request.session_epoch:
            return Error.INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != (version >= FIRST_VERSION_WITH_TOPIC_IDS):
            return Error.FETCH_SESSION_TOPIC_ID_ERROR
        # The first is the least recently used: a session that is used moves to the end.
        self._by_id[session.id] = self._by_id.pop(session.id)
        session.last_used_ms = now_ms
        session.epoch = session.epoch + 1 if session.epoch < EPOCH_MAX else 1
        return session

    def _make_room(self, size: int, now_ms: int, is_of_follower: bool) -> bool:
        """Closes one session, if there is one that is worth less than one of `size` partitions."""
        oldest = next(iter(self._by_id.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.last_used_ms <= EVICTION_MS:
            replaceable = (
                each
                for each in self._by_id.values()
                if each.last_used_ms - each.created_ms > EVICTION_MS or (is_of_follower and not each.is_of_follower)
            )
            least = min(replaceable, key=_worth, default=None)
            if least is None or (least.is_of_follower, len(least.entries)) >= (is_of_follower, size):
                return False
            oldest = least
        self.close(oldest.id)
        self.evictions += 1
        return True


def _worth(session: FetchSession) -> tuple[bool, int, int]:
    return session.is_of_follower, len(session.entries), session.id


def tell(entry: FetchEntry, read: PartitionRead) -> bool:
    """Notes what a reader is told about a partition. False if it knows that already."""
    is_new = (
        read.records is not None
        or read.is_notice
        or read.high_watermark != entry.told_high_watermark
        or read.log_start_offset != entry.told_log_start
    )
    # After an error the partition is reported again, even if it is as it was before.
    entry.told_high_watermark = NOT_TOLD if read.error else read.high_watermark
    entry.told_log_start = read.log_start_offset
    return is_new
