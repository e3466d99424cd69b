"""DescribeLogDirs: the data folders of this broker, how full they are, and what each partition takes there.

The answer is by folder, so that it cannot be made of answers to pieces of a large request. It is written piece by piece
all the same, because a small request may ask for every partition.

v2 is flexible · v3 has an error for the whole answer · v4 says how large the volumes are · v5 says which folders take
no new partitions (`cordoned.log.dirs`)
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.api.environments import StorageEnvironment
from barnabas.broker.api.registry import handles
from barnabas.net.large_requests import Breather, Cut
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error
from barnabas.protocol.pieces import PieceWriter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping

    from barnabas.log.folder.data_dir import DataDir
    from barnabas.log.partition_log import PartitionLog
    from barnabas.net.dispatch import Caller
    from barnabas.net.large_requests import LargeRequest
    from barnabas.replication.hosted import HostedPartition
    from barnabas.replication.replica_manager import ReplicaManager

    Wanted = dict[tuple[str, int], None]
    """Partitions, by topic and index."""

VISITED_AT_ONCE = 64
ARRAYS = ("results", "topics", "partitions")

_Result = m.DescribeLogDirsResponse.DescribeLogDirsResult
_Topic = m.DescribeLogDirsResponse.DescribeLogDirsTopic
_Partition = m.DescribeLogDirsResponse.DescribeLogDirsPartition


class Replica(NamedTuple):
    hosted: HostedPartition
    log: PartitionLog
    """That of the partition, or the copy in the folder to which it moves."""


async def describe_log_dirs_of_many(
    _handler: object,
    environment: StorageEnvironment,
    request: LargeRequest,
    caller: Caller,  # noqa: ARG001 (every handler takes it)
) -> m.DescribeLogDirsResponse:
    await request.check()
    wanted: Wanted = {}
    await request.gather(wanted, lambda piece: note_wanted(wanted, piece))
    async for result in described(environment, wanted_here(environment.replicas, wanted)):
        await request.add([result])
    await request.forget(wanted)
    return m.DescribeLogDirsResponse()


@handles(
    ApiKey.DESCRIBE_LOG_DIRS,
    StorageEnvironment,
    versions=(1, 5),
    cuts=[Cut(("topics", "partitions"), ARRAYS)],
    large_handler=describe_log_dirs_of_many,
)
async def describe_log_dirs(
    environment: StorageEnvironment, request: m.DescribeLogDirsRequest, caller: Caller
) -> list[bytes]:
    hosted: Iterable[HostedPartition]
    if request.topics is None:
        hosted = list(environment.replicas)
    else:
        wanted: Wanted = {}
        note_wanted(wanted, request)
        hosted = wanted_here(environment.replicas, wanted)
    writer: PieceWriter[m.DescribeLogDirsResponse] = PieceWriter(m.DescribeLogDirsResponse, caller.api_version, ARRAYS)
    async for result in described(environment, hosted):
        writer.add([result])
    return writer.finish(m.DescribeLogDirsResponse())


def note_wanted(wanted: Wanted, request: m.DescribeLogDirsRequest) -> None:
    for topic in request.topics or ():
        for index in topic.partitions:
            wanted[topic.topic, index] = None


def wanted_here(replicas: ReplicaManager, wanted: Wanted) -> Iterator[HostedPartition]:
    """Those that are not here, and those that do not exist, are left out of the answer."""
    for topic, index in wanted:
        hosted = replicas.partitions_of(topic).get(index)
        if hosted is not None:
            yield hosted


async def described(
    environment: StorageEnvironment, partitions: Iterable[HostedPartition]
) -> AsyncIterator[m.DescribeLogDirsResponse.DescribeLogDirsResult]:
    """Each folder with its partitions, in many results: those of a folder follow each other, and are one in the
    answer. There are turns for others in between."""
    breather = Breather()
    by_folder: dict[DataDir, dict[str, list[Replica]]] = {}
    for number, hosted in enumerate(partitions):
        for log in filter(None, (hosted.log, environment.replicas.moves.future_of(hosted))):
            data_dir = environment.store.folder_of(log)
            if data_dir is not None:
                by_folder.setdefault(data_dir, {}).setdefault(hosted.topic, []).append(Replica(hosted, log))
        if number % VISITED_AT_ONCE == 0:
            await breather.pause_if_due()
    for _, data_dir in environment.store.online:
        result = await describe_folder(environment, data_dir)
        yield result
        if result.error_code == Error.NONE:
            for topic in in_slices(by_folder.get(data_dir, {})):
                yield with_topic(result, topic)
                await breather.pause_if_due()
    for path in environment.store.offline_paths:
        yield refuse_folder(path)


async def describe_folder(
    environment: StorageEnvironment, data_dir: DataDir
) -> m.DescribeLogDirsResponse.DescribeLogDirsResult:
    try:
        space = await environment.run_in_thread(environment.disk.space, data_dir.path)
    except OSError:
        return refuse_folder(data_dir.path)
    return _Result(
        log_dir=absolute(data_dir.path),
        total_bytes=space.total_bytes,
        usable_bytes=space.usable_bytes,
        is_cordoned=environment.store.is_cordoned(data_dir),
    )


def refuse_folder(path: str) -> m.DescribeLogDirsResponse.DescribeLogDirsResult:
    return _Result(error_code=Error.KAFKA_STORAGE_ERROR, log_dir=absolute(path))


def absolute(path: str) -> str:
    return os.path.abspath(path)


def with_topic(
    folder: m.DescribeLogDirsResponse.DescribeLogDirsResult, topic: m.DescribeLogDirsResponse.DescribeLogDirsTopic
) -> m.DescribeLogDirsResponse.DescribeLogDirsResult:
    return _Result(
        log_dir=folder.log_dir,
        total_bytes=folder.total_bytes,
        usable_bytes=folder.usable_bytes,
        is_cordoned=folder.is_cordoned,
        topics=[topic],
    )


def in_slices(
    topics: Mapping[str, list[Replica]],
) -> Iterator[m.DescribeLogDirsResponse.DescribeLogDirsTopic]:
    for name, partitions in topics.items():
        for start in range(0, len(partitions), VISITED_AT_ONCE):
            some = partitions[start : start + VISITED_AT_ONCE]
            yield _Topic(name=name, partitions=[describe_replica(*replica) for replica in some])


def describe_replica(hosted: HostedPartition, log: PartitionLog) -> m.DescribeLogDirsResponse.DescribeLogDirsPartition:
    newest = hosted.log.log_end_offset if log.is_future else hosted.state.high_watermark.offset
    return _Partition(
        partition_index=hosted.index,
        partition_size=log.size_bytes,
        offset_lag=max(newest - log.log_end_offset, 0),
        is_future_key=log.is_future,
    )
