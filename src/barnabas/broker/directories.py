"""The data folders as the cluster knows them: where partitions were put, and which folders have failed.

Where a node has several folders, the controller leaves it to the broker where a new partition goes; the broker reports
it afterwards (AssignReplicasToDirs). When a folder fails, its partitions go offline and the controller learns of it
from a heartbeat, so that this broker no longer leads them. A folder that is bad from the start is not in the
registration. The rest of the node goes on, unless it was the folder of the metadata log, without which there is no
cluster, or the last one for partitions.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import islice
from typing import TYPE_CHECKING

from barnabas.metadata import versions
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.broker.controller_channel import ControllerChannel
    from barnabas.broker.lifecycle import BrokerLifecycle
    from barnabas.log.folder.data_dir import DataDir
    from barnabas.protocol.uuids import Uuid
    from barnabas.raft.image_publisher import ImagePublisher
    from barnabas.replication.log_store import LogStore
    from barnabas.replication.replica_manager import ReplicaManager

logger = logging.getLogger("barnabas.logs")

ASSIGNMENTS_PER_REQUEST = 2250
"""As many as Kafka puts into one."""
RETRY_SECONDS = 1.0


class FailedFolderError(Exception):
    """A data folder has failed, and the node cannot go on without it."""


class Directories:
    """To be used on the broker's event loop."""

    def __init__(
        self,
        node_id: int,
        metadata_folder: str,
        store: LogStore,
        replicas: ReplicaManager,
        publisher: ImagePublisher,
        channel: ControllerChannel,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`on_failure` is called if the folder that has failed is one without which the node must stop."""
        self._node_id = node_id
        self._metadata_folder = metadata_folder
        self._store = store
        self._replicas = replicas
        self._publisher = publisher
        self._channel = channel
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._lifecycle: BrokerLifecycle | None = None
        self._failed: list[Uuid] = []
        self._assigning: asyncio.Task[None] | None = None
        self._is_closed = False
        store.on_failed_dir = self._dir_failed
        replicas.on_misplaced = self.say_where_partitions_are

    def opened(self) -> None:
        """The logs have been opened. What could not be read then is offline before the broker registers."""
        for data_dir, error in self._store.failed.items():
            self._take_offline(data_dir, error)

    def registered(self, lifecycle: BrokerLifecycle) -> None:
        """The broker is registered: from now on it can report to the controller."""
        self._lifecycle = lifecycle
        for directory in self._failed:
            lifecycle.directory_failed(directory)
        self.say_where_partitions_are()

    async def close(self) -> None:
        self._is_closed = True
        if self._assigning is not None:
            self._assigning.cancel()
            await asyncio.gather(self._assigning, return_exceptions=True)

    # ── folders that fail ────────────────────────────────────────────────────────────────────────────────────

    def metadata_log_failed(self, error: OSError) -> None:
        """If the metadata log could not be written or synced, the other data in its folder is in doubt, too."""
        for _, data_dir in self._store.online:
            if data_dir.path == self._metadata_folder:
                self._store.fail(data_dir, error)

    def _dir_failed(self, data_dir: DataDir, error: OSError) -> None:
        # This is noticed in the middle of an append, or of a loop over partitions, which must not change under it.
        self._loop.call_soon(self._take_offline, data_dir, error)

    def _take_offline(self, data_dir: DataDir, error: OSError) -> None:
        directory = self._store.id_of(data_dir)
        self._failed.append(directory)
        count = self._replicas.take_offline(data_dir, error)
        logger.error("%s has failed and is offline with its %d partitions: %s", data_dir.path, count, error)
        if data_dir.path == self._metadata_folder:
            self._on_failure(FailedFolderError(f"{data_dir.path}, the folder of the metadata log, has failed: {error}"))
        elif not self._store.online:
            self._on_failure(FailedFolderError(f"{data_dir.path}, the last folder of log.dirs, has failed: {error}"))
        elif self._assigning is not None:
            # A replica that was on its way here, and that the controller believes here, is where it was: the controller
            # hears that first, or else it takes the replica for lost.
            self._assigning.add_done_callback(lambda _: self._report_failure(directory))
        else:
            self._report_failure(directory)

    def _report_failure(self, directory: Uuid) -> None:
        if self._lifecycle is not None and not self._is_closed:
            self._lifecycle.directory_failed(directory)

    # ── where partitions are ─────────────────────────────────────────────────────────────────────────────────

    def say_where_partitions_are(self) -> None:
        """Tells the controller about partitions that are in another folder than it knows, if there are any."""
        if not self._replicas.misplaced or self._assigning is not None or self._is_closed:
            return
        # The newest image: the one in effect may have no features yet.
        version = self._publisher.image.features.metadata_version
        if self._lifecycle is not None and versions.supports_directories(version):
            self._assigning = asyncio.ensure_future(self._assign())
            self._assigning.add_done_callback(self._assigned)

    def _assigned(self, task: asyncio.Task[None]) -> None:
        self._assigning = None
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("cannot report the folders of partitions to the controller: %s", error, exc_info=error)

    async def _assign(self) -> None:
        replicas = self._replicas
        said: dict[tuple[Uuid, int], Uuid] = {}
        while unsaid := dict(
            islice((each for each in replicas.misplaced.items() if each not in said.items()), ASSIGNMENTS_PER_REQUEST)
        ):
            response: m.AssignReplicasToDirsResponse = await self._channel.send(self._request(unsaid))
            error = Error(response.error_code)
            if error is Error.NONE:
                # If the controller refuses one of them, its own state is newer, and the next image shows it.
                said |= unsaid
            else:
                logger.warning(
                    "cannot report the folders of %d partitions to the controller, will retry: %s",
                    len(unsaid),
                    error.name,
                )
                await asyncio.sleep(RETRY_SECONDS)

    def _request(self, places: dict[tuple[Uuid, int], Uuid]) -> m.AssignReplicasToDirsRequest:
        assert self._lifecycle is not None, "nobody is told anything before the broker is registered"
        request = m.AssignReplicasToDirsRequest
        by_directory: dict[Uuid, dict[Uuid, list[int]]] = {}
        for (topic_id, index), directory in places.items():
            by_directory.setdefault(directory, {}).setdefault(topic_id, []).append(index)
        return request(
            broker_id=self._node_id,
            broker_epoch=self._lifecycle.epoch,
            directories=[
                request.DirectoryData(
                    id=directory,
                    topics=[
                        request.TopicData(
                            topic_id=topic_id,
                            partitions=[request.PartitionData(partition_index=index) for index in indexes],
                        )
                        for topic_id, indexes in topics.items()
                    ],
                )
                for directory, topics in by_directory.items()
            ],
        )
