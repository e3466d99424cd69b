"""The data folders of a node at startup: they are locked, checked, and formatted if they are new.

These are the entries of `log.dirs`, where partitions go, and the folder of the metadata log, which is one of them or
one of its own (`metadata.log.dir`). A folder belongs to one node of one cluster (`meta.properties`). A folder of
another node or cluster, or one with data but without `meta.properties`, is rejected before anything is written. Empty
folders are formatted for a new cluster with this node as the only voter, unless its settings name other nodes: the
folders of these are formatted by `barnabas format`, which is told the cluster's id and its voters.

A folder that cannot be read, or whose `meta.properties` is damaged, is on a disk that has failed: the node starts
without it, as long as it is not the folder of the metadata log or the last one for partitions.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from barnabas.config.sole_node import is_sole_node
from barnabas.log.folder.data_dir import DataDir, plain_path
from barnabas.log.folder.meta_properties import META_PROPERTIES, DamagedMetaPropertiesError, MetaProperties
from barnabas.log.segments.file_names import parse_folder
from barnabas.log.segments.open_files import FilePool
from barnabas.protocol import uuids
from barnabas.raft.consensus.voter_sets import VoterEndpoint, VoterNode
from barnabas.raft.folder.format import format_metadata
from barnabas.raft.folder.metadata_log import metadata_folder
from barnabas.replication.log_store import OpenDir, UnusableDir

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.config.broker_config import BrokerConfig
    from barnabas.net.endpoint import Listener
    from barnabas.ports import Clock, Disk, Random
    from barnabas.protocol.uuids import Uuid

logger = logging.getLogger("barnabas.start")


class FolderError(Exception):
    """A data folder that this node cannot use; the message says which one and what to do."""


class Folders(NamedTuple):
    cluster_id: str
    dirs: tuple[OpenDir, ...]
    """Where partitions are, in the order of `log.dirs`."""
    unusable: tuple[UnusableDir, ...]
    metadata_folder: str
    metadata_directory_id: Uuid
    locked: tuple[DataDir, ...]

    def unlock(self) -> None:
        for data_dir in self.locked:
            data_dir.unlock()


def open_folders(
    config: BrokerConfig, controller_endpoints: Sequence[Listener], *, disk: Disk, clock: Clock, random: Random
) -> Folders:
    """Locks every entry of `log.dirs` and the folder of the metadata log, and formats those that are new. Blocks."""
    opening = _Opening(config, controller_endpoints, disk=disk, clock=clock, random=random)
    try:
        opening.check_formatted()
        opening.lock_all()
        opening.check_identities()
        opening.check_metadata_log()
        opening.format_new()
        opening.require_one()
    except BaseException:
        opening.unlock_all()
        raise
    return opening.result()


class _Opening:
    """The folders on the way to being used, by path. That of the metadata log is the first: it is formatted before
    those that count on it."""

    def __init__(
        self,
        config: BrokerConfig,
        controller_endpoints: Sequence[Listener],
        *,
        disk: Disk,
        clock: Clock,
        random: Random,
    ) -> None:
        self._config = config
        self._node_id = config.node_id
        self._endpoints = controller_endpoints
        self._disk = disk
        self._clock = clock
        self._random = random
        self._paths = list(dict.fromkeys(plain_path(path) for path in config.log_dirs))
        self._metadata_path = plain_path(config.metadata_log_dir)
        self._locked: dict[str, DataDir] = {}
        self._metas: dict[str, MetaProperties] = {}
        """Of the folders that are locked and not new."""
        self._unusable: dict[str, Exception] = {}

    def lock_all(self) -> None:
        files = FilePool(self._disk)
        for path in dict.fromkeys([self._metadata_path, *self._paths]):
            try:
                self._disk.make_folders(path)
                data_dir = DataDir.lock(path, disk=self._disk, clock=self._clock, files=files, random=self._random)
                self._locked[path] = data_dir
                meta = data_dir.read_meta()
            except (OSError, DamagedMetaPropertiesError) as error:
                self._give_up(path, error)
                continue
            if meta is not None:
                self._metas[path] = meta

    def unlock_all(self) -> None:
        for data_dir in self._locked.values():
            data_dir.unlock()

    def _give_up(self, path: str, error: Exception) -> None:
        """Goes on without a folder, if that is possible."""
        if path == self._metadata_path:
            raise FolderError(f"{path}, the folder of the metadata log, cannot be used: {error}") from error
        logger.error("%s cannot be used and is offline until the next start: %s", path, error)
        self._unusable[path] = error
        if (data_dir := self._locked.pop(path, None)) is not None:
            data_dir.unlock()

    def check_identities(self) -> None:
        if len({meta.cluster_id for meta in self._metas.values()}) > 1:
            owners = ", ".join(f"{path} to {meta.cluster_id}" for path, meta in self._metas.items())
            raise FolderError(
                f"the data folders belong to different clusters, as their {META_PROPERTIES} say: {owners}. Take those "
                "of other clusters out of log.dirs"
            )
        by_directory_id: dict[Uuid, str] = {}
        for path, meta in self._metas.items():
            if meta.node_id != self._node_id:
                raise FolderError(
                    f"{path} belongs to node {meta.node_id}, but this is node {self._node_id}: "
                    f"set node.id={meta.node_id}, or use another folder"
                )
            if (other := by_directory_id.setdefault(meta.directory_id, path)) != path:
                raise FolderError(
                    f"{path} and {other} have the same directory.id {uuids.to_text(meta.directory_id)} in their "
                    f"{META_PROPERTIES}: was one copied from the other? Take the copy out of log.dirs"
                )

    def check_metadata_log(self) -> None:
        """The cluster has one metadata log, and nobody makes a second one while the first is elsewhere."""
        for path in self._metas:
            if path != self._metadata_path and self._disk.exists(metadata_folder(path)):
                raise FolderError(
                    f"{path} contains the metadata log, but the configured folder for it is {self._metadata_path}: "
                    f"set metadata.log.dir={path}"
                )
        if self._metadata_path in self._metas:
            return
        if self._metas:
            path, meta = next(iter(self._metas.items()))
            raise FolderError(
                f"{path} belongs to cluster {meta.cluster_id}, but {self._metadata_path}, where its metadata log "
                "should be, is new: set metadata.log.dir to the folder that has it"
            )
        if self._unusable:
            raise FolderError(f"a new cluster needs all its folders, but some cannot be used: {_list(self._unusable)}")

    def check_formatted(self) -> None:
        """Only a node that is alone knows without being told what cluster it is in: a new one."""
        paths = dict.fromkeys([self._metadata_path, *self._paths])
        if any(self._disk.exists(f"{path}/{META_PROPERTIES}") for path in paths) or is_sole_node(self._config):
            return
        raise FolderError(
            f"No readable {META_PROPERTIES} files found in {', '.join(paths)}. The folders of a "
            f"node of a cluster must be formatted before its first start: {self._format_command()}"
        )

    def _format_command(self) -> str:
        """What to type. A file is named as an example: this node may have been configured by words."""
        command = "barnabas format --cluster-id CLUSTER_ID --config FILE"
        if self._config.quorum_voters:
            return command
        if self._config.is_controller:
            return f"{command} --initial-controllers ID@HOST:PORT:DIRECTORY_ID,…, the same on every controller"
        return f"{command} --no-initial-controllers"

    def format_new(self) -> None:
        new = {path: data_dir for path, data_dir in self._locked.items() if path not in self._metas}
        for path in new:
            self._require_empty(path)
        known = (meta.cluster_id for meta in self._metas.values())
        cluster_id = next(known, None) or uuids.to_text(self._random.uuid())
        for path, data_dir in new.items():
            try:
                self._metas[path] = self._format(data_dir, cluster_id)
            except OSError as error:
                self._give_up(path, error)

    def _require_empty(self, path: str) -> None:
        """Rejects a folder with data but without `meta.properties`: formatting it would lose the data. The remains of
        an interrupted formatting do not count as data."""
        metadata = metadata_folder(path)
        holds = [name for name in self._disk.list_folder(path) if parse_folder(name) is not None]
        if holds == [metadata.rpartition("/")[2]] and not any(
            name.endswith(".log") for name in self._disk.list_folder(metadata)
        ):
            holds = []
        if holds:
            raise FolderError(
                f"{path} contains {holds[0]} but no {META_PROPERTIES}, so its cluster and node are unknown: "
                "restore that file, or use an empty folder"
            )

    def _format(self, data_dir: DataDir, cluster_id: str) -> MetaProperties:
        meta = MetaProperties(cluster_id, self._node_id, self._random.uuid())
        if data_dir.path == self._metadata_path:
            endpoints = tuple(VoterEndpoint(each.name, each.host, each.port) for each in self._endpoints)
            voter = VoterNode(self._node_id, meta.directory_id, endpoints)
            format_metadata(self._disk, data_dir.path, voter, now_ms=self._clock.now_ms())
        data_dir.write_meta(meta)
        logger.info("formatted %s for node %d of cluster %s", data_dir.path, self._node_id, cluster_id)
        return meta

    def require_one(self) -> None:
        if not any(path in self._locked for path in self._paths):
            raise FolderError(f"none of the folders in log.dirs can be used: {_list(self._unusable)}")

    def result(self) -> Folders:
        metadata = self._metas[self._metadata_path]
        return Folders(
            metadata.cluster_id,
            tuple(
                OpenDir(self._metas[path].directory_id, self._locked[path])
                for path in self._paths
                if path in self._locked
            ),
            tuple(UnusableDir(path, error) for path, error in self._unusable.items()),
            self._metadata_path,
            metadata.directory_id,
            tuple(self._locked.values()),
        )


def _list(unusable: Mapping[str, Exception]) -> str:
    return "; ".join(f"{path}: {error}" for path, error in unusable.items())
