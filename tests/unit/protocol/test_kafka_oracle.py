"""The codec and the record formats beside Apache Kafka's own classes and tools, where its jars are."""

from __future__ import annotations

import re
import shutil
import subprocess
import zipfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tools import apache_kafka, extract_schemas

from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.batch import build_batch
from barnabas.protocol.compression import LEVELS, Codec
from barnabas.protocol.control_records import ControlRecordType, encode_control_record, encode_end_transaction
from barnabas.protocol.metadata_records import RECORD_NAMES, encode_record
from barnabas.protocol.record import Record
from tests.unit.protocol.values import ALL_VERSIONS, filled_message, message_class

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("apache_kafka_runs")]

PROGRAM = Path(__file__).with_name("KafkaCodec.java")
GENERATED = re.compile(r"(.*/(?:message|metadata|generated)/(\w+?)(?:Data)?)\.class")
FIRST_OFFSET = 5


@cache
def kafka_classes() -> dict[str, str]:
    """The names of Kafka's generated classes by message."""
    classes = {}
    for jar in apache_kafka.ensure_jars().glob("kafka*.jar"):
        with zipfile.ZipFile(jar) as archive:
            for entry in archive.namelist():
                if found := GENERATED.fullmatch(entry):
                    name = entry.removesuffix(".class").replace("/", ".")
                    classes[found[2]] = classes[name.rpartition(".")[2]] = name
    return classes


def answers_of_kafka(requests: Sequence[tuple[str, int, bytes]]) -> list[str]:
    if shutil.which("javac") is None:
        pytest.skip("needs a JDK, not only a Java runtime, to compile a program against Kafka's classes")
    classpath = f"{apache_kafka.ensure_jars()}/*"
    lines = "".join(f"{kafka_classes()[name]} {version} {data.hex()}\n" for name, version, data in requests)
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", classpath, str(PROGRAM)]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True, timeout=100)
    return done.stdout.splitlines()


def test_kafka_reads_what_we_write_in_every_version_and_writes_the_same_again() -> None:
    requests = [
        (name, version, codec.encode(message, version))
        for name, version in ALL_VERSIONS
        for message in (message_class(name)(), filled_message(name, version))
    ]
    answers = answers_of_kafka(requests)
    different = [request for request, answer in zip(requests, answers, strict=True) if request[2].hex() != answer]
    assert different == []


def test_the_data_file_is_what_the_jars_define() -> None:
    assert extract_schemas.OUTPUT.read_text() == extract_schemas.extract(apache_kafka.ensure_jars())


def dump(tmp_path: Path, batches: Sequence[bytes], *, cluster_metadata: bool = False) -> str:
    log = tmp_path / f"{FIRST_OFFSET:020}.log"
    log.write_bytes(b"".join(batches))
    return apache_kafka.dump_log(log, cluster_metadata=cluster_metadata)


def test_kafka_reads_our_batches_in_every_codec_and_level(tmp_path: Path) -> None:
    variants: list[tuple[Codec, int | None]] = [(each, None) for each in Codec]
    variants += [(each, level) for each, levels in LEVELS.items() for level in levels[:2]]
    batches = []
    offset = FIRST_OFFSET
    for each, level in variants:
        records = [
            Record(b"value %d " % offset * 9000, b"key", 1_700_000_000_000, (("name", b"1"), ("null", None))),
            Record(None, None, 1_700_000_000_001),
        ]
        batches.append(build_batch(records, base_offset=offset, codec=each, compression_level=level, leader_epoch=3))
        offset += len(records)
    output = dump(tmp_path, batches)
    names = re.findall(r"compresscodec: (\w+) crc: \d+ isvalid: true", output)
    assert names == [each.name.lower() for each, _ in variants]
    values = re.findall(r"headerKeys: \[name,null\] key: key payload: (value \d+) value", output)
    assert values == [f"value {FIRST_OFFSET + 2 * index}" for index in range(len(variants))]


def test_kafka_reads_our_control_records(tmp_path: Path) -> None:
    voter = m.LeaderChangeMessage.Voter(voter_id=7)
    contents = [
        encode_control_record(m.LeaderChangeMessage(leader_id=7, voters=[voter], granting_voters=[voter])),
        encode_control_record(m.SnapshotHeaderRecord(last_contained_log_timestamp=8)),
        encode_control_record(m.KRaftVersionRecord(kraft_version=1)),
        encode_control_record(filled_message("VotersRecord", 0)),
        encode_control_record(m.SnapshotFooterRecord()),
        encode_end_transaction(ControlRecordType.COMMIT, 9),
        encode_end_transaction(ControlRecordType.ABORT, 10),
    ]
    batches = [
        build_batch([Record(value, key, 0)], base_offset=FIRST_OFFSET + index, leader_epoch=1, is_control=True)
        for index, (key, value) in enumerate(contents)
    ]
    output = dump(tmp_path, batches)
    assert output.count("isControl: true") == len(batches)
    for expected in (
        'LeaderChange: {"version":0,"leaderId":7,"voters":[{"voterId":7}],"grantingVoters":[{"voterId":7}]}',
        'SnapshotHeader {"version":0,"lastContainedLogTimestamp":8}',
        'SnapshotFooter {"version":0}',
        'KRaftVersion {"version":0,"kRaftVersion":1}',
        "KRaftVoters {",
        "endTxnMarker: COMMIT coordinatorEpoch: 9",
        "endTxnMarker: ABORT coordinatorEpoch: 10",
    ):
        assert expected in output


def test_kafka_reads_our_metadata_records(tmp_path: Path) -> None:
    kinds = [(name, version) for name, version in ALL_VERSIONS if name in RECORD_NAMES.values()]
    records = [Record(encode_record(filled_message(name, version), version), timestamp=0) for name, version in kinds]
    output = dump(tmp_path, [build_batch(records, base_offset=FIRST_OFFSET)], cluster_metadata=True)
    types = re.findall(r'payload: \{"type":"(\w+)","version":(\d+),', output)
    expected = [(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper(), str(version)) for name, version in kinds]
    assert types == expected
