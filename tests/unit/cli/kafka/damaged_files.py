"""Files of a partition in which something is wrong, and what Apache Kafka 4.3.1 says about each."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.log.producers.aborted_txns import ENTRY as TXN_ENTRY
from barnabas.log.segments.segment_index import OFFSET_ENTRY, TIME_ENTRY
from barnabas.protocol.batch import CRC_AT, HEADER, HEADER_SIZE, LENGTH_AT, build_batch, read_header
from barnabas.protocol.checksum import crc32c
from barnabas.protocol.compression import Codec, compress
from barnabas.protocol.control_records import ControlRecordType, encode_end_transaction
from barnabas.protocol.record import Record, encode_records

if TYPE_CHECKING:
    from pathlib import Path

NAME: Final = "00000000000000000000"
TIME_MS: Final = 1_700_000_000_000


def records(count: int, base_offset: int = 0) -> list[Record]:
    return [
        Record(
            b"value-%d" % n, b"key-%d" % n, TIME_MS + n, (("h", b"v"), ("größe", None)) if n % 3 == 0 else (), offset
        )
        for n, offset in enumerate(range(base_offset, base_offset + count))
    ]


def batches_of_all_kinds() -> list[bytes]:
    """Every codec, sequences that wrap around, both markers, append time, nulls, no UTF-8, and no record at all."""
    made = [build_batch(records(4, 4 * codec), base_offset=4 * codec, leader_epoch=3, codec=codec) for codec in Codec]
    made.append(
        build_batch(
            records(3, 20),
            base_offset=20,
            producer_id=7,
            producer_epoch=2,
            base_sequence=(1 << 31) - 2,
            is_transactional=True,
        )
    )
    for offset, kind in enumerate((ControlRecordType.COMMIT, ControlRecordType.ABORT), 23):
        key, value = encode_end_transaction(kind, 5)
        marker = [Record(value, key, TIME_MS, (), offset)]
        made.append(
            build_batch(
                marker, base_offset=offset, is_control=True, is_transactional=True, producer_id=7, producer_epoch=2
            )
        )
    nulls = [Record(None, b"k"), Record(b"v", None), Record(None, None), Record(b"", b"")]
    nulls = [record._replace(timestamp=TIME_MS, offset=25 + n) for n, record in enumerate(nulls)]
    made.append(build_batch(nulls, base_offset=25, log_append_time=True))
    odd = [
        Record(b"\xff\xfe \xed\xa0\x80 \xc3", b"\xf0\x9f\x98\x80", TIME_MS, (("\udcff", b"x"),), 31),
        Record("äöü\n€".encode(), b"\xe2\x82", TIME_MS, (), 32),
    ]
    made.append(build_batch(odd, base_offset=31))
    made.append(build_batch([], base_offset=33, last_offset_delta=4))
    return made


class Damaged(NamedTuple):
    parts: list[bytes]
    complaint: str
    """The first line on stderr."""
    code: int = 1
    suffix: str = ".log"
    words: tuple[str, ...] = ("--print-data-log",)

    def write(self, folder: Path) -> Path:
        """For an index, a good segment lies beside it."""
        folder.mkdir(parents=True)
        for suffix in (".log", ".index"):
            (folder / f"{NAME}{suffix}").write_bytes(b"".join(batches_of_all_kinds()) if suffix == ".log" else b"")
        path = folder / f"{NAME}{self.suffix}"
        path.write_bytes(b"".join(self.parts))
        return path


_GOOD: Final = build_batch(records(4), leader_epoch=3)
_SECTION: Final = encode_records(records(3), [0, 1, 2], TIME_MS)
_ONE: Final = encode_records([Record(b"v", b"k", TIME_MS)], [0], TIME_MS)


def _around(section: bytes, count: int, codec: Codec = Codec.NONE) -> bytes:
    """A batch with a good checksum, whatever is in it."""
    header = read_header(build_batch(records(3)))._replace(
        length=HEADER_SIZE - 12 + len(section), attributes=codec, record_count=count
    )
    batch = bytearray(HEADER.pack(*header) + section)
    struct.pack_into(">I", batch, CRC_AT, crc32c(memoryview(batch)[CRC_AT + 4 :]))
    return bytes(batch)


def _changed(data: bytes, position: int, new: bytes) -> bytes:
    return data[:position] + new + data[position + len(new) :]


def _control(key: bytes | None) -> bytes:
    return build_batch([Record(b"\0\0", key, TIME_MS)], is_control=True)


_SNAPSHOT: Final = "Snapshot failed schema validation:"
_PREMATURE: Final = "Incorrect declared batch size, premature EOF reached"
_REMAINING: Final = "Incorrect declared batch size, records still remaining in file"

DAMAGED: Final[dict[str, Damaged]] = {
    "zeros": Damaged(
        [_GOOD, bytes(100)], "Found record size 0 smaller than minimum record overhead (14) in file {path}."
    ),
    "short batch": Damaged([_changed(_GOOD, LENGTH_AT, struct.pack(">i", 20))], "java.lang.IndexOutOfBoundsException"),
    "codec": Damaged([_changed(_GOOD, 22, b"\5")], "Unknown compression type id: 5"),
    "more records": Damaged([_around(_SECTION, 5)], _PREMATURE),
    "fewer records": Damaged([_around(_SECTION, 2)], _REMAINING),
    "negative count": Damaged([_around(_SECTION, -2)], "Found invalid record count -2 in magic v2 batch"),
    "cut record": Damaged(
        [_around(_SECTION[:-3], 3)],
        "Invalid record size: expected 18 bytes in record payload, but instead the buffer has only 15 remaining bytes.",
    ),
    "long key": Damaged([_around(_changed(_SECTION, 4, b"\x7e"), 3)], "Found invalid record structure"),
    "wrong size": Damaged(
        [_around(_changed(_SECTION, 0, b"\x20"), 3)],
        "Invalid record size: expected to read 16 bytes in record payload, but instead read 31",
    ),
    "negative headers": Damaged(
        [_around(_changed(_ONE, len(_ONE) - 1, b"\1"), 1)], "Found invalid number of record headers -1"
    ),
    "many headers": Damaged(
        [_around(_changed(_ONE, len(_ONE) - 1, b"\4"), 1)],
        "Found invalid number of record headers. 2 is larger than the remaining size of the buffer",
    ),
    "no gzip": Damaged([_around(_SECTION, 3, Codec.GZIP)], "java.util.zip.ZipException: Not in GZIP format"),
    "no snappy": Damaged([_around(_SECTION, 3, Codec.SNAPPY)], "java.io.IOException: FAILED_TO_UNCOMPRESS(5)"),
    "no zstd": Damaged([_around(_SECTION, 3, Codec.ZSTD)], "Failed to decompress record stream"),
    "fewer in gzip": Damaged([_around(compress(Codec.GZIP, _SECTION), 2, Codec.GZIP)], _REMAINING),
    "more in gzip": Damaged([_around(compress(Codec.GZIP, _SECTION), 5, Codec.GZIP)], _PREMATURE),
    "control without key": Damaged(
        [_control(None)], 'Cannot invoke "java.nio.ByteBuffer.duplicate()" because "key" is null'
    ),
    "control with a short key": Damaged(
        [_control(b"\0")],
        "Invalid value size found for control record key. Must have at least 4 bytes, but found only 1",
    ),
    "index beyond the end": Damaged(
        [OFFSET_ENTRY.pack(3, 99_999)],
        "Slice from position 99999 exceeds end position of FileRecords(size={log_size}, file={log}, start=0, "
        "end=2147483647)",
        suffix=".index",
        words=(),
    ),
    "index that leads elsewhere": Damaged(
        [OFFSET_ENTRY.pack(4, 0)], "Mismatches in :{path}", 0, ".index", ("--verify-index-only",)
    ),
    "negative index": Damaged(
        [OFFSET_ENTRY.pack(-5, 0)],
        "Corrupt index found, index file {path} has non-zero size but the last offset is -5 which is less than the "
        "base offset 0",
        suffix=".index",
        words=("--index-sanity-check",),
    ),
    "small limit": Damaged(
        [OFFSET_ENTRY.pack(3, 0)],
        "java.util.NoSuchElementException",
        suffix=".index",
        words=("--max-message-size", "20"),
    ),
    "timestamps that differ": Damaged(
        [TIME_ENTRY.pack(TIME_MS + 9, 3)], "Found timestamp mismatch in :{path}", 0, ".timeindex", ()
    ),
    "timestamps out of order": Damaged(
        [TIME_ENTRY.pack(TIME_MS + 3, 3), TIME_ENTRY.pack(TIME_MS + 3, 7)],
        "Found out of order timestamp in :{path}",
        0,
        ".timeindex",
        (),
    ),
    "timestamps of nothing": Damaged(
        [TIME_ENTRY.pack(TIME_MS + 3, 4_000)],
        "The following indexed offsets are not found in :{path}",
        0,
        ".timeindex",
        ("--verify-index-only",),
    ),
    "timestamps that sink": Damaged(
        [TIME_ENTRY.pack(TIME_MS + 3, 3), TIME_ENTRY.pack(TIME_MS, 7)],
        "Corrupt time index found, time index file ({path}) has non-zero size but the last timestamp is 1700000000000 "
        "which is less than the first timestamp 1700000000003",
        suffix=".timeindex",
        words=("--index-sanity-check",),
    ),
    "half a transaction": Damaged([TXN_ENTRY.pack(0, 1, 2, 3, 4), b"half"], "", 0, ".txnindex", ()),
    "snapshot of another version": Damaged(
        [struct.pack(">hIi", 2, 0, 0)], f"{_SNAPSHOT} Snapshot contained an unknown file version 2", 0, ".snapshot", ()
    ),
    "short snapshot": Damaged([b"\0\1"], f"{_SNAPSHOT} null", 0, ".snapshot", ()),
    "snapshot with a wrong checksum": Damaged(
        [struct.pack(">hIi", 1, 1, 0)],
        "Snapshot is corrupt (CRC is no longer valid). Stored crc: 1. Computed crc: 1214729159",
        0,
        ".snapshot",
        (),
    ),
}
"""By what is wrong."""
