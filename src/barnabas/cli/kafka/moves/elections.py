"""Elections of leaders, as the tools for them read what is wanted, ask for it, and tell apart how it went."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from barnabas.cli.kafka.admin_access import AskError, asking
from barnabas.cli.kafka.java import java_json
from barnabas.cli.kafka.java.java_exceptions import exception_name
from barnabas.cli.kafka.java.java_order import in_hash_order, partition_hash
from barnabas.cli.kafka.tool import ToolError
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from barnabas.client.cluster import Cluster, TopicPartition
    from barnabas.protocol.errors import KafkaError

T = TypeVar("T")

PREFERRED: Final = 0
UNCLEAN: Final = 1
"""The types of elections."""

TIMEOUTS: Final = {"default.api.timeout.ms": "30000", "request.timeout.ms": "15000"}
"""What holds where the properties for the client say nothing of it."""
_MAPPING: Final = "com.fasterxml.jackson.databind.JsonMappingException"


class Elections(NamedTuple):
    """How elections went, in the order in which Kafka's tools name partitions."""

    succeeded: list[TopicPartition]
    not_needed: list[TopicPartition]
    failed: dict[TopicPartition, KafkaError]


def read_partitions(path: str, what: str) -> list[TopicPartition]:
    """The partitions in a file of JSON; ToolError for one that does not have them. `what` is what its data is for."""
    text = read_text(path, "java.io.IOException: ")
    try:
        content = java_json.parse(text)
    except ToolError:
        content = java_json.NOTHING
    if content is java_json.NOTHING:
        raise ToolError(f"{what} data is empty")
    partitions = _in_mapping(lambda: _partitions(java_json.as_object(content)))
    if partitions is None:
        raise ToolError(f'{what} data is missing "partitions" field')
    repeated = in_hash_order((each for each in partitions if partitions.count(each) > 1), partition_hash)
    if repeated:
        raise ToolError(f"{what} data contains duplicate partitions: [{shown(repeated)}]")
    return partitions


def elect(cluster: Cluster, election_type: int, partitions: Sequence[TopicPartition] | None) -> Elections:
    """Elect leaders of these partitions, or of all that need it."""
    from barnabas.client.admin.cluster_state import elect_leaders

    try:
        with asking("electLeaders"):
            outcomes = elect_leaders(
                cluster, election_type, partitions, timeout_ms=cluster.settings.default_api_timeout_ms
            )
    except AskError as failure:
        raise _said(failure) from None
    return _sorted(outcomes)


def named(failure: KafkaError) -> str:
    return f"{exception_name(failure.error)}: {failure.message}"


def shown(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in partitions)


def read_text(path: str, prefix: str = "") -> str:
    """What is in a file; ToolError in the words of Kafka for one that cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError as error:
        raise ToolError(f"{prefix}Unable to read file {path}", hint=error.strerror or "") from None


def _in_mapping(read: Callable[[], T]) -> T:
    """What is read of JSON; what is not as it has to be is named with the exception of Kafka's."""
    try:
        return read()
    except ToolError as failure:
        raise ToolError(f"{_MAPPING}: {failure.message}") from None


def _partitions(fields: dict[str, Any]) -> list[TopicPartition] | None:
    if "partitions" not in fields:
        return None
    return [_partition(java_json.as_object(each)) for each in java_json.as_array(fields["partitions"])]


def _partition(fields: dict[str, Any]) -> TopicPartition:
    topic = java_json.as_string(java_json.field(fields, "topic"))
    return topic, java_json.as_int(java_json.field(fields, "partition"))


def _sorted(outcomes: Mapping[TopicPartition, KafkaError | None]) -> Elections:
    found = Elections([], [], {})
    for place in in_hash_order(outcomes, partition_hash):
        failure = outcomes[place]
        if failure is None:
            found.succeeded.append(place)
        elif failure.error is Error.ELECTION_NOT_NEEDED:
            found.not_needed.append(place)
        else:
            found.failed[place] = failure
    return Elections(
        in_hash_order(found.succeeded, partition_hash), in_hash_order(found.not_needed, partition_hash), found.failed
    )


def _said(failure: AskError) -> ToolError:
    """What a whole election failed of; Kafka's tools print two of the reasons twice."""
    if failure.error is Error.REQUEST_TIMED_OUT:
        message = "Timeout waiting for election results"
    elif failure.error is Error.CLUSTER_AUTHORIZATION_FAILED:
        message = "Not authorized to perform leader election"
    else:
        return ToolError(f"java.util.concurrent.ExecutionException: {failure.with_name}", hint=failure.hint)
    print(message)
    return ToolError(message, hint=failure.hint)
