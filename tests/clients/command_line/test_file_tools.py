"""`kafka-dump-log` and `kafka-metadata-shell` on what a real node has written."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.clients.command_line.files_of_a_node import (
    METADATA_TOPIC,
    OFFSETS_TOPIC,
    RECORDS_OF_EACH_CODEC,
    SETTINGS,
    TOPIC,
    TRANSACTION_TOPIC,
    TRANSACTIONS,
    log_of,
    newest_checkpoint,
    write_everything,
)
from tests.clients.command_line.kafka_tool import run_tool
from tests.nodes import Node

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DUMP, SHELL = "kafka-dump-log", "kafka-metadata-shell"
READ_BYTES = 65_536
SILENCE_S_MAX = 30.0


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a node that has stopped."""
    node = Node(tmp_path_factory.mktemp("files") / "data", settings=SETTINGS)
    node.start()
    try:
        write_everything(node.bootstrap)
        node.stop()
        yield node.data_dir
    finally:
        node.kill()


def dumped(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    done = run_tool(capsys, DUMP, *map(str, words))
    assert (done.code, done.err) == (0, "")
    return done.out


def test_all_records_of_a_segment_are_shown(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = dumped(capsys, "--files", log_of(data, TOPIC), "--print-data-log")
    assert text.count(" key: key-") == 5 * RECORDS_OF_EACH_CODEC
    assert {"none", "gzip", "snappy", "lz4", "zstd"} == set(re.findall(r"compresscodec: (\w+)", text))
    assert "isvalid: false" not in text
    assert "zstd 99 ézstd 99 é" in text


def test_indexes_agree_with_their_segment(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for suffix, first in ((".index", "offset: "), (".timeindex", "timestamp: ")):
        index = log_of(data, TOPIC).with_suffix(suffix)
        assert dumped(capsys, "--files", index, "--index-sanity-check").endswith(f"{index} passed sanity check.\n")
        assert dumped(capsys, "--files", index, "--verify-index-only") == f"Dumping {index}\n"
        assert first in dumped(capsys, "--files", index)


def test_transactions_are_in_markers_index_and_snapshot(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = log_of(data, TRANSACTIONS)
    markers = re.findall(r"endTxnMarker: (\w+)", dumped(capsys, "--files", log, "--deep-iteration"))
    assert markers == ["COMMIT", "ABORT", "COMMIT"]
    aborted = dumped(capsys, "--files", log.with_suffix(".txnindex"))
    assert re.search(r"version: 0 producerId: \d+ firstOffset: 2 lastOffset: 3 lastStableOffset: 4", aborted)
    snapshot = dumped(capsys, "--files", max(log.parent.glob("*.snapshot")))
    assert re.search(r"producerId: \d+ producerEpoch: \d+ coordinatorEpoch: 0 currentTxnFirstOffset: Opt", snapshot)


def test_what_coordinators_wrote_is_json(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    groups = dumped(capsys, "--files", log_of(data, OFFSETS_TOPIC), "--offsets-decoder")
    keys = [json.loads(each) for each in re.findall(r"(?m) key: (.*?)(?: payload: |$)", groups)]
    assert {"1", "2", "3", "5"} <= {key["type"] for key in keys}
    assert {"group-classic", "group-consumer"} == {
        key["data"].get("group") or key["data"].get("groupId") for key in keys
    }
    assert '"subscription":{"topics":["kept"]' in groups
    transactions = dumped(capsys, "--files", log_of(data, TRANSACTION_TOPIC), "--transaction-log-decoder")
    assert '{"type":"0","data":{"transactionalId":"t"}}' in transactions


def test_the_metadata_log_and_its_snapshots_are_json(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = dumped(capsys, "--files", log_of(data, METADATA_TOPIC), "--cluster-metadata-decoder")
    assert " LeaderChange: {" in log
    assert f'payload: {{"type":"TOPIC_RECORD","version":0,"data":{{"name":"{TOPIC}","topicId":' in log
    checkpoint = dumped(capsys, "--files", newest_checkpoint(data), "--cluster-metadata-decoder")
    assert " SnapshotHeader {" in checkpoint
    assert '"type":"FEATURE_LEVEL_RECORD"' in checkpoint


def test_the_tools_are_found_by_their_classes(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ("--files", str(log_of(data, TOPIC)))
    by_name = run_tool(capsys, DUMP, *files)
    for name in ("kafka.tools.DumpLogSegments", "org.apache.kafka.tools.DumpLogSegments"):
        assert run_tool(capsys, "kafka-run-class", name, *files) == by_name
    shell = ("--snapshot", str(newest_checkpoint(data)), "ls", "/")
    by_class = run_tool(capsys, "kafka-run-class", "org.apache.kafka.shell.MetadataShell", *shell)
    assert by_class == (0, "image\nlocal\n", "")


def test_the_metadata_is_a_tree_of_folders_and_files(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = ("--directory", str(data))

    def printed(*words: str) -> str:
        done = run_tool(capsys, SHELL, *source, *words)
        assert (done.code, done.err) == (0, "")
        return done.out

    assert printed("ls", "/image") == (
        "acls\nclientQuotas\ncluster\nconfigs\ndelegationToken\nfeatures\nproducerIds\nprovenance\nscram\ntopics\n"
    )
    assert TOPIC in printed("ls", "image/topics/byName").splitlines()
    assert printed("cat", f"/image/configs/TOPIC:{TOPIC}/retention.ms") == "-1\n"
    assert printed("cat", "/image/features/metadataVersion") == "Optional[4.3-IV0]\n"
    assert printed("ls", f"/image/topics/byName/{{{TOPIC},{TRANSACTIONS}}}") == (
        f"{TOPIC}:\n0\nid\nname\n\n{TRANSACTIONS}:\n0\nid\nname\n"
    )
    tree = printed("tree", f"/image/topics/byName/{TOPIC}")
    assert tree.startswith("0:\n  PartitionRegistration(replicas=[1], directories=[")
    assert printed("find", "/local") == "/local\n/local/commitId\n/local/version\n"
    assert printed("cat", "nope") == "cat: nope: No such file or directory.\n"
    assert printed("pwd") == "invalid choice: 'pwd' (choose from 'cat', 'find', 'ls', 'tree')\n"


def test_a_snapshot_that_is_not_there_is_one_line(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = run_tool(capsys, SHELL, "--snapshot", "/nowhere/x.checkpoint", "ls")
    complaint = "Unexpected error: java.nio.file.NoSuchFileException: /nowhere/x.checkpoint"
    assert (missing.code, missing.out, missing.complaint) == (1, "", complaint)
    none = run_tool(capsys, SHELL, "ls")
    assert (none.code, none.complaint) == (1, "kafka-metadata-shell: error: argument --snapshot/-s is required")


def test_somebody_looks_around_at_a_terminal(data: Path) -> None:
    main, other = pty.openpty()
    # A terminal of its own, so that ^C on it is a signal.
    command = [
        "setsid",
        "--ctty",
        "--wait",
        sys.executable,
        "-m",
        "barnabas",
        "kafka",
        SHELL,
        "--snapshot",
        str(newest_checkpoint(data)),
    ]
    shell = subprocess.Popen(command, stdin=other, stdout=other, stderr=other, env={**os.environ, "TERM": "dumb"})
    os.close(other)
    said = ""
    try:
        for line in ("cd /image/features", "ls", "pwd", "cat meta*", "cd nope", "man ls", "\x03", "history 2", "exit"):
            said += _read_until(main, ">> ")
            os.write(main, line.encode() if line == "\x03" else f"{line}\n".encode())
        said += _read_until(main, None)
        assert shell.wait(SILENCE_S_MAX) == 0
    finally:
        shell.kill()
        shell.wait()
    os.close(main)
    assert "[ Kafka Metadata Shell ]" in said
    assert re.search(r"finalized_eligible\.leader\.replicas\.version +finalized_", said), "several columns"
    assert "/image/features\r\n" in said
    assert "Optional[4.3-IV0]" in said
    assert "cd: nope: no such directory." in said
    assert "ls: List metadata nodes." in said
    assert "^C" in said
    assert "    5  man ls\r\n    6  history 2" in said


def _read_until(terminal: int, mark: str | None) -> str:
    """What a terminal shows up to a mark, or to its end."""
    said = b""
    while mark is None or not said.endswith(mark.encode()):
        assert select.select([terminal], [], [], SILENCE_S_MAX)[0], f"nothing more was said after {said!r}"
        try:
            part = os.read(terminal, READ_BYTES)
        except OSError:
            # Linux says so when the other side has closed its last descriptor.
            break
        if not part:
            break
        said += part
    return said.decode()
