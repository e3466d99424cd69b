"""Fetch: records of some partitions from given offsets on, as ranges of segment files.

A consumer that is up to date sends the same request again and again. So its connection keeps the last one as a
`StandingFetch`, with partitions looked up and limits noted: the same bytes under the same metadata are not decoded
twice. One with nothing to deliver is parked until a partition grows or its time is up.

In a session a request is a `SessionFetch`: it visits only the partitions that have changed (`fetch_sessions`), however
many the session has. Requests of hundreds of partitions are answered with turns for others in between
(`fetch_pieces`).

A follower asks in the same way. What it names in a request says how much of the log it has; it is sent everything up to
the log end, and it waits for an append, or for a high watermark that it has not been told.

v5 answers the log start offset · v7 has sessions (see `fetch_sessions`) · v9 fences by leader epoch · v11 names the
client's rack · v12 is flexible and tells of diverging logs · v13 names topics by id · v15 has followers give
their broker epoch · v16 tells which broker leads instead, and its address
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.api.environments import FetchEnvironment
from barnabas.broker.api.fetch.fetch_answer import encode_failure, encode_session_error
from barnabas.broker.api.fetch.fetch_partitions import fetching_replica, look_up, note_follower
from barnabas.broker.api.fetch.fetch_pieces import fail_piece, fetch_in_pieces
from barnabas.broker.api.fetch.fetch_requests import ISOLATION_LEVELS, FollowerFetch, SessionFetch, StandingFetch
from barnabas.broker.api.fetch.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION
from barnabas.broker.api.registry import handles_frames
from barnabas.net.large_requests import Cut
from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error
from barnabas.replication.partition import Pulse

if TYPE_CHECKING:
    from barnabas.broker.api.client_connection import ClientConnection
    from barnabas.broker.api.fetch.fetch_partitions import Entries
    from barnabas.broker.api.fetch.fetch_sessions import FetchSession

CORRELATION_ID_END = 8
STANDING_BYTES_MAX = 2048
WHOLE_BYTES_MAX = 16 * 1024
"""Requests of some hundred partitions are handled in one go."""


@handles_frames(
    ApiKey.FETCH,
    FetchEnvironment,
    versions=(4, 18),
    large=fail_piece,
    cuts=[Cut(("topics", "partitions"), ("responses", "partitions"))],
    large_handler=fetch_in_pieces,
    whole_bytes_max=WHOLE_BYTES_MAX,
)
def fetch(
    environment: FetchEnvironment, connection: ClientConnection, version: int, frame: memoryview, body: int
) -> None:
    last = connection.last_fetch
    if (
        last is not None
        and last.version == version
        and last.body == frame[CORRELATION_ID_END:]
        and not last.is_in_line
        and last.is_current()
    ):
        last.start(connection.correlation_id)
        return
    request, _ = codec.decode_prefix(m.FetchRequest, frame, version, body)
    sessions = environment.sessions
    entries = named = look_up(environment.replicas, request, version)
    session = None
    if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        sessions.close(request.session_id)
    else:
        found = sessions.take(request, version, environment.clock.now_ms())
        if isinstance(found, Error):
            connection.reply_bytes(encode_session_error(version, connection.correlation_id, found, NO_SESSION))
            return
        found.add(entries)
        found.forget(request.forgotten_topics_data, version)
        if found.is_too_large:
            sessions.close(found.id)
            error = Error.FETCH_SESSION_ID_NOT_FOUND
            connection.reply_bytes(encode_session_error(version, connection.correlation_id, error, NO_SESSION))
            return
        if found.entries:
            session, entries = found, found.entries
        else:
            sessions.close(found.id)
    if request.isolation_level not in ISOLATION_LEVELS and not all(entry.is_unknown for entry in entries.values()):
        connection.reply_bytes(encode_failure(version, connection.correlation_id, request, Error.UNKNOWN_SERVER_ERROR))
        return
    if fetching_replica(environment.replicas, request, version) is not None:
        connection.last_fetch = None
        fetch_as_follower(environment, connection, request, version, session, entries, named)
        return
    if session is not None:
        connection.last_fetch = None
        SessionFetch(environment, connection, request, version, session).start()
        return
    may_keep = request.session_epoch == FINAL_EPOCH and len(frame) - CORRELATION_ID_END <= STANDING_BYTES_MAX
    kept = bytes(frame[CORRELATION_ID_END:]) if may_keep else b""
    new = StandingFetch(environment, connection, request, version, entries, body=kept)
    connection.last_fetch = new if may_keep else None
    new.start(connection.correlation_id)


def fetch_as_follower(
    environment: FetchEnvironment,
    connection: ClientConnection,
    request: m.FetchRequest,
    version: int,
    session: FetchSession | None,
    entries: Entries,
    named: Entries,
) -> None:
    pulse = Pulse(0) if session is None else session.pulse
    pulse.last_ms = int(environment.clock.monotonic() * 1000)
    for entry in named.values():
        note_follower(entry, pulse)
    if session is None:
        FollowerFetch(environment, connection, request, version, entries, pulse).start(connection.correlation_id)
        return
    if session.watchers:
        environment.purgatory.wake(session.watchers)
    SessionFetch(environment, connection, request, version, session).start()
