"""The cluster as a whole: its id, its nodes, its quorum, the features it runs with, and what its brokers speak."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.client.admin.outcomes import REQUEST_TIMEOUT_MS, passing, refusal
from barnabas.client.cluster import Call
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.client.cluster import Cluster
    from barnabas.net.frames import VersionRange
    from barnabas.protocol.uuids import Uuid

METADATA_TOPIC: Final = "__cluster_metadata"
UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3
"""How the level of a feature may change."""

_BROKERS: Final = 1
_CONTROLLERS: Final = 2
_FENCED_SINCE: Final = 2
"""The first version of DescribeCluster that lists fenced brokers, if it is asked to."""
_UPGRADE_TYPES_SINCE: Final = 1
"""The first version of UpdateFeatures that knows how safe a downgrade has to be, and can be asked to change nothing."""


class Endpoint(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


class ClusterDescription(NamedTuple):
    cluster_id: str
    controller_id: int
    endpoints: list[Endpoint]
    """Brokers, or controllers where those were asked."""


class QuorumReplica(NamedTuple):
    node_id: int
    directory_id: Uuid
    log_end_offset: int
    last_fetch_timestamp: int
    last_caught_up_timestamp: int


class QuorumListener(NamedTuple):
    name: str
    host: str
    port: int


class Quorum(NamedTuple):
    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: list[QuorumReplica]
    observers: list[QuorumReplica]
    listeners: dict[int, list[QuorumListener]]
    """Of the voters, by node."""


class LevelRange(NamedTuple):
    lowest: int
    highest: int


class Features(NamedTuple):
    supported: dict[str, LevelRange]
    finalized: dict[str, int]
    epoch: int
    """-1 for none yet."""


def describe_cluster(cluster: Cluster, *, include_fenced: bool = False) -> ClusterDescription:
    kind = _CONTROLLERS if cluster.settings.at_controllers else _BROKERS

    def request(version: int) -> m.DescribeClusterRequest:
        if include_fenced and version < _FENCED_SINCE:
            raise KafkaError(Error.UNSUPPORTED_VERSION, "The brokers do not list fenced brokers.")
        return m.DescribeClusterRequest(endpoint_type=kind, include_fenced_brokers=include_fenced)

    response: m.DescribeClusterResponse = cluster.ask_any(
        Call(ApiKey.DESCRIBE_CLUSTER, request, lambda answer: passing(answer.error_code))
    )
    _check(response.error_code, response.error_message)
    return ClusterDescription(
        response.cluster_id,
        response.controller_id,
        [Endpoint(each.broker_id, each.host, each.port, each.rack, each.is_fenced) for each in response.brokers],
    )


def describe_quorum(cluster: Cluster) -> Quorum:
    """The quorum as its leader has it."""
    request = m.DescribeQuorumRequest(
        topics=[
            m.DescribeQuorumRequest.TopicData(
                topic_name=METADATA_TOPIC, partitions=[m.DescribeQuorumRequest.PartitionData(partition_index=0)]
            )
        ]
    )
    call = Call(ApiKey.DESCRIBE_QUORUM, lambda _: request, lambda answer: passing(answer.error_code))
    # Only the leader knows how far the others are. A broker passes the question on to it.
    ask = cluster.ask_controller if cluster.settings.at_controllers else cluster.ask_any
    response: m.DescribeQuorumResponse = ask(call)
    _check(response.error_code, response.error_message)
    ((partition,),) = (topic.partitions for topic in response.topics)
    _check(partition.error_code, partition.error_message)
    return Quorum(
        partition.leader_id,
        partition.leader_epoch,
        partition.high_watermark,
        [_replica(each) for each in partition.current_voters],
        [_replica(each) for each in partition.observers],
        {
            node.node_id: [QuorumListener(each.name, each.host, each.port) for each in node.listeners]
            for node in response.nodes
        },
    )


def add_voter(cluster: Cluster, voter_id: int, directory_id: Uuid, listeners: Iterable[QuorumListener]) -> None:
    struct = m.AddRaftVoterRequest
    request = struct(
        cluster_id=None,
        timeout_ms=REQUEST_TIMEOUT_MS,
        voter_id=voter_id,
        voter_directory_id=directory_id,
        listeners=[struct.Listener(name=each.name, host=each.host, port=each.port) for each in listeners],
    )
    response: m.AddRaftVoterResponse = cluster.ask_controller(
        Call(ApiKey.ADD_RAFT_VOTER, lambda _: request, _controller_moved)
    )
    _check(response.error_code, response.error_message)


def remove_voter(cluster: Cluster, voter_id: int, directory_id: Uuid) -> None:
    request = m.RemoveRaftVoterRequest(cluster_id=None, voter_id=voter_id, voter_directory_id=directory_id)
    response: m.RemoveRaftVoterResponse = cluster.ask_controller(
        Call(ApiKey.REMOVE_RAFT_VOTER, lambda _: request, _controller_moved)
    )
    _check(response.error_code, response.error_message)


def unregister_broker(cluster: Cluster, broker_id: int) -> None:
    """Let the cluster forget a broker that will not come back."""
    request = m.UnregisterBrokerRequest(broker_id=broker_id)
    response: m.UnregisterBrokerResponse = cluster.ask_any(
        Call(ApiKey.UNREGISTER_BROKER, lambda _: request, lambda answer: passing(answer.error_code))
    )
    _check(response.error_code, response.error_message)


def describe_features(cluster: Cluster, node_id: int | None = None) -> Features:
    """The features as any node has them, or as one has."""
    request = m.ApiVersionsRequest(client_software_name="barnabas", client_software_version="1")
    call = Call(ApiKey.API_VERSIONS, lambda _: request, lambda answer: passing(answer.error_code))
    response: m.ApiVersionsResponse = cluster.ask_any(call) if node_id is None else cluster.ask_broker(node_id, call)
    _check(response.error_code)
    return Features(
        {each.name: LevelRange(each.min_version, each.max_version) for each in response.supported_features},
        {each.name: each.max_version_level for each in response.finalized_features},
        response.finalized_features_epoch,
    )


def update_features(
    cluster: Cluster, levels: Mapping[str, int], kind: int, *, validate_only: bool
) -> dict[str, KafkaError | None]:
    """Change the levels of features; what went wrong with each."""
    struct = m.UpdateFeaturesRequest

    def request(version: int) -> m.UpdateFeaturesRequest:
        has_types = version >= _UPGRADE_TYPES_SINCE
        direction = {"upgrade_type": kind} if has_types else {"allow_downgrade": kind != UPGRADE}
        updates = [
            struct.FeatureUpdateKey(feature=name, max_version_level=level, **direction)
            for name, level in levels.items()
        ]
        return struct(feature_updates=updates, validate_only=validate_only and has_types)

    response: m.UpdateFeaturesResponse = cluster.ask_controller(
        Call(ApiKey.UPDATE_FEATURES, request, lambda answer: passing(answer.error_code))
    )
    failure = refusal(response.error_code, response.error_message)
    # Either all of them change or none does, which newer clusters say once.
    outcomes: dict[str, KafkaError | None] = dict.fromkeys(levels, failure)
    outcomes.update({each.feature: refusal(each.error_code, each.error_message) for each in response.results})
    return outcomes


def versions_of(cluster: Cluster, broker_id: int) -> dict[int, VersionRange]:
    """What a broker speaks, by API key."""
    request = m.ApiVersionsRequest(client_software_name="barnabas", client_software_version="1")
    response: m.ApiVersionsResponse = cluster.ask_broker(broker_id, Call(ApiKey.API_VERSIONS, lambda _: request))
    from barnabas.net.frames import VersionRange

    return {each.api_key: VersionRange(each.min_version, each.max_version) for each in response.api_keys}


def elect_leaders(
    cluster: Cluster, election_type: int, partitions: Sequence[tuple[str, int]] | None, *, timeout_ms: int
) -> dict[tuple[str, int], KafkaError | None]:
    """Elect leaders of these partitions, or of all that need it; what went wrong with each."""
    from barnabas.client.offset_queries import by_topic

    struct = m.ElectLeadersRequest
    topics = None
    if partitions is not None:
        topics = [
            struct.TopicPartitions(topic=name, partitions=numbers) for name, numbers in by_topic(partitions).items()
        ]
    request = struct(election_type=election_type, topic_partitions=topics, timeout_ms=timeout_ms)
    response: m.ElectLeadersResponse = cluster.ask_controller(
        Call(ApiKey.ELECT_LEADERS, lambda _: request, lambda answer: passing(answer.error_code))
    )
    _check(response.error_code)
    return {
        (topic.topic, each.partition_id): refusal(each.error_code, each.error_message)
        for topic in response.replica_election_results
        for each in topic.partition_result
    }


def _replica(each: m.DescribeQuorumResponse.ReplicaState) -> QuorumReplica:
    return QuorumReplica(
        each.replica_id,
        each.replica_directory_id,
        each.log_end_offset,
        each.last_fetch_timestamp,
        each.last_caught_up_timestamp,
    )


def _controller_moved(response: m.AddRaftVoterResponse | m.RemoveRaftVoterResponse) -> int:
    """Another try is worth it if somebody else controls by now. That a voter did not answer in time is an outcome."""
    return response.error_code if response.error_code == Error.NOT_CONTROLLER else Error.NONE


def _check(code: int, message: str | None = None) -> None:
    failure = refusal(code, message)
    if failure is not None:
        raise failure
