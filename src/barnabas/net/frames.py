"""Requests and responses as they travel, for both ends of a connection. Pure: bytes and values, no stream.

    length       int32, of what follows
    header       of a request: API, version, correlation id, client id, tags (see `protocol.headers`)
                 of a response: correlation id, tags
    body         the message, in the version that the request names

The side that asks keeps an `Expected` for each request under way. A broker answers the requests of a connection in
their order, so the next frame must carry the correlation id of the oldest: one that does not, a length that cannot be
and a body that cannot be decoded all mean that the stream is not understood, and only closing it helps.

The errors here are those of every client of ours, blocking or not; their texts name the other side and the request.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.api import APIS, ApiKey, response_header_version
from barnabas.protocol.errors import Error
from barnabas.protocol.headers import parse_response_header, write_request_header

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.protocol.messages import Message

LENGTH: Final = struct.Struct(">i")
CORRELATION_ID_MAX: Final = (1 << 31) - 1
SOFTWARE_NAME: Final = "barnabas"

_LENGTH_AND_CORRELATION: Final = struct.Struct(">ii")
_FIRST_API_VERSIONS: Final = 0
"""The version in which a broker refuses an ApiVersions request that is newer than it knows."""


RESPONSES_WITH_RECORDS: Final = frozenset({ApiKey.FETCH, ApiKey.FETCH_SNAPSHOT, ApiKey.SHARE_FETCH})
"""What is decoded of these refers to the frame, as records are not copied: the frame must last as long."""


class WireError(Exception):
    """Something failed on a connection; the text says to whom, in which request, and what."""


class ConnectError(WireError):
    """Nobody answers at the address."""


class ConnectionLostError(WireError):
    """The other side closed or reset the connection, as a broker does with a request that it cannot read."""


class AnswerTimeoutError(WireError):
    """No whole answer within the time allowed."""


class MalformedAnswerError(WireError):
    """The answer is not what the protocol says: wrong correlation id, impossible length, undecodable body."""


class UnsupportedVersionError(WireError):
    """The two sides have no version of this API in common."""

    def __init__(self, message: str, api_key: int | None = None) -> None:
        super().__init__(message)
        self.api_key = api_key


class AuthenticationError(WireError):
    """The two sides do not trust each other: a certificate, a password or a mechanism is not accepted."""


TRANSIENT: Final = (ConnectError, ConnectionLostError, AnswerTimeoutError)
"""Failures that a new connection may not meet, once a broker is back."""


class VersionRange(NamedTuple):
    lowest: int
    highest: int


class Expected(NamedTuple):
    """An answer that is due: which request it belongs to, and how it is to be read."""

    correlation_id: int
    api_key: int
    version: int

    def __str__(self) -> str:
        return f"{api_name(self.api_key)} v{self.version}"


# ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────────


def request_frame(request: Message, version: int, correlation_id: int, client_id: str) -> bytes:
    """A request as it travels: length, header, body."""
    frame = bytearray(LENGTH.size)
    write_request_header(frame, request_api_key(request), version, correlation_id, client_id)
    codec.writer(type(request), version)(request, frame)
    LENGTH.pack_into(frame, 0, len(frame) - LENGTH.size)
    return bytes(frame)


def request_head(api_key: int, version: int, correlation_id: int, client_id: str, body_bytes: int) -> bytes:
    """What precedes the body of a request that somebody else has encoded."""
    head = bytearray(LENGTH.size)
    write_request_header(head, api_key, version, correlation_id, client_id)
    LENGTH.pack_into(head, 0, len(head) - LENGTH.size + body_bytes)
    return bytes(head)


def next_correlation_id(correlation_id: int) -> int:
    return 0 if correlation_id == CORRELATION_ID_MAX else correlation_id + 1


def has_answer(request: Message) -> bool:
    """Every request is answered, except a Produce that asked for no acknowledgement."""
    return not (isinstance(request, m.ProduceRequest) and request.acks == 0)


def request_api_key(request: Message) -> int:
    name, api_key = type(request).__name__, request.api_key
    if api_key is None or api_key not in APIS or APIS[api_key].request != name:
        raise ValueError(f"{name} is not a request")
    return api_key


def api_name(api_key: int) -> str:
    return APIS[api_key].request.removesuffix("Request")


# ── responses ────────────────────────────────────────────────────────────────────────────────────────────────────


def check_response_length(length: int, bytes_max: int, address: str, expected: Expected) -> None:
    if not LENGTH.size <= length <= bytes_max:
        raise MalformedAnswerError(
            f"{address} announced a response of {length} bytes to {api_name(expected.api_key)} "
            f"(allowed: {LENGTH.size} to {bytes_max}); is this a Kafka listener, and one without TLS?"
        )


def response_body(frame: memoryview, expected: Expected, address: str) -> int:
    """Where the body begins in a frame (without its length) that is checked to be the answer that is due."""
    try:
        correlation_id, position = parse_response_header(frame, expected.api_key, expected.version)
    except codec.DecodeError as error:
        raise _malformed(expected, address, error) from error
    if correlation_id != expected.correlation_id:
        raise MalformedAnswerError(
            f"{address} answered {api_name(expected.api_key)} with correlation id {correlation_id}, "
            f"expected {expected.correlation_id}"
        )
    return position


def parse_response(frame: memoryview, expected: Expected, address: str) -> Any:
    """The answer in a frame (without its length), checked to be the one that is due. Its records stay in the frame."""
    position = response_body(frame, expected, address)
    response_class = getattr(m, APIS[expected.api_key].response)
    try:
        return codec.decode(response_class, frame, answer_version(frame, position, expected), position)
    except codec.DecodeError as error:
        raise _malformed(expected, address, error) from error


def _malformed(expected: Expected, address: str, error: codec.DecodeError) -> MalformedAnswerError:
    return MalformedAnswerError(f"{address}: malformed response to {expected}: {error}")


def answer_version(frame: memoryview, position: int, expected: Expected) -> int:
    """The version an answer is written in: the request's, except where a broker refuses an ApiVersions request."""
    if expected.api_key == ApiKey.API_VERSIONS:
        error_code = int.from_bytes(frame[position : position + 2], "big", signed=True)
        if error_code == Error.UNSUPPORTED_VERSION:
            return _FIRST_API_VERSIONS
    return expected.version


def encode_reply(api_key: int, version: int, correlation_id: int, response: Any) -> bytes:
    """The whole frame of an answer: length, correlation id, header tags, body. `bytes` are a body encoded before."""
    body = response if isinstance(response, bytes) else codec.encode(response, version)
    tags = b"\0" if response_header_version(api_key, version) == 1 else b""
    return frame_reply(correlation_id, tags, body)


def reply_head(api_key: int, version: int, correlation_id: int, body_bytes: int) -> bytes:
    """What comes before the body of an answer that is sent in parts: length, correlation id, header tags."""
    tags = b"\0" if response_header_version(api_key, version) == 1 else b""
    return _LENGTH_AND_CORRELATION.pack(4 + len(tags) + body_bytes, correlation_id) + tags


def frame_reply(correlation_id: int, tags: bytes, body: bytes) -> bytes:
    return _LENGTH_AND_CORRELATION.pack(4 + len(tags) + len(body), correlation_id) + tags + body


# ── versions ─────────────────────────────────────────────────────────────────────────────────────────────────────


def api_versions_request(software_version: str) -> m.ApiVersionsRequest:
    return m.ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=software_version)


def offered_api_versions(refusal: m.ApiVersionsResponse) -> int:
    """The version of ApiVersions that a broker, refusing ours, says it speaks; an old one says nothing."""
    for key in refusal.api_keys:
        if key.api_key == ApiKey.API_VERSIONS:
            return min(key.max_version, APIS[ApiKey.API_VERSIONS].max_version)
    return _FIRST_API_VERSIONS


def offered_versions(response: m.ApiVersionsResponse, address: str) -> dict[int, VersionRange]:
    """What the other side speaks, by API key."""
    if response.error_code != Error.NONE:
        raise UnsupportedVersionError(f"{address} refused ApiVersions: error {response.error_code}")
    return {key.api_key: VersionRange(key.min_version, key.max_version) for key in response.api_keys}


def newest_version(
    api_key: int, offered: Mapping[int, VersionRange], address: str, *, at_most: int | None = None
) -> int:
    """The newest version of an API that both sides know, or the newest up to one that the caller can use."""
    ours = APIS[api_key]
    newest = ours.max_version if at_most is None else min(at_most, ours.max_version)
    theirs = offered.get(api_key)
    if theirs is None:
        raise UnsupportedVersionError(f"{address} does not support {api_name(api_key)}", api_key)
    version = min(newest, theirs.highest)
    if version < max(ours.min_version, theirs.lowest):
        raise UnsupportedVersionError(
            f"{address} supports {api_name(api_key)} v{theirs.lowest} to v{theirs.highest}, "
            f"this client supports v{ours.min_version} to v{newest}",
            api_key,
        )
    return version
