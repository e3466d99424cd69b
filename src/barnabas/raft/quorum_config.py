"""The settings of the metadata quorum, from a node's configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.config.broker_config import ConfigSource
from barnabas.config.quorum import parse_servers
from barnabas.protocol.uuids import ZERO_UUID
from barnabas.raft.consensus.node_state import QuorumTimeouts
from barnabas.raft.consensus.voter_sets import VoterEndpoint, VoterNode
from barnabas.raft.quorum_client import QuorumSettings
from barnabas.raft.wire.quorum_peers import Address

if TYPE_CHECKING:
    from barnabas.config.broker_config import BrokerConfig


def quorum_settings(config: BrokerConfig) -> QuorumSettings:
    listener_name = config.quorum_listener.name
    return QuorumSettings(
        static_voters=tuple(
            # Which directory such a voter has, nobody says.
            VoterNode(voter.node_id, ZERO_UUID, (VoterEndpoint(listener_name, voter.host, voter.port),))
            for voter in config.quorum_voters
        ),
        bootstrap_servers=tuple(
            Address(*server) for server in parse_servers(config.controller_quorum_bootstrap_servers)
        ),
        timeouts=QuorumTimeouts(
            election_ms=config.controller_quorum_election_timeout_ms,
            fetch_ms=config.controller_quorum_fetch_timeout_ms,
            election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
            retry_backoff_ms=config.controller_quorum_retry_backoff_ms,
        ),
        append_linger_ms=_append_linger_ms(config),
        request_timeout_ms=config.controller_quorum_request_timeout_ms,
        fetch_max_bytes=config.controller_quorum_fetch_max_bytes,
        snapshot_max_bytes=config.controller_quorum_fetch_snapshot_max_bytes,
        listener_name=listener_name,
    )


def _append_linger_ms(config: BrokerConfig) -> int:
    """Unless it is set, nobody waits: what is appended during one sync shares the next anyway."""
    name = "controller.quorum.append.linger.ms"
    return 0 if config.source_of(name) is ConfigSource.DEFAULT else config.controller_quorum_append_linger_ms
