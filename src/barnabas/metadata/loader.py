"""Committed records into images, one image at a time, and never one from the middle of a transaction.

A metadata transaction (BeginTransaction … EndTransaction) spans batches. Until it ends, readers see the image from
before it began; if it is aborted, the working copy goes back there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.metadata.replay import Replay, ReplayError
from barnabas.protocol import messages as m

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.metadata.image import MetadataDelta, MetadataImage
    from barnabas.protocol.structs import Message


class Publication(NamedTuple):
    image: MetadataImage
    delta: MetadataDelta


class ImageLoader:
    """Follows one log from an image onwards."""

    __slots__ = ("_before_transaction", "_epoch", "_offset", "_published", "_replay", "_timestamp_ms")

    def __init__(self, image: MetadataImage) -> None:
        self._published = image
        self._replay = Replay(image)
        self._before_transaction: MetadataImage | None = None
        self._offset, self._epoch, self._timestamp_ms = image.offset, image.epoch, image.timestamp_ms

    @property
    def image(self) -> MetadataImage:
        """The last image that was published."""
        return self._published

    @property
    def is_in_transaction(self) -> bool:
        return self._before_transaction is not None

    def apply_batch(self, records: Iterable[Message], *, last_offset: int, epoch: int, timestamp_ms: int) -> None:
        """Takes over one committed batch. `last_offset` is the offset of its last record."""
        for record in records:
            if isinstance(record, m.BeginTransactionRecord):
                self._begin()
            elif isinstance(record, m.EndTransactionRecord):
                self._end()
            elif isinstance(record, m.AbortTransactionRecord):
                self._abort()
            else:
                self._replay.apply(record)
        self.skip_batch(last_offset=last_offset, epoch=epoch, timestamp_ms=timestamp_ms)

    def skip_batch(self, *, last_offset: int, epoch: int, timestamp_ms: int) -> None:
        """Notes a batch that holds nothing for the image, such as one of control records."""
        self._offset, self._epoch, self._timestamp_ms = last_offset, epoch, timestamp_ms

    def set_controller(self, controller_id: int) -> None:
        self._replay.controller_id = controller_id

    def publish(self) -> Publication | None:
        """The newest image that may be seen, with what changed, or None while a transaction hides everything."""
        if self._before_transaction is not None:
            if self._before_transaction is self._published:
                return None
            old, self._published = self._published, self._before_transaction
            # The delta may look at too much but must not forget what the transaction touches.
            return Publication(self._published, self._published.diff(old))
        if self._offset == self._published.offset:
            return None
        old, self._published = self._published, self._freeze()
        return Publication(self._published, self._replay.take_delta(old, self._published))

    def _freeze(self) -> MetadataImage:
        return self._replay.freeze(offset=self._offset, epoch=self._epoch, timestamp_ms=self._timestamp_ms)

    def _begin(self) -> None:
        if self.is_in_transaction:
            raise ReplayError("a transaction begins inside another one")
        self._before_transaction = self._freeze()

    def _end(self) -> None:
        if not self.is_in_transaction:
            raise ReplayError("a transaction ends that never began")
        self._before_transaction = None

    def _abort(self) -> None:
        if self._before_transaction is None:
            raise ReplayError("a transaction is aborted that never began")
        self._replay = self._replay.rewound(self._before_transaction)
        self._before_transaction = None
