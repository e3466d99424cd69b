"""The Java admin client on the controllers' own listeners (KIP-919)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from interop.clusters import ThreeNodes
    from interop.programs import Program

pytestmark = pytest.mark.on("three nodes")


def test_an_admin_client_needs_no_broker(java: Program, three_nodes: ThreeNodes, topic: str) -> None:
    assert java.run("controllers", topic=topic, controllers=three_nodes.bootstrap_controllers) == {
        "voters": [1, 2, 3],
        "leader_is_same": True,
        "nodes": [1, 2, 3],
        "cluster_is_same": True,
        "features": True,
        "refused_setting": "InvalidConfigurationException",
        "elected": "ElectionNotNeededException",
        "elected_by_broker": "ElectionNotNeededException",
        "elected_unclean": "ElectionNotNeededException",
        "created": "UnsupportedEndpointTypeException",
        "described_topic": "UnsupportedEndpointTypeException",
        "unregistered": "BrokerIdNotRegisteredException",
    }
