"""What clients did and what they were told: the one thing that invariants believe about clients.

Clients write, invariants read. A request whose answer never came may have had its effect or not, and its fate is
`UNKNOWN`; everything that is told must hold from then on. Times are those of the scheduler, which all machines share:
what was answered before another request was sent came before it.

A node that lost the lead of a group's partition, and has not heard of it, may still answer what needs no write. So such
answers are noted with the *coordinator epoch*, which is the leader epoch of the group's partition at that node, or -1
if it does not lead it any more: an answer of an older epoch says nothing of what happened in a newer one.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from barnabas.log.folder.checkpoints import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Assignment", "Fate", "History", "OffsetCommit", "OffsetsSeen", "Read", "SentBatch", "TopicPartition"]

NO_OFFSET = -1
NO_EPOCH = -1


class Fate(Enum):
    UNKNOWN = "unknown"
    """No answer yet, or none that tells."""
    DONE = "done"
    REFUSED = "refused"
    """It had no effect, and never will."""


class SentBatch:
    """A batch of an idempotent or transactional producer. Its checksum covers neither its offset nor the leader's
    epoch, so it identifies the batch wherever it was appended."""

    __slots__ = ("base_sequence", "count", "crc", "epoch", "fate", "offset", "partition", "producer_id", "told_s")

    def __init__(
        self, partition: TopicPartition, producer_id: int, epoch: int, base_sequence: int, count: int, crc: int
    ) -> None:
        self.partition = partition
        self.producer_id = producer_id
        self.epoch = epoch
        self.base_sequence = base_sequence
        self.count = count
        self.crc = crc
        self.fate = Fate.UNKNOWN
        self.offset = NO_OFFSET
        """Where it was acknowledged. A duplicate of long ago is acknowledged without."""
        self.told_s = 0.0

    def __str__(self) -> str:
        last = self.base_sequence + self.count - 1
        return f"sequences {self.base_sequence}–{last} of producer {self.producer_id}, epoch {self.epoch}"


class Refusal(NamedTuple):
    """A batch that a leader refused as out of order, though all before it were acknowledged."""

    batch: SentBatch
    producer: str
    node: int
    leader_epoch: int
    """In which that node leads the partition, or believes so; -1 if it does not any more."""
    at_s: float


class Transaction:
    """Records in several partitions, and offsets of a group, of which all or none come into effect."""

    __slots__ = ("batches", "commit_was_sent", "group_offset", "name", "told_committed", "told_s", "transactional_id")

    def __init__(self, transactional_id: str, number: int) -> None:
        self.transactional_id = transactional_id
        self.name = f"transaction {number} of {transactional_id}"
        self.batches: list[SentBatch] = []
        self.commit_was_sent = False
        """Only after everything in it was acknowledged."""
        self.told_committed: bool | None = None
        """How it has ended, if its producer knows."""
        self.told_s = 0.0
        self.group_offset: GroupOffset | None = None

    def __str__(self) -> str:
        return self.name


class GroupOffset(NamedTuple):
    """An offset that a transaction commits for a group."""

    group: str
    partition: TopicPartition
    offset: int


class Read(NamedTuple):
    """What a consumer was shown of one partition by one answer."""

    reader: str
    partition: TopicPartition
    node: int
    leader_epoch: int
    """In which the reader asked."""
    is_committed_only: bool
    is_from_leader: bool
    offset: int
    """From where it asked."""
    records: bytes
    """Whole batches."""
    aborted: Sequence[tuple[int, int]]
    """Of transactions that were aborted: producer id and first offset."""
    high_watermark: int
    last_stable_offset: int
    at_s: float


class OffsetCommit:
    """An offset that a member commits. `mark` is its metadata, and unlike any other's."""

    __slots__ = (
        "coordinator_epoch",
        "fate",
        "generation",
        "group",
        "mark",
        "member",
        "offset",
        "partition",
        "sent_s",
        "told_s",
    )

    def __init__(
        self,
        group: str,
        partition: TopicPartition,
        offset: int,
        mark: str,
        member: str,
        generation: int,
        sent_s: float,
    ) -> None:
        self.group = group
        self.partition = partition
        self.offset = offset
        self.mark = mark
        self.member = member
        self.generation = generation
        """Or the member's epoch."""
        self.sent_s = sent_s
        self.told_s = float("inf")
        self.coordinator_epoch = NO_EPOCH
        self.fate = Fate.UNKNOWN

    def __str__(self) -> str:
        return f"{self.mark} (offset {self.offset}, by {self.member} in epoch {self.generation})"


class OffsetsSeen(NamedTuple):
    """An answer to OffsetFetch for one partition."""

    group: str
    partition: TopicPartition
    offset: int
    mark: str
    node: int
    coordinator_epoch: int
    sent_s: float
    at_s: float


class Assignment(NamedTuple):
    """What a member owns, as it was told by the answer to a request that was sent at `sent_s`."""

    group: str
    member: str
    generation: int
    """Of the group, or the member's epoch."""
    partitions: frozenset[TopicPartition]
    node: int
    coordinator_epoch: int
    sent_s: float
    at_s: float


class Complaint(NamedTuple):
    """An answer that a client must never get."""

    promise: str
    found: str
    at_s: float


class History:
    def __init__(self) -> None:
        self.batches: list[SentBatch] = []
        self.refusals: list[Refusal] = []
        self.transactions: list[Transaction] = []
        self.reads: list[Read] = []
        self.commits: list[OffsetCommit] = []
        self.offsets_seen: list[OffsetsSeen] = []
        self.generations: list[Assignment] = []
        """What members of classic groups were assigned, by SyncGroup."""
        self.claims: list[Assignment] = []
        """What members of consumer groups claimed to own in heartbeats, and were not contradicted."""
        self.grants: list[Assignment] = []
        """What members of consumer groups were told to own from then on."""
        self.complaints: list[Complaint] = []

    @property
    def acknowledged_records(self) -> int:
        return sum(batch.count for batch in self.batches if batch.fate is Fate.DONE)
