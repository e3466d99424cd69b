"""What is told of data folders, as values: what is in them, what is wrong, and what each broker makes of it."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.log.folder.meta_properties import MetaProperties
    from barnabas.metadata.image import MetadataImage
    from barnabas.protocol.uuids import Uuid
    from barnabas.raft.consensus.log_history import SnapshotId
    from barnabas.raft.consensus.voter_sets import VoterNode


class Effect(IntEnum):
    """What a broker makes of a folder, the worse the higher."""

    OPENS = 0
    LOSES = 1
    """It starts, but gives something up, or sets it aside."""
    OFFLINE = 2
    """It starts, but a partition is out of reach."""
    REFUSES = 3
    """It does not start."""


class Finding(NamedTuple):
    """Something about a file or folder that a person should know: what it is, and what to do."""

    place: str
    text: str
    barnabas: Effect = Effect.OPENS
    kafka: Effect = Effect.OPENS
    """Apache Kafka 4.3."""

    @property
    def is_problem(self) -> bool:
        return max(self.barnabas, self.kafka) > Effect.OPENS


class PartitionSummary(NamedTuple):
    topic: str
    partition: int
    folder: str
    segments: int
    size_bytes: int
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    high_watermark: int | None
    """As last checkpointed."""
    first_timestamp_ms: int | None
    """Of the first batch."""
    last_timestamp_ms: int | None
    """The largest."""
    producers: int
    open_transactions: int


class FolderSummary(NamedTuple):
    """One data folder."""

    path: str
    meta: MetaProperties | None
    is_in_use: bool
    clean_shutdown_epoch: int | None
    """The broker epoch at the last clean shutdown; None without a mark of one."""
    checkpoints: Mapping[str, int]
    """The checkpoints that are there, with the number of their entries."""
    partitions: tuple[PartitionSummary, ...]
    stray: tuple[str, ...]
    """Folders of partitions that no topic has, set aside by an earlier start."""
    future: tuple[str, ...]
    """Folders of partitions that were on their way here from another folder."""
    deleted: tuple[str, ...]
    """Folders of deleted topics."""
    leftovers: tuple[str, ...]
    """Files of segments that were to be deleted, cleaned or swapped, the next start finishes with."""
    free_bytes: int

    @property
    def size_bytes(self) -> int:
        return sum(partition.size_bytes for partition in self.partitions)


class MetadataSummary(NamedTuple):
    """What the metadata log says, as far as this node has it."""

    folder: str
    formatting: str
    kraft_version: int
    voters: tuple[VoterNode, ...]
    static_voter_ids: tuple[int, ...]
    end_offset: int
    epoch: int
    snapshots: tuple[SnapshotId, ...]
    image: MetadataImage


class Report(NamedTuple):
    cluster_id: str | None
    node_id: int | None
    roles: tuple[str, ...]
    metadata_directory_id: Uuid | None
    folders: tuple[FolderSummary, ...]
    metadata: MetadataSummary | None
    groups: int | None
    """None if they were not counted."""
    findings: tuple[Finding, ...]
    is_deep: bool

    @property
    def barnabas(self) -> Effect:
        return worst(finding.barnabas for finding in self.findings)

    @property
    def kafka(self) -> Effect:
        return worst(finding.kafka for finding in self.findings)

    @property
    def has_problems(self) -> bool:
        return any(finding.is_problem for finding in self.findings)


def worst(effects: Iterable[Effect]) -> Effect:
    return max(effects, default=Effect.OPENS)
