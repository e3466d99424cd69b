"""When a snapshot of the metadata is due, and how it is written without blocking the controller.

A snapshot is due after a certain amount of new records or time. It is written in a thread, one at a time, from an
image, which is immutable. If it cannot be written, the log keeps growing until the next one is due.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from barnabas.log.folder.deletion import unlink_if_there
from barnabas.metadata.snapshot_records import snapshot_records
from barnabas.protocol.errors import KafkaError
from barnabas.raft.consensus.log_history import SnapshotId
from barnabas.raft.folder.snapshots import remove_leftovers, write_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.metadata.image import MetadataImage
    from barnabas.ports import Clock, Disk, ThreadPool
    from barnabas.raft.consensus.voter_sets import VoterNode
    from barnabas.raft.folder.metadata_batches import DecodedBatch
    from barnabas.raft.folder.metadata_log import FolderContent, MetadataLog, MetadataLogLimits

logger = logging.getLogger("barnabas.metadata")


class Snapshotter:
    """Use it only on the quorum's loop."""

    def __init__(
        self,
        log: MetadataLog,
        image: Callable[[], MetadataImage],
        voters: Callable[[int], Sequence[VoterNode] | None],
        limits: MetadataLogLimits,
        content: FolderContent,
        *,
        on_completed: Callable[[], None],
        disk: Disk,
        clock: Clock,
        threads: ThreadPool,
    ) -> None:
        """`voters` gives the voters as of an offset; None if they are not part of the log."""
        self._log = log
        self._image = image
        self._voters = voters
        self._limits = limits
        self._disk = disk
        self._clock = clock
        self._threads = threads
        self._on_completed = on_completed
        # Records from before the restart count too: otherwise a node that is often restarted would never write one.
        self._new_bytes = sum(batch.size_bytes for batch in content.batches)
        self._last_ms = content.snapshot.timestamp_ms if content.snapshot else clock.now_ms()
        self._task: asyncio.Task[None] | None = None

    def committed(self, batches: Sequence[DecodedBatch]) -> None:
        """Notes committed batches, and starts a snapshot if that makes one due."""
        self._new_bytes += sum(batch.size_bytes for batch in batches)
        is_old = self._clock.now_ms() - self._last_ms >= self._limits.snapshot_interval_ms
        if self._task is None and (is_old or self._new_bytes >= self._limits.snapshot_bytes):
            self._task = asyncio.create_task(self._write(), name="metadata snapshot")

    async def close(self) -> None:
        """Waits for a snapshot in progress."""
        if self._task is not None:
            await self._task

    async def _write(self) -> None:
        image = self._image()
        snapshot_id = SnapshotId(image.offset + 1, image.epoch)
        self._new_bytes, self._last_ms = 0, self._clock.now_ms()
        try:
            if snapshot_id not in self._log.snapshots:
                await self._run(self._write_file, image, snapshot_id)
                doomed = self._complete(snapshot_id)
                await self._run(self._unlink, doomed)
        except (OSError, KafkaError) as error:
            logger.warning(
                "could not write a snapshot of %s at offset %d: %s", self._log.folder, snapshot_id.end_offset, error
            )
        except Exception:
            logger.exception("could not write a snapshot of %s at offset %d", self._log.folder, snapshot_id.end_offset)
        finally:
            self._task = None

    def _complete(self, snapshot_id: SnapshotId) -> list[str]:
        if self._log.snapshots and self._log.snapshots[-1].end_offset >= snapshot_id.end_offset:
            # One from the leader, of a later offset, has taken the place of the log meanwhile.
            return [self._log.snapshot_path(snapshot_id)]
        doomed = self._log.snapshot_completed(snapshot_id)
        self._on_completed()
        return doomed

    def _write_file(self, image: MetadataImage, snapshot_id: SnapshotId) -> None:
        remove_leftovers(self._disk, self._log.folder)
        write_snapshot(
            self._disk,
            self._log.folder,
            snapshot_id,
            snapshot_records(image),
            self._voters(image.offset),
            contained_timestamp_ms=image.timestamp_ms,
            now_ms=self._clock.now_ms(),
        )

    def _unlink(self, paths: Sequence[str]) -> None:
        for path in paths:
            unlink_if_there(self._disk, path)

    async def _run(self, work: Callable[..., None], *arguments: object) -> None:
        await self._threads.run(work, *arguments)
