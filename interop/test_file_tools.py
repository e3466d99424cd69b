"""Our tools for files and Kafka's own on the same files, line by line: those that a node of Barnabas wrote, those that
Apache Kafka wrote, records of every kind there is, and files in which something is wrong."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.clients.command_line.files_of_a_node import (
    METADATA_TOPIC,
    OFFSETS_TOPIC,
    SETTINGS,
    TOPIC,
    TRANSACTION_TOPIC,
    TRANSACTIONS,
    log_of,
    newest_checkpoint,
    write_everything,
)
from tests.peers import running
from tests.unit.cli.kafka.damaged_files import DAMAGED, NAME, batches_of_all_kinds
from tests.unit.protocol.values import filled_message
from tools import apache_kafka

from barnabas.protocol.batch import build_batch
from barnabas.protocol.codec import writer
from barnabas.protocol.compiler.schema import definitions, message_schema
from barnabas.protocol.metadata_records import RECORD_NAMES, encode_record
from barnabas.protocol.record import Record

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(300)

DUMP_CLASS = "org.apache.kafka.tools.DumpLogSegments"
SHELL_CLASS = "org.apache.kafka.shell.MetadataShell"
ATTEMPTS = 5
"""Kafka's shell may answer before it has applied what it loaded."""
_THROWN = re.compile(r'Exception in thread "main" ([\w.$]+)(?:: (.*))?')


class Printed(NamedTuple):
    code: int
    out: list[str]
    complaints: list[str]
    """What is on stderr; of an exception only its message, or its name if it has none."""


def ours(name: str, *words: str) -> Printed:
    command = [sys.executable, "-m", "barnabas", "kafka", name, *words]
    return printed(subprocess.run(command, capture_output=True, check=False))


def kafkas(main_class: str, *words: str) -> Printed:
    command = [*apache_kafka.java_command((*apache_kafka.TOOL_FLAGS, "-Dfile.encoding=UTF-8")), main_class, *words]
    return printed(subprocess.run(command, capture_output=True, check=False))


def printed(done: subprocess.CompletedProcess[bytes]) -> Printed:
    complaints = [line for line in done.stderr.decode().splitlines() if line.strip() and not line.startswith("\tat ")]
    if done.returncode and complaints:
        thrown = _THROWN.fullmatch(complaints[0])
        complaints = [complaints[0] if thrown is None else thrown[2] or thrown[1]]
    out = re.sub(r"\[B@[0-9a-f]+", "[B@", done.stdout.decode())
    return Printed(done.returncode, out.split("\n"), complaints)


def compare(*words: str) -> None:
    our, kafka = ours("kafka-dump-log", *words), kafkas(DUMP_CLASS, *words)
    assert our.out == kafka.out
    assert our.complaints == kafka.complaints
    assert our.code == kafka.code


@pytest.fixture(scope="module", params=["barnabas", "kafka"])
def data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a node of either kind, which has stopped."""
    if (reason := apache_kafka.missing()) is not None:
        pytest.skip(f"not run: {reason}")
    with running(request.param, tmp_path_factory.mktemp("files"), SETTINGS) as peer:
        write_everything(peer.bootstrap)
        peer.stop()
        return peer.data_dir


def files_in(data: Path, pattern: str) -> str:
    """All of them, as the tool takes them."""
    found = sorted(data.glob(f"*/{pattern}"))
    assert found
    return ",".join(map(str, found))


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("*.log", ()),
        ("*.log", ("--deep-iteration",)),
        ("*.log", ("--print-data-log",)),
        ("*.log", ("--print-data-log", "--skip-record-metadata")),
        ("*.log", ("--max-bytes", "500")),
        ("*.index", ()),
        ("*.index", ("--verify-index-only",)),
        ("*.index", ("--index-sanity-check",)),
        ("*.timeindex", ()),
        ("*.timeindex", ("--verify-index-only",)),
        ("*.timeindex", ("--index-sanity-check",)),
        ("*.txnindex", ()),
        ("*.snapshot", ()),
        ("*.checkpoint", ("--cluster-metadata-decoder",)),
        ("*checkpoint", ()),
    ],
)
def test_files_of_a_node_look_the_same(data: Path, pattern: str, words: tuple[str, ...]) -> None:
    compare("--files", files_in(data, pattern), *words)


@pytest.mark.parametrize(
    ("topic", "decoder"),
    [
        (METADATA_TOPIC, "--cluster-metadata-decoder"),
        (OFFSETS_TOPIC, "--offsets-decoder"),
        (TRANSACTION_TOPIC, "--transaction-log-decoder"),
        (TOPIC, "--share-group-state-decoder"),
        (TRANSACTIONS, "--remote-log-metadata-decoder"),
    ],
)
def test_records_look_the_same_with_every_decoder(data: Path, topic: str, decoder: str) -> None:
    compare("--files", str(log_of(data, topic)), decoder)
    compare("--files", str(log_of(data, topic)), decoder, "--skip-record-metadata")


KINDS = {
    "--offsets-decoder": ("LegacyOffset", "Offset", "Group", "ConsumerGroup", "ShareGroup", "StreamsGroup"),
    "--transaction-log-decoder": ("TransactionLog",),
    "--share-group-state-decoder": ("ShareSnapshot", "ShareUpdate"),
}
"""How the names of the records begin that a coordinator keeps."""


def coordinator_records(prefixes: tuple[str, ...]) -> list[Record]:
    """One for each version of each kind, and those that nobody knows."""
    found: list[Record] = []
    for name, definition in definitions().items():
        if definition["type"] != "coordinator-key" or not name.startswith(prefixes):
            continue
        key_message = filled_message(name, 0)
        key = bytearray(struct.pack(">h", definition["apiKey"]))
        writer(type(key_message), 0)(key_message, key)
        versions = message_schema(value_name := f"{name.removesuffix('Key')}Value").versions
        for version in range(versions.low, versions.high + 1):
            value_message = filled_message(value_name, version)
            value = bytearray(struct.pack(">h", version))
            writer(type(value_message), version)(value_message, value)
            found.append(Record(bytes(value), bytes(key), 0))
        found += [
            Record(None, bytes(key), 0),
            Record(b"\0\x4d", bytes(key), 0),
            Record(b"\0", bytes(key), 0),
            Record(found[-1].value[:-1] if found[-1].value else b"", bytes(key), 0),
            Record(b"", bytes(key[:3]), 0),
        ]
    return [*found, Record(b"", b"\0\x63", 0), Record(b"", b"\0", 0)]


def metadata_records() -> list[Record]:
    found: list[Record] = []
    for name in RECORD_NAMES.values():
        versions = message_schema(name).versions
        found += [
            Record(encode_record(filled_message(name, version), version), None, 0)
            for version in range(versions.low, versions.high + 1)
        ]
    last = found[-1].value or b""
    broken = (b"\0" + last, b"\2" + last, b"\1\6\0", b"\1\x63\0", b"\1\2\x09", last + b"xx", b"\1", b"", None)
    return [*found, *(Record(each, None, 0) for each in broken)]


def write_log(folder: Path, records: list[Record]) -> str:
    path = folder / f"{NAME}.log"
    path.write_bytes(build_batch(records))
    return str(path)


@pytest.mark.parametrize("decoder", [*KINDS, "--cluster-metadata-decoder"])
def test_records_of_every_kind_and_version_look_the_same(decoder: str, tmp_path: Path) -> None:
    made = coordinator_records(KINDS[decoder]) if decoder in KINDS else metadata_records()
    compare("--files", write_log(tmp_path, made), decoder)


def test_batches_of_every_kind_look_the_same(tmp_path: Path) -> None:
    path = tmp_path / f"{NAME}.log"
    path.write_bytes(b"".join(batches_of_all_kinds()))
    package = "org.apache.kafka.tools.api"
    for words in (
        (),
        ("--print-data-log",),
        ("--print-data-log", "--skip-record-metadata"),
        ("--value-decoder-class",),
        ("--value-decoder-class", f"{package}.DefaultDecoder"),
        ("--key-decoder-class", f"{package}.IntegerDecoder"),
        ("--key-decoder-class", f"{package}.LongDecoder"),
        ("--value-decoder-class", "no.Such"),
        ("--offsets-decoder",),
    ):
        compare("--files", str(path), *words)


@pytest.mark.parametrize("name", DAMAGED)
def test_what_is_wrong_is_said_in_the_same_words(name: str, tmp_path: Path) -> None:
    damaged = DAMAGED[name]
    compare("--files", str(damaged.write(tmp_path / "t-0")), *damaged.words)


@pytest.mark.parametrize(
    "words",
    [
        ("--print-data-log",),
        ("--files",),
        ("--bogus",),
        ("--files", "/nowhere/00000000000000000000.log"),
        ("--files", "/nowhere/00000000000000000000.index"),
        ("--files", "/nowhere/00000000000000000000.snapshot"),
        ("--files", "/nowhere/00000000000000000000.txnindex"),
        ("--files", "/nowhere/abc.log"),
        ("--files", "/nowhere/x.checkpoint"),
        ("--files", "/nowhere//leader-epoch-checkpoint,/nowhere/a.txt,"),
        ("--files", "/nowhere/x.log", "--max-bytes", "x"),
        ("--files", "/nowhere/x.log", "--files", "/nowhere/y.log"),
        ("--version",),
    ],
)
def test_what_makes_no_sense_is_told_in_the_same_words(words: tuple[str, ...]) -> None:
    our, kafka = ours("kafka-dump-log", *words), kafkas(DUMP_CLASS, *words)
    assert our.code == kafka.code
    assert our.complaints[:1] == kafka.complaints[:1]
    assert our.out == kafka.out


def compare_shells(source: Path, *words: str) -> None:
    our = ours("kafka-metadata-shell", "--snapshot", str(source), *words)
    kafka = kafkas(SHELL_CLASS, "--snapshot", str(source), *words)
    for _ in range(ATTEMPTS):
        if _without_commit(kafka.out) == _without_commit(our.out):
            break
        kafka = kafkas(SHELL_CLASS, "--snapshot", str(source), *words)
    assert _without_commit(our.out) == _without_commit(kafka.out)
    assert our.code == kafka.code


def _without_commit(lines: list[str]) -> list[str]:
    """The shell says of which commit it is itself."""
    return [line for line in lines if not re.fullmatch(r" *(?:unknown|[0-9a-f]{16,40})", line)]


@pytest.mark.parametrize(
    "words",
    [
        ("tree", "/"),
        ("find", "/"),
        ("find",),
        ("ls", "/image", "/local"),
        ("ls", "image/topics/*", "nope"),
        ("cat", "/image/features/*", "/image", "nope", f"/image/configs/TOPIC:{TOPIC}/retention.ms"),
        ("ls", f"image/topics/byName/{{{TOPIC},{TRANSACTIONS}}}"),
        ("pwd",),
        ("l",),
        ("cat",),
        ("ls", "--help"),
    ],
)
def test_the_shells_print_the_same(data: Path, words: tuple[str, ...]) -> None:
    # What begins with a dash behind the file belongs to the command, if two dashes say so.
    compare_shells(log_of(data, METADATA_TOPIC), *(("--", *words) if "--help" in words else words))


def test_the_shells_print_the_same_of_a_snapshot(data: Path) -> None:
    compare_shells(newest_checkpoint(data), "tree", "/")


@pytest.mark.parametrize("words", [(), ("--snapshot",), ("--snapshot", "/nowhere/x", "ls"), ("--bogus", "-s", "x")])
def test_the_shells_refuse_the_same(words: tuple[str, ...]) -> None:
    our = ours("kafka-metadata-shell", *words)
    kafka = subprocess.run([*apache_kafka.java_command(), SHELL_CLASS, *words], capture_output=True, check=False)
    assert our.code == kafka.returncode == 1
    assert our.complaints[0] in kafka.stderr.decode().splitlines(), "its usage may stand in front"
