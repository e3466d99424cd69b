from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.api import APIS, request_header_version, response_header_version
from barnabas.protocol.errors import DecodeError
from barnabas.protocol.headers import (
    RequestHeader,
    parse_request_header,
    parse_response_header,
    write_request_header,
)

API_VERSIONS = [(api.key, version) for api in APIS.values() for version in range(api.min_version, api.max_version + 1)]


@given(
    st.sampled_from(API_VERSIONS),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.none() | st.text(st.characters(codec="utf-8"), max_size=100),
)
def test_a_request_header_is_what_the_schema_says(
    api: tuple[int, int], correlation_id: int, client_id: str | None
) -> None:
    key, version = api
    message = m.RequestHeader(
        request_api_key=key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    data = codec.encode(message, request_header_version(key, version))
    out = bytearray()
    write_request_header(out, key, version, correlation_id, client_id)
    assert out == data
    expected = RequestHeader(key, version, correlation_id, client_id, 4 + len(data))
    assert parse_request_header(b"size" + data + b"body", 4) == expected
    assert parse_request_header(memoryview(b"size" + data), 4) == expected


@given(st.sampled_from(API_VERSIONS), st.integers(-(1 << 31), (1 << 31) - 1))
def test_a_response_header_is_read_as_the_schema_says(api: tuple[int, int], correlation_id: int) -> None:
    key, version = api
    data = codec.encode(m.ResponseHeader(correlation_id=correlation_id), response_header_version(key, version))
    assert parse_response_header(data + b"body", key, version) == (correlation_id, len(data))


def test_unknown_tagged_fields_of_a_header_are_skipped() -> None:
    data = b"\0\x03\0\x0c\0\0\0\x01\0\x02me" + b"\x02" + b"\x05\x01x" + b"\x87\x01\x02yz" + b"body"
    assert parse_request_header(data).body_offset == len(data) - 4


def test_a_header_cut_at_any_byte_is_refused() -> None:
    data = b"\0\x03\0\x0c\0\0\0\x01\0\x02me" + b"\x01\x05\x01x"
    for end in range(len(data)):
        with pytest.raises(DecodeError):
            parse_request_header(data[:end])
    for end in range(4):
        with pytest.raises(DecodeError):
            parse_response_header(data[:end], 3, 12)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"\0\x03\0\x00\0\0\0\x01\x7f\xffme", "the client id claims 32767 bytes, but 2 are left"),
        (b"\0\x03\0\x00\0\0\0\x01\0\x02\xff\xff", "the client id is not UTF-8"),
        (b"\0\x03\0\x0c\0\0\0\x01\xff\xff" + b"\xff" * 9, "longer than 32 bits"),
        (b"\0\x03\0\x0c\0\0\0\x01\xff\xff" + b"\x01\x05\xff\xff\x03", "claims 65535 bytes"),
        (b"\0\x03\0\x0c\0\0\0\x01\xff\xff" + b"\xff\xff\xff\xff\x0f" + b"\0" * 20, "4294967295 tagged fields"),
    ],
)
def test_a_malformed_header_is_refused(data: bytes, complaint: str) -> None:
    with pytest.raises(DecodeError, match=complaint):
        parse_request_header(data)


def test_the_header_of_an_unknown_api_is_read_without_tags() -> None:
    assert parse_request_header(b"\x70\0\0\0\0\0\0\x01\0\x02me") == RequestHeader(0x7000, 0, 1, "me", 12)


@given(st.binary(max_size=40))
def test_random_bytes_are_a_header_or_refused(data: bytes) -> None:
    try:
        header = parse_request_header(data)
    except DecodeError:
        return
    assert 10 <= header.body_offset <= len(data)
