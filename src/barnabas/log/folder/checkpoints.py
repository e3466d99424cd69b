"""Kafka's small text files: offset checkpoints, the leader-epoch checkpoint, partition.metadata, and the like.

They are replaced, never modified: written under a temporary name, then renamed. Those of a data folder are synced
before the rename, so that a crash leaves either the old or the new content whole. The two in a partition's folder are
synced with the log by its next flush: recovery reads from unflushed batches what these files said of them.

    offset checkpoints        0 · number of entries · `topic partition offset` lines
    leader-epoch-checkpoint   0 · number of entries · `epoch start-offset` lines
    partition.metadata        `version: 0` · `topic_id: <22 characters>`
    .kafka_cleanshutdown      {"version":0,"brokerEpoch":N}
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol import uuids

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.ports import Disk
    from barnabas.protocol.uuids import Uuid

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
FIRST_DIRTY_OFFSETS = "cleaner-offset-checkpoint"
"""Of the logs that have been compacted: where the last cleaning ended."""
UNREPLICATED_TXNS = "unreplicated-transaction-checkpoint"
"""Not one of Kafka's files, and Kafka leaves it alone. Of the partitions that a clean stop left with transactions that
have ended, but not below the high watermark: where the first of them begins. Kafka forgets about these, and shows
readers of committed data, after the next start, what may still be lost."""
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"

_VERSION = 0


class CheckpointError(ValueError):
    """A checkpoint file is malformed; the message names the file and the line."""


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class EpochStart(NamedTuple):
    epoch: int
    start_offset: int


def write_text(disk: Disk, path: str, text: str) -> None:
    """Replaces a file as a whole, durably. Waits for the device."""
    temporary = _write_temporary(disk, path, text)
    fd = disk.open(temporary, os.O_RDONLY)
    try:
        disk.fsync(fd)
    finally:
        disk.close(fd)
    disk.rename(temporary, path)
    disk.sync_dir(os.path.dirname(path))


def replace_text(disk: Disk, path: str, text: str) -> None:
    """Replaces a file as a whole without waiting for the device: for files that a later flush of the log syncs."""
    disk.rename(_write_temporary(disk, path, text), path)


def _write_temporary(disk: Disk, path: str, text: str) -> str:
    temporary = f"{path}.tmp"
    data = text.encode()
    fd = disk.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        written = 0
        while written < len(data):
            written += disk.pwrite(fd, data[written:], written)
    finally:
        disk.close(fd)
    return temporary


def read_text(disk: Disk, path: str) -> str | None:
    """A file's text; None if there is no such file."""
    try:
        fd = disk.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        data = disk.pread(fd, disk.size(path), 0)
    finally:
        disk.close(fd)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} is not text: {error}") from None


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    lines = (f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())
    write_text(disk, path, _checkpoint_text(lines, len(offsets)))


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """The offsets in an offset checkpoint; none if the file does not exist yet."""
    offsets = {}
    for number, line in _checkpoint_lines(disk, path):
        topic, space, rest = line.partition(" ")
        try:
            partition, offset = map(int, rest.split(" "))
        except ValueError:
            raise _malformed(path, number, line, "topic partition offset") from None
        if not topic or not space:
            raise _malformed(path, number, line, "topic partition offset")
        offsets[TopicPartition(topic, partition)] = offset
    return offsets


def write_epochs(disk: Disk, path: str, epochs: Iterable[EpochStart]) -> None:
    lines = [f"{epoch} {start_offset}" for epoch, start_offset in epochs]
    replace_text(disk, path, _checkpoint_text(lines, len(lines)))


def read_epochs(disk: Disk, path: str) -> list[EpochStart]:
    epochs = []
    for number, line in _checkpoint_lines(disk, path):
        try:
            epoch, start_offset = map(int, line.split(" "))
        except ValueError:
            raise _malformed(path, number, line, "epoch start-offset") from None
        epochs.append(EpochStart(epoch, start_offset))
    return epochs


def write_topic_id(disk: Disk, path: str, topic_id: Uuid) -> None:
    replace_text(disk, path, f"version: {_VERSION}\ntopic_id: {uuids.to_text(topic_id)}")


def read_topic_id(disk: Disk, path: str) -> Uuid | None:
    text = read_text(disk, path)
    if text is None:
        return None
    fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    try:
        if fields["version"] != str(_VERSION):
            raise CheckpointError(f"{path} has version {fields['version']}, only {_VERSION} is supported")
        return uuids.from_text(fields["topic_id"])
    except KeyError as missing:
        raise CheckpointError(f"{path} has no line {missing.args[0]!r}") from None
    except CheckpointError:
        raise
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from None


def write_clean_shutdown(disk: Disk, folder: str, broker_epoch: int) -> None:
    content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    write_text(disk, f"{folder}/{CLEAN_SHUTDOWN}", content)


def take_clean_shutdown(disk: Disk, folder: str) -> int | None:
    """Removes the clean-shutdown file, durably, and returns the broker epoch in it; None if there is no such file.

    It is removed before anything is written, so that a crash from then on is recognised as one. An empty file, as older
    brokers left it, counts as broker epoch -1.
    """
    path = f"{folder}/{CLEAN_SHUTDOWN}"
    text = read_text(disk, path)
    if text is None:
        return None
    disk.unlink(path)
    disk.sync_dir(folder)
    try:
        return int(json.loads(text)["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        return -1


def _checkpoint_text(lines: Iterable[str], count: int) -> str:
    return "".join(f"{line}\n" for line in (str(_VERSION), str(count), *lines))


def _checkpoint_lines(disk: Disk, path: str) -> list[tuple[int, str]]:
    """The numbered lines after version and count, if those two are right. Kafka also leaves empty files."""
    text = read_text(disk, path)
    if not text:
        return []
    lines = text.splitlines()
    if not lines or lines[0] != str(_VERSION):
        raise CheckpointError(f"{path} does not begin with version {_VERSION}")
    entries = [line for line in lines[2:] if line]
    if len(lines) < 2 or lines[1] != str(len(entries)):
        announced = lines[1] if len(lines) > 1 else "no"
        raise CheckpointError(f"{path} announces {announced} entries and has {len(entries)}")
    return list(enumerate(entries, start=3))


def _malformed(path: str, number: int, line: str, expected: str) -> CheckpointError:
    return CheckpointError(f"{path}, line {number}: {line!r} is not `{expected}`")
