"""FindCoordinator: which broker looks after a group, a transactional id or a share partition.

A group is looked after by the leader of its partition of `__consumer_offsets`. That topic is created when somebody
first asks for a group; until it is there the answer is COORDINATOR_NOT_AVAILABLE, and clients try again.

There are no coordinators of transactions and of share groups yet: every key that could have one is answered
COORDINATOR_NOT_AVAILABLE, too.

v1 asks for transactional ids · v3 is flexible · v4 asks for many keys at once · v6 asks for share partitions
"""

from __future__ import annotations

import logging
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.coordination.partitioning import OFFSETS_TOPIC, partition_of
from barnabas.broker.dispatch import handles
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.broker.dispatch import Caller
    from barnabas.broker.server import Broker

FIRST_VERSION_WITH_MANY_KEYS = 4
FIRST_VERSION_WITH_SHARE_KEYS = 6

WARNED_KEYS_MAX = 1000

_MESSAGES: Mapping[Error, str] = {
    Error.NONE: "NONE",
    Error.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    Error.INVALID_REQUEST: "No coordinator looks after keys of this type, or this version cannot ask for it.",
}
"""What an answer of before v4 says beside its error code, also where there is none."""


logger = logging.getLogger("barnabas.coordinators")

_warned: set[str] = set()


class KeyType(IntEnum):
    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class Found(NamedTuple):
    """A coordinator by the caller's own listener; the defaults say that there is none."""

    error: Error
    node_id: int = -1
    host: str = ""
    port: int = -1


@handles(ApiKey.FIND_COORDINATOR, versions=(0, 6))
def find_coordinator(broker: Broker, request: m.FindCoordinatorRequest, caller: Caller) -> m.FindCoordinatorResponse:
    if caller.api_version < FIRST_VERSION_WITH_MANY_KEYS:
        found = find(broker, request.key_type, request.key, caller)
        return m.FindCoordinatorResponse(
            error_code=found.error,
            error_message=_MESSAGES[found.error],
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )
    return m.FindCoordinatorResponse(
        coordinators=[
            as_coordinator(key, find(broker, request.key_type, key, caller)) for key in request.coordinator_keys
        ]
    )


def as_coordinator(key: str, found: Found) -> m.FindCoordinatorResponse.Coordinator:
    return m.FindCoordinatorResponse.Coordinator(
        key=key, error_code=found.error, node_id=found.node_id, host=found.host, port=found.port
    )


def find(broker: Broker, key_type: int, key: str, caller: Caller) -> Found:
    if key_type == KeyType.GROUP:
        return find_group(broker, key, caller.listener.name)
    if key_type == KeyType.TRANSACTION:
        warn_once(key, caller)
        return Found(Error.COORDINATOR_NOT_AVAILABLE)
    can_be_asked_for = caller.api_version >= FIRST_VERSION_WITH_SHARE_KEYS
    if key_type == KeyType.SHARE and can_be_asked_for and is_share_key(key):
        return Found(Error.COORDINATOR_NOT_AVAILABLE)
    return Found(Error.INVALID_REQUEST)


def find_group(broker: Broker, group_id: str, listener_name: str) -> Found:
    topic = broker.image.topics.get(OFFSETS_TOPIC)
    if topic is None:
        broker.api.topic_creations.start([OFFSETS_TOPIC])
        return Found(Error.COORDINATOR_NOT_AVAILABLE)
    partition = topic.partitions[partition_of(group_id, len(topic.partitions))]
    leader = broker.image.brokers.get(partition.leader)
    endpoint = None if leader is None or leader.fenced else leader.endpoint(listener_name)
    if leader is None or endpoint is None:
        return Found(Error.COORDINATOR_NOT_AVAILABLE)
    return Found(Error.NONE, leader.id, endpoint.host, endpoint.port)


def warn_once(transactional_id: str, caller: Caller) -> None:
    """A client that waits for a coordinator waits in silence: the node's log says why, once for each id."""
    if transactional_id not in _warned and len(_warned) < WARNED_KEYS_MAX:
        _warned.add(transactional_id)
        logger.warning(
            "client %s looks for the coordinator of transactional id %r: there are no transactions yet",
            caller.client_id,
            transactional_id,
        )


def is_share_key(key: str) -> bool:
    """A share partition is named `group:topic id:partition`."""
    parts = key.split(":")
    return len(parts) == 3 and all(parts) and parts[2].isascii() and parts[2].isdigit()
