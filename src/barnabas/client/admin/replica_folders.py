"""The folders in which brokers keep replicas: where each is, and how to move it to another folder of its broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.admin.outcomes import refusal
from barnabas.client.cluster import Call
from barnabas.client.offset_queries import by_topic
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.client.cluster import Cluster
    from barnabas.protocol.errors import KafkaError


class Replica(NamedTuple):
    topic: str
    partition: int
    broker_id: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}-{self.broker_id}"


class ReplicaFolders(NamedTuple):
    """Where a replica is, and where it is on its way to; None for nowhere."""

    current: str | None = None
    future: str | None = None


class FolderReplica(NamedTuple):
    """A replica in a folder."""

    topic: str
    partition: int
    size_bytes: int
    offset_lag: int
    """How far it is behind its partition, or behind the replica that it is to take the place of."""
    is_future: bool
    """Whether it is on its way here."""


class Folder(NamedTuple):
    path: str
    failure: KafkaError | None
    """Why nothing is known of it."""
    replicas: list[FolderReplica]


def describe_folders(cluster: Cluster, broker_id: int) -> list[Folder]:
    """All folders of a broker, with all that is in them."""
    call = Call(ApiKey.DESCRIBE_LOG_DIRS, lambda _: m.DescribeLogDirsRequest(topics=None), lambda _: Error.NONE)
    response: m.DescribeLogDirsResponse = cluster.ask_broker(broker_id, call)
    whole = refusal(response.error_code)
    if whole is not None:
        raise whole
    return [
        Folder(
            folder.log_dir,
            refusal(folder.error_code),
            [
                FolderReplica(
                    topic.name, each.partition_index, each.partition_size, each.offset_lag, each.is_future_key
                )
                for topic in folder.topics
                for each in topic.partitions
            ],
        )
        for folder in response.results
    ]


def find_replica_folders(cluster: Cluster, replicas: Iterable[Replica]) -> dict[Replica, ReplicaFolders]:
    """The folders of these replicas."""
    found: dict[Replica, ReplicaFolders] = {}
    for broker_id, wanted in _by_broker(replicas).items():
        struct = m.DescribeLogDirsRequest
        places = [(each.topic, each.partition) for each in wanted]
        request = struct(
            topics=[
                struct.DescribableLogDirTopic(topic=name, partitions=numbers)
                for name, numbers in by_topic(places).items()
            ]
        )
        response: m.DescribeLogDirsResponse = cluster.ask_broker(
            broker_id,
            Call(ApiKey.DESCRIBE_LOG_DIRS, lambda _, sent=request: sent, lambda _: Error.NONE),  # type: ignore[misc]
        )
        found.update(dict.fromkeys(wanted, ReplicaFolders()))
        for folder in response.results:
            failure = refusal(folder.error_code)
            if failure is not None and failure.error is not Error.KAFKA_STORAGE_ERROR:
                raise failure
            for topic in folder.topics:
                for each in topic.partitions:
                    replica = Replica(topic.name, each.partition_index, broker_id)
                    kind = "future" if each.is_future_key else "current"
                    found[replica] = found.get(replica, ReplicaFolders())._replace(**{kind: folder.log_dir})
    return found


def move_replicas(cluster: Cluster, targets: Mapping[Replica, str]) -> dict[Replica, KafkaError | None]:
    """Send replicas on their way to other folders; what went wrong with each."""
    outcomes: dict[Replica, KafkaError | None] = {}
    for broker_id, wanted in _by_broker(targets).items():
        struct = m.AlterReplicaLogDirsRequest
        by_folder: dict[str, list[tuple[str, int]]] = {}
        for each in wanted:
            by_folder.setdefault(targets[each], []).append((each.topic, each.partition))
        request = struct(
            dirs=[
                struct.AlterReplicaLogDir(
                    path=path,
                    topics=[
                        struct.AlterReplicaLogDirTopic(name=name, partitions=numbers)
                        for name, numbers in by_topic(places).items()
                    ],
                )
                for path, places in by_folder.items()
            ]
        )
        response: m.AlterReplicaLogDirsResponse = cluster.ask_broker(
            broker_id,
            Call(ApiKey.ALTER_REPLICA_LOG_DIRS, lambda _, sent=request: sent, lambda _: Error.NONE),  # type: ignore[misc]
        )
        for topic in response.results:
            for part in topic.partitions:
                outcomes[Replica(topic.topic_name, part.partition_index, broker_id)] = refusal(part.error_code)
    return outcomes


def _by_broker(replicas: Iterable[Replica]) -> dict[int, list[Replica]]:
    brokers: dict[int, list[Replica]] = {}
    for each in replicas:
        brokers.setdefault(each.broker_id, []).append(each)
    return brokers
