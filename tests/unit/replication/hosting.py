"""The parts of a broker that hold its partitions, over real folders: data folders, log store, replica manager."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import TYPE_CHECKING, Any

from barnabas.broker.flusher import Flusher
from barnabas.config.topic_config import TopicConfig
from barnabas.log.folder.checkpoints import read_offsets
from barnabas.log.folder.data_dir import DataDir
from barnabas.log.segments.open_files import FilePool
from barnabas.metadata.image import ConfigResource, ConfigsImage, MetadataImage, ResourceType
from barnabas.net.purgatory import Parked, Purgatory
from barnabas.ports import SystemDisk, SystemRandom, SystemThreads
from barnabas.protocol.uuids import Uuid
from barnabas.replication.log_store import LogStore, OpenDir
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.replication.replica_moves import MovesEnvironment, ReplicaMoves
from tests.unit.broker.api.stand_ins import CLUSTER_ID, FOLDER, NODE_ID, a_config, an_image

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from barnabas.config.broker_config import BrokerConfig
    from barnabas.log.folder.checkpoints import TopicPartition
    from barnabas.log.segments.open_files import FileRange
    from barnabas.metadata.image import TopicImage
    from barnabas.ports import Clock, Disk
    from barnabas.replication.hosted import HostedPartition
    from barnabas.testing.clock import ManualClock

CLUSTER_DEFAULT = ConfigResource(ResourceType.BROKER, "")


class FaultyDisk(SystemDisk):
    """The real disk, on which some operations on some paths fail until it is healed."""

    __slots__ = ("_faults",)

    def __init__(self) -> None:
        self._faults: list[tuple[str, str, int]] = []

    def fail(self, operation: str, part_of_path: str, number: int = errno.EIO) -> None:
        self._faults.append((operation, part_of_path, number))

    def heal(self) -> None:
        self._faults.clear()

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        self._look_at("open", path)
        return super().open(path, flags, mode)

    def pwrite(self, fd: int, data: Any, offset: int, /) -> int:
        self._look_at("pwrite", os.readlink(f"/proc/self/fd/{fd}"))
        return os.pwrite(fd, data, offset)

    def fsync(self, fd: int, /) -> None:  # type: ignore[override]
        self._look_at("fsync", os.readlink(f"/proc/self/fd/{fd}"))
        os.fsync(fd)

    def make_folder(self, path: str) -> None:
        self._look_at("make_folder", path)
        super().make_folder(path)

    def remove_folder(self, path: str) -> None:
        self._look_at("remove_folder", path)
        super().remove_folder(path)

    def rename(self, old: str, new: str) -> None:
        self._look_at("rename", old)
        super().rename(old, new)

    def unlink(self, path: str) -> None:
        self._look_at("unlink", path)
        super().unlink(path)

    def modified_ms(self, path: str) -> int:
        self._look_at("modified_ms", path)
        return super().modified_ms(path)

    def _look_at(self, operation: str, path: str) -> None:
        for failing, part, number in self._faults:
            if operation == failing and part in path:
                raise OSError(number, os.strerror(number), path)


class Waiting(Parked):
    """A request that is answered as soon as anything that it watches changes."""

    def __init__(self) -> None:
        super().__init__()
        self.answered = asyncio.Event()

    def is_ready(self) -> bool:
        return True

    def complete(self) -> None:
        self.answered.set()


class Hosting:
    """Must be made in a running event loop. `FOLDER` is the id of the first data folder."""

    def __init__(self, root: Path, clock: ManualClock, *, folders: int = 1, disk: FaultyDisk | None = None) -> None:
        self.clock = clock
        self.disk = disk or FaultyDisk()
        self.config: BrokerConfig = a_config(root)
        self.image = MetadataImage(CLUSTER_ID)
        self.rolled: list[str] = []
        self.files = FilePool(self.disk)
        self.data_dirs = [
            DataDir.lock(f"{root}/data-{n}", disk=self.disk, clock=clock, files=self.files, random=SystemRandom())
            for n in range(folders)
        ]
        dirs = [OpenDir(folder_id(n), data_dir) for n, data_dir in enumerate(self.data_dirs)]
        self.store = LogStore(dirs, in_thread, lambda log: self.rolled.append(log.name))
        self.purgatory = Purgatory(asyncio.get_running_loop())
        self.flusher = Flusher(self.disk, in_thread, self.store.report_failure)
        self.moves = replica_moves(self.store, clock, in_thread, self.flusher, self.disk)
        self.replicas = ReplicaManager(NODE_ID, self.store, self.purgatory, clock, in_thread, self.moves)

    def open(self) -> int:
        return self.store.open(
            lambda _: TopicConfig(),
            threads=SystemThreads(),
            threads_per_dir=1,
            producer_expiration_ms=86_400_000,
            on_progress=lambda _opened, _all: None,
        )

    async def follow(
        self, *topics: TopicImage, configs: Mapping[ConfigResource, Mapping[str, str]] | None = None
    ) -> None:
        """The cluster has these topics and settings now, and no others."""
        image = an_image(topics)._replace(configs=ConfigsImage(configs or {}))
        self.config = self.config.with_dynamic(image.configs.of_broker(""), {})
        await self.replicas.apply(image, image.diff(self.image), self.config)
        self.image = image

    def watch(self, hosted: HostedPartition) -> Waiting:
        """A request that waits for a change of this partition."""
        waiting = Waiting()
        self.purgatory.park(waiting, 60_000, [hosted.watchers])
        return waiting

    def folders(self, number: int = 0) -> list[str]:
        """What is in a data folder, without the checkpoints."""
        path = self.data_dirs[number].path
        return sorted(name for name in os.listdir(path) if os.path.isdir(f"{path}/{name}"))

    def offsets_in(self, checkpoint: str, number: int = 0) -> dict[TopicPartition, int]:
        return read_offsets(self.disk, f"{self.data_dirs[number].path}/{checkpoint}")

    def stop(self, broker_epoch: int = 7) -> None:
        """A clean end."""
        self.store.close(self.replicas.high_watermarks(), broker_epoch)
        self.crash()

    def crash(self) -> None:
        """The process is gone, and with it only its locks: what it wrote is in the files."""
        self.purgatory.close()
        for data_dir in self.data_dirs:
            data_dir.unlock()


def replica_moves(
    store: LogStore, clock: Clock, run_in_thread: Callable[..., Any], flusher: Flusher, disk: Disk
) -> ReplicaMoves:
    async def load(found: FileRange) -> None:
        await run_in_thread(disk.load, found.file.fd, found.position, found.length)

    return ReplicaMoves(store, MovesEnvironment(clock, run_in_thread, load, flusher.flush, flusher.replaced))


def folder_id(number: int) -> Uuid:
    return FOLDER if number == 0 else Uuid(f"data folder {number}".encode().rjust(16, b"."))


def in_thread(function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
    return asyncio.get_running_loop().run_in_executor(None, function, *arguments)
