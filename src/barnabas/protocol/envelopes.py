"""Envelope: a client's request that a broker hands on to the controller, with the client's principal and address.

    request data     header and body of the client's request, in the version in which it came
    principal        version int16, then DefaultPrincipalData
    client address   4 or 16 bytes

The answer has the header and body of the response to the client's request, or only an error: NOT_CONTROLLER if the
receiver does not lead, so that the broker asks the node that does.
"""

from __future__ import annotations

import struct
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.api import APIS, response_header_version
from barnabas.protocol.errors import DecodeError, Error, KafkaError
from barnabas.protocol.headers import RequestHeader, parse_request_header, parse_response_header, write_request_header
from barnabas.protocol.pieces import read_unit
from barnabas.protocol.varint import write_uvarint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.protocol.compiler.structs import Message

_VERSION: Final = struct.Struct(">h")
_CORRELATION_ID: Final = struct.Struct(">i")
_PRINCIPAL_VERSION: Final = 0
_ENVELOPE_VERSION: Final = 0
_EMPTY_BYTES: Final = b"\x01"
"""Of a response in an envelope, which comes first there."""


class Principal(NamedTuple):
    """Who a client is."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")


class ForwardedClient(NamedTuple):
    """The client whose request is forwarded, and the version in which it wants its answer."""

    api_version: int
    correlation_id: int
    client_id: str | None
    host: str
    """Its address."""
    principal: Principal = ANONYMOUS


class Forwarded(NamedTuple):
    """A request that came in an envelope."""

    header: RequestHeader
    data: bytes
    client: ForwardedClient

    @property
    def request_class(self) -> type[Message]:
        request_class: type[Message] = getattr(m, APIS[self.header.api_key].request)
        return request_class


class EnclosedResponse(NamedTuple):
    """A response that came in an envelope, not decoded."""

    response_class: type[Message]
    data: bytes
    body_offset: int


def seal_request(api_key: int, body: bytes, client: ForwardedClient) -> m.EnvelopeRequest:
    """`body` is the client's request, encoded in its version."""
    data = bytearray()
    write_request_header(data, api_key, client.api_version, client.correlation_id, client.client_id)
    data += body
    principal = m.DefaultPrincipalData(type=client.principal.type, name=client.principal.name)
    return m.EnvelopeRequest(
        request_data=bytes(data),
        request_principal=_VERSION.pack(_PRINCIPAL_VERSION) + codec.encode(principal, _PRINCIPAL_VERSION),
        client_host_address=ip_address(client.host.partition("%")[0]).packed,
    )


def open_request(envelope: m.EnvelopeRequest) -> Forwarded:
    """What is in an envelope. Raises KafkaError with the error that Kafka's controller answers."""
    principal = _principal(bytes(envelope.request_principal or b""))
    try:
        host = str(ip_address(bytes(envelope.client_host_address)))
    except ValueError:
        raise KafkaError(Error.INVALID_REQUEST, "Failed to parse client address from envelope") from None
    data = bytes(envelope.request_data)
    try:
        header = parse_request_header(data)
    except DecodeError as error:
        raise KafkaError(Error.INVALID_REQUEST, f"Failed to parse request header from envelope: {error}") from error
    client = ForwardedClient(header.api_version, header.correlation_id, header.client_id, host, principal)
    return Forwarded(header, data, client)


def _principal(data: bytes) -> Principal:
    try:
        (version,) = _VERSION.unpack_from(data)
        if version != _PRINCIPAL_VERSION:
            raise DecodeError(f"version {version} of a principal is unknown")
        decoded = read_unit(m.DefaultPrincipalData, data, version, _VERSION.size)
    except (struct.error, DecodeError) as error:
        raise KafkaError(
            Error.PRINCIPAL_DESERIALIZATION_FAILURE, f"Failed to deserialize client principal: {error}"
        ) from error
    return Principal(decoded.type, decoded.name)


def seal_response(forwarded: Forwarded, body: bytes) -> m.EnvelopeResponse:
    """`body` is the response, encoded in the client's version."""
    return m.EnvelopeResponse(response_data=_response_header(forwarded) + body)


def sealed_response(forwarded: Forwarded, body: Sequence[bytes]) -> list[bytes]:
    """The same, encoded: of a long response, in parts that are not copied."""
    header = _response_header(forwarded)
    start = bytearray()
    write_uvarint(start, len(header) + sum(map(len, body)) + 1)
    empty = codec.encode(m.EnvelopeResponse(response_data=b""), _ENVELOPE_VERSION)
    return [bytes(start) + header, *body, empty[len(_EMPTY_BYTES) :]]


def _response_header(forwarded: Forwarded) -> bytes:
    header = forwarded.header
    tags = b"\0" if response_header_version(header.api_key, header.api_version) == 1 else b""
    return _CORRELATION_ID.pack(header.correlation_id) + tags


def open_response(envelope: m.EnvelopeResponse, api_key: int, client: ForwardedClient) -> EnclosedResponse:
    """The response in an envelope. Raises KafkaError if there is only an error, DecodeError if it makes no sense."""
    if envelope.error_code != Error.NONE or envelope.response_data is None:
        raise KafkaError(Error(envelope.error_code), "the controller refused a forwarded request")
    data = bytes(envelope.response_data)
    correlation_id, position = parse_response_header(data, api_key, client.api_version)
    if correlation_id != client.correlation_id:
        raise DecodeError(f"a forwarded request got correlation id {correlation_id}, not {client.correlation_id}")
    return EnclosedResponse(getattr(m, APIS[api_key].response), data, position)
