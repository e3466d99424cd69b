"""AlterReplicaLogDirs: moves replicas to other data folders of this broker, in the background (`replication/
replica_moves`). DescribeLogDirs shows how far they are.

Of a partition that is not here, the folder is remembered, in case that it comes; the answer says that it is not here.
What is named twice counts once, with the folder that comes last.

v2 is flexible
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.api.environments import StorageEnvironment
from barnabas.broker.api.registry import handles
from barnabas.log.folder.checkpoints import TopicPartition
from barnabas.log.segments.file_names import FOLDER_NAME_LENGTH_MAX, FUTURE_FOLDER
from barnabas.net.large_requests import Breather, Cut
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from barnabas.net.dispatch import Caller
    from barnabas.net.large_requests import LargeRequest

    Folders = dict[TopicPartition, str]
    """Where the replica of each partition is to go."""

HEX_LENGTH = 32

_Topic = m.AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
_Partition = m.AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult


async def alter_log_dirs_of_many(
    _handler: object,
    environment: StorageEnvironment,
    request: LargeRequest,
    caller: Caller,  # noqa: ARG001 (every handler takes it)
) -> m.AlterReplicaLogDirsResponse:
    await request.check()
    folders: Folders = {}
    await request.gather(folders, lambda piece: note_folders(folders, piece))
    for partition, path in folders.items():
        await request.pause_if_due()
        outcome = await begin_move(environment, partition, path)
        await request.add([_Topic(topic_name=partition.topic, partitions=[answer_partition(partition, outcome)])])
    await request.forget(folders)
    return m.AlterReplicaLogDirsResponse()


@handles(
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    StorageEnvironment,
    versions=(1, 2),
    cuts=[Cut(("dirs", "topics", "partitions"), ("results", "partitions"))],
    large_handler=alter_log_dirs_of_many,
)
async def alter_log_dirs(
    environment: StorageEnvironment,
    request: m.AlterReplicaLogDirsRequest,
    caller: Caller,  # noqa: ARG001 (every handler takes it)
) -> m.AlterReplicaLogDirsResponse:
    folders: Folders = {}
    note_folders(folders, request)
    breather = Breather()
    topics: dict[str, list[m.AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult]] = {}
    for partition, path in folders.items():
        outcome = await begin_move(environment, partition, path)
        topics.setdefault(partition.topic, []).append(answer_partition(partition, outcome))
        await breather.pause_if_due()
    results = [_Topic(topic_name=name, partitions=partitions) for name, partitions in topics.items()]
    return m.AlterReplicaLogDirsResponse(results=results)


def note_folders(folders: Folders, request: m.AlterReplicaLogDirsRequest) -> None:
    for folder in request.dirs:
        for topic in folder.topics:
            for index in topic.partitions:
                folders[TopicPartition(topic.name, index)] = folder.path


async def begin_move(environment: StorageEnvironment, partition: TopicPartition, path: str) -> Error:
    topic, index = partition
    try:
        if len(f"{topic}-{index}.") + HEX_LENGTH + len(FUTURE_FOLDER) > FOLDER_NAME_LENGTH_MAX:
            return Error.INVALID_TOPIC_EXCEPTION
        target = environment.store.find_dir(path)
        hosted = environment.replicas.hosted_by_name(topic.encode()).get(index)
        if hosted is None:
            environment.store.prefer(partition, target.directory_id)
            # It says why the partition is not here.
            hosted = environment.replicas.find_by_name(topic.encode(), index)
        if hosted.offline_reason is not None:
            return Error.KAFKA_STORAGE_ERROR
        await environment.replicas.moves.begin(hosted, target)
    except KafkaError as refused:
        # As Kafka does, for older clients.
        is_elsewhere = refused.error is Error.NOT_LEADER_OR_FOLLOWER
        return Error.REPLICA_NOT_AVAILABLE if is_elsewhere else refused.error
    return Error.NONE


def answer_partition(
    partition: TopicPartition, outcome: Error
) -> m.AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult:
    return _Partition(partition_index=partition.partition, error_code=outcome)
