"""Topics: which there are, what they are made of, and how they come, grow and go.

    create_topics(cluster, [NewTopic("orders", partition_count=3)])
    described = describe_topics(cluster, ["orders"])

A cluster that is older than DescribeTopicPartitions is asked by Metadata, which does not know of eligible leader
replicas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.client.admin.outcomes import REQUEST_TIMEOUT_MS, passing, raise_first, refusal
from barnabas.client.cluster import Call
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from barnabas.client.cluster import Cluster
    from barnabas.protocol.uuids import Uuid

THE_CLUSTERS: Final = -1
"""As a number of partitions or replicas: what the cluster's settings say."""
PARTITIONS_PER_ANSWER: Final = 2_000
_NAMES_IN_A_LIST_MAX: Final = 5
"""The last version of DeleteTopics that has nothing but names."""


class TopicListing(NamedTuple):
    name: str
    topic_id: Uuid
    is_internal: bool


class Broker(NamedTuple):
    host: str
    port: int
    rack: str | None


class PartitionState(NamedTuple):
    partition: int
    leader_id: int
    """-1 for none."""
    replicas: list[int]
    in_sync: list[int]
    eligible_leaders: list[int] | None
    """Replicas that may lead although they are not in sync; None where the cluster does not say."""
    last_known_eligible: list[int] | None


class TopicState(NamedTuple):
    name: str
    topic_id: Uuid
    is_internal: bool
    partitions: list[PartitionState]
    """In their order."""


class NewTopic(NamedTuple):
    name: str
    partition_count: int = THE_CLUSTERS
    replication_factor: int = THE_CLUSTERS
    assignment: Sequence[Sequence[int]] = ()
    """The replicas of each partition, instead of numbers."""
    configs: Mapping[str, str] = {}


def list_topics(cluster: Cluster) -> list[TopicListing]:
    """All topics that the user may see."""
    response = _ask_metadata(cluster, None)
    return [TopicListing(topic.name or "", topic.topic_id, topic.is_internal) for topic in response.topics]


def list_brokers(cluster: Cluster) -> dict[int, Broker]:
    """The brokers that are alive, by their ids."""
    response = _ask_metadata(cluster, [])
    return {each.node_id: Broker(each.host, each.port, each.rack) for each in response.brokers}


def describe_topics(
    cluster: Cluster, names: Iterable[str], *, partitions_per_answer: int = PARTITIONS_PER_ANSWER
) -> dict[str, TopicState | KafkaError]:
    """Each topic, or why it cannot be described."""
    wanted = sorted(set(names))
    if not wanted:
        return {}
    if ApiKey.DESCRIBE_TOPIC_PARTITIONS not in cluster.any().versions():
        topics = [m.MetadataRequest.MetadataRequestTopic(name=name) for name in wanted]
        return {topic.name or "": _metadata_state(topic) for topic in _ask_metadata(cluster, topics).topics}
    return _describe_in_parts(cluster, wanted, partitions_per_answer)


def describe_topic_by_id(cluster: Cluster, topic_id: Uuid) -> TopicState:
    """The topic of an id. Metadata is what can be asked for that, so nothing is known of eligible leaders."""
    topics = [m.MetadataRequest.MetadataRequestTopic(topic_id=topic_id, name=None)]
    (answer,) = _ask_metadata(cluster, topics).topics
    state = _metadata_state(answer)
    if isinstance(state, KafkaError):
        raise state
    return state


def create_topics(
    cluster: Cluster, topics: Sequence[NewTopic], *, validate_only: bool = False
) -> dict[str, KafkaError | None]:
    """Create topics; what went wrong with each, if something did."""
    request = m.CreateTopicsRequest(
        topics=[_creatable(topic) for topic in topics], timeout_ms=REQUEST_TIMEOUT_MS, validate_only=validate_only
    )
    response: m.CreateTopicsResponse = cluster.ask_controller(
        Call(ApiKey.CREATE_TOPICS, lambda _: request, _controller_moved(lambda answer: answer.topics))
    )
    return {topic.name: refusal(topic.error_code, topic.error_message) for topic in response.topics}


def create_partitions(
    cluster: Cluster, counts: Mapping[str, int], assignments: Mapping[str, Sequence[Sequence[int]]] | None = None
) -> None:
    """Let topics grow to so many partitions; `assignments` are the replicas of those that are added."""
    struct = m.CreatePartitionsRequest

    def replicas(name: str) -> list[m.CreatePartitionsRequest.CreatePartitionsAssignment] | None:
        if assignments is None or name not in assignments:
            return None
        return [struct.CreatePartitionsAssignment(broker_ids=list(each)) for each in assignments[name]]

    topics = [
        struct.CreatePartitionsTopic(name=name, count=count, assignments=replicas(name))
        for name, count in counts.items()
    ]
    request = struct(topics=topics, timeout_ms=REQUEST_TIMEOUT_MS)
    response: m.CreatePartitionsResponse = cluster.ask_controller(
        Call(ApiKey.CREATE_PARTITIONS, lambda _: request, _controller_moved(lambda answer: answer.results))
    )
    raise_first({each.name: refusal(each.error_code, each.error_message) for each in response.results})


def delete_topics(cluster: Cluster, names: Sequence[str]) -> None:
    def make_request(version: int) -> m.DeleteTopicsRequest:
        if version <= _NAMES_IN_A_LIST_MAX:
            return m.DeleteTopicsRequest(topic_names=list(names), timeout_ms=REQUEST_TIMEOUT_MS)
        topics = [m.DeleteTopicsRequest.DeleteTopicState(name=name) for name in names]
        return m.DeleteTopicsRequest(topics=topics, timeout_ms=REQUEST_TIMEOUT_MS)

    response: m.DeleteTopicsResponse = cluster.ask_controller(
        Call(ApiKey.DELETE_TOPICS, make_request, _controller_moved(lambda answer: answer.responses))
    )
    raise_first({each.name: refusal(each.error_code, each.error_message) for each in response.responses})


def _ask_metadata(cluster: Cluster, topics: list[m.MetadataRequest.MetadataRequestTopic] | None) -> m.MetadataResponse:
    request = m.MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    response: m.MetadataResponse = cluster.ask_any(
        Call(ApiKey.METADATA, lambda _: request, lambda answer: passing(answer.error_code))
    )
    return response


def _describe_in_parts(cluster: Cluster, names: list[str], partitions_max: int) -> dict[str, TopicState | KafkaError]:
    struct = m.DescribeTopicPartitionsRequest
    topics = [struct.TopicRequest(name=name) for name in names]
    cursor = None
    found: dict[str, TopicState | KafkaError] = {}
    while True:
        request = struct(topics=topics, response_partition_limit=partitions_max, cursor=cursor)
        call = Call(ApiKey.DESCRIBE_TOPIC_PARTITIONS, lambda _, request=request: request, lambda _: Error.NONE)  # type: ignore[misc]
        response: m.DescribeTopicPartitionsResponse = cluster.ask_any(call)
        for topic in response.topics:
            _add_part(found, topic)
        after = response.next_cursor
        if after is None:
            return found
        cursor = struct.Cursor(topic_name=after.topic_name, partition_index=after.partition_index)
        topics = [topic for topic in topics if topic.name >= after.topic_name]


def _add_part(
    found: dict[str, TopicState | KafkaError],
    topic: m.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic,
) -> None:
    name = topic.name or ""
    failure = refusal(topic.error_code)
    if failure is not None:
        found[name] = failure
        return
    known = found.get(name)
    partitions = known.partitions if isinstance(known, TopicState) else []
    found[name] = TopicState(name, topic.topic_id, topic.is_internal, partitions)
    partitions += [
        PartitionState(
            each.partition_index,
            each.leader_id,
            list(each.replica_nodes),
            list(each.isr_nodes),
            list(each.eligible_leader_replicas or ()),
            list(each.last_known_elr or ()),
        )
        for each in topic.partitions
    ]
    partitions.sort()


def _metadata_state(topic: m.MetadataResponse.MetadataResponseTopic) -> TopicState | KafkaError:
    failure = refusal(topic.error_code)
    if failure is not None:
        return failure
    partitions = [
        PartitionState(each.partition_index, each.leader_id, list(each.replica_nodes), list(each.isr_nodes), None, None)
        for each in topic.partitions
    ]
    return TopicState(topic.name or "", topic.topic_id, topic.is_internal, sorted(partitions))


def _creatable(topic: NewTopic) -> m.CreateTopicsRequest.CreatableTopic:
    struct = m.CreateTopicsRequest
    return struct.CreatableTopic(
        name=topic.name,
        num_partitions=topic.partition_count,
        replication_factor=topic.replication_factor,
        assignments=[
            struct.CreatableReplicaAssignment(partition_index=partition, broker_ids=list(replicas))
            for partition, replicas in enumerate(topic.assignment)
        ],
        configs=[struct.CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )


def _controller_moved(parts_of: Callable[[Any], Iterable[Any]]) -> Callable[[Any], int]:
    """An answer in which some part says that another controller has taken over counts for nothing as a whole."""

    def error_code(response: Any) -> int:
        moved = any(part.error_code == Error.NOT_CONTROLLER for part in parts_of(response))
        return Error.NOT_CONTROLLER if moved else Error.NONE

    return error_code
