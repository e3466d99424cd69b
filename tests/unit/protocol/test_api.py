from __future__ import annotations

import pytest

from barnabas.protocol import messages
from barnabas.protocol.api import APIS, ApiKey, request_header_version, response_header_version
from barnabas.protocol.compiler.schema import definitions

REMOVED = {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.CONTROLLED_SHUTDOWN}


def test_every_request_has_a_key_and_every_key_a_request() -> None:
    requests = {d["apiKey"]: d["name"] for d in definitions().values() if d["type"] == "request"}
    names = {key: name.removesuffix("Request").upper() for key, name in requests.items()}
    assert {key.value: key.name.replace("_", "") for key in ApiKey} == names
    assert set(ApiKey) - set(APIS) == REMOVED


def test_an_api_names_its_messages_and_stable_versions() -> None:
    metadata = APIS[ApiKey.METADATA]
    assert (metadata.request, metadata.response) == ("MetadataRequest", "MetadataResponse")
    assert (metadata.min_version, metadata.max_version, metadata.flexible_from) == (0, 13, 9)
    assert metadata.listeners == {"broker"}
    assert APIS[ApiKey.INIT_PRODUCER_ID].max_version == 5, "version 6 is unstable"
    for api in APIS.values():
        response = getattr(messages, api.response)
        assert response.versions[0] <= api.min_version
        assert response.versions[1] >= api.max_version
        assert response.flexible_from == api.flexible_from


@pytest.mark.parametrize(
    ("key", "version", "request_header", "response_header"),
    [
        (ApiKey.METADATA, 8, 1, 0),
        (ApiKey.METADATA, 9, 2, 1),
        (ApiKey.API_VERSIONS, 2, 1, 0),
        (ApiKey.API_VERSIONS, 3, 2, 0),
        (ApiKey.SASL_HANDSHAKE, 1, 1, 0),
        (ApiKey.VOTE, 0, 2, 1),
        (9999, 0, 1, 0),
    ],
)
def test_the_header_depends_on_whether_the_version_is_flexible(
    key: int, version: int, request_header: int, response_header: int
) -> None:
    assert request_header_version(key, version) == request_header
    assert response_header_version(key, version) == response_header
