"""When the metadata log gets a snapshot, and how it is written without holding anybody up.

A snapshot is due after so many bytes of new records or so much time. It is made from an image, which never changes,
in a thread; one at a time. If it cannot be written, the log goes on growing and the next one is tried when it is due.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from barnabas.log.deletion import unlink_if_there
from barnabas.metadata.snapshot import snapshot_records
from barnabas.protocol.errors import KafkaError
from barnabas.raft.snapshots import SnapshotId, remove_leftovers, write_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor

    from barnabas.metadata.image import MetadataImage
    from barnabas.ports import Clock, Disk
    from barnabas.raft.batches import DecodedBatch, VoterNode
    from barnabas.raft.log import FolderContent, MetadataLog, MetadataLogLimits

logger = logging.getLogger("barnabas.metadata")


class Snapshotter:
    """To be used on the quorum's loop."""

    def __init__(
        self,
        log: MetadataLog,
        image: Callable[[], MetadataImage],
        voters: Sequence[VoterNode] | None,
        limits: MetadataLogLimits,
        content: FolderContent,
        *,
        disk: Disk,
        clock: Clock,
        executor: Executor,
    ) -> None:
        self._log = log
        self._image = image
        self._voters = voters
        self._limits = limits
        self._disk = disk
        self._clock = clock
        self._executor = executor
        # What the last run left without a snapshot counts, or a node that is often restarted would never make one.
        self._new_bytes = sum(batch.size_bytes for batch in content.batches)
        self._last_ms = content.snapshot.timestamp_ms if content.snapshot else clock.now_ms()
        self._task: asyncio.Task[None] | None = None

    def committed(self, batches: Sequence[DecodedBatch]) -> None:
        """Batches were committed: perhaps that makes a snapshot due."""
        self._new_bytes += sum(batch.size_bytes for batch in batches)
        is_old = self._clock.now_ms() - self._last_ms >= self._limits.snapshot_interval_ms
        if self._task is None and (is_old or self._new_bytes >= self._limits.snapshot_bytes):
            self._task = asyncio.create_task(self._write(), name="metadata snapshot")

    async def close(self) -> None:
        """Waits for a snapshot that is being written."""
        if self._task is not None:
            await self._task

    async def _write(self) -> None:
        image = self._image()
        snapshot_id = SnapshotId(image.offset + 1, image.epoch)
        self._new_bytes, self._last_ms = 0, self._clock.now_ms()
        try:
            if snapshot_id not in self._log.snapshots:
                await self._run(self._write_file, image, snapshot_id)
                doomed = self._log.snapshot_completed(snapshot_id)
                await self._run(self._unlink, doomed)
        except (OSError, KafkaError) as error:
            logger.warning("no snapshot of %s at offset %d: %s", self._log.folder, snapshot_id.end_offset, error)
        except Exception:
            logger.exception("no snapshot of %s at offset %d", self._log.folder, snapshot_id.end_offset)
        finally:
            self._task = None

    def _write_file(self, image: MetadataImage, snapshot_id: SnapshotId) -> None:
        remove_leftovers(self._disk, self._log.folder)
        write_snapshot(
            self._disk,
            self._log.folder,
            snapshot_id,
            snapshot_records(image),
            self._voters,
            contained_timestamp_ms=image.timestamp_ms,
            now_ms=self._clock.now_ms(),
        )

    def _unlink(self, paths: Sequence[str]) -> None:
        for path in paths:
            unlink_if_there(self._disk, path)

    async def _run(self, work: Callable[..., None], *arguments: object) -> None:
        await asyncio.get_running_loop().run_in_executor(self._executor, work, *arguments)
