"""What an answer says of the operations that its reader may do: all that there are of a kind, one bit each."""

from __future__ import annotations

OPERATIONS_NOT_ASKED_FOR = -(1 << 31)
"""What an answer says of permitted operations when the request did not ask for them."""

_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = (1 << bit for bit in range(3, 9))
_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = (1 << bit for bit in range(9, 13))

TOPIC_OPERATIONS = _READ | _WRITE | _CREATE | _DELETE | _ALTER | _DESCRIBE | _DESCRIBE_CONFIGS | _ALTER_CONFIGS
"""Without an authorizer, everybody may do everything that can be done with a topic."""

GROUP_OPERATIONS = _READ | _DELETE | _DESCRIBE | _DESCRIBE_CONFIGS | _ALTER_CONFIGS

CLUSTER_OPERATIONS = (
    _CREATE | _ALTER | _DESCRIBE | _CLUSTER_ACTION | _DESCRIBE_CONFIGS | _ALTER_CONFIGS | _IDEMPOTENT_WRITE
)
