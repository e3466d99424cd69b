"""Fetch sessions: what a reader has said once it need not say again, and is not told again.

A full fetch with session epoch 0 opens a session, and its answer carries the session's id. From then on a request
names only the partitions that are new, changed or no longer wanted, and an answer only those with records, an error,
or a high watermark or log start that the reader has not been told. Each request has the next epoch: one that was lost
or came twice is noticed, and the reader begins anew with a full fetch.

Sessions are few (`max.incremental.fetch.session.cache.slots`). When there is no room, a new one takes the place of one
that has not been used for long, or of one that is old and has fewer partitions; else its reader goes on with full
fetches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.api.fetch_answer import FIRST_VERSION_WITH_TOPIC_IDS
from barnabas.broker.api.fetch_partitions import NOT_TOLD, topic_key
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from barnabas.broker.api.fetch_answer import PartitionRead, TopicReads
    from barnabas.broker.api.fetch_partitions import Entries, FetchEntry, TopicEntries
    from barnabas.broker.server import Broker
    from barnabas.ports import Random
    from barnabas.protocol import messages as m

NO_SESSION = 0
FINAL_EPOCH = -1
INITIAL_EPOCH = 0
EPOCH_MAX = 2**31 - 1
SESSION_ID_MAX = 2**31 - 1
EVICTION_MS = 120_000


class FetchSession:
    __slots__ = ("created_ms", "entries", "epoch", "generation", "id", "last_used_ms", "uses_topic_ids")

    def __init__(
        self, session_id: int, entries: Entries, generation: int, now_ms: int, *, uses_topic_ids: bool
    ) -> None:
        self.id = session_id
        self.entries = entries
        self.generation = generation
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = self.last_used_ms = now_ms
        self.epoch = 1
        """That of the next request."""

    def update(self, broker: Broker, request: m.FetchRequest, named: Entries, version: int) -> None:
        """Takes over what a request adds, changes and forgets."""
        for key, entry in named.items():
            known = self.entries.get(key)
            if known is not None:
                entry.told_high_watermark = known.told_high_watermark
                entry.told_log_start = known.told_log_start
            self.entries[key] = entry
        for forgotten in request.forgotten_topics_data:
            topic = topic_key(forgotten.topic, forgotten.topic_id, version)
            for index in forgotten.partitions:
                self.entries.pop((topic, index), None)
        if self.generation != broker.replicas.generation:
            self.generation = broker.replicas.generation
            for (topic, _), entry in self.entries.items():
                entry.find(broker, topic, version)

    def news(self, topics: TopicEntries, reads: TopicReads) -> TopicReads:
        """The part of what was read that the reader does not know; from now on it does. A partition that had records
        goes to the end of the line, so that it does not use up the limits of the next fetch as well."""
        told: TopicReads = []
        for (key, entries), (_, partitions) in zip(topics, reads, strict=True):
            new = [read for entry, read in zip(entries, partitions, strict=True) if tell(entry, read)]
            if new:
                told.append((key, new))
            for read in new:
                if read.records is not None:
                    self.entries[key, read.index] = self.entries.pop((key, read.index))
        return told


class FetchSessions:
    """All sessions of a broker."""

    __slots__ = ("_by_id", "_random", "_slots_max")

    def __init__(self, slots_max: int, random: Random) -> None:
        self._slots_max = slots_max
        self._random = random
        self._by_id: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def open(self, entries: Entries, generation: int, now_ms: int, *, uses_topic_ids: bool) -> int:
        """The id of a new session of these partitions; 0 when there is no room for one."""
        if len(self._by_id) >= self._slots_max and not self._make_room(len(entries), now_ms):
            return NO_SESSION
        session_id = 1 + self._random.below(SESSION_ID_MAX)
        while session_id in self._by_id:
            session_id = 1 + self._random.below(SESSION_ID_MAX)
        self._by_id[session_id] = FetchSession(session_id, entries, generation, now_ms, uses_topic_ids=uses_topic_ids)
        return session_id

    def close(self, session_id: int) -> None:
        self._by_id.pop(session_id, None)

    def take(self, request: m.FetchRequest, version: int, now_ms: int) -> FetchSession | Error:
        """The session that an incremental request belongs to, or why it belongs to none."""
        session = self._by_id.get(request.session_id)
        if session is None:
            return Error.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != request.session_epoch:
            return Error.INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != (version >= FIRST_VERSION_WITH_TOPIC_IDS):
            return Error.FETCH_SESSION_TOPIC_ID_ERROR
        # The least recently used is the first: who is used goes to the end.
        self._by_id[session.id] = self._by_id.pop(session.id)
        session.last_used_ms = now_ms
        session.epoch = session.epoch + 1 if session.epoch < EPOCH_MAX else 1
        return session

    def _make_room(self, size: int, now_ms: int) -> bool:
        oldest = next(iter(self._by_id.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.last_used_ms <= EVICTION_MS:
            settled = (each for each in self._by_id.values() if each.last_used_ms - each.created_ms > EVICTION_MS)
            smallest = min(settled, key=lambda each: (len(each.entries), each.id), default=None)
            if smallest is None or len(smallest.entries) >= size:
                return False
            oldest = smallest
        self.close(oldest.id)
        return True


def tell(entry: FetchEntry, read: PartitionRead) -> bool:
    """Notes what a reader is told of a partition. False when it knows that already."""
    is_new = (
        read.records is not None
        or read.error != Error.NONE
        or read.diverging is not None
        or read.high_watermark != entry.told_high_watermark
        or read.log_start_offset != entry.told_log_start
    )
    # After an error the partition is told of again, even if it is as it was before.
    entry.told_high_watermark = NOT_TOLD if read.error else read.high_watermark
    entry.told_log_start = read.log_start_offset
    return is_new
