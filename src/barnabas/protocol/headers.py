"""What precedes the body of a request and of a response.

The request header is parsed by hand, because that happens once per frame, before it is known whether the rest can be
understood. The first eight bytes are the same in all versions, and the client id keeps its 16-bit length in flexible
ones.

    api key     int16
    api version int16
    correlation int32
    client id   int16 length (-1: null), UTF-8
    tags        unsigned varint count, then each tag and size as unsigned varints, and data; flexible versions only
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from barnabas.protocol.api import request_header_version, response_header_version
from barnabas.protocol.errors import DecodeError
from barnabas.protocol.varint import Buffer, read_uvarint

_REQUEST_PREFIX = struct.Struct(">hhih")
_CORRELATION_ID = struct.Struct(">i")

TAGS_MAX = 1000
"""Of a header. Kafka's own have one at most."""


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int
    """Where the body starts in the data that the header was read from."""


def parse_request_header(data: Buffer, offset: int = 0) -> RequestHeader:
    """The header of a request, even of an unknown API or version. Raises DecodeError if it is malformed.

    The header of an unknown API is assumed to have no tags, since its body will not be read.
    """
    try:
        api_key, api_version, correlation_id, length = _REQUEST_PREFIX.unpack_from(data, offset)
    except struct.error:
        raise DecodeError(f"a request header needs 10 bytes, but {max(0, len(data) - offset)} are left") from None
    pos = offset + _REQUEST_PREFIX.size
    client_id = None
    if length >= 0:
        end = pos + length
        if end > len(data):
            raise DecodeError(f"the client id claims {length} bytes, but {len(data) - pos} are left")
        try:
            client_id = str(data[pos:end], "utf-8")
        except UnicodeDecodeError as error:
            raise DecodeError(f"the client id is not UTF-8: {error.reason}") from None
        pos = end
    if request_header_version(api_key, api_version) == 2:
        pos = _skip_tags(data, pos)
    return RequestHeader(api_key, api_version, correlation_id, client_id, pos)


def write_request_header(
    out: bytearray, api_key: int, api_version: int, correlation_id: int, client_id: str | None
) -> None:
    if client_id is None:
        out += _REQUEST_PREFIX.pack(api_key, api_version, correlation_id, -1)
    else:
        encoded = client_id.encode()
        out += _REQUEST_PREFIX.pack(api_key, api_version, correlation_id, len(encoded))
        out += encoded
    if request_header_version(api_key, api_version) == 2:
        out.append(0)


def parse_response_header(data: Buffer, api_key: int, api_version: int, offset: int = 0) -> tuple[int, int]:
    """The correlation id of a response, and where its body starts."""
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(data, offset)
    except struct.error:
        raise DecodeError(f"a response header needs 4 bytes, but {max(0, len(data) - offset)} are left") from None
    pos = offset + _CORRELATION_ID.size
    if response_header_version(api_key, api_version):
        pos = _skip_tags(data, pos)
    return correlation_id, pos


def _skip_tags(data: Buffer, pos: int) -> int:
    if pos < len(data) and data[pos] == 0:
        return pos + 1
    count, pos = read_uvarint(data, pos)
    if count > TAGS_MAX:
        raise DecodeError(f"the header claims {count} tagged fields, but the limit is {TAGS_MAX}")
    for _ in range(count):
        _, pos = read_uvarint(data, pos)
        size, pos = read_uvarint(data, pos)
        pos += size
        if pos > len(data):
            raise DecodeError(f"a tagged field of the header claims {size} bytes, but the frame ends before that")
    return pos
