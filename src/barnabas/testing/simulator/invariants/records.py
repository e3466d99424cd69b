"""Promises about single records: acknowledged ones are never lost, none is doubled, and their order is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.testing.simulator.invariants.committed_logs import describe
from barnabas.testing.simulator.load.history import NO_OFFSET, Fate
from barnabas.testing.simulator.protocols import Violation

if TYPE_CHECKING:
    from barnabas.protocol.batch import BatchHeader
    from barnabas.testing.simulator.cluster import SimulatedCluster
    from barnabas.testing.simulator.invariants.committed_logs import CommittedLog, CommittedLogs
    from barnabas.testing.simulator.load.history import History, SentBatch, TopicPartition

INTERNAL = "__"


class AcknowledgedRecordsAreKept:
    """A batch that was acknowledged with acks=all is at the offset that its producer was told."""

    name = "acknowledged records are never lost"

    def __init__(self, history: History, committed: CommittedLogs) -> None:
        self._history = history
        self._committed = committed
        self._seen = 0
        self._open: list[SentBatch] = []
        """Not known to be acknowledged and committed yet."""

    def observe(self, cluster: SimulatedCluster) -> None:  # noqa: ARG002 (others look at the nodes)
        batches = self._history.batches
        self._open += batches[self._seen :]
        self._seen = len(batches)
        self._open = [batch for batch in self._open if not self._is_kept(batch)]

    def finish(self, cluster: SimulatedCluster) -> None:
        self.observe(cluster)
        for batch in self._history.batches:
            if batch.fate is Fate.DONE and batch.offset != NO_OFFSET and not self._is_kept(batch):
                raise Violation(
                    self.name,
                    f"{batch.partition}: {batch} were acknowledged at offset {batch.offset} at {batch.told_s:.3f} s,"
                    f" but the log ends at {self._committed.of(batch.partition).end} when all is whole again",
                )

    def _is_kept(self, batch: SentBatch) -> bool:
        """Whether it is where it has to be. False while nobody knows."""
        if batch.fate is not Fate.DONE or batch.offset == NO_OFFSET:
            return batch.fate is Fate.DONE
        log = self._committed.of(batch.partition)
        found = log.at.get(batch.offset)
        if found is None and log.end <= batch.offset:
            return False
        if found is None or found.header.crc != batch.crc:
            raise Violation(self.name, self._difference(batch, log))
        return True

    def _difference(self, batch: SentBatch, log: CommittedLog) -> str:
        found = log.at.get(batch.offset)
        there = "the middle of a batch" if found is None else f"{describe(found.header)}, says {found.source}"
        return (
            f"{batch.partition}: {batch} were acknowledged at offset {batch.offset} at {batch.told_s:.3f} s, but what"
            f" is committed there is {there}"
        )


class _InSequence:
    """Follows the sequences of every producer in each partition, batch by batch, as they are committed. What
    coordinators write for producers to topics of their own has no sequences to speak of."""

    def __init__(self, committed: CommittedLogs) -> None:
        self._committed = committed
        self._looked_at: dict[TopicPartition, int] = {}
        self._next: dict[tuple[TopicPartition, int, int], int] = {}
        """By partition, producer id and epoch: the sequence that is due."""

    def observe(self, cluster: SimulatedCluster) -> None:  # noqa: ARG002 (others look at the nodes)
        for log in self._committed:
            start = self._looked_at.get(log.partition, 0)
            if start == len(log.batches) or log.partition.topic.startswith(INTERNAL):
                continue
            for batch in log.batches[start:]:
                header = batch.header
                if header.has_producer_id and header.base_sequence >= 0 and not header.is_control:
                    key = (log.partition, header.producer_id, header.producer_epoch)
                    self.judge(log.partition, header, self._next.get(key, 0))
                    self._next[key] = header.last_sequence + 1
            self._looked_at[log.partition] = len(log.batches)

    def finish(self, cluster: SimulatedCluster) -> None:
        self.observe(cluster)

    def judge(self, partition: TopicPartition, header: BatchHeader, due: int) -> None:
        raise NotImplementedError


class NoDuplicates(_InSequence):
    name = "no duplicate of an idempotent producer"

    def judge(self, partition: TopicPartition, header: BatchHeader, due: int) -> None:
        if header.base_sequence < due:
            raise Violation(
                self.name,
                f"{partition}, offset {header.base_offset}: {describe(header)} come again, as sequence {due} is due",
            )


class RepeatedBatchesAreKnown:
    """A leader does not refuse a batch that is in its log as out of order: the producer would write it again, under a
    new epoch. A leader that has been replaced, and has not heard of it, may lack what its successor has."""

    name = "a batch that comes again is recognised"

    def __init__(self, history: History, committed: CommittedLogs) -> None:
        self._history = history
        self._committed = committed

    def observe(self, cluster: SimulatedCluster) -> None:  # noqa: ARG002 (others look at the nodes)
        for batch, producer, node, leader_epoch, at_s in self._history.refusals:
            for found in self._committed.of(batch.partition).batches:
                if found.header.crc == batch.crc and found.header.partition_leader_epoch <= leader_epoch:
                    raise Violation(
                        self.name,
                        f"{batch.partition}, offset {found.header.base_offset}: {batch} are there since leader epoch"
                        f" {found.header.partition_leader_epoch}, but node {node}, leader in epoch {leader_epoch},"
                        f" refused {producer} at {at_s:.3f} s because they were out of order",
                    )

    def finish(self, cluster: SimulatedCluster) -> None:
        self.observe(cluster)


class OrderIsKept(_InSequence):
    name = "the order of a producer is kept"

    def judge(self, partition: TopicPartition, header: BatchHeader, due: int) -> None:
        if header.base_sequence > due:
            raise Violation(
                self.name,
                f"{partition}, offset {header.base_offset}: {describe(header)} come before sequence {due}",
            )
