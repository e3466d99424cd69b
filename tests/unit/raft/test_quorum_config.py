"""What a configuration says of the quorum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.config.broker_config import BrokerConfig
from barnabas.protocol.uuids import ZERO_UUID
from barnabas.raft.consensus.node_state import QuorumTimeouts
from barnabas.raft.consensus.voter_sets import VoterEndpoint, VoterNode
from barnabas.raft.quorum_config import quorum_settings
from barnabas.raft.wire.quorum_peers import Address

if TYPE_CHECKING:
    from barnabas.raft.quorum_client import QuorumSettings

COMMON = {
    "process.roles": "controller",
    "node.id": "1",
    "listeners": "CTRL://:9093",
    "controller.listener.names": "CTRL",
    "listener.security.protocol.map": "CTRL:PLAINTEXT",
    "log.dirs": "/data",
}


def settings_of(properties: dict[str, str]) -> QuorumSettings:
    config, _ = BrokerConfig.from_properties({**COMMON, **properties})
    return quorum_settings(config)


def test_voters_and_servers_are_found_where_the_configuration_says() -> None:
    settings = settings_of({"controller.quorum.voters": "1@one:9093,2@[::1]:9094"})
    assert settings.static_voters == (
        VoterNode(1, ZERO_UUID, (VoterEndpoint("CTRL", "one", 9093),)),
        VoterNode(2, ZERO_UUID, (VoterEndpoint("CTRL", "::1", 9094),)),
    )
    settings = settings_of({"controller.quorum.bootstrap.servers": "one:9093,[::1]:9094"})
    assert settings.bootstrap_servers == (Address("one", 9093), Address("::1", 9094))


def test_times_are_those_of_the_configuration() -> None:
    times = {
        "controller.quorum.election.timeout.ms": "11",
        "controller.quorum.fetch.timeout.ms": "22",
        "controller.quorum.election.backoff.max.ms": "33",
        "controller.quorum.retry.backoff.ms": "44",
        "controller.quorum.bootstrap.servers": "one:9093",
    }
    assert settings_of(times).timeouts == QuorumTimeouts(11, 22, 33, 44)


def test_a_leader_lingers_only_where_that_is_set() -> None:
    servers = {"controller.quorum.bootstrap.servers": "one:9093"}
    assert settings_of(servers).append_linger_ms == 0
    assert settings_of({**servers, "controller.quorum.append.linger.ms": "40"}).append_linger_ms == 40
