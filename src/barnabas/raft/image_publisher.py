"""Replays the committed metadata log and publishes the images to the broker.

Two threads meet here. The thread of the metadata quorum applies committed batches (`apply`) and makes images; the
broker's event loop receives them in order through `call_soon_threadsafe`, and only there do listeners run and waiters
wake up. Images are immutable, so no locks are needed.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from itertools import count
from typing import TYPE_CHECKING

from barnabas.metadata.image import MetadataDelta, MetadataImage
from barnabas.metadata.replay import ImageDraft, ImageReplay, Publication, ReplayError
from barnabas.metadata.versions import UnsupportedMetadataVersionError
from barnabas.protocol import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from barnabas.raft.folder.metadata_batches import DecodedBatch
    from barnabas.raft.folder.snapshots import Snapshot

logger = logging.getLogger("barnabas.metadata")

RECORDS_AT_ONCE = 500
"""Of a batch, applied in one turn of the event loop: a few milliseconds' work."""


class ImagePublisher:
    def __init__(self, cluster_id: str) -> None:
        self._loader = ImageReplay(MetadataImage(cluster_id))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._image = self._loader.image
        self.kraft_version = 0
        """The kraft.version, which is finalized by control records."""
        self._listeners: list[Callable[[MetadataImage, MetadataDelta], None]] = []
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._sequence = count()

    # The quorum's thread

    @property
    def committed(self) -> MetadataImage:
        """The newest committed image, whether or not the broker has received it."""
        return self._loader.image

    @property
    def is_in_transaction(self) -> bool:
        return self._loader.is_in_transaction

    def restore(self, folder: str, snapshot: Snapshot | None, batches: Sequence[DecodedBatch]) -> None:
        """Starts from a snapshot and the batches after it, all from this folder. Call it before the broker attaches
        itself.

        Raises UnsupportedMetadataVersionError if they have a feature level that is not supported, and ReplayError if
        they contradict each other. Both name the folder.
        """
        try:
            if snapshot is not None:
                self._replace(snapshot)
            self.apply(batches)
        except UnsupportedMetadataVersionError as error:
            raise error.at(folder) from error
        except ReplayError as error:
            raise ReplayError(f"{folder} cannot be read: {error}") from error
        self._image = self._loader.image

    def load(self, snapshot: Snapshot) -> None:
        """Goes on from a snapshot of a later offset, and publishes its image."""
        old = self._loader.image
        self._replace(snapshot)
        image = self._loader.image
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._publish, Publication(image, image.diff(old)))

    def _replace(self, snapshot: Snapshot) -> None:
        old = self._loader.image
        draft = ImageDraft(MetadataImage(old.cluster_id))
        # A snapshot does not say who leads.
        draft.controller_id = old.controller_id
        for record in snapshot.records:
            draft.apply(record)
        self.kraft_version = snapshot.kraft_version
        offset, epoch = snapshot.id.end_offset - 1, snapshot.id.epoch
        self._loader = ImageReplay(draft.freeze(offset=offset, epoch=epoch, timestamp_ms=snapshot.timestamp_ms))

    def apply(self, batches: Sequence[DecodedBatch]) -> None:
        """Applies committed batches and publishes the resulting image."""
        for _ in self._applying(batches):
            pass

    async def follow(self, batches: Sequence[DecodedBatch]) -> None:
        """As `apply`, with turns of the event loop in between where that is much."""
        for _ in self._applying(batches):
            await asyncio.sleep(0)

    def _applying(self, batches: Sequence[DecodedBatch]) -> Iterator[None]:
        for batch in batches:
            if batch.is_control:
                self._apply_control(batch)
            else:
                for start in range(0, len(batch.records), RECORDS_AT_ONCE):
                    if start:
                        yield
                    self._loader.apply_records(batch.records[start : start + RECORDS_AT_ONCE])
            self._loader.skip_batch(last_offset=batch.last_offset, epoch=batch.epoch, timestamp_ms=batch.timestamp_ms)
        publication = self._loader.publish()
        if publication is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._publish, publication)

    def _apply_control(self, batch: DecodedBatch) -> None:
        for message in batch.records:
            if isinstance(message, m.LeaderChangeMessage):
                self._loader.set_controller(message.leader_id)
            elif isinstance(message, m.KRaftVersionRecord):
                self.kraft_version = message.kraft_version

    # The broker's event loop

    @property
    def image(self) -> MetadataImage:
        """The newest image that the broker has received."""
        return self._image

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Publishes images to this loop from now on. Call it before the quorum starts."""
        self._loop = loop

    def detach(self) -> None:
        """Stops publishing. Call it after the quorum has stopped and before the loop closes."""
        self._loop = None
        for _, _, waiter in self._waiters:
            waiter.cancel()
        self._waiters.clear()

    def add_listener(self, listener: Callable[[MetadataImage, MetadataDelta], None]) -> None:
        """Calls `listener` with each image that differs from the previous one, and with the difference."""
        self._listeners.append(listener)

    async def wait_for_offset(self, offset: int) -> MetadataImage:
        """Returns when the broker's image contains the record at `offset`."""
        if self._image.offset < offset:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            heapq.heappush(self._waiters, (offset, next(self._sequence), waiter))
            try:
                await waiter
            finally:
                if waiter.cancelled():
                    self._forget(waiter)
        return self._image

    def _forget(self, abandoned: asyncio.Future[None]) -> None:
        """Removes a waiter that was cancelled, since its offset may never be reached."""
        self._waiters = [entry for entry in self._waiters if entry[2] is not abandoned]
        heapq.heapify(self._waiters)

    def _publish(self, publication: Publication) -> None:
        self._image = publication.image
        try:
            if not publication.delta.is_empty:
                for listener in self._listeners:
                    listener(publication.image, publication.delta)
        finally:
            self._wake()

    def _wake(self) -> None:
        while self._waiters and self._waiters[0][0] <= self._image.offset:
            _, _, waiter = heapq.heappop(self._waiters)
            if not waiter.done():
                waiter.set_result(None)
