"""The index of aborted transactions: what it finds is what a search through all entries would find, with few reads."""

from __future__ import annotations

import errno
import random
from typing import TYPE_CHECKING

import pytest

from barnabas.log.producers.aborted_txns import BLOCK_ENTRIES, ENTRY, AbortedTxn, AbortedTxns, read_outline
from barnabas.log.segments.file_names import TXN_INDEX, offset_file
from barnabas.log.segments.segment_index import CorruptIndexError
from barnabas.testing.clock import ManualClock
from barnabas.testing.disk import SimulatedDisk

if TYPE_CHECKING:
    from collections.abc import Iterable

FOLDER = "/t-0"
PATH = offset_file(FOLDER, 0, TXN_INDEX)


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk(ManualClock())
    disk.make_folder(FOLDER)
    return disk


def index_of(disk: SimulatedDisk, entries: Iterable[AbortedTxn]) -> AbortedTxns:
    index = AbortedTxns(disk, FOLDER, {})
    for entry in entries:
        index.add(0, entry)
    return index


def reopened(disk: SimulatedDisk) -> AbortedTxns:
    return AbortedTxns(disk, FOLDER, {0: read_outline(disk, FOLDER, 0)})


def transactions(chance: random.Random, count: int) -> list[AbortedTxn]:
    """As a log brings them about: producers begin at the end of the log and are aborted in any order."""
    aborted: list[AbortedTxn] = []
    open_txns: dict[int, int] = {}
    offset = 0
    while len(aborted) < count:
        offset += chance.randint(1, 3)
        if not open_txns or (len(open_txns) < 4 and chance.random() < 0.5):
            open_txns[len(aborted) * 10 + len(open_txns)] = offset
        else:
            producer_id = chance.choice(list(open_txns))
            first = open_txns.pop(producer_id)
            stable = min(open_txns.values(), default=offset + 1)
            aborted.append(AbortedTxn(producer_id, first, offset, stable))
    return aborted


def brute_force(entries: list[AbortedTxn], offset: int, end_offset: int) -> list[AbortedTxn]:
    return [txn for txn in entries if txn.last_offset >= offset and txn.first_offset < end_offset]


@pytest.mark.parametrize("seed", range(5))
def test_a_search_finds_what_is_there_before_and_after_cuts_and_restarts(disk: SimulatedDisk, seed: int) -> None:
    chance = random.Random(seed)
    entries = transactions(chance, 3 * BLOCK_ENTRIES + chance.randint(0, BLOCK_ENTRIES))
    index = index_of(disk, entries)
    for _ in range(6):
        for _ in range(50):
            offset = chance.randint(0, entries[-1].last_offset + 5)
            end_offset = offset + chance.randint(1, 200)
            assert index.between(0, offset, end_offset) == brute_force(entries, offset, end_offset)
        match chance.randrange(3):
            case 0:
                index.write_pending()
                index = reopened(disk)
            case 1:
                index.write_pending()
            case _:
                cut = chance.randint(entries[-1].last_offset // 2, entries[-1].last_offset)
                index.cut(0, cut)
                entries = [txn for txn in entries if txn.last_offset < cut]


def test_entries_that_the_disk_does_not_take_are_found_all_the_same(disk: SimulatedDisk) -> None:
    entries = transactions(random.Random(0), 4 * BLOCK_ENTRIES)
    index = index_of(disk, entries[: BLOCK_ENTRIES + 5])
    index.write_pending()
    disk.fail("pwrite", errno.ENOSPC)
    for entry in entries[BLOCK_ENTRIES + 5 :]:
        index.add(0, entry)
    everything = (0, 0, entries[-1].last_offset + 1)
    assert index.between(*everything) == entries
    disk.heal()
    index.write_pending()
    assert index.between(*everything) == reopened(disk).between(*everything) == entries


def test_a_transaction_that_stayed_open_long_costs_a_reader_few_reads(disk: SimulatedDisk) -> None:
    """All that was aborted meanwhile may have records where the long one has its own, for all that the order says."""
    count = 50 * BLOCK_ENTRIES
    short = [AbortedTxn(2, 2 * n + 1, 2 * n + 2, 0) for n in range(count)]
    long = AbortedTxn(1, 0, 2 * count + 1, 2 * count + 2)
    index_of(disk, [*short, long]).write_pending()
    index = reopened(disk)
    disk.calls.clear()
    assert index.between(0, 99, 102) == [short[49], short[50], long]
    assert disk.calls["pread"] <= 3


@pytest.mark.parametrize("damage", [b"\0", ENTRY.pack(0, 1, 2, 3, 4), ENTRY.pack(0, 9, 0, -1, 0)])
def test_a_file_that_is_no_index_is_noticed(disk: SimulatedDisk, damage: bytes) -> None:
    index_of(disk, [AbortedTxn(1, 2, 3, 4)]).write_pending()
    fd = disk.open(PATH, 0)
    disk.pwrite(fd, damage, ENTRY.size)
    disk.close(fd)
    with pytest.raises(CorruptIndexError, match="txnindex"):
        read_outline(disk, FOLDER, 0)
