"""What the cleaner knows of transactions on its way through a log: which batches were aborted, which markers must stay.

Data of an aborted transaction goes at once. A marker stays as long as there is a batch of its transaction, even an
empty one: without it, a reader could not tell where the transaction ended. Only a pass that finds none may let it go,
after the same delay as a tombstone.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.batch import decode_records
from barnabas.protocol.control_records import ControlRecordType, decode_key
from barnabas.protocol.errors import UnknownFormatError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.log.producers.aborted_txns import AbortedTxn
    from barnabas.protocol.batch import BatchHeader


class _ByBeginning(NamedTuple):
    first_offset: int
    last_offset: int
    txn: AbortedTxn


class CleanedTransactions:
    """To be told of every batch, in the order of the log."""

    def __init__(self) -> None:
        self._ahead: list[_ByBeginning] = []
        """A heap of aborted transactions that begin further on."""
        self._aborted: dict[int, AbortedTxn] = {}
        """By producer id, those that have begun and not ended."""
        self._with_data: set[int] = set()
        """Producers of which a batch was seen in the aborted transaction that they have open."""
        self._committed: set[int] = set()
        """Producers of which a batch was seen in a transaction that is committed."""
        self.kept: list[AbortedTxn] = []
        """Aborted transactions of which something is left, in the order of their markers. The caller may clear it."""

    def expect(self, aborted: Iterable[AbortedTxn]) -> None:
        """Transactions that were aborted, to be named before their first batch comes. One may be named again."""
        for txn in aborted:
            heapq.heappush(self._ahead, _ByBeginning(txn.first_offset, txn.last_offset, txn))

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a batch of data is part of an aborted transaction."""
        self._come_to(header.last_offset)
        if not header.is_transactional:
            return False
        txn = self._aborted.get(header.producer_id)
        if txn is not None and txn.last_offset > header.base_offset:
            self._with_data.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def ends_nothing(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether a control batch is the marker of a transaction of which nothing is left, or was emptied before."""
        self._come_to(header.last_offset)
        if not header.record_count:
            return True
        producer_id = header.producer_id
        match _kind_of(batch):
            case ControlRecordType.ABORT:
                txn = self._aborted.pop(producer_id, None)
                if txn is None or producer_id not in self._with_data:
                    return True
                self._with_data.discard(producer_id)
                self.kept.append(txn)
                return False
            case ControlRecordType.COMMIT:
                is_empty = producer_id not in self._committed
                self._committed.discard(producer_id)
                return is_empty
            case _:
                return False

    def _come_to(self, offset: int) -> None:
        while self._ahead and self._ahead[0].first_offset <= offset:
            txn = heapq.heappop(self._ahead).txn
            open_txn = self._aborted.get(txn.producer_id)
            # One that is named again is open already, or over. One whose marker is missing ends where it should be.
            if txn.last_offset >= offset and (open_txn is None or open_txn.last_offset < txn.first_offset):
                self._aborted[txn.producer_id] = txn
                self._with_data.discard(txn.producer_id)


def _kind_of(batch: memoryview) -> ControlRecordType | None:
    try:
        return decode_key(decode_records(batch)[0].key or b"")
    except UnknownFormatError:
        return None
