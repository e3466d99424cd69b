"""What is committed in each log, gathered from all nodes that have said so: the yardstick of other invariants.

A batch is committed once any replica's high watermark has passed it, or a reader was shown it. From then on it is at
its offset, byte by byte, for ever and everywhere. The first to say so teaches it, all others are compared with that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.batch import BatchHeader, iter_headers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.log.folder.checkpoints import TopicPartition


class CommittedBatch(NamedTuple):
    header: BatchHeader
    data: bytes
    source: str
    """Who said so first, and when."""


class CommittedLog:
    """One partition. `batches` are those from the log's start without a gap; what was shown beyond is `ahead`."""

    __slots__ = ("ahead", "at", "batches", "end", "partition")

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.batches: list[CommittedBatch] = []
        self.at: dict[int, CommittedBatch] = {}
        """By base offset, both kinds."""
        self.ahead: dict[int, CommittedBatch] = {}
        self.end = 0

    def learn(self, data: bytes, end: int, source: str) -> str | None:
        """Somebody says that these batches, up to an offset, are committed. What contradicts others, if anything."""
        for position, header in iter_headers(data):
            if header.next_offset > end:
                break
            batch = data[position : position + header.size]
            known = self.at.get(header.base_offset)
            if known is not None:
                if known.data != batch:
                    return self._difference(known, header, source)
                continue
            if header.base_offset < self.end or self._overlaps(header):
                return self._misplaced(header, source)
            self._add(CommittedBatch(header, batch, source))
        return None

    def _add(self, batch: CommittedBatch) -> None:
        base_offset = batch.header.base_offset
        self.at[base_offset] = batch
        if base_offset != self.end:
            self.ahead[base_offset] = batch
            return
        following: CommittedBatch | None = batch
        while following is not None:
            self.batches.append(following)
            self.end = following.header.next_offset
            following = self.ahead.pop(self.end, None)

    def _overlaps(self, header: BatchHeader) -> bool:
        return bool(self.ahead) and any(
            header.base_offset < each.header.next_offset and each.header.base_offset < header.next_offset
            for each in self.ahead.values()
        )

    def _difference(self, known: CommittedBatch, header: BatchHeader, source: str) -> str:
        return (
            f"{self.partition}, offset {header.base_offset}: {source} has {describe(header)} as committed,"
            f" but {known.source} had {describe(known.header)}"
        )

    def _misplaced(self, header: BatchHeader, source: str) -> str:
        holder = next(
            each
            for each in self.at.values()
            if each.header.base_offset < header.next_offset and header.base_offset < each.header.next_offset
        )
        return (
            f"{self.partition}: {source} has {describe(header)} at offsets {header.base_offset}–{header.last_offset} as"
            f" committed, but {holder.source} had {describe(holder.header)} at"
            f" {holder.header.base_offset}–{holder.header.last_offset}"
        )


class CommittedLogs:
    def __init__(self) -> None:
        self._logs: dict[TopicPartition, CommittedLog] = {}

    def __iter__(self) -> Iterator[CommittedLog]:
        return iter(self._logs.values())

    def of(self, partition: TopicPartition) -> CommittedLog:
        log = self._logs.get(partition)
        if log is None:
            log = self._logs[partition] = CommittedLog(partition)
        return log


def describe(header: BatchHeader) -> str:
    records = f"{header.record_count} record{'s' * (header.record_count != 1)}"
    kind = "a control batch" if header.is_control else records
    if header.has_producer_id:
        kind += f" of producer {header.producer_id}, epoch {header.producer_epoch}"
        if header.base_sequence >= 0:
            kind += f", from sequence {header.base_sequence} on"
    return f"{kind} (leader epoch {header.partition_leader_epoch}, checksum {header.crc:08x})"
