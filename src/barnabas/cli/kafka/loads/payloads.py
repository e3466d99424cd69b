"""The values of records that are written to measure how fast that goes."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Final

from barnabas.cli.kafka.loads.librdkafka import Chunk
from barnabas.cli.kafka.tool import ToolError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    MakeChunk = Callable[[int, int], Chunk]
    """From the number of the first record, and how many."""

CHUNK_RECORDS_MAX: Final = 1_000
CHUNK_BYTES: Final = 16_384
"""Records that go to one partition in a row: as many as Java's producer puts into a batch."""
DISTINCT_BYTES: Final = 2 * 1024 * 1024
DISTINCT_RECORDS_MAX: Final = 20_000
"""A codec finds no value again within a batch."""
_SEED: Final = 0
_LETTERS: Final = bytes(65 + each * 26 // 256 for each in range(256))


def random_values(record_bytes: int, chunk_records: int) -> MakeChunk:
    """Values of random letters, made once and used in turn: making them takes longer than sending them."""
    source = random.Random(_SEED)
    wanted = min(DISTINCT_BYTES // record_bytes, DISTINCT_RECORDS_MAX)
    count = max(wanted // chunk_records, 1) | 1

    def values(how_many: int) -> list[bytes]:
        letters = source.randbytes(record_bytes * how_many).translate(_LETTERS)
        return [letters[at : at + record_bytes] for at in range(0, len(letters), record_bytes)]

    chunks = [Chunk(values(chunk_records)) for _ in range(count)]
    taken = 0

    def make(first: int, how_many: int) -> Chunk:  # noqa: ARG001 - which records they are does not matter
        nonlocal taken
        taken += 1
        return chunks[taken % count] if how_many == chunk_records else Chunk(values(how_many))

    return make


def chosen_values(values: Sequence[bytes]) -> MakeChunk:
    """Values of a file, any of them at a time."""
    source = random.Random(_SEED)
    return lambda _, how_many: Chunk(source.choices(values, k=how_many))


def growing_numbers(first: int, how_many: int) -> Chunk:
    """The numbers of the records themselves."""
    return Chunk([b"%d" % number for number in range(first, first + how_many)])


def read_values(path: str, delimiter: str) -> list[bytes]:
    """The values in a text file."""
    print(f"Reading payloads from: {os.path.abspath(path)}")
    try:
        with open(path, encoding="utf-8", errors="replace", newline="") as file:
            text = file.read()
    except OSError:
        text = ""
    if not text:
        raise ToolError("java.lang.IllegalArgumentException: File does not exist or empty file provided.")
    values = [each.encode() for each in text.removesuffix(delimiter).split(delimiter)]
    print(f"Number of records read: {len(values)}")
    return values


def chunk_records(record_bytes: int, records_per_second: float) -> int:
    """How many records are handed over at a time: fewer where they come slowly."""
    fitting = max(CHUNK_BYTES // max(record_bytes, 1), 1)
    in_time = max(int(records_per_second / 200), 1) if records_per_second >= 0 else CHUNK_RECORDS_MAX
    return min(fitting, in_time, CHUNK_RECORDS_MAX)
