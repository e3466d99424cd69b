"""Every API of a single node answers in every stable version, and ApiVersions says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.api import APIS, ApiKey
from barnabas.protocol.errors import Error
from tests.peers import wait_until
from tests.wire.batches import batch
from tests.wire.connection import ClosedError, Connection, response_of
from tests.wire.requests import REQUESTS, Context, Topic, error_codes, every_version, produce

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.peers import PeerKind

ANSWERED_BEYOND = (ApiKey.API_VERSIONS, ApiKey.INIT_PRODUCER_ID)
"""ApiVersions answers any version; of InitProducerId Kafka has an unstable one beyond the last."""


@pytest.mark.parametrize(("api", "version"), every_version(), ids=lambda each: getattr(each, "name", f"v{each}"))
def test_every_version_of_every_api_answers(
    connection: Connection, wire_topic: Topic, api: ApiKey, version: int
) -> None:
    assert produce(connection, wire_topic, batch()).error_code == Error.NONE
    request = REQUESTS[api](Context(wire_topic, f"{wire_topic.name}-free", version, batch()))
    allowed = {Error.NONE, Error.COORDINATOR_NOT_AVAILABLE} if api is ApiKey.FIND_COORDINATOR else {Error.NONE}

    def succeeds() -> bool:
        codes = set(error_codes(connection.call(request, version, response_of(type(request)))))
        assert codes <= allowed | {Error.COORDINATOR_LOAD_IN_PROGRESS}
        return codes <= allowed

    wait_until(succeeds, "the first block of producer ids is there, which alone a request may have to wait for")


@pytest.mark.parametrize("version", range(5))
def test_api_versions_lists_every_api_of_a_node_with_its_stable_versions(connection: Connection, version: int) -> None:
    request = m.ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
    answer = connection.call(request, version, m.ApiVersionsResponse)
    listed = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    for key in REQUESTS:
        lowest = 0 if key is ApiKey.PRODUCE else APIS[key].min_version
        assert listed[key] == (lowest, APIS[key].max_version), key.name
    assert answer.error_code == Error.NONE


def test_api_versions_names_the_features(connection: Connection) -> None:
    request = m.ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
    answer = connection.call(request, 4, m.ApiVersionsResponse)
    finalized = {each.name: each.max_version_level for each in answer.finalized_features}
    assert finalized["metadata.version"] == 30
    assert finalized["transaction.version"] == 2
    assert {each.name for each in answer.supported_features} >= set(finalized)
    old = connection.call(request, 3, m.ApiVersionsResponse)
    assert all(each.min_version > 0 for each in old.supported_features)


def test_an_api_versions_request_of_the_future_is_answered_in_version_0(connection: Connection) -> None:
    connection.send_bytes(bytes.fromhex("0000000d 0012 0063 00000007 0000 00 01 01"))
    correlation_id, answer = connection.receive(m.ApiVersionsResponse, 0)
    assert correlation_id == 7
    assert answer.error_code == Error.UNSUPPORTED_VERSION
    (only,) = [each for each in answer.api_keys if each.api_key == ApiKey.API_VERSIONS]
    assert (only.min_version, only.max_version) == (0, 4)


def test_a_client_software_name_with_illegal_characters_is_refused(connection: Connection) -> None:
    request = m.ApiVersionsRequest(client_software_name="not legal!", client_software_version="1.0")
    answer = connection.call(request, 4, m.ApiVersionsResponse)
    assert answer.error_code == Error.INVALID_REQUEST


@pytest.mark.parametrize(
    ("api_key", "version"),
    [
        *(
            (key, APIS[key].max_version + 1)
            for key in REQUESTS
            if key not in (ApiKey.API_VERSIONS, ApiKey.INIT_PRODUCER_ID)
        ),
        (ApiKey.PRODUCE, 0),
        (ApiKey.PRODUCE, 2),
        (ApiKey.FETCH, 3),
        (ApiKey.METADATA, -1),
        (ApiKey.LEADER_AND_ISR, 0),
        (999, 0),
        (-1, 0),
    ],
)
def test_an_unknown_api_or_version_closes_that_connection_only(
    connect: Callable[[], Connection], connection: Connection, api_key: int, version: int
) -> None:
    doomed = connect()
    header = api_key.to_bytes(2, signed=True) + version.to_bytes(2, signed=True) + bytes(4) + b"\xff\xff"
    doomed.send_bytes(len(header + bytes(8)).to_bytes(4) + header + bytes(8))
    with pytest.raises(ClosedError):
        doomed.receive_frame()
    assert connection.call(m.ApiVersionsRequest(), 0, m.ApiVersionsResponse).error_code == Error.NONE


def test_the_groups_coordinator_is_not_available_until_groups_exist(
    connection: Connection, peer_kind: PeerKind
) -> None:
    """A client that asks goes on asking, instead of giving up."""
    answer = connection.call(m.FindCoordinatorRequest(key="a group"), 3, m.FindCoordinatorResponse)
    if peer_kind == "barnabas":
        assert answer.error_code == Error.COORDINATOR_NOT_AVAILABLE
        assert (answer.node_id, answer.port) == (-1, -1)
    else:
        assert answer.error_code in {Error.NONE, Error.COORDINATOR_NOT_AVAILABLE}
