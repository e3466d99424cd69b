"""`barnabas doctor` on folders that a node has left, whole and damaged; and what `barnabas start` says of the same."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pytest

from barnabas.cli import doctor_command
from barnabas.config.properties import parse_properties
from barnabas.metadata.snapshot_records import feature_record
from barnabas.ports import SystemDisk
from barnabas.raft.folder.metadata_batches import data_batch
from barnabas.raft.folder.metadata_log import read_folder
from tests.clients.adapter import Message, consume
from tests.clients.with_confluent import ConfluentClient
from tests.nodes import Node, NodeError

if TYPE_CHECKING:
    from pathlib import Path

PARTITIONS = 2
KEYS = 30
METADATA = "__cluster_metadata-0"
SMALL = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}


class Origin(NamedTuple):
    """A folder to copy, and the partition that has several segments."""

    path: Path
    values: list[bytes | None]


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Origin:
    """Left by a clean stop: a compacted topic of several segments, a group, an open transaction."""
    path = tmp_path_factory.mktemp("doctor") / "data"
    messages = [Message(bytes([n]) * 100_000, b"key-%d" % (n % KEYS)) for n in range(30)]
    with Node(path, settings=SMALL) as node:
        client = ConfluentClient(node.bootstrap)
        config = {"cleanup.policy": "compact", "segment.bytes": "1048576"}
        client.create_topic("table", partitions=PARTITIONS, config=config)
        client.create_topic("plain")
        for first in range(0, len(messages), 2):
            client.produce("table", messages[first : first + 2], partition=0)
        client.alter_offsets("readers", {("table", 0): 3})
        producer = client.transactional_producer("tx")
        producer.begin()
        producer.send("plain", [Message(b"open")])
    return Origin(path, [message.value for message in messages])


@pytest.fixture
def folder(origin: Origin, tmp_path: Path) -> Path:
    shutil.copytree(origin.path, tmp_path / "data")
    return tmp_path / "data"


def files(*folders: Path) -> dict[Path, tuple[bytes, int]]:
    found = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in found}


class Diagnosis(NamedTuple):
    exit_code: int
    report: dict[str, Any]

    @property
    def opens(self) -> tuple[str, str]:
        return self.report["opens"]["barnabas"], self.report["opens"]["apache_kafka"]

    def about(self, place: Path) -> list[str]:
        return [finding["text"] for finding in self.report["findings"] if finding["place"] == str(place)]


class Diagnose(Protocol):
    def __call__(self, *folders: Path, words: tuple[str, ...] = ()) -> Diagnosis: ...


@pytest.fixture
def diagnose(capsys: pytest.CaptureFixture[str]) -> Diagnose:
    """Runs the command, which must leave every file as it is."""

    def run(*folders: Path, words: tuple[str, ...] = ()) -> Diagnosis:
        before = files(*folders)
        given = [word for path in folders for word in ("--data-dir", str(path))]
        code = doctor_command.run([*given, "--json", *words])
        assert files(*folders) == before
        return Diagnosis(code, json.loads(capsys.readouterr().out))

    return run


def refusal(*folders: Path, **settings: str) -> str:
    """Why a node does not start on the folders, which it leaves as they are."""
    before = files(*folders)
    node = Node(folders[0], settings={"log.dirs": ",".join(map(str, folders)), **settings})
    with pytest.raises(NodeError) as refused:
        node.start()
    assert files(*folders) == before
    return str(refused.value)


def segments(folder: Path) -> list[Path]:
    return sorted((folder / "table-0").glob("*.log"))


def damage(log: Path) -> int:
    """Flips a byte in the second batch of a segment; returns where that begins."""
    data = bytearray(log.read_bytes())
    second = 12 + int.from_bytes(data[8:12])
    data[second + 70] ^= 0xFF
    log.write_bytes(data)
    return second


def rewrite(file: Path, pattern: str, replacement: str) -> None:
    file.write_text(re.sub(pattern, replacement, file.read_text()))


def second_folder(folder: Path, pattern: str, replacement: str) -> Path:
    """A formatted folder beside another, with something else in its identity."""
    other = folder.with_name("other")
    other.mkdir()
    for name in ("meta.properties", ".lock"):
        shutil.copy(folder / name, other)
    rewrite(other / "meta.properties", pattern, replacement)
    return other


def test_a_whole_folder_is_described_and_opens_in_both_brokers(diagnose: Diagnose, folder: Path) -> None:
    found = diagnose(folder, words=("--deep",))
    report = found.report
    assert (found.exit_code, found.opens, report["findings"]) == (0, ("opens", "opens"), [])
    identity = parse_properties((folder / "meta.properties").read_text())
    assert (report["cluster_id"], report["node_id"]) == (identity["cluster.id"], int(identity["node.id"]))
    assert report["roles"] == ["broker", "controller"]
    assert report["consumer_groups"] == 1
    assert report["metadata"]["features"]["metadata.version"] == 30
    assert [voter["id"] for voter in report["metadata"]["voters"]] == [1]
    (described,) = report["folders"]
    assert described["directory_id"] == identity["directory.id"]
    assert described["clean_shutdown_epoch"] is not None
    partitions = {(each["topic"], each["partition"]): each for each in described["partitions"]}
    table = partitions["table", 0]
    assert table["segments"] == len(segments(folder)) >= 3
    assert table["size_bytes"] == sum(log.stat().st_size for log in segments(folder))
    assert (table["log_start_offset"], table["log_end_offset"], table["high_watermark"]) == (0, 30, 30)
    assert 0 < table["first_timestamp_ms"] <= table["last_timestamp_ms"]
    assert partitions["table", 1]["first_timestamp_ms"] is None
    assert (partitions["plain", 0]["producers"], partitions["plain", 0]["open_transactions"]) == (1, 1)


def test_people_get_tables_and_a_verdict(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert doctor_command.run(["--data-dir", str(folder), "--partitions"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^metadata.version: +30 \(4.3-IV0\)$", shown, re.MULTILINE)
    assert re.search(r"^table +0 +\d+ +2.9 MiB +0 – 30 +20", shown, re.MULTILINE)
    assert "Barnabas opens it. Apache Kafka 4.3 opens it. Only what a start reads was read" in shown.splitlines()[-1]


def test_a_folder_that_a_node_has_open_is_read_with_a_warning(diagnose: Diagnose, folder: Path) -> None:
    with Node(folder):
        command = [sys.executable, "-m", "barnabas", "doctor", "--data-dir", str(folder), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    found = Diagnosis(done.returncode, json.loads(done.stdout))
    assert (found.exit_code, found.opens) == (0, ("opens", "opens"))
    assert found.report["folders"][0]["is_in_use"]
    assert "in use by a running broker" in found.about(folder)[0]


def test_wrong_use_is_told_by_its_own_exit_code(folder: Path, tmp_path: Path) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "barnabas", "doctor", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    cases = {
        "there is no folder": ["--data-dir", str(tmp_path / "nowhere")],
        "the following arguments are required": [],
        "in a data folder": ["--data-dir", str(folder), "--kafka-properties", str(folder / "server.properties")],
        "exists already": ["--data-dir", str(folder), "--kafka-properties", __file__],
        "cannot both go": ["--data-dir", str(folder), "--kafka-properties", "--json"],
    }
    for complaint, words in cases.items():
        done = run(*words)
        assert (done.returncode, complaint in done.stderr) == (2, True), done


def test_a_folder_that_was_never_formatted_is_for_barnabas_to_format(diagnose: Diagnose, tmp_path: Path) -> None:
    found = diagnose(tmp_path)
    assert (found.exit_code, found.opens) == (1, ("opens", "refuses"))
    assert "is not formatted" in found.about(tmp_path)[0]
    assert list(tmp_path.iterdir()) == []


def test_damage_in_the_middle_of_a_compacted_log_is_told_by_its_place_and_nothing_of_it_is_removed(
    diagnose: Diagnose, origin: Origin, folder: Path
) -> None:
    log = segments(folder)[1]
    position = damage(log)
    assert diagnose(folder).exit_code == 0  # A start does not read there.
    found = diagnose(folder, words=("--deep",))
    assert (found.exit_code, found.opens) == (1, ("loses", "loses"))
    assert found.about(log)[0].startswith(f"damaged at position {position}, where offset ")

    logs = {log: log.read_bytes() for log in segments(folder)}
    log.with_suffix(".index").unlink()
    with Node(folder) as node:
        assert f"{log} is damaged at position {position}" in node.log_text()
        client = ConfluentClient(node.bootstrap)
        last = int(segments(folder)[2].name.partition(".")[0])
        received = consume(client, "table", 30 - last, start=last)
        assert [each.value for each in received] == origin.values[last:]
    assert {log: log.read_bytes() for log in segments(folder)} == logs


def test_a_damaged_transaction_index_does_not_cost_what_lies_behind_other_damage(
    diagnose: Diagnose, folder: Path
) -> None:
    """The log is read again for that index, from a place where it was synced long ago."""
    log = segments(folder)[1]
    position = damage(log)
    segments(folder)[0].with_suffix(".txnindex").write_bytes(b"cut")
    found = diagnose(folder)
    assert (found.exit_code, found.opens) == (1, ("offline", "loses"))
    (text,) = found.about(folder / "table-0")
    assert text.startswith(f"{log} is damaged at position {position}")
    logs = {log: log.read_bytes() for log in segments(folder)}
    with Node(folder) as node:
        assert text in node.log_text()
    assert {log: log.read_bytes() for log in segments(folder)} == logs


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_missing_index_is_made_again_by_the_next_start(diagnose: Diagnose, folder: Path, suffix: str) -> None:
    index = segments(folder)[0].with_suffix(suffix)
    expected = index.read_bytes()
    index.unlink()
    found = diagnose(folder)
    assert (found.exit_code, found.opens) == (0, ("opens", "opens"))
    assert any("rebuilding the indexes" in finding["text"] for finding in found.report["findings"])
    with Node(folder):
        assert index.read_bytes() == expected


def test_an_index_that_misleads_is_found_by_a_deep_look(diagnose: Diagnose, folder: Path) -> None:
    index = segments(folder)[0].with_suffix(".index")
    data = bytearray(index.read_bytes())
    data[7] ^= 0x01  # the position of the first entry
    index.write_bytes(data)
    found = diagnose(folder, words=("--deep",))
    assert found.about(index)[0].startswith("the entry at position 0 does not fit the segment")


@pytest.mark.parametrize(
    "name", ["recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint"]
)
def test_without_a_checkpoint_a_folder_still_opens(diagnose: Diagnose, folder: Path, name: str) -> None:
    (folder / name).unlink()
    found = diagnose(folder)
    assert (found.exit_code, found.opens) == (0, ("opens", "opens"))
    with Node(folder) as node:
        assert ConfluentClient(node.bootstrap).offset_range("table") == (0, 30)
    assert (folder / name).exists()


def test_the_torn_end_of_a_log_is_what_a_start_would_cut_off(diagnose: Diagnose, folder: Path) -> None:
    (folder / ".kafka_cleanshutdown").unlink()
    log = segments(folder)[-1]
    size = log.stat().st_size
    with log.open("ab") as file:
        file.write(bytes(100))
    found = diagnose(folder)
    assert (found.exit_code, found.opens) == (1, ("loses", "loses"))
    assert found.about(log)[0].startswith(f"a start truncates it at position {size} of {size + 100}")


def test_a_newer_metadata_version_is_refused_with_the_folder_that_has_it(diagnose: Diagnose, folder: Path) -> None:
    metadata = folder / METADATA
    content = read_folder(SystemDisk(), str(metadata))
    newer = feature_record("metadata.version", 31)
    with (metadata / f"{0:020}.log").open("ab") as log:
        log.write(data_batch([newer], base_offset=content.end_offset, epoch=content.epoch, timestamp_ms=1))
    complaint = f"{metadata} has metadata.version 31, but this version supports 7 to 30; it is too new: open the folder"
    found = diagnose(folder)
    assert (found.exit_code, found.opens) == (1, ("refuses", "refuses"))
    assert found.about(metadata)[0].startswith(complaint)
    assert complaint in refusal(folder)


def test_a_metadata_log_that_is_damaged_in_the_middle_must_not_be_given_to_kafka(
    diagnose: Diagnose, folder: Path
) -> None:
    log = folder / METADATA / f"{0:020}.log"
    position = damage(log)
    complaint = f"{log} is damaged at position {position}"
    found = diagnose(folder)
    assert (found.exit_code, found.opens) == (1, ("refuses", "loses"))
    assert found.about(folder / METADATA)[0].startswith(complaint)
    assert complaint in refusal(folder)


OTHERS = {
    "of another cluster": ("cluster.id=.*", "cluster.id=AAAAAAAAAAAAAAAAAAAAAA", "belong to different clusters"),
    "of another node": ("node.id=.*", "node.id=7", "belongs to node 7, but this is node 1: set node.id=7, or use"),
    "that was copied": ("none", "", "have the same directory.id"),
}


@pytest.mark.parametrize(("pattern", "replacement", "complaint"), OTHERS.values(), ids=OTHERS)
def test_a_second_folder_of_somebody_else_is_refused_by_name(
    diagnose: Diagnose, folder: Path, pattern: str, replacement: str, complaint: str
) -> None:
    other = second_folder(folder, pattern, replacement)
    if replacement:
        rewrite(other / "meta.properties", "directory.id=.*", "directory.id=24bCQwdOQK2ZFXBwJ4evRw")
    found = diagnose(folder, other)
    assert (found.exit_code, found.opens) == (1, ("refuses", "refuses"))
    (text,) = [finding["text"] for finding in found.report["findings"]]
    assert complaint in text
    assert str(other) in text
    assert text in refusal(folder, other)


def test_what_is_in_no_topic_and_what_is_missing_is_told(diagnose: Diagnose, folder: Path) -> None:
    shutil.move(folder / "table-1", folder / "gone-0")
    (folder / "lost+found").mkdir()
    found = diagnose(folder)
    assert (found.exit_code, found.opens) == (1, ("loses", "refuses"))
    assert found.about(folder / "gone-0") == ["belongs to no topic of this cluster: a start sets it aside, as *-stray"]
    assert "is missing, though the metadata says" in found.about(folder / "table-1")[0]
    assert "Apache Kafka will not start until it is moved away" in found.about(folder / "lost+found")[0]


def test_what_was_left_over_is_counted(diagnose: Diagnose, folder: Path) -> None:
    log = segments(folder)[0]
    (folder / "table-0" / f"{log.name}.cleaned").write_bytes(b"half")
    unique = "0" * 32
    (folder / f"old-0.{unique}-delete").mkdir()
    (folder / f"old-1.{unique}-stray").mkdir()
    found = diagnose(folder)
    assert (found.exit_code, found.opens) == (0, ("opens", "opens"))
    (described,) = found.report["folders"]
    assert described["leftovers"] == [f"table-0/{log.name}.cleaned"]
    assert (described["deleted"], described["stray"]) == ([f"old-0.{unique}-delete"], [f"old-1.{unique}-stray"])


def test_the_properties_for_kafka_start_a_node_of_barnabas_too(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "server.properties"
    assert doctor_command.run(["--data-dir", str(folder), "--kafka-properties", str(file)]) == 0
    assert f"written: {file}" in capsys.readouterr().out
    assert doctor_command.run(["--data-dir", str(folder), "--kafka-properties"]) == 0
    assert capsys.readouterr().out == file.read_text()
    port = int(re.search(r"PLAINTEXT://127.0.0.1:(\d+)", file.read_text())[1])  # type: ignore[index]
    with Node(folder, port=port, config_file=file) as node:
        assert ConfluentClient(node.bootstrap).offset_range("table") == (0, 30)
