"""One transaction, request by request, and the states of its logs that a kill of the node may leave behind.

A transaction writes to three partitions and commits offsets of a group. Its records lie in five logs: that of the
coordinator, of the three partitions and of the group's offsets. A node that is killed leaves what it wrote in the order
in which it wrote it: so each state is a prefix of each log, cut where the node stood. Only the order of the markers is
the node's own choice, and there every choice is tried.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.coordinators.coordinator_spec import partition_of
from barnabas.protocol import messages as m
from barnabas.protocol.batch import iter_headers
from barnabas.protocol.errors import Error
from tests.peers import wait_until
from tests.wire.batches import TRANSACTIONAL, batch
from tests.wire.requests import produce_request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tests.wire.connection import Connection
    from tests.wire.requests import Topic

    Step = Callable[[Connection], Error]

PARTITIONS = 3
RECORDS = 2
OFFSET_BEFORE, OFFSET_AFTER = 5, 7
COORDINATOR_BATCHES = 7
"""Of a whole transaction: begun, four times more to write to, decided, complete."""

RETRIED = frozenset(
    {
        Error.CONCURRENT_TRANSACTIONS,
        Error.COORDINATOR_LOAD_IN_PROGRESS,
        Error.COORDINATOR_NOT_AVAILABLE,
        Error.NOT_ENOUGH_REPLICAS,
        Error.NOT_COORDINATOR,
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""What a client repeats its request after: the node is on its way up, or busy with the transaction before."""


class Versions(NamedTuple):
    """The versions of the APIs by which a client speaks transactions of the first or second kind (KIP-890)."""

    name: str
    produce: int
    commit_offsets: int
    end: int


FIRST = Versions("first", produce=11, commit_offsets=4, end=4)
SECOND = Versions("second", produce=12, commit_offsets=5, end=5)


@dataclass(frozen=True, slots=True)
class Crash:
    """Where the node is killed: after so many of the requests were answered, and a little further."""

    steps: int
    is_coordinator_ahead: bool = False
    """The coordinator has already written its record of the next request, which also writes elsewhere."""
    markers: tuple[bool, ...] | None = None
    """The outcome is decided: which of the partitions and, at the end, the group's offsets have their marker."""
    is_complete: bool = False


@dataclass(slots=True)
class Transaction:
    transactional_id: str
    group: str
    topic: Topic
    first_partition: int
    versions: Versions
    is_commit: bool
    timeout_ms: int
    producer_id: int = -1
    producer_epoch: int = -1
    sizes: list[list[int]] = field(default_factory=list)
    """How long each log was before the first step and after each."""

    @property
    def partitions(self) -> range:
        return range(self.first_partition, self.first_partition + PARTITIONS)

    def values(self, partition: int) -> list[bytes]:
        return [b"%s %d %d" % (self.transactional_id.encode(), partition, number) for number in range(RECORDS)]

    def steps(self) -> list[Step]:
        """What the client asks for, in order."""
        steps: list[Step] = [self._init]
        for partition in self.partitions:
            if self.versions is FIRST:
                steps.append(self._adds_partition(partition))
            steps.append(self._produces(partition))
        if self.versions is FIRST:
            steps.append(self._add_offsets)
        return [*steps, self._commit_offsets, self._end]

    def _init(self, connection: Connection) -> Error:
        request = m.InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=self.timeout_ms
        )
        answer = connection.call(request, 5, m.InitProducerIdResponse)
        self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch
        return Error(answer.error_code)

    def _adds_partition(self, partition: int) -> Step:
        def add(connection: Connection) -> Error:
            request = m.AddPartitionsToTxnRequest
            topic = request.AddPartitionsToTxnTopic(name=self.topic.name, partitions=[partition])
            asked = request(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.producer_epoch,
                v3_and_below_topics=[topic],
            )
            answer = connection.call(asked, 3, m.AddPartitionsToTxnResponse)
            (of_topic,) = answer.results_by_topic_v3_and_below
            (result,) = of_topic.results_by_partition
            return Error(result.partition_error_code)

        return add

    def _produces(self, partition: int) -> Step:
        def produce(connection: Connection) -> Error:
            records = batch(
                self.values(partition),
                attributes=TRANSACTIONAL,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                base_sequence=0,
            )
            request = produce_request(self.topic, records, self.versions.produce, partition=partition)
            request.transactional_id = self.transactional_id
            answer = connection.call(request, self.versions.produce, m.ProduceResponse)
            return Error(answer.responses[0].partition_responses[0].error_code)

        return produce

    def _add_offsets(self, connection: Connection) -> Error:
        request = m.AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            group_id=self.group,
        )
        return Error(connection.call(request, 3, m.AddOffsetsToTxnResponse).error_code)

    def _commit_offsets(self, connection: Connection) -> Error:
        request = m.TxnOffsetCommitRequest
        partition = request.TxnOffsetCommitRequestPartition(
            partition_index=self.first_partition, committed_offset=OFFSET_AFTER
        )
        asked = request(
            transactional_id=self.transactional_id,
            group_id=self.group,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            topics=[request.TxnOffsetCommitRequestTopic(name=self.topic.name, partitions=[partition])],
        )
        answer = connection.call(asked, self.versions.commit_offsets, m.TxnOffsetCommitResponse)
        return Error(answer.topics[0].partitions[0].error_code)

    def _end(self, connection: Connection) -> Error:
        request = m.EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=self.is_commit,
        )
        return Error(connection.call(request, self.versions.end, m.EndTxnResponse).error_code)


def crashes(versions: Versions) -> Iterator[Crash]:
    """Every state from the first answered request to the complete transaction."""
    last = len(Transaction("", "", None, 0, versions, True, 0).steps())  # type: ignore[arg-type]  # only counted
    for steps in range(1, last):
        yield Crash(steps)
        if versions is SECOND and steps < last - 1:
            yield Crash(steps, is_coordinator_ahead=True)
    for markers in itertools.product((False, True), repeat=PARTITIONS + 1):
        yield Crash(last, markers=markers)
    yield Crash(last, is_complete=True)


def run_steps(connection: Connection, steps: Sequence[Step]) -> None:
    """One after the other, each repeated as a client would."""
    for step in steps:
        outcomes: list[Error] = []

        def is_over(step: Step = step, outcomes: list[Error] = outcomes) -> bool:
            outcomes.append(step(connection))
            return outcomes[-1] not in RETRIED

        wait_until(is_over, f"{step} is answered with more than a request to repeat it")
        assert outcomes[-1] == Error.NONE, f"{outcomes[-1].name} for {step}"


def run_whole(connection: Connection, transaction: Transaction, data_dir: Path, coordinators: int) -> None:
    """The transaction from beginning to end; notes how long its logs were in between."""
    logs = log_files(transaction, data_dir, coordinators)
    for step in transaction.steps():
        transaction.sizes.append(_sizes(logs))
        run_steps(connection, [step])
    transaction.sizes.append(_sizes(logs))


def log_files(transaction: Transaction, data_dir: Path, coordinators: int) -> list[Path]:
    """The coordinator's, those of the partitions, and that of the group's offsets."""
    folders = [
        f"__transaction_state-{partition_of(transaction.transactional_id, coordinators)}",
        *(f"{transaction.topic.name}-{partition}" for partition in transaction.partitions),
        f"__consumer_offsets-{partition_of(transaction.group, coordinators)}",
    ]
    return [data_dir / folder / f"{0:020}.log" for folder in folders]


def cut(logs: Sequence[Path], transaction: Transaction, crash: Crash) -> None:
    """Shorten the logs of a whole transaction, on a node that is down, to what they were at the crash."""
    for path, size in zip(logs, _sizes_at(logs, transaction, crash), strict=True):
        os.truncate(path, size)


def _sizes_at(logs: Sequence[Path], transaction: Transaction, crash: Crash) -> list[int]:
    if crash.is_complete:
        return _sizes(logs)
    if crash.markers is not None:
        coordinator, *others = logs
        return [
            _before_last_batch(coordinator),
            *(
                os.path.getsize(path) if is_marked else _before_marker(path)
                for path, is_marked in zip(others, crash.markers, strict=True)
            ),
        ]
    coordinator_size, *other_sizes = transaction.sizes[crash.steps]
    if crash.is_coordinator_ahead:
        coordinator_size = transaction.sizes[crash.steps + 1][0]
    return [coordinator_size, *other_sizes]


def _before_last_batch(path: Path) -> int:
    positions = [position for position, _ in iter_headers(path.read_bytes())]
    assert len(positions) == COORDINATOR_BATCHES, f"{path} has {len(positions)} batches"
    return positions[-1]


def _before_marker(path: Path) -> int:
    *_, (position, header) = iter_headers(path.read_bytes())
    assert header.is_control, f"{path} ends with no marker"
    return position


def _sizes(logs: Sequence[Path]) -> list[int]:
    """A log that nothing was ever written to may have no file yet."""
    return [os.path.getsize(path) if path.exists() else 0 for path in logs]
