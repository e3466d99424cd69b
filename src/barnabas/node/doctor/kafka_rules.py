"""What Apache Kafka 4.3.1 makes of a folder where that differs from what Barnabas makes of it. All of it was asked of
Kafka itself; `tests/files/test_doctor_beside_kafka.py` asks again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.log.folder.checkpoints import CheckpointError
from barnabas.log.leader_epochs import LeaderEpochs
from barnabas.log.segments.file_names import LEADER_EPOCH_CHECKPOINT, parse_folder
from barnabas.log.segments.segment import CorruptSegmentError
from barnabas.node.doctor.report import Effect, Finding
from barnabas.raft.folder.metadata_log import DamagedMetadataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.ports import Disk

REMOTE_INDEXES = "remote-log-index-cache"
"""A folder of Kafka's own, beside those of partitions."""


def unknown_folders(disk: Disk, path: str, names: Sequence[str]) -> Iterator[Finding]:
    """Kafka ends with a fatal error at a folder that is not of a partition; here it is left alone."""
    for name in sorted(names):
        if parse_folder(name) is None and name != REMOTE_INDEXES and disk.is_folder(f"{path}/{name}"):
            yield Finding(
                f"{path}/{name}",
                "is not a partition folder. Barnabas ignores it; Apache Kafka will not start until it is moved away",
                kafka=Effect.REFUSES,
            )


def effect_of_metadata(error: Exception) -> Effect:
    """Where the metadata log is damaged before its end, Kafka cuts it off and starts, without all that follows, and
    sets the partitions aside of which it then knows nothing."""
    return Effect.LOSES if isinstance(error, DamagedMetadataError) else Effect.REFUSES


def effect_of_failed_partition(error: Exception, folders: int) -> Effect:
    """A partition that cannot be opened takes its whole folder offline, and Kafka does not go on without any. Of a
    damaged segment, it cuts off what it reads."""
    if isinstance(error, CorruptSegmentError):
        return Effect.LOSES
    return Effect.REFUSES if folders == 1 else Effect.OFFLINE


def leader_epochs(disk: Disk, folder: str) -> Iterator[Finding]:
    """Read from the log here, if the file is damaged; Kafka takes the folder offline."""
    try:
        LeaderEpochs.load(disk, folder)
    except CheckpointError as error:
        yield Finding(
            f"{folder}/{LEADER_EPOCH_CHECKPOINT}",
            f"{error}. Barnabas reads the epochs from the log instead, and a clean stop writes the file again; Apache "
            "Kafka takes the whole data folder offline",
            kafka=Effect.REFUSES,
        )


def checkpoint(path: str, error: CheckpointError) -> Finding:
    return Finding(
        path,
        f"{error}. Barnabas takes it for empty, and a clean stop writes it again; Apache Kafka may take the whole data "
        "folder offline. Restore the file from a copy: without log-start-offset-checkpoint, deleted records come back",
        kafka=Effect.OFFLINE,
    )
