"""FindCoordinator: which broker looks after a group, a transactional id or a share partition.

No coordinator exists yet, so every key that could have one is answered COORDINATOR_NOT_AVAILABLE: clients take it
for a cluster that is just starting, and try again. The API is here all the same, because librdkafka takes a broker
without it for one that cannot read LZ4.

v1 asks for transactional ids · v3 is flexible · v4 asks for many keys at once · v6 asks for share partitions
"""

from __future__ import annotations

import logging
from enum import IntEnum
from typing import TYPE_CHECKING

from barnabas.broker.dispatch import handles
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Caller
    from barnabas.broker.server import Broker

FIRST_VERSION_WITH_MANY_KEYS = 4
FIRST_VERSION_WITH_SHARE_KEYS = 6

WARNED_KEYS_MAX = 1000

NOWHERE_ID = -1
NOWHERE_PORT = -1

_MESSAGES = {
    Error.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    Error.INVALID_REQUEST: "No coordinator looks after keys of this type, or this version cannot ask for it.",
}


logger = logging.getLogger("barnabas.coordinators")

_warned: set[str] = set()


class KeyType(IntEnum):
    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


@handles(ApiKey.FIND_COORDINATOR, versions=(0, 6))
def find_coordinator(
    broker: Broker,  # noqa: ARG001 (every handler takes it)
    request: m.FindCoordinatorRequest,
    caller: Caller,
) -> m.FindCoordinatorResponse:
    warn_once(request, caller)
    if caller.api_version < FIRST_VERSION_WITH_MANY_KEYS:
        error = refusal(request.key_type, request.key, caller.api_version)
        return m.FindCoordinatorResponse(
            error_code=error, error_message=_MESSAGES[error], node_id=NOWHERE_ID, port=NOWHERE_PORT
        )
    return m.FindCoordinatorResponse(
        coordinators=[answer_key(request.key_type, key, caller.api_version) for key in request.coordinator_keys]
    )


def warn_once(request: m.FindCoordinatorRequest, caller: Caller) -> None:
    """A client that waits for a coordinator waits in silence: the node's log says why, once for each key."""
    kind = "transactional id" if request.key_type == KeyType.TRANSACTION else "group"
    for key in request.coordinator_keys or [request.key]:
        if key not in _warned and len(_warned) < WARNED_KEYS_MAX:
            _warned.add(key)
            logger.warning(
                "client %s looks for the coordinator of %s %r: there are no consumer groups and transactions yet, "
                "use assign with an offset and without auto-commit",
                caller.client_id,
                kind,
                key,
            )


def answer_key(key_type: int, key: str, version: int) -> m.FindCoordinatorResponse.Coordinator:
    error = refusal(key_type, key, version)
    return m.FindCoordinatorResponse.Coordinator(key=key, error_code=error, node_id=NOWHERE_ID, port=NOWHERE_PORT)


def refusal(key_type: int, key: str, version: int) -> Error:
    if key_type in (KeyType.GROUP, KeyType.TRANSACTION):
        return Error.COORDINATOR_NOT_AVAILABLE
    if key_type == KeyType.SHARE and version >= FIRST_VERSION_WITH_SHARE_KEYS and is_share_key(key):
        return Error.COORDINATOR_NOT_AVAILABLE
    return Error.INVALID_REQUEST


def is_share_key(key: str) -> bool:
    """A share partition is named `group:topic id:partition`."""
    parts = key.split(":")
    return len(parts) == 3 and all(parts) and parts[2].isascii() and parts[2].isdigit()
