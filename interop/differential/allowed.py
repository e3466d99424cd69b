"""What may differ between an answer of Barnabas and one of Apache Kafka, each with the reason.

`docs/compatibility.md` has the differences in behaviour for people; those that a sequence can meet are listed here for
the comparison. Anything that is not named here has to be the same.
"""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.compiler.structs import Message

EACH_ITS_OWN: dict[str, str] = {
    "throttle_time_ms": "how long a client is held back depends on the machine's speed",
    "cluster_id": "each cluster has its own",
    "session_id": "drawn at random",
    "log_append_time_ms": "the moment of the append",
    "transaction_start_time_ms": "the moment in which the transaction began",
    "last_timestamp": "the moment of a marker, or of the coordinator's last change",
    "last_fetch_timestamp": "the moment of the last fetch",
    "last_caught_up_timestamp": "the moment of the last fetch",
    "finalized_features_epoch": "an offset of the metadata log, where idle moments count, too",
    "total_bytes": "of the disk",
    "usable_bytes": "of the disk",
    "DescribeQuorum.topics.partitions.high_watermark": "an offset of the metadata log, where idle moments count, too",
    "DescribeQuorum.topics.partitions.leader_epoch": "elections at the start",
    "log_end_offset": "an offset of the metadata log, where idle moments count, too",
    "GetTelemetrySubscriptions.subscription_id": "a checksum of what is wanted, each side's own",
    "DescribeConfigs.results.configs.documentation": "our descriptions of settings are in our words",
}
"""By field, or by the path of one: values that are anybody's own. That there is one is compared all the same."""

NOT_SERVED = frozenset(
    {17, 29, 30, 31, 36, 38, 39, 40, 41, 50, 51, 71, 72, 76, 78, 79, 80, 81, 83, 84, 85, 86, 87, 88, 90, 91, 92}
)
"""APIs of which Barnabas's ApiVersions says nothing (`docs/compatibility.md` has them by name), and those for metrics of
clients, which each side lists where somebody receives them."""

LISTINGS: dict[str, str] = {
    "Metadata.topics": "name",
    "ListGroups.groups": "group_id",
    "ListTransactions.transaction_states": "transactional_id",
    "DescribeLogDirs.results.topics": "name",
    "ListConfigResources.config_resources": "resource_name",
    "ListPartitionReassignments.topics": "name",
}
"""Arrays that may list everything there is, and where the name is: of these, what the sequence has made is compared,
because what earlier ones made goes away in its own time."""

ORDERED = frozenset(
    {
        "DescribeConfigs.results.configs.synonyms",
        "DescribeTopicPartitions.topics",
        "DescribeTopicPartitions.topics.partitions",
        "DescribeTopicPartitions.topics.partitions.replica_nodes",
        "Metadata.topics.partitions.replica_nodes",
        "Fetch.responses.partitions.aborted_transactions",
        "JoinGroup.members",
    }
)
"""Arrays whose order means something. All others are compared as sets, in which what has one name is one: Kafka makes
most of them from hash maps, and what a request names twice is in them once."""


class Allowed(NamedTuple):
    """A difference on purpose."""

    path: str
    """With `*` for anything."""
    reason: str
    ours: Any = ...
    """The value, unless any will do."""
    kafkas: Any = ...
    where: Callable[[Message], bool] | None = None
    """Which requests it is about."""
    ends: bool = False
    """Whether the two sides differ in what they keep from here on, so that what follows cannot be compared."""


ALLOWED: tuple[Allowed, ...] = ()


def allowance(path: str, ours: Any, kafkas: Any, request: Message) -> Allowed | None:
    for each in ALLOWED:
        if (
            fnmatch.fnmatchcase(path, each.path)
            and each.ours in (..., ours)
            and each.kafkas in (..., kafkas)
            and (each.where is None or each.where(request))
        ):
            return each
    return None
