"""UpdateFeatures changes the levels of the cluster's features, all of a request's or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.peers import wait_until
from tests.wire.connection import Connection

if TYPE_CHECKING:
    from tests.conftest import MakeNode

NEWEST = 2
UNKNOWN, UPGRADE, SAFE, UNSAFE = 0, 1, 2, 3
METADATA, GROUPS = "metadata.version", "group.version"


def update(
    connection: Connection,
    updates: list[tuple[str, int, int]],
    version: int = NEWEST,
    *,
    validate_only: bool = False,
) -> m.UpdateFeaturesResponse:
    request = m.UpdateFeaturesRequest
    keys = [
        request.FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=kind)
        for feature, level, kind in updates
    ]
    return connection.call(
        request(feature_updates=keys, validate_only=validate_only), version, m.UpdateFeaturesResponse
    )


def finalized(connection: Connection) -> dict[str, int]:
    request = m.ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
    answer = connection.call(request, 4, m.ApiVersionsResponse)
    return {each.name: each.max_version_level for each in answer.finalized_features}


@pytest.mark.parametrize("version", range(NEWEST + 1))
def test_the_level_that_is_there_already_is_accepted(connection: Connection, version: int) -> None:
    answer = update(connection, [(METADATA, 30, UPGRADE), (GROUPS, 1, UPGRADE)], version)
    assert (answer.error_code, answer.error_message) == (Error.NONE, None)
    named = {each.feature: each.error_code for each in answer.results}
    assert named == ({METADATA: Error.NONE, GROUPS: Error.NONE} if version < NEWEST else {})


def test_nothing_to_update_is_accepted(connection: Connection) -> None:
    assert update(connection, []).error_code == Error.NONE


@pytest.mark.parametrize(
    ("feature", "level", "kind", "why"),
    [
        ("unheard.of", 1, UPGRADE, "Local controller 1 does not support this feature."),
        ("unheard.of", 0, SAFE, "Feature unheard.of not found."),
        (METADATA, 31, UPGRADE, "Local controller 1 only supports versions 7-30"),
        (METADATA, 6, UNSAFE, "Local controller 1 only supports versions 7-30"),
        (METADATA, 29, UPGRADE, "Can't downgrade the version of this feature without setting the upgrade type to"),
        (METADATA, 29, SAFE, "Refusing to perform the requested downgrade because it might delete metadata"),
        (METADATA, 7, UNSAFE, "Unsafe metadata downgrade is not supported in this version."),
        (GROUPS, 2, UPGRADE, "Local controller 1 only supports versions 0-1"),
        (GROUPS, -1, SAFE, "A feature version cannot be less than 0."),
        (GROUPS, 0, UPGRADE, "Can't downgrade the version of this feature without setting the upgrade type to"),
        (GROUPS, 0, UNKNOWN, "The controller does not support the given upgrade type."),
        (GROUPS, 0, 7, "The controller does not support the given upgrade type."),
        ("kraft.version", 0, SAFE, "Can't downgrade the version of this feature."),
        ("kraft.version", 2, UPGRADE, "Local controller 1 only supports versions 0-1"),
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_what_cannot_be_updated_is_refused(
    connection: Connection, feature: str, level: int, kind: int, why: str, version: int
) -> None:
    before = finalized(connection)
    answer = update(connection, [("transaction.version", 1, SAFE), (feature, level, kind)], version)
    assert answer.error_code == Error.INVALID_UPDATE_VERSION
    assert answer.error_message is not None
    assert why in answer.error_message
    assert answer.error_message.startswith("The update failed for all features since the following feature had an err")
    assert answer.results == []
    assert finalized(connection) == before


def test_an_update_can_be_validated_only(connection: Connection) -> None:
    before = finalized(connection)
    for feature in (GROUPS, "transaction.version", "share.version", "eligible.leader.replicas.version"):
        assert update(connection, [(feature, 0, SAFE)], validate_only=True).error_code == Error.NONE
    assert finalized(connection) == before


def test_levels_are_lowered_and_raised_again(make_node: MakeNode) -> None:
    node = make_node({})
    with Connection(node.port) as connection:
        assert update(connection, [(GROUPS, 0, SAFE), ("streams.version", 0, UNSAFE)]).error_code == Error.NONE
        wait_until(lambda: finalized(connection).get(GROUPS, 0) == 0, "the level is lower")
        assert finalized(connection).get("streams.version", 0) == 0
        raised = update(connection, [(GROUPS, 1, SAFE)])
        assert "Can't downgrade to a newer version." in (raised.error_message or "")
    node.stop()
    node.start()
    with Connection(node.port) as connection:
        assert finalized(connection).get(GROUPS, 0) == 0
        assert update(connection, [(GROUPS, 1, UPGRADE)]).error_code == Error.NONE
        wait_until(lambda: finalized(connection)[GROUPS] == 1, "the level is as before")
