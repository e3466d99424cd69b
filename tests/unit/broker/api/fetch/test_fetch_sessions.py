"""How many fetch sessions there are, which makes room, and which of its partitions a session visits."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from barnabas.broker.api.fetch import fetch_sessions
from barnabas.broker.api.fetch.fetch_partitions import Entries, FetchEntry, look_up
from barnabas.broker.api.fetch.fetch_sessions import EPOCH_MAX, EVICTION_MS, NO_SESSION, FetchSession, FetchSessions
from barnabas.config.topic_config import TopicConfig
from barnabas.net.purgatory import Purgatory
from barnabas.ports import SystemRandom
from barnabas.protocol import messages as m
from barnabas.protocol.batch import build_batch
from barnabas.protocol.errors import Error
from barnabas.protocol.record import Record
from barnabas.replication.partition import Pulse
from barnabas.testing.clock import ManualClock
from tests.unit.broker.api.stand_ins import a_topic
from tests.unit.replication.hosting import Hosting

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from barnabas.replication.hosted import HostedPartition

VERSION = 12
PLENTY_BYTES = 1 << 20


@pytest.fixture
def purgatory() -> Iterator[Purgatory]:
    loop = asyncio.new_event_loop()
    yield Purgatory(loop)
    loop.close()


def partitions(count: int) -> Entries:
    return {(b"t", index): FetchEntry(b"t", m.FetchRequest.FetchPartition(partition=index)) for index in range(count)}


def open_session(sessions: FetchSessions, size: int, now_ms: int, *, is_of_follower: bool = False) -> int:
    pulse = Pulse(0) if is_of_follower else None
    session = sessions.open(partitions(size), 0, now_ms, uses_topic_ids=False, pulse=pulse)
    return session.id if session is not None else NO_SESSION


def use(sessions: FetchSessions, session_id: int, epoch: int, now_ms: int) -> FetchSession | Error:
    return sessions.take(m.FetchRequest(session_id=session_id, session_epoch=epoch), 12, now_ms)


def test_without_room_a_reader_gets_no_session(purgatory: Purgatory) -> None:
    sessions = FetchSessions(2, purgatory, SystemRandom())
    assert len({open_session(sessions, 1, 0), open_session(sessions, 1, 0)}) == 2
    assert open_session(sessions, 5, 1) == NO_SESSION
    assert open_session(FetchSessions(0, purgatory, SystemRandom()), 5, 1) == NO_SESSION


def test_a_session_that_was_not_used_for_long_makes_room(purgatory: Purgatory) -> None:
    sessions = FetchSessions(2, purgatory, SystemRandom())
    idle, busy = open_session(sessions, 1, 0), open_session(sessions, 1, 0)
    assert isinstance(use(sessions, busy, 1, EVICTION_MS), FetchSession)
    assert open_session(sessions, 1, EVICTION_MS + 1) != NO_SESSION
    assert use(sessions, idle, 1, EVICTION_MS + 1) is Error.FETCH_SESSION_ID_NOT_FOUND
    assert isinstance(use(sessions, busy, 2, EVICTION_MS + 1), FetchSession)


def test_an_old_session_makes_room_for_a_larger_one(purgatory: Purgatory) -> None:
    sessions = FetchSessions(2, purgatory, SystemRandom())
    small, large = open_session(sessions, 2, 0), open_session(sessions, 9, 0)
    now_ms = EVICTION_MS + 1
    for session_id in (small, large):
        assert isinstance(use(sessions, session_id, 1, now_ms), FetchSession)
    assert open_session(sessions, 2, now_ms) == NO_SESSION
    assert open_session(sessions, 3, now_ms) != NO_SESSION
    assert use(sessions, small, 2, now_ms) is Error.FETCH_SESSION_ID_NOT_FOUND
    assert isinstance(use(sessions, large, 2, now_ms), FetchSession)


FOLLOWER, CONSUMER = True, False
YOUNG_MS, OLD_MS = 1, EVICTION_MS + 1


@pytest.mark.parametrize(
    ("there", "size", "age_ms", "new", "new_size", "is_replaced"),
    [
        (CONSUMER, 9, YOUNG_MS, FOLLOWER, 1, True),
        (CONSUMER, 9, OLD_MS, FOLLOWER, 1, True),
        (FOLLOWER, 1, YOUNG_MS, CONSUMER, 9, False),
        (FOLLOWER, 1, OLD_MS, CONSUMER, 9, False),
        (FOLLOWER, 1, YOUNG_MS, FOLLOWER, 9, False),
        (FOLLOWER, 1, OLD_MS, FOLLOWER, 9, True),
        (FOLLOWER, 9, OLD_MS, FOLLOWER, 9, False),
        (CONSUMER, 1, YOUNG_MS, CONSUMER, 9, False),
        (CONSUMER, 1, OLD_MS, CONSUMER, 9, True),
    ],
)
def test_a_session_in_use_makes_room_for_one_that_is_worth_more(
    purgatory: Purgatory, there: bool, size: int, age_ms: int, new: bool, new_size: int, is_replaced: bool
) -> None:
    sessions = FetchSessions(1, purgatory, SystemRandom())
    used = open_session(sessions, size, 0, is_of_follower=there)
    assert isinstance(use(sessions, used, 1, age_ms), FetchSession)
    assert (open_session(sessions, new_size, age_ms, is_of_follower=new) != NO_SESSION) is is_replaced
    assert (sessions.get(used) is None) is is_replaced


@pytest.mark.parametrize("new", [CONSUMER, FOLLOWER])
def test_the_session_of_a_follower_that_has_gone_makes_room_for_anybody(purgatory: Purgatory, new: bool) -> None:
    sessions = FetchSessions(1, purgatory, SystemRandom())
    open_session(sessions, 9, 0, is_of_follower=FOLLOWER)
    assert open_session(sessions, 1, OLD_MS, is_of_follower=new) != NO_SESSION


def test_a_follower_takes_the_place_of_the_smallest_consumer(purgatory: Purgatory) -> None:
    sessions = FetchSessions(3, purgatory, SystemRandom())
    follower = open_session(sessions, 1, 0, is_of_follower=FOLLOWER)
    large, small = open_session(sessions, 5, 0), open_session(sessions, 2, 0)
    assert open_session(sessions, 1, YOUNG_MS, is_of_follower=FOLLOWER) != NO_SESSION
    assert sessions.get(small) is None
    assert sessions.get(follower) is not None
    assert sessions.get(large) is not None


def test_epochs_go_round_without_zero(purgatory: Purgatory) -> None:
    sessions = FetchSessions(1, purgatory, SystemRandom())
    session_id = open_session(sessions, 1, 0)
    session = use(sessions, session_id, 1, 0)
    assert isinstance(session, FetchSession)
    session.epoch = EPOCH_MAX
    assert use(sessions, session_id, EPOCH_MAX, 0) is session
    assert session.epoch == 1


# ── visiting what has changed ────────────────────────────────────────────────────────────────────────────────────


class Reader:
    """A session over the partitions of a topic `t`, whose reader has got all there is."""

    def __init__(self, hosting: Hosting, count: int) -> None:
        self.hosting = hosting
        request = m.FetchRequest(topics=[self._topic("t", range(count))])
        sessions = FetchSessions(10, hosting.purgatory, SystemRandom())
        entries = look_up(hosting.replicas, request, VERSION)
        session = sessions.open(entries, hosting.replicas.generation, 0, uses_topic_ids=False)
        assert session is not None
        self.session, self.sessions = session, sessions
        self.visit()

    def visit(self, max_bytes: int = PLENTY_BYTES) -> list[tuple[bytes, int]]:
        """The partitions that a request looks at."""
        reads = self.session.read(self.hosting.replicas, VERSION, max_bytes, is_committed=False)
        self.session.news(reads)
        return [(entry.topic, entry.index) for entry, _ in reads.visited]

    def move(self, index: int, offset: int) -> None:
        """A request names a partition at another offset, as a reader does that has got records."""
        request = m.FetchRequest(topics=[self._topic("t", [index], offset)])
        self.session.add(look_up(self.hosting.replicas, request, VERSION))

    def _topic(self, name: str, indexes: range | list[int], offset: int = 0) -> m.FetchRequest.FetchTopic:
        partition = m.FetchRequest.FetchPartition
        return m.FetchRequest.FetchTopic(
            topic=name,
            partitions=[
                partition(
                    partition=index,
                    fetch_offset=offset,
                    partition_max_bytes=PLENTY_BYTES,
                    current_leader_epoch=-1,
                    last_fetched_epoch=-1,
                )
                for index in indexes
            ],
        )


def grow(hosted: HostedPartition, value_bytes: int = 10) -> None:
    hosted.append(memoryview(bytearray(build_batch([Record(b"x" * value_bytes, timestamp=0)]))), 1)


def by_index(hosting: Hosting, index: int) -> HostedPartition:
    return hosting.replicas.find_by_name(b"t", index)


def opened(tmp_path: Path) -> Hosting:
    hosting = Hosting(tmp_path, ManualClock())
    hosting.open()
    return hosting


def test_a_request_looks_only_at_partitions_that_changed(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = opened(tmp_path)
        await hosting.follow(a_topic("t", 20))
        reader = Reader(hosting, 20)
        assert reader.visit() == []
        grow(by_index(hosting, 7))
        grow(by_index(hosting, 3))
        assert reader.visit() == [(b"t", 7), (b"t", 3)]
        # What has not been read yet is there in the next request too; what was read is not.
        reader.move(7, 1)
        assert reader.visit() == [(b"t", 3), (b"t", 7)]
        assert reader.visit() == [(b"t", 3)]
        reader.move(3, 1)
        reader.visit()
        assert reader.visit() == []
        hosting.crash()

    asyncio.run(scenario())


def test_partitions_that_the_limit_left_out_come_first_in_the_next_request(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = opened(tmp_path)
        await hosting.follow(a_topic("t", 3))
        reader = Reader(hosting, 3)
        for index in range(3):
            grow(by_index(hosting, index), 1000)
        assert reader.visit(max_bytes=1000) == [(b"t", 0)]
        assert reader.visit(max_bytes=1000) == [(b"t", 1)]
        assert reader.visit(max_bytes=1000) == [(b"t", 2)]
        assert reader.visit(max_bytes=1000) == [(b"t", 0)]
        hosting.crash()

    asyncio.run(scenario())


def test_a_request_visits_a_limited_number_of_partitions_and_the_next_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_sessions, "READ_AT_ONCE", 2)

    async def scenario() -> None:
        hosting = opened(tmp_path)
        await hosting.follow(a_topic("t", 3))
        reader = Reader(hosting, 3)
        for index in range(3):
            grow(by_index(hosting, index))
        reader.visit()
        reads = reader.session.read(hosting.replicas, VERSION, PLENTY_BYTES, is_committed=False)
        assert reads.has_more
        assert len(reads.visited) == 2
        reader.session.news(reads)
        before = [entry.index for entry, _ in reads.visited]
        assert reader.visit()[0][1] not in before
        hosting.crash()

    asyncio.run(scenario())


def test_a_reader_of_too_many_partitions_gets_no_session(purgatory: Purgatory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_MAX", 5)
    sessions = FetchSessions(2, purgatory, SystemRandom())
    assert open_session(sessions, 5, 0) != NO_SESSION
    assert open_session(sessions, 6, 0) == NO_SESSION


def test_a_log_that_starts_elsewhere_is_told_of(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = opened(tmp_path)
        await hosting.follow(a_topic("t", 2))
        hosted = by_index(hosting, 1)
        hosted.log.config = TopicConfig(segment_bytes=1000, retention_bytes=1500)
        for _ in range(5):
            grow(hosted, 500)
        reader = Reader(hosting, 2)
        reader.move(1, 5)
        reader.visit()
        assert reader.visit() == []
        assert hosted.apply_retention() > 0
        assert reader.visit() == [(b"t", 1)]
        hosting.crash()

    asyncio.run(scenario())


def test_a_topic_that_goes_and_comes_again_is_found_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = opened(tmp_path)
        await hosting.follow(a_topic("t"))
        reader = Reader(hosting, 1)
        assert reader.visit() == []
        await hosting.follow()
        reads = reader.session.read(hosting.replicas, VERSION, PLENTY_BYTES, is_committed=False)
        assert [read.error for _, read in reads.visited] == [Error.UNKNOWN_TOPIC_OR_PARTITION]
        assert reader.visit() == reader.visit() == [(b"t", 0)]
        again = a_topic("t")._replace(topic_id=a_topic("other").topic_id)
        await hosting.follow(again)
        reads = reader.session.read(hosting.replicas, VERSION, PLENTY_BYTES, is_committed=False)
        assert [read.error for _, read in reads.visited] == [Error.NONE]
        reader.visit()
        assert reader.visit() == []
        grow(by_index(hosting, 0))
        assert reader.visit() == [(b"t", 0)]
        hosting.crash()

    asyncio.run(scenario())


def test_a_closed_session_follows_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = opened(tmp_path)
        await hosting.follow(a_topic("t", 2))
        reader = Reader(hosting, 2)
        assert len(by_index(hosting, 1).subscribers) == 1
        reader.sessions.close(reader.session.id)
        assert all(not hosted.subscribers for hosted in hosting.replicas)
        hosting.crash()

    asyncio.run(scenario())
