"""FindCoordinator: which broker looks after a group, a transactional id or a share partition.

A group is looked after by the leader of its partition of `__consumer_offsets`, a transactional id by that of its
partition of `__transaction_state`. These topics are created when they are first needed; until then the answer is
COORDINATOR_NOT_AVAILABLE, and clients retry.

There are no coordinators of share groups yet: every key that could have one is answered with COORDINATOR_NOT_AVAILABLE,
too.

v1 asks for transactional ids · v3 is flexible · v4 asks for many keys at once · v6 asks for share partitions
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.api.environments import GroupEnvironment
from barnabas.broker.api.registry import handles
from barnabas.broker.coordinators.coordinator_spec import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, partition_of
from barnabas.net.large_requests import SHORT_BYTES_MAX, Cut
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.error_messages import message_of
from barnabas.protocol.errors import Error
from barnabas.protocol.uuids import from_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.net.dispatch import Caller

_NUMBER = re.compile("[+-]?[0-9]{1,10}")
_INT32 = range(-(1 << 31), 1 << 31)

FIRST_VERSION_WITH_MANY_KEYS = 4
FIRST_VERSION_WITH_SHARE_KEYS = 6

_MESSAGES: Mapping[Error, str] = {
    Error.NONE: "NONE",
    Error.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    Error.INVALID_REQUEST: message_of(Error.INVALID_REQUEST),
}
"""The error message of answers before v4, which is there even if there is no error. Later answers have the last one
only, for a type of key that does not exist."""


class KeyType(IntEnum):
    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


_TOPICS: Mapping[int, str] = {KeyType.GROUP: OFFSETS_TOPIC, KeyType.TRANSACTION: TRANSACTIONS_TOPIC}


class Found(NamedTuple):
    """A coordinator and its address on the caller's own listener; the defaults say that there is none."""

    error: Error
    node_id: int = -1
    host: str = ""
    port: int = -1


@handles(
    ApiKey.FIND_COORDINATOR,
    GroupEnvironment,
    versions=(0, 6),
    cuts=[Cut(("coordinator_keys",), ("coordinators",), first_version=FIRST_VERSION_WITH_MANY_KEYS)],
    whole_bytes_max=SHORT_BYTES_MAX,
)
def find_coordinator(
    environment: GroupEnvironment, request: m.FindCoordinatorRequest, caller: Caller
) -> m.FindCoordinatorResponse:
    if caller.api_version < FIRST_VERSION_WITH_MANY_KEYS:
        found = find(environment, request.key_type, request.key, caller)
        return m.FindCoordinatorResponse(
            error_code=found.error,
            error_message=_MESSAGES[found.error],
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )
    return m.FindCoordinatorResponse(
        coordinators=[
            as_coordinator(key, request.key_type, find(environment, request.key_type, key, caller))
            for key in request.coordinator_keys
        ]
    )


def as_coordinator(key: str, key_type: int, found: Found) -> m.FindCoordinatorResponse.Coordinator:
    is_unknown_type = found.error is Error.INVALID_REQUEST and key_type != KeyType.SHARE
    return m.FindCoordinatorResponse.Coordinator(
        key=key,
        error_code=found.error,
        error_message=_MESSAGES[found.error] if is_unknown_type else "",
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def find(environment: GroupEnvironment, key_type: int, key: str, caller: Caller) -> Found:
    topic_name = _TOPICS.get(key_type)
    if topic_name is not None:
        return find_leader(environment, topic_name, key, caller.listener.name)
    can_be_asked_for = caller.api_version >= FIRST_VERSION_WITH_SHARE_KEYS
    if key_type == KeyType.SHARE and can_be_asked_for and is_share_key(key):
        return Found(Error.COORDINATOR_NOT_AVAILABLE)
    return Found(Error.INVALID_REQUEST)


def find_leader(environment: GroupEnvironment, topic_name: str, key: str, listener_name: str) -> Found:
    """The leader of the partition to which the key belongs."""
    topic = environment.metadata.image.topics.get(topic_name)
    if topic is None:
        environment.topic_creations.start([topic_name])
        return Found(Error.COORDINATOR_NOT_AVAILABLE)
    partition = topic.partitions[partition_of(key, len(topic.partitions))]
    leader = environment.metadata.image.brokers.get(partition.leader)
    endpoint = None if leader is None or leader.fenced else leader.endpoint(listener_name)
    if leader is None or endpoint is None:
        return Found(Error.COORDINATOR_NOT_AVAILABLE)
    return Found(Error.NONE, leader.id, endpoint.host, endpoint.port)


def is_share_key(key: str) -> bool:
    """A share partition is named `group:topic id:partition`, where colons may be in the group's name, too."""
    *group, topic_id, partition = ["", "", *key.rstrip(":").split(":")]
    try:
        from_text(topic_id.removesuffix("=="))
    except ValueError:
        return False
    return bool(":".join(group).strip(": ")) and _NUMBER.fullmatch(partition) is not None and int(partition) in _INT32
