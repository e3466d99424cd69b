"""DeleteRecords: the leader moves the start of its log, and answers when the logs of all live replicas start there.

What is named twice counts once, with the offset that comes last. A large request is not answered piece by piece, since
each piece would wait for the other replicas: all of it is done first, and waited for together.

v2 is flexible
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.api.environments import StorageEnvironment
from barnabas.broker.api.registry import handles
from barnabas.metadata.topic_names import INTERNAL_TOPICS
from barnabas.net.large_requests import Breather, Cut
from barnabas.net.pending import Pending
from barnabas.net.purgatory import Parked
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.net.dispatch import Caller
    from barnabas.net.large_requests import LargeRequest
    from barnabas.replication.hosted import HostedPartition
    from barnabas.replication.replica_manager import ReplicaManager

    Offsets = dict[tuple[str, int], int]
    """Before which the records of a partition are to go, by topic and index."""

NO_OFFSET = -1
DONE_AT_ONCE = 32

_Topic = m.DeleteRecordsResponse.DeleteRecordsTopicResult
_Partition = m.DeleteRecordsResponse.DeleteRecordsPartitionResult


class Outcome(NamedTuple):
    error: Error
    low_watermark: int = NO_OFFSET


class Begun(NamedTuple):
    """Records are gone here, but not everywhere yet."""

    name: tuple[str, int]
    hosted: HostedPartition
    offset: int
    low_watermark: int


class Waiting(Parked):
    """A request whose records are gone here. It is ready when those of the last partition are gone everywhere, and
    looks at one after the other: however many it has, being woken costs it little."""

    __slots__ = ("_left", "_outcomes", "done")
    operation = "DeleteRecords"

    def __init__(self, begun: deque[Begun], outcomes: dict[tuple[str, int], Outcome]) -> None:
        super().__init__()
        self._left = begun
        self._outcomes = outcomes
        self.done: Pending[Mapping[tuple[str, int], Outcome]] = Pending()

    def is_ready(self) -> bool:
        left = self._left
        while left and self._is_over(left[0]):
            left.popleft()
        return not left

    def complete(self) -> None:
        for begun in self._left:
            if not self._is_over(begun):
                self._outcomes[begun.name] = Outcome(Error.REQUEST_TIMED_OUT, begun.low_watermark)
        self.done.set_result(self._outcomes)

    def fail(self) -> None:
        self.done.set_exception(KafkaError(Error.UNKNOWN_SERVER_ERROR))

    def _is_over(self, begun: Begun) -> bool:
        error = begun.hosted.deletion_outcome(begun.offset)
        if error is None:
            return False
        low_watermark = begun.hosted.low_watermark if error is Error.NONE else NO_OFFSET
        self._outcomes[begun.name] = Outcome(error, low_watermark)
        return True


async def delete_records_of_many(
    _handler: object,
    environment: StorageEnvironment,
    request: LargeRequest,
    caller: Caller,  # noqa: ARG001 (every handler takes it)
) -> m.DeleteRecordsResponse:
    await request.check()
    offsets: Offsets = {}
    await request.gather(offsets, lambda piece: note_offsets(offsets, piece))
    outcomes = await delete(environment, offsets, request.root.timeout_ms)
    for (topic, index), outcome in outcomes.items():
        await request.pause_if_due()
        await request.add([_Topic(name=topic, partitions=[answer_partition(index, outcome)])])
    await request.forget(offsets)
    return m.DeleteRecordsResponse()


@handles(
    ApiKey.DELETE_RECORDS,
    StorageEnvironment,
    versions=(0, 2),
    cuts=[Cut(("topics", "partitions"), ("topics", "partitions"))],
    large_handler=delete_records_of_many,
)
async def delete_records(
    environment: StorageEnvironment,
    request: m.DeleteRecordsRequest,
    caller: Caller,  # noqa: ARG001 (every handler takes it)
) -> m.DeleteRecordsResponse:
    offsets: Offsets = {}
    note_offsets(offsets, request)
    topics: dict[str, list[m.DeleteRecordsResponse.DeleteRecordsPartitionResult]] = {}
    for (topic, index), outcome in (await delete(environment, offsets, request.timeout_ms)).items():
        topics.setdefault(topic, []).append(answer_partition(index, outcome))
    return m.DeleteRecordsResponse(topics=[_Topic(name=name, partitions=each) for name, each in topics.items()])


def note_offsets(offsets: Offsets, request: m.DeleteRecordsRequest) -> None:
    for topic in request.topics:
        for partition in topic.partitions:
            offsets[topic.name, partition.partition_index] = partition.offset


async def delete(
    environment: StorageEnvironment, offsets: Offsets, timeout_ms: int
) -> Mapping[tuple[str, int], Outcome]:
    """The outcome for each partition, when all are known or the time is up."""
    outcomes: dict[tuple[str, int], Outcome] = {}
    waited_for: deque[Begun] = deque()
    breather = Breather()
    for number, ((topic, index), offset) in enumerate(offsets.items()):
        try:
            waited_for.append(begin(environment.replicas, topic, index, offset))
        except KafkaError as refused:
            outcomes[topic, index] = Outcome(refused.error)
        if number % DONE_AT_ONCE == 0:
            await breather.pause_if_due()
    waiting = Waiting(waited_for, outcomes)
    if not waiting.is_ready():
        watched = [environment.replicas.broker_watchers, *(each.hosted.deletion_watchers for each in waited_for)]
        environment.purgatory.park(waiting, max(timeout_ms, 0), watched)
        await waiting.done
    return outcomes


def begin(replicas: ReplicaManager, topic: str, index: int, offset: int) -> Begun:
    hosted = replicas.find_by_name(topic.encode(), index)
    if topic in INTERNAL_TOPICS:
        raise KafkaError(Error.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {topic}.")
    offset = hosted.delete_records(offset)
    return Begun((topic, index), hosted, offset, hosted.low_watermark)


def answer_partition(index: int, outcome: Outcome) -> m.DeleteRecordsResponse.DeleteRecordsPartitionResult:
    return _Partition(partition_index=index, low_watermark=outcome.low_watermark, error_code=outcome.error)
