"""Formats the metadata folder of a node of a new cluster: the voters, and the records that the first leader appends.

bootstrap.checkpoint                                              the initial feature levels
__cluster_metadata-0/00000000000000000000-0000000000.checkpoint   kraft.version and the voters

As `kafka-storage format` does it: the second file is written for `--standalone` and `--initial-controllers`. It is not
with `--no-initial-controllers`, for brokers, and where `controller.quorum.voters` names the voters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metadata.snapshot_records import bootstrap_records
from barnabas.metadata.versions import VersionedRecord
from barnabas.raft.consensus.log_history import BOOTSTRAP
from barnabas.raft.folder.metadata_log import metadata_folder
from barnabas.raft.folder.snapshots import read_batches, write_bootstrap_file, write_snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.ports import Disk
    from barnabas.raft.consensus.voter_sets import VoterNode

BOOTSTRAP_FILE = "bootstrap.checkpoint"
_FEATURE_LEVEL_VERSION = 0


def format_metadata(disk: Disk, data_folder: str, voter: VoterNode, *, now_ms: int) -> None:
    """Writes the metadata files of a new cluster with one voter. It can be repeated if it was interrupted.

    Call it before meta.properties is written, which marks a folder as formatted.
    """
    format_voters(disk, data_folder, [voter], now_ms=now_ms)


def format_voters(
    disk: Disk,
    data_folder: str,
    voters: Sequence[VoterNode] | None,
    *,
    now_ms: int,
    records: Sequence[VersionedRecord] | None = None,
) -> None:
    """Writes the metadata files of a controller in a new cluster, of which these are the voters; the same on each of
    them. None for a node that learns the voters from others, or from the configuration (kraft.version 0).

    `records` are the initial feature levels, if they are not the defaults of this software.
    """
    folder = metadata_folder(data_folder)
    write_bootstrap_file(
        disk, f"{data_folder}/{BOOTSTRAP_FILE}", bootstrap_records() if records is None else records, now_ms=now_ms
    )
    if voters is None:
        return
    if not disk.exists(folder):
        disk.make_folder(folder)
        disk.sync_dir(data_folder)
    write_snapshot(disk, folder, BOOTSTRAP, [], voters, contained_timestamp_ms=now_ms, now_ms=now_ms)


def read_bootstrap(disk: Disk, data_folder: str) -> list[VersionedRecord]:
    """The records for the first leader: those in bootstrap.checkpoint, else the defaults of this software."""
    path = f"{data_folder}/{BOOTSTRAP_FILE}"
    if not disk.exists(path):
        return bootstrap_records()
    return [
        VersionedRecord(record, _FEATURE_LEVEL_VERSION)
        for batch in read_batches(disk, path)
        if not batch.is_control
        for record in batch.records
    ]
