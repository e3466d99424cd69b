"""Kafka's own DumpLogSegments reads every kind of file that a node wrote, without a complaint."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from tools import apache_kafka

from tests.clients.adapter import CODECS
from tests.files.conftest import PARTITIONS, STORED_WITH, checkpoints, recompressed

if TYPE_CHECKING:
    from pathlib import Path

    from tests.files.conftest import Folder

pytestmark = pytest.mark.kafka

COMPLAINTS = re.compile(
    r"mismatch|out of order|non-consecutive|corrupt|invalid|exception|error(?!s? (code|epoch))", re.IGNORECASE
)


def dumped(*files: Path, cluster_metadata: bool = False) -> str:
    """What the tool printed, after a look for anything that it did not like."""
    text = apache_kafka.dump_log(*files, cluster_metadata=cluster_metadata)
    for file in files:
        assert f"Dumping {file}" in text
    complaints = [line for line in text.splitlines() if COMPLAINTS.search(_without_payload(line))]
    assert complaints == []
    return text


def _without_payload(line: str) -> str:
    return line.partition(" payload: ")[0].replace("isvalid: true", "").replace("isValid: true", "")


def test_segments_hold_every_record_in_valid_batches(folder: Folder) -> None:
    for partition in range(PARTITIONS):
        segments = sorted((folder.path / f"{folder.topic}-{partition}").glob("*.log"))
        assert len(segments) >= 2
        text = dumped(*segments)
        values = [line.partition(" payload: ")[2] for line in text.splitlines() if " payload: " in line]
        assert values == [(value or b"").decode() for value in folder.values[partition]]
        codecs = set(re.findall(r"compresscodec: (\w+)", text))
        assert codecs == {"none", "gzip", "snappy", "lz4", "zstd"}
        assert "isvalid: false" not in text
        epochs = [int(epoch) for epoch in re.findall(r"partitionLeaderEpoch: (\d+)", text)]
        assert epochs == sorted(epochs)
        assert len(set(epochs)) == 2, "each of the two runs wrote in an epoch of its own"


def test_batches_that_were_recompressed_hold_the_same_records(folder: Folder) -> None:
    files = {name: folder.path / f"stored-{name}-0" / "00000000000000000000.log" for name in STORED_WITH}
    of_files = dumped(*files.values()).split("Dumping ")[1:]
    expected = [(message.value or b"").decode() for codec in CODECS for message in recompressed(codec)]
    for (name, file), text in zip(files.items(), of_files, strict=True):
        assert text.startswith(str(file))
        assert [line.partition(" payload: ")[2] for line in text.splitlines() if " payload: " in line] == expected
        assert set(re.findall(r"compresscodec: (\w+)", text)) == {STORED_WITH[name]}
        assert "isvalid: false" not in text


@pytest.mark.parametrize("suffix", ["index", "timeindex", "txnindex"])
def test_indexes_agree_with_their_segments(folder: Folder, suffix: str) -> None:
    for partition in range(PARTITIONS):
        indexes = sorted((folder.path / f"{folder.topic}-{partition}").glob(f"*.{suffix}"))
        if suffix != "txnindex":
            assert indexes
        if indexes:
            dumped(*indexes)


def test_producer_snapshots_are_read(folder: Folder) -> None:
    for partition in range(PARTITIONS):
        snapshots = sorted((folder.path / f"{folder.topic}-{partition}").glob("*.snapshot"))
        assert snapshots
        assert "producerId: " in dumped(*snapshots)


def test_the_metadata_log_is_decoded(folder: Folder) -> None:
    text = dumped(*sorted((folder.path / "__cluster_metadata-0").glob("*.log")), cluster_metadata=True)
    for kind in ("LeaderChange", "REGISTER_BROKER_RECORD", "TOPIC_RECORD", "PARTITION_RECORD", "CONFIG_RECORD"):
        assert kind in text


def test_the_indexes_of_the_metadata_log_agree_with_it(folder: Folder) -> None:
    for suffix in ("index", "timeindex"):
        dumped(*sorted((folder.path / "__cluster_metadata-0").glob(f"*.{suffix}")))


def test_snapshots_of_the_metadata_are_decoded(folder: Folder) -> None:
    written = [each for each in checkpoints(folder.path) if not each.name.startswith("0" * 20)]
    assert written
    text = dumped(written[-1], cluster_metadata=True)
    for kind in (
        "SnapshotHeader",
        "KRaftVersion",
        "KRaftVoters",
        "FEATURE_LEVEL_RECORD",
        "TOPIC_RECORD",
        "SnapshotFooter",
    ):
        assert kind in text
    assert f'"name":"{folder.topic}"' in text
    assert '"name":"deleted"' not in text
    bootstrap = folder.path / "bootstrap.checkpoint"
    assert "FEATURE_LEVEL_RECORD" in dumped(bootstrap, cluster_metadata=True)
