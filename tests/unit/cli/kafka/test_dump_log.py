"""`kafka-dump-log` on files that were made for it. The expected texts are what Apache Kafka 4.3.1 printed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from barnabas.protocol.batch import MAGIC_AT, build_batch
from barnabas.protocol.record import Record
from tests.clients.command_line.kafka_tool import run_tool
from tests.unit.cli.kafka.damaged_files import DAMAGED, NAME, TIME_MS, batches_of_all_kinds, records

if TYPE_CHECKING:
    from pathlib import Path

TOOL = "kafka-dump-log"


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    path = tmp_path / f"{NAME}.log"
    path.write_bytes(b"".join(batches_of_all_kinds()))
    return path


def test_batches_are_shown_one_in_each_line(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run_tool(capsys, TOOL, "--files", str(segment)).lines
    assert lines[:3] == [
        f"Dumping {segment}",
        "Log starting offset: 0",
        (
            "baseOffset: 0 lastOffset: 3 count: 4 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 "
            "partitionLeaderEpoch: 3 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty "
            "position: 0 CreateTime: 1700000000003 size: 163 magic: 2 compresscodec: none crc: 618173925 isvalid: true"
        ),
    ]
    assert len(lines) == 2 + len(batches_of_all_kinds())
    assert re.findall(r"compresscodec: (\w+)", "\n".join(lines[2:7])) == ["none", "gzip", "snappy", "lz4", "zstd"]


def test_records_are_shown_below_their_batch(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = run_tool(capsys, TOOL, "--files", str(segment), "--print-data-log")
    found = [line for line in done.out.split("\n") if line.startswith("|")]
    assert found[0] == (
        "| offset: 0 CreateTime: 1700000000000 keySize: 5 valueSize: 7 sequence: -1 headerKeys: [h,größe] "
        "key: key-0 payload: value-0"
    )
    assert re.findall(r"sequence: (\d+)", done.out) == ["2147483646", "2147483647", "0"]
    assert [line.rpartition("] ")[2] for line in found if "endTxnMarker" in line] == [
        "endTxnMarker: COMMIT coordinatorEpoch: 5",
        "endTxnMarker: ABORT coordinatorEpoch: 5",
    ]
    assert [line.partition("headerKeys: ")[2] for line in found if "offset: 2" in line][-3:] == [
        "[] payload: v",
        "[]",
        "[] key:  payload: ",
    ]
    assert found[-2].endswith("headerKeys: [\ufffd] key: \U0001f600 payload: \ufffd\ufffd \ufffd \ufffd")
    assert "\n€\n" in done.out
    assert done.code == 0


def test_offsets_that_do_not_follow_each_other_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"{NAME}.log"
    gaps = [Record(b"v", None, TIME_MS, (), offset) for offset in (0, 1, 5)]
    path.write_bytes(build_batch(gaps) + build_batch(records(2, 9), base_offset=9))
    done = run_tool(capsys, TOOL, "--files", str(path), "--deep-iteration")
    assert done.err == f"Non-consecutive offsets in {path}\n  1 is followed by 5\n  5 is followed by 9\n"
    assert "payload" not in done.out


def test_without_metadata_only_keys_and_values_are_left(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run_tool(capsys, TOOL, "--files", str(segment), "--print-data-log", "--skip-record-metadata").lines
    assert lines[3] == "| key: key-0 payload: value-0"
    assert lines.count("") == 3, "of the two control records and the record without either, only the ends of lines"


def test_numbers_can_be_decoded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"{NAME}.log"
    path.write_bytes(build_batch([Record((7).to_bytes(8, "big"), (5).to_bytes(4, "big"), TIME_MS)]))
    package = "org.apache.kafka.tools.api"
    decoders = ("--key-decoder-class", f"{package}.IntegerDecoder", "--value-decoder-class", f"{package}.LongDecoder")
    assert run_tool(capsys, TOOL, "--files", str(path), *decoders).out.endswith("key: 5 payload: 7\n")

    unknown = run_tool(capsys, TOOL, "--files", str(path), "--key-decoder-class", "no.Such")
    assert (unknown.code, unknown.complaint) == (1, "Failed to load decoder class")


@pytest.mark.parametrize("name", DAMAGED)
def test_what_is_wrong_is_said_in_kafkas_words(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damaged = DAMAGED[name]
    path = damaged.write(tmp_path / "t-0")
    log = path.with_suffix(".log")
    done = run_tool(capsys, TOOL, "--files", str(path), *damaged.words)
    assert done.code == damaged.code
    assert done.complaint == damaged.complaint.format(path=path, log=log, log_size=log.stat().st_size)
    assert done.lines[0] == f"Dumping {path}"


def test_what_is_no_file_of_a_log_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("leader-epoch-checkpoint", "partition.metadata"):
        done = run_tool(capsys, TOOL, "--files", f"{tmp_path}/{name}")
        assert done == (0, f"Dumping {tmp_path}/{name}\n", f"Ignoring unknown file {tmp_path}/{name}\n")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--print-data-log"], 'Missing required argument "[files]"'),
        (["--files"], "Option files requires an argument"),
        (["--files", "/nowhere/00000000000000000000.log"], "/nowhere/00000000000000000000.log"),
        (["--files", "/nowhere/abc.log"], 'For input string: "abc"'),
        (["--files", "/nowhere/x.log", "--max-bytes", "x"], "Cannot parse argument 'x' of option max-bytes"),
        (["--bogus"], "bogus is not a recognized option"),
    ],
)
def test_what_cannot_be_done_is_one_line(words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    done = run_tool(capsys, TOOL, *words)
    assert (done.code, done.complaint) == (1, complaint)


def test_a_limit_of_bytes_ends_at_the_last_whole_batch(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run_tool(capsys, TOOL, "--files", str(segment), "--max-bytes", "330").lines
    assert len(lines) == 2 + 2


def test_a_batch_of_the_oldest_formats_is_refused(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = bytearray(segment.read_bytes())
    data[MAGIC_AT] = 1
    segment.write_bytes(data)
    done = run_tool(capsys, TOOL, "--files", str(segment))
    assert done.code == 1
    assert done.complaint == (
        f"{segment} has a batch of magic 1 at byte 0: what Kafka wrote before 0.11 is not shown here"
    )
