"""Fetch requests of very many partitions: looked up, read and written into the answer with turns for others in between.

A full fetch answers every partition that it names. It waits only if there is nothing new in any of them, and as soon as
one has grown it is answered, whatever minimum of bytes it asks for: to look through all of them again for every record
that comes would cost more than it spares. An incremental fetch has what it names put into its session piece by piece,
and goes on from there like any other.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Any

from barnabas.broker.api.client_connection import ClientConnection
from barnabas.broker.api.current_leader import leader_endpoints
from barnabas.broker.api.fetch.fetch_answer import (
    FIRST_VERSION_WITH_LEADER_ENDPOINTS,
    FIRST_VERSION_WITH_TOPIC_IDS,
    HEAD_BYTES_MAX,
    INLINE_BYTES_MAX,
    NO_TAGS,
    PartsWriter,
    encode_session_error,
    failure,
    partitions_writer,
    write_beginning,
    write_end,
    write_topic_beginning,
)
from barnabas.broker.api.fetch.fetch_partitions import (
    add_to_topics,
    fetching_replica,
    look_up,
    may_have_news,
    name_leaders,
    note_follower,
    read_partition,
)
from barnabas.broker.api.fetch.fetch_requests import ISOLATION_LEVELS, READ_COMMITTED, SessionFetch
from barnabas.broker.api.fetch.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, SessionReads
from barnabas.net.connection import BadRequestError
from barnabas.net.large_requests import answer_pieces
from barnabas.net.parts import FilePart, release_parts
from barnabas.net.purgatory import Parked
from barnabas.protocol.errors import Error
from barnabas.replication.partition import Pulse

if TYPE_CHECKING:
    from barnabas.broker.api.environments import FetchEnvironment
    from barnabas.broker.api.fetch.fetch_answer import PartitionRead
    from barnabas.broker.api.fetch.fetch_partitions import Entries, FetchEntry, TopicEntries
    from barnabas.broker.api.fetch.fetch_sessions import FetchSession
    from barnabas.net.dispatch import Caller, Handler
    from barnabas.net.large_requests import LargeRequest
    from barnabas.net.parts import Part
    from barnabas.net.purgatory import Purgatory, Watchers
    from barnabas.protocol import messages as m

PARTITIONS_MAX = 50_000
"""A request that names more closes its connection."""
READ_AT_ONCE = 16
LOOKED_AT_AT_ONCE = 500
ENTRY_BYTES = 512
"""What a partition of a request takes in memory, roughly."""


def fail_piece(
    environment: FetchEnvironment,  # noqa: ARG001 (every handler takes it)
    piece: m.FetchRequest,
    caller: Caller,
) -> m.FetchResponse:
    """The answer to a piece of a request that fails as a whole. The error is in its partitions, and goes into the head
    of the answer where it has no other place."""
    response = failure(caller.api_version, piece, Error.UNKNOWN_SERVER_ERROR)
    response.error_code = Error.NONE
    return response


async def fetch_in_pieces(
    handler: Handler, environment: FetchEnvironment, request: LargeRequest, caller: Caller
) -> Any:
    await request.check()
    root, version = request.root, caller.api_version
    connection = request.connection
    assert isinstance(connection, ClientConnection)
    connection.last_fetch = None
    sessions = environment.sessions
    session: FetchSession | None = None
    if root.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        sessions.close(root.session_id)
    else:
        found = sessions.take(root, version, environment.clock.now_ms())
        if isinstance(found, Error):
            return [encode_session_error(version, caller.correlation_id, found, NO_SESSION)]
        session = found
    pulse = None
    if fetching_replica(environment.replicas, root, version) is not None:
        pulse = Pulse(0) if session is None else session.pulse
        pulse.last_ms = int(environment.clock.monotonic() * 1000)
    entries: Entries = {}
    async for piece in request.pieces():
        named = look_up(environment.replicas, piece, version)
        before = len(entries)
        entries.update(named)
        if session is not None:
            session.add(named)
        if pulse is not None:
            for entry in named.values():
                note_follower(entry, pulse)
        await request.charge(ENTRY_BYTES * (len(entries) - before))
        if len(entries) > PARTITIONS_MAX:
            raise BadRequestError(f"asked for more than {PARTITIONS_MAX} partitions at once")
    if session is not None:
        session.forget(root.forgotten_topics_data, version)
        if session.is_too_large:
            sessions.close(session.id)
            error = Error.FETCH_SESSION_ID_NOT_FOUND
            return [encode_session_error(version, caller.correlation_id, error, NO_SESSION)]
        if not session.entries:
            sessions.close(session.id)
            session = None
    if root.isolation_level not in ISOLATION_LEVELS and not all(entry.is_unknown for entry in entries.values()):
        response = await answer_pieces(handler, environment, request, caller)
        response.error_code = Error.UNKNOWN_SERVER_ERROR
        return response
    if session is not None:
        if pulse is not None and session.watchers:
            environment.purgatory.wake(session.watchers)
        SessionFetch(environment, connection, root, version, session).start()
        return []
    fetch = LongFetch(environment, request, caller, entries, pulse)
    parts = await fetch.answer()
    await request.forget(entries)
    return parts


class LongFetch:
    """A full fetch of very many partitions, by a consumer or by a follower with its pulse."""

    def __init__(
        self,
        environment: FetchEnvironment,
        request: LargeRequest,
        caller: Caller,
        entries: Entries,
        pulse: Pulse | None = None,
    ) -> None:
        self._environment = environment
        self._request = request
        self._version = caller.api_version
        self._correlation_id = caller.correlation_id
        self._by_key = entries
        self._pulse = pulse
        self._leaders: set[int] = set()
        """Of partitions that were asked of the wrong broker."""
        self._is_committed = request.root.isolation_level == READ_COMMITTED
        self._generation = environment.replicas.generation
        self._budget: int = min(request.root.max_bytes, environment.settings.config.fetch_max_bytes)

    async def answer(self) -> list[Part]:
        topics = await self._grouped()
        root = self._request.root
        if root.max_wait_ms > 0 and root.min_bytes > 0 and not await self._has_news(topics):
            watched = [watchers_of(entry) for _, entries in topics for entry in entries]
            await Growth().wait(self._environment.purgatory, root.max_wait_ms, watched)
        session = self._open_session() if root.session_epoch == INITIAL_EPOCH else None
        writer = PartsWriter()
        try:
            await self._write(writer, topics, session)
            parts = writer.finish(self._correlation_id)
        except BaseException:
            release_parts(writer.parts)
            if session is not None:
                self._environment.sessions.close(session.id)
            raise
        await self._warm(parts)
        return parts

    async def _grouped(self) -> TopicEntries:
        """As `group_by_topic` has them: those that do not exist come last."""
        topics: TopicEntries = []
        for are_unknown in (False, True):
            items = iter(self._by_key.items())
            while some := list(islice(items, LOOKED_AT_AT_ONCE)):
                for (topic, _), entry in some:
                    if entry.is_unknown is are_unknown:
                        add_to_topics(topics, topic, entry)
                await self._request.pause_if_due()
        return topics

    async def _has_news(self, topics: TopicEntries) -> bool:
        for _, entries in topics:
            for start in range(0, len(entries), LOOKED_AT_AT_ONCE):
                some = entries[start : start + LOOKED_AT_AT_ONCE]
                if any(may_have_news(entry, self._is_committed) for entry in some):
                    return True
                await self._request.pause_if_due()
        return False

    def _open_session(self) -> FetchSession | None:
        return self._environment.sessions.open(
            self._by_key,
            self._generation,
            self._environment.clock.now_ms(),
            uses_topic_ids=self._version >= FIRST_VERSION_WITH_TOPIC_IDS,
            pulse=self._pulse,
        )

    async def _write(self, writer: PartsWriter, topics: TopicEntries, session: FetchSession | None) -> None:
        """What is read is written at once: a file that nobody holds may be closed in the next turn."""
        version, budget = self._version, self._budget
        write_beginning(writer, version, session.id if session else NO_SESSION, len(topics))
        write_partitions = partitions_writer(version)
        for topic, entries in topics:
            write_topic_beginning(writer, version, topic, len(entries))
            for start in range(0, len(entries), READ_AT_ONCE):
                some = entries[start : start + READ_AT_ONCE]
                reads, budget = self._read(some, budget)
                if version >= FIRST_VERSION_WITH_LEADER_ENDPOINTS:
                    self._leaders.update(name_leaders(self._environment.replicas, [(topic, reads)]))
                write_partitions(writer, version, reads)
                if len(writer.head) > HEAD_BYTES_MAX:
                    writer.cut()
                if session is not None:
                    tell_session(session, some, reads)
                await self._request.charge(sum(map(inline_bytes, reads)))
                await self._request.pause_if_due()
            write_end(writer, version)
        write_end(writer, version, self._leaders_tags())

    def _leaders_tags(self) -> bytes:
        if not self._leaders:
            return NO_TAGS
        return leader_endpoints(self._environment.replicas, self._leaders, self._request.connection.listener.name)

    def _read(self, entries: list[FetchEntry], budget: int) -> tuple[list[PartitionRead], int]:
        """What is in these partitions, and what is left of the limit."""
        reads = []
        for entry in entries:
            is_first = budget == self._budget
            read = read_partition(entry, self._is_committed, min(entry.max_bytes, budget), is_first)
            if read.records is not None:
                budget -= read.records.length
            reads.append(read)
        return reads, budget

    async def _warm(self, parts: list[Part]) -> None:
        """Has a thread bring cold pages into the page cache."""
        cold = [part for part in parts if isinstance(part, FilePart) and part.is_cold]
        if not cold:
            return
        warmed: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        self._environment.warm(cold, warmed.set_result)
        error = await warmed
        if error is not None:
            release_parts(parts)
            raise error


def watchers_of(entry: FetchEntry) -> Watchers:
    """Of a partition that exists: those that wait for what this reader waits for."""
    assert entry.hosted is not None
    return entry.hosted.watchers if entry.replica is None else entry.hosted.copying_watchers


def tell_session(session: FetchSession, entries: list[FetchEntry], reads: list[PartitionRead]) -> None:
    told = SessionReads()
    for entry, read in zip(entries, reads, strict=True):
        told.add(entry, read)
    session.news(told)


def inline_bytes(read: PartitionRead) -> int:
    """What the answer holds of records in memory."""
    if read.records is None or read.records.length > INLINE_BYTES_MAX:
        return 0
    return read.records.length


class Growth(Parked):
    """Waits until one of some partitions has changed, or for as long as its reader wants to wait."""

    __slots__ = ("_done",)
    operation = "Fetch"

    def __init__(self) -> None:
        super().__init__()
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait(self, purgatory: Purgatory, wait_ms: int, watched: list[Watchers]) -> None:
        purgatory.park(self, wait_ms, watched)
        try:
            await self._done
        finally:
            purgatory.cancel(self)

    def is_ready(self) -> bool:
        return True

    def complete(self) -> None:
        if not self._done.done():
            self._done.set_result(None)

    def fail(self) -> None:
        self.complete()
