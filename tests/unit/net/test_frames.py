"""The bytes of requests and responses, where no stream is needed to see them."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.net import frames
from barnabas.net.frames import Expected, MalformedAnswerError, UnsupportedVersionError, VersionRange
from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.api import APIS, ApiKey
from barnabas.protocol.compiler.schema import definitions
from barnabas.protocol.headers import parse_request_header


def holds_records(fields: list[dict[str, Any]]) -> bool:
    return any(field["type"] == "records" or holds_records(field.get("fields", [])) for field in fields)


def test_responses_that_leave_records_in_their_frame_are_all_known() -> None:
    found = {api.key for api in APIS.values() if holds_records(definitions()[api.response]["fields"])}
    assert found == frames.RESPONSES_WITH_RECORDS


@pytest.mark.parametrize("version", [0, 1, 9, 12])
def test_a_head_with_a_body_is_the_frame_of_the_whole_request(version: int) -> None:
    request = m.MetadataRequest(topics=[])
    body = codec.encode(request, version)
    whole = frames.request_frame(request, version, 7, "me")
    assert frames.request_head(ApiKey.METADATA, version, 7, "me", len(body)) + body == whole
    header = parse_request_header(whole, 4)
    assert (header.api_key, header.api_version, header.correlation_id, header.client_id) == (3, version, 7, "me")
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4


@pytest.mark.parametrize("version", [1, 12])
def test_a_reply_is_read_back_by_whoever_expects_it(version: int) -> None:
    reply = frames.encode_reply(ApiKey.METADATA, version, 7, m.MetadataResponse(controller_id=3))
    frame = memoryview(reply)[4:]
    expected = Expected(7, ApiKey.METADATA, version)
    assert frames.parse_response(frame, expected, "there").controller_id == 3
    position = frames.response_body(frame, expected, "there")
    assert bytes(frame[position:]) == codec.encode(m.MetadataResponse(controller_id=3), version)
    with pytest.raises(MalformedAnswerError, match=r"there answered Metadata with correlation id 7, expected 8"):
        frames.response_body(frame, expected._replace(correlation_id=8), "there")
    with pytest.raises(MalformedAnswerError, match="malformed response"):
        frames.response_body(frame[:3], expected, "there")


def test_an_older_broker_refuses_api_versions_in_the_form_of_the_first_version() -> None:
    refusal = m.ApiVersionsResponse(
        error_code=35, api_keys=[m.ApiVersionsResponse.ApiVersion(api_key=18, min_version=0, max_version=2)]
    )
    reply = frames.encode_reply(ApiKey.API_VERSIONS, 0, 1, refusal)
    response = frames.parse_response(memoryview(reply)[4:], Expected(1, ApiKey.API_VERSIONS, 4), "there")
    assert frames.offered_api_versions(response) == 2
    assert frames.offered_api_versions(m.ApiVersionsResponse(error_code=35, api_keys=[])) == 0
    with pytest.raises(UnsupportedVersionError, match="there refused ApiVersions: error 35"):
        frames.offered_versions(response, "there")


def test_the_newest_version_is_one_that_both_sides_and_the_caller_know() -> None:
    newest = APIS[ApiKey.METADATA].max_version
    assert frames.newest_version(ApiKey.METADATA, {3: VersionRange(0, 99)}, "there") == newest
    assert frames.newest_version(ApiKey.METADATA, {3: VersionRange(0, 5)}, "there") == 5
    assert frames.newest_version(ApiKey.METADATA, {3: VersionRange(0, 99)}, "there", at_most=4) == 4
    for offered, at_most in (({}, None), ({3: VersionRange(50, 99)}, None), ({3: VersionRange(5, 9)}, 4)):
        with pytest.raises(UnsupportedVersionError, match="there"):
            frames.newest_version(ApiKey.METADATA, offered, "there", at_most=at_most)


def test_correlation_ids_begin_anew_after_the_largest() -> None:
    assert frames.next_correlation_id(5) == 6
    assert frames.next_correlation_id(frames.CORRELATION_ID_MAX) == 0
