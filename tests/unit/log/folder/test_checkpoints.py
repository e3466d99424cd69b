"""Kafka's text files: written as Kafka writes them, read as Kafka leaves them, refused by name when they are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.log.folder import checkpoints
from barnabas.log.folder.checkpoints import CheckpointError, TopicPartition
from barnabas.log.folder.meta_properties import (
    MetaProperties,
    MetaPropertiesError,
    read_meta_properties,
    write_meta_properties,
)
from barnabas.ports import SystemDisk
from barnabas.protocol.uuids import from_text
from barnabas.testing.disk import SimulatedDisk

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.testing.clock import ManualClock

DISK = SystemDisk()


def test_an_offset_checkpoint_has_version_count_and_a_line_each(tmp_path: Path) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    offsets = {TopicPartition("orders", 0): 12, TopicPartition("a-b.c", 7): 0}
    checkpoints.write_offsets(DISK, str(path), offsets)
    assert path.read_text() == "0\n2\norders 0 12\na-b.c 7 0\n"
    assert checkpoints.read_offsets(DISK, str(path)) == offsets


def test_a_checkpoint_that_is_missing_or_empty_has_no_entries(tmp_path: Path) -> None:
    path = tmp_path / "cleaner-offset-checkpoint"
    assert checkpoints.read_offsets(DISK, str(path)) == {}
    path.write_text("")
    assert checkpoints.read_offsets(DISK, str(path)) == {}
    checkpoints.write_offsets(DISK, str(path), {})
    assert path.read_text() == "0\n0\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\n0\n", "version 0"),
        ("0\n", "announces no entries"),
        ("0\n2\nt 0 1\n", "announces 2 entries and has 1"),
        ("0\nx\n", "announces x"),
        ("0\n1\nt 0\n", "line 3"),
        ("0\n1\nt zero 1\n", "line 3"),
        ("0\n1\nt 0 1 2\n", "line 3"),
    ],
)
def test_a_malformed_checkpoint_is_refused_with_its_name_and_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "checkpoint"
    path.write_text(text)
    with pytest.raises(CheckpointError, match=message) as refused:
        checkpoints.read_offsets(DISK, str(path))
    assert str(path) in str(refused.value)


def test_a_checkpoint_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(b"\xff\xfe\0")
    with pytest.raises(CheckpointError, match="not text"):
        checkpoints.read_epochs(DISK, str(path))


def test_partition_metadata_has_kafkas_bytes(tmp_path: Path) -> None:
    path = tmp_path / "partition.metadata"
    topic_id = from_text("ZB5RaCt-Rx68IPfo8Gj19A")
    checkpoints.write_topic_id(DISK, str(path), topic_id)
    assert path.read_bytes() == b"version: 0\ntopic_id: ZB5RaCt-Rx68IPfo8Gj19A"
    assert checkpoints.read_topic_id(DISK, str(path)) == topic_id
    assert checkpoints.read_topic_id(DISK, f"{path}.none") is None


@pytest.mark.parametrize("text", ["", "version: 1\ntopic_id: x", "version: 0", "version: 0\ntopic_id: short"])
def test_malformed_partition_metadata_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "partition.metadata"
    path.write_text(text)
    with pytest.raises(CheckpointError, match=r"partition\.metadata"):
        checkpoints.read_topic_id(DISK, str(path))


def test_the_mark_of_a_clean_shutdown_is_taken_once(tmp_path: Path) -> None:
    folder = str(tmp_path)
    assert checkpoints.take_clean_shutdown(DISK, folder) is None
    checkpoints.write_clean_shutdown(DISK, folder, 19)
    assert (tmp_path / ".kafka_cleanshutdown").read_bytes() == b'{"version":0,"brokerEpoch":19}'
    assert checkpoints.take_clean_shutdown(DISK, folder) == 19
    assert checkpoints.take_clean_shutdown(DISK, folder) is None
    (tmp_path / ".kafka_cleanshutdown").write_bytes(b"")
    assert checkpoints.take_clean_shutdown(DISK, folder) == -1


def test_a_checkpoint_is_old_or_new_after_a_crash_at_any_point(clock: ManualClock) -> None:
    old, new = {TopicPartition("t", 0): 1}, {TopicPartition("t", 0): 2, TopicPartition("t", 1): 3}
    for failing in ("open", "pwrite", "fsync", "rename", "sync_dir", None):
        disk = SimulatedDisk(clock)
        checkpoints.write_offsets(disk, "/c", old)
        if failing is None:
            checkpoints.write_offsets(disk, "/c", new)
        else:
            disk.fail(failing, 5)
            with pytest.raises(OSError, match="Input/output"):
                checkpoints.write_offsets(disk, "/c", new)
        disk.heal()
        disk.crash()
        assert checkpoints.read_offsets(disk, "/c") == (new if failing is None else old)


META = MetaProperties("6HAnDt-DuuwCXmo0nkP0oA", 1, from_text("24bCQwdOQK2ZFXBwJ4evRw"))


def test_meta_properties_of_kafkas_are_read(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(
        "#\n#Sun Nov 15 22:50:02 UTC 2026\nnode.id=1\ndirectory.id=24bCQwdOQK2ZFXBwJ4evRw\nversion=1\n"
        "cluster.id=6HAnDt-DuuwCXmo0nkP0oA\n"
    )
    assert read_meta_properties(DISK, str(tmp_path)) == META


def test_meta_properties_read_back(tmp_path: Path) -> None:
    assert read_meta_properties(DISK, str(tmp_path)) is None
    write_meta_properties(DISK, str(tmp_path), META)
    assert read_meta_properties(DISK, str(tmp_path)) == META


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version=0\nbroker.id=1\ncluster.id=x\n", "version 0"),
        ("cluster.id=x\n", "no version"),
        ("version=1\ncluster.id=x\ndirectory.id=24bCQwdOQK2ZFXBwJ4evRw\n", r"no node\.id"),
        ("version=1\ncluster.id=x\nnode.id=one\ndirectory.id=24bCQwdOQK2ZFXBwJ4evRw\n", "one"),
        ("version=1\ncluster.id=x\nnode.id=1\ndirectory.id=zzz\n", "zzz"),
    ],
)
def test_meta_properties_that_are_not_usable_are_refused_with_the_reason(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(MetaPropertiesError, match=message):
        read_meta_properties(DISK, str(tmp_path))
