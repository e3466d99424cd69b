"""Every API of a single node answers in every stable version, and ApiVersions says so."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.api import APIS, ApiKey
from barnabas.protocol.errors import Error
from tests.peers import wait_until
from tests.wire.batches import batch
from tests.wire.connection import HOST, ClosedError, Connection, response_of
from tests.wire.requests import (
    GROUP,
    NO_PRODUCER,
    OUTCOMES,
    REQUESTS,
    TRANSACTION_KEY,
    Context,
    Topic,
    error_codes,
    every_version,
    produce,
)

if TYPE_CHECKING:
    from collections.abc import Callable

ANSWERED_BEYOND = (ApiKey.API_VERSIONS, ApiKey.INIT_PRODUCER_ID)
"""ApiVersions answers any version; of InitProducerId Kafka has an unstable one beyond the last."""

FIND_MANY = 4
NOT_YET = {Error.COORDINATOR_LOAD_IN_PROGRESS, Error.COORDINATOR_NOT_AVAILABLE, Error.NOT_COORDINATOR}


@pytest.fixture(autouse=True)
def coordinator(connection: Connection) -> None:
    """The topics of groups and transactions are created when somebody first asks for a coordinator."""
    connection.call(m.FindCoordinatorRequest(key=GROUP), 3, m.FindCoordinatorResponse)
    request = m.FindCoordinatorRequest(key=NO_PRODUCER, key_type=TRANSACTION_KEY)
    connection.call(request, 3, m.FindCoordinatorResponse)


@pytest.mark.parametrize(("api", "version"), every_version(), ids=lambda each: getattr(each, "name", f"v{each}"))
def test_every_version_of_every_api_answers(
    connection: Connection, wire_topic: Topic, api: ApiKey, version: int
) -> None:
    assert produce(connection, wire_topic, batch()).error_code == Error.NONE
    request = REQUESTS[api](Context(wire_topic, f"{wire_topic.name}-free", version, batch()))
    expected = OUTCOMES.get(api, {Error.NONE})

    def is_answered() -> bool:
        codes = set(error_codes(connection.call(request, version, response_of(type(request)))))
        assert codes <= expected | NOT_YET
        return codes <= expected

    wait_until(is_answered, "what a request may have to wait for is there: producer ids, or the group's coordinator")


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


@pytest.mark.parametrize("version", range(APIS[ApiKey.FIND_COORDINATOR].max_version + 1))
def test_the_only_node_coordinates_every_group(connection: Connection, version: int) -> None:
    keys = [f"group {number}" for number in range(3)]

    def find(key: str) -> tuple[int, int, str]:
        if version < FIND_MANY:
            one = connection.call(m.FindCoordinatorRequest(key=key), version, m.FindCoordinatorResponse)
            return one.error_code, one.node_id, one.host
        request = m.FindCoordinatorRequest(coordinator_keys=keys)
        many = connection.call(request, version, m.FindCoordinatorResponse).coordinators
        assert [each.key for each in many] == keys
        return next((each.error_code, each.node_id, each.host) for each in many if each.key == key)

    for key in keys:
        wait_until(partial(_is_found, find, key), f"{key} has a coordinator")
        assert find(key) == (Error.NONE, 1, HOST)


def _is_found(find: Callable[[str], tuple[int, int, str]], key: str) -> bool:
    error, _, _ = find(key)
    assert error in {Error.NONE, Error.COORDINATOR_NOT_AVAILABLE}
    return error == Error.NONE
