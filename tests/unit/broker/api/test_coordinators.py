"""FindCoordinator: no coordinator is there yet, and the answer says so in the form that each version has."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.broker.api.coordinators import find_coordinator
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.unit.broker.api.stand_ins import a_broker, an_image, caller

SHARE_KEY = "group:AAAAAAAAAAAAAAAAAAAAAQ:0"


def ask(version: int, key_type: int, *keys: str) -> m.FindCoordinatorResponse:
    async def answer() -> m.FindCoordinatorResponse:
        request = m.FindCoordinatorRequest(key=keys[0], key_type=key_type, coordinator_keys=list(keys))
        return find_coordinator(a_broker(an_image()), request, caller(version))

    return asyncio.run(answer())


@pytest.mark.parametrize(("version", "key_type"), [(0, 0), (1, 1), (3, 0)])
def test_up_to_v3_one_key_is_answered(version: int, key_type: int) -> None:
    response = ask(version, key_type, "g")
    assert response.error_code == Error.COORDINATOR_NOT_AVAILABLE
    assert response.error_message == "The coordinator is not available."
    assert (response.node_id, response.host, response.port) == (-1, "", -1)


def test_from_v4_on_every_key_is_answered() -> None:
    response = ask(4, 0, "g1", "g2")
    assert [(c.key, c.error_code, c.node_id, c.port) for c in response.coordinators] == [
        ("g1", Error.COORDINATOR_NOT_AVAILABLE, -1, -1),
        ("g2", Error.COORDINATOR_NOT_AVAILABLE, -1, -1),
    ]
    assert response.error_code == Error.NONE


@pytest.mark.parametrize(
    ("version", "key_type", "key", "error"),
    [
        (3, 9, "x", Error.INVALID_REQUEST),
        (5, 2, SHARE_KEY, Error.INVALID_REQUEST),
        (6, 2, SHARE_KEY, Error.COORDINATOR_NOT_AVAILABLE),
        (6, 2, "no share partition", Error.INVALID_REQUEST),
        (6, 2, "group:topic:x", Error.INVALID_REQUEST),
    ],
)
def test_a_key_that_no_coordinator_could_have_is_an_invalid_request(
    version: int, key_type: int, key: str, error: Error
) -> None:
    response = ask(version, key_type, key)
    assert (response.coordinators[0].error_code if version >= 4 else response.error_code) == error
