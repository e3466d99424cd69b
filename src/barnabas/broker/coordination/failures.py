"""What a client of a coordinator is told when the coordinator's partition cannot be written.

Clients of coordinators do not know the errors of produce requests. They know three kinds: look for the coordinator
again, try again soon, and give up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping

_TRANSLATIONS: Mapping[Error, Error] = {
    Error.UNKNOWN_TOPIC_OR_PARTITION: Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_ENOUGH_REPLICAS: Error.COORDINATOR_NOT_AVAILABLE,
    Error.REQUEST_TIMED_OUT: Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_LEADER_OR_FOLLOWER: Error.NOT_COORDINATOR,
    Error.KAFKA_STORAGE_ERROR: Error.NOT_COORDINATOR,
    Error.MESSAGE_TOO_LARGE: Error.UNKNOWN_SERVER_ERROR,
    Error.RECORD_LIST_TOO_LARGE: Error.UNKNOWN_SERVER_ERROR,
}


def for_clients(error: KafkaError) -> KafkaError:
    """The same failure in words that clients of a coordinator know."""
    return KafkaError(_TRANSLATIONS.get(error.error, error.error), error.message)
