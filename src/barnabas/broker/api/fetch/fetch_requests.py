"""Fetch requests of a connection, from when they come until they are answered.

One with nothing to deliver is parked until a partition grows or its time is up.
"""

from __future__ import annotations

from functools import partial
from struct import Struct
from typing import TYPE_CHECKING

from barnabas.broker.api.current_leader import leader_endpoints
from barnabas.broker.api.fetch.fetch_answer import (
    FIRST_VERSION_WITH_LEADER_ENDPOINTS,
    FIRST_VERSION_WITH_TOPIC_IDS,
    NO_TAGS,
    encode_answer,
    encode_session_error,
    encode_without_records,
)
from barnabas.broker.api.fetch.fetch_partitions import group_by_topic, may_have_news, name_leaders, read_partition
from barnabas.broker.api.fetch.fetch_sessions import INITIAL_EPOCH, NO_SESSION, FetchSession, SessionReads
from barnabas.net.connection import Slot
from barnabas.net.parts import FilePart, Part, release_parts
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from barnabas.broker.api.client_connection import ClientConnection
    from barnabas.broker.api.environments import FetchEnvironment
    from barnabas.broker.api.fetch.fetch_answer import TopicReads
    from barnabas.broker.api.fetch.fetch_partitions import Entries
    from barnabas.net.purgatory import Watchers
    from barnabas.protocol import messages as m
    from barnabas.replication.partition import Pulse

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
ISOLATION_LEVELS = (READ_UNCOMMITTED, READ_COMMITTED)

_FRAME = Struct(">ii")


class Fetch(Slot):
    """A fetch request of one connection: run when it comes, parked while there is too little, run again."""

    __slots__ = ("_environment", "correlation_id", "is_committed", "max_bytes", "max_wait_ms", "min_bytes", "version")
    operation = "Fetch"

    def __init__(
        self, environment: FetchEnvironment, connection: ClientConnection, request: m.FetchRequest, version: int
    ) -> None:
        super().__init__(connection)
        self._environment = environment
        self.correlation_id = connection.correlation_id
        self.version = version
        self.max_wait_ms = request.max_wait_ms
        self.min_bytes = request.min_bytes
        self.max_bytes = request.max_bytes
        self.is_committed = request.isolation_level == READ_COMMITTED

    def cancel(self) -> None:
        self._environment.purgatory.cancel(self)

    def _park(self, watched: list[Watchers]) -> None:
        self.connection.line_up(self)
        self._environment.purgatory.park(self, self.max_wait_ms, watched)

    @property
    def _budget(self) -> int:
        return min(self.max_bytes, self._environment.settings.config.fetch_max_bytes)

    def _send(self, reads: TopicReads, session_id: int) -> None:
        """Replies at once from the page cache, or when a thread has brought cold pages there."""
        tags = self._name_leaders(reads) if self.version >= FIRST_VERSION_WITH_LEADER_ENDPOINTS else NO_TAGS
        parts = encode_answer(self.version, self.correlation_id, reads, session_id, tags)
        cold = [part for part in parts if isinstance(part, FilePart) and part.is_cold]
        if cold:
            if not self.is_in_line:
                self.connection.line_up(self)
            self._environment.warm(cold, partial(self._send_warmed, parts))
        elif self.is_in_line:
            self.fill(parts)
        else:
            self.connection.reply(parts)

    def _name_leaders(self, reads: TopicReads) -> bytes:
        replicas = self._environment.replicas
        leaders = name_leaders(replicas, reads)
        return leader_endpoints(replicas, leaders, self.connection.listener.name) if leaders else NO_TAGS

    def _send_warmed(self, parts: list[Part], error: BaseException | None) -> None:
        if error is None:
            self.fill(parts)
        else:
            release_parts(parts)
            self.connection.refuse(f"reading records for it failed: {error}")


class SessionFetch(Fetch):
    """An incremental request of a session."""

    __slots__ = ("_epoch", "_found", "_session")

    def __init__(
        self,
        environment: FetchEnvironment,
        connection: ClientConnection,
        request: m.FetchRequest,
        version: int,
        session: FetchSession,
    ) -> None:
        super().__init__(environment, connection, request, version)
        self._session = session
        self._epoch = session.epoch
        self._found: SessionReads | None = None

    def start(self) -> None:
        reads = self._read()
        if self.max_wait_ms > 0 and not self._is_enough(reads):
            self._park([self._session.watchers])
        else:
            self._answer(reads)

    def _read(self) -> SessionReads:
        return self._session.read(
            self._environment.replicas, self.version, self._budget, is_committed=self.is_committed
        )

    def _is_enough(self, reads: SessionReads) -> bool:
        return (
            reads.has_error
            or reads.has_more
            or reads.total_bytes >= self.min_bytes
            or self._session.has_high_watermarks_to_tell(reads)
        )

    @property
    def _is_overtaken(self) -> bool:
        """Whether the session has had another request since."""
        return self._session.epoch != self._epoch

    def is_ready(self) -> bool:
        if self._is_overtaken:
            return True
        self._found = self._read()
        return self._is_enough(self._found)

    def complete(self) -> None:
        found, self._found = self._found, None
        if self._is_overtaken and self._session.is_of_follower:
            # A follower sends another request before this one is answered. The answer to that one has all the news.
            self._send([], self._session.id)
        else:
            self._answer(self._read() if found is None else found)

    def _answer(self, reads: SessionReads) -> None:
        session = self._session
        if self._is_overtaken:
            self._refuse(Error.INVALID_FETCH_SESSION_EPOCH)
        else:
            self._send(session.news(reads), session.id)

    def _refuse(self, error: Error) -> None:
        refusal = encode_session_error(self.version, self.correlation_id, error, self._session.id)
        if self.is_in_line:
            self.fill([refusal])
        else:
            self.connection.reply_bytes(refusal)


class StandingFetch(Fetch):
    """A request that names all its partitions. It is reused for every later request with the same bytes, unless it is
    still waiting for its answer."""

    __slots__ = (
        "_by_key",
        "_generation",
        "_opens_session",
        "_pulse",
        "_quiet_body",
        "body",
        "entries",
        "topics",
        "watchers",
    )

    def __init__(
        self,
        environment: FetchEnvironment,
        connection: ClientConnection,
        request: m.FetchRequest,
        version: int,
        entries: Entries,
        *,
        body: bytes = b"",
    ) -> None:
        super().__init__(environment, connection, request, version)
        self._by_key = entries
        self._pulse: Pulse | None = None
        """Of the follower, if it is a follower's request."""
        self._quiet_body = b""
        self._opens_session = request.session_epoch == INITIAL_EPOCH
        self._generation = environment.replicas.generation
        self.body = body
        """Everything after the correlation id: client id, tags, request. Empty if it is not to be reused."""
        self.topics = group_by_topic(entries)
        self.entries = [entry for _, neighbours in self.topics for entry in neighbours]
        self.watchers: list[Watchers] = [entry.hosted.watchers for entry in self.entries if entry.hosted]

    def is_current(self) -> bool:
        """Whether the partitions are still those that the request names."""
        generation = self._environment.replicas.generation
        if self._generation != generation:
            if any(entry.has_to_be_found for entry in self.entries):
                return False
            self._generation = generation
        return True

    def start(self, correlation_id: int) -> None:
        """Answers at once, or waits for more."""
        self.correlation_id = correlation_id
        may_wait = self.max_wait_ms > 0 and self.entries
        if may_wait and self.min_bytes > 0 and not self.has_news():
            self._park(self.watchers)
            return
        reads, total_bytes, has_error = self._run()
        if may_wait and total_bytes < self.min_bytes and not has_error:
            self._park(self.watchers)
        else:
            self._answer(reads)

    def has_news(self) -> bool:
        """Whether reading the partitions could find anything else than that their reader is up to date."""
        for entry in self.entries:  # noqa: SIM110 (most have one, and a generator costs as much as the look)
            if may_have_news(entry, self.is_committed):
                return True
        return False

    def _is_at_ends(self) -> bool:
        """Whether every reader has all there is, so that the answer to this request is always the same."""
        return all(
            entry.hosted is not None and entry.hosted.state.high_watermark.offset == entry.offset
            for entry in self.entries
        )

    # ── while it is parked ───────────────────────────────────────────────────────────────────────────────────

    def is_ready(self) -> bool:
        if not self.is_current():
            return True
        if not self.has_news():
            return False
        if self.min_bytes <= 1:
            return True
        _, total_bytes, has_error = self._run()
        return has_error or total_bytes >= self.min_bytes

    def complete(self) -> None:
        if self._opens_session or self.has_news() or (self.is_committed and not self._is_at_ends()):
            self._answer(self._run()[0])
        else:
            self.fill([self._quiet_answer()])

    # ── answering ────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> tuple[TopicReads, int, bool]:
        """Reads every partition within the limits: what was read, how many bytes, whether any failed."""
        budget = self._budget
        total = 0
        has_error = False
        topics: TopicReads = []
        for key, entries in self.topics:
            reads = []
            for entry in entries:
                read = read_partition(entry, self.is_committed, min(entry.max_bytes, budget - total), total == 0)
                if read.is_notice:
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
            if entry.hosted.log.log_start_offset != entry.told_log_start:
                self._write_quiet_answer()
                break
        return _FRAME.pack(4 + len(self._quiet_body), self.correlation_id) + self._quiet_body

    def _write_quiet_answer(self) -> None:
        reads = []
        for key, entries in self.topics:
            partitions = [read_partition(entry, self.is_committed, 0, False) for entry in entries]
            for entry, read in zip(entries, partitions, strict=True):
                entry.told_log_start = read.log_start_offset
            reads.append((key, partitions))
        self._quiet_body = encode_without_records(self.version, reads)

    def _answer(self, reads: TopicReads) -> None:
        self._send(reads, self._open_session(reads) if self._opens_session else NO_SESSION)

    def _open_session(self, reads: TopicReads) -> int:
        session = self._environment.sessions.open(
            self._by_key,
            self._generation,
            self._environment.clock.now_ms(),
            uses_topic_ids=self.version >= FIRST_VERSION_WITH_TOPIC_IDS,
            pulse=self._pulse,
        )
        if session is None:
            return NO_SESSION
        told = SessionReads()
        for (_, entries), (_, partitions) in zip(self.topics, reads, strict=True):
            for entry, read in zip(entries, partitions, strict=True):
                told.add(entry, read)
        session.news(told)
        return session.id


class FollowerFetch(StandingFetch):
    """A follower's request that names all its partitions, as the first one of a session does."""

    __slots__ = ()

    def __init__(
        self,
        environment: FetchEnvironment,
        connection: ClientConnection,
        request: m.FetchRequest,
        version: int,
        entries: Entries,
        pulse: Pulse,
    ) -> None:
        super().__init__(environment, connection, request, version, entries)
        self._pulse = pulse
        self.watchers = [entry.hosted.copying_watchers for entry in self.entries if entry.hosted]

    def has_news(self) -> bool:
        return True

    def is_ready(self) -> bool:
        _, total_bytes, has_error = self._run()
        return has_error or total_bytes >= self.min_bytes
