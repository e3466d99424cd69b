"""How many fetch sessions there are, and which makes room."""

from __future__ import annotations

from barnabas.broker.api.fetch_partitions import Entries, FetchEntry
from barnabas.broker.api.fetch_sessions import EPOCH_MAX, EVICTION_MS, NO_SESSION, FetchSession, FetchSessions
from barnabas.ports import SystemRandom
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error


def partitions(count: int) -> Entries:
    return {(b"t", index): FetchEntry(m.FetchRequest.FetchPartition(partition=index)) for index in range(count)}


def open_session(sessions: FetchSessions, size: int, now_ms: int) -> int:
    return sessions.open(partitions(size), 0, now_ms, uses_topic_ids=False)


def use(sessions: FetchSessions, session_id: int, epoch: int, now_ms: int) -> FetchSession | Error:
    return sessions.take(m.FetchRequest(session_id=session_id, session_epoch=epoch), 12, now_ms)


def test_without_room_a_reader_gets_no_session() -> None:
    sessions = FetchSessions(2, SystemRandom())
    assert len({open_session(sessions, 1, 0), open_session(sessions, 1, 0)}) == 2
    assert open_session(sessions, 5, 1) == NO_SESSION
    assert open_session(FetchSessions(0, SystemRandom()), 5, 1) == NO_SESSION


def test_a_session_that_was_not_used_for_long_makes_room() -> None:
    sessions = FetchSessions(2, SystemRandom())
    idle, busy = open_session(sessions, 1, 0), open_session(sessions, 1, 0)
    assert isinstance(use(sessions, busy, 1, EVICTION_MS), FetchSession)
    assert open_session(sessions, 1, EVICTION_MS + 1) != NO_SESSION
    assert use(sessions, idle, 1, EVICTION_MS + 1) is Error.FETCH_SESSION_ID_NOT_FOUND
    assert isinstance(use(sessions, busy, 2, EVICTION_MS + 1), FetchSession)


def test_an_old_session_makes_room_for_a_larger_one() -> None:
    sessions = FetchSessions(2, SystemRandom())
    small, large = open_session(sessions, 2, 0), open_session(sessions, 9, 0)
    now_ms = EVICTION_MS + 1
    for session_id in (small, large):
        assert isinstance(use(sessions, session_id, 1, now_ms), FetchSession)
    assert open_session(sessions, 2, now_ms) == NO_SESSION
    assert open_session(sessions, 3, now_ms) != NO_SESSION
    assert use(sessions, small, 2, now_ms) is Error.FETCH_SESSION_ID_NOT_FOUND
    assert isinstance(use(sessions, large, 2, now_ms), FetchSession)


def test_epochs_go_round_without_zero() -> None:
    sessions = FetchSessions(1, SystemRandom())
    session_id = open_session(sessions, 1, 0)
    session = use(sessions, session_id, 1, 0)
    assert isinstance(session, FetchSession)
    session.epoch = EPOCH_MAX
    assert use(sessions, session_id, EPOCH_MAX, 0) is session
    assert session.epoch == 1
