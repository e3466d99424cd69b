"""The data folders of a node at startup: they are locked, checked, and formatted if they are new.

A folder belongs to one node of one cluster (`meta.properties`). A folder of another node or cluster, or one with data
but without `meta.properties`, is rejected before anything is written. An empty folder is formatted for a new cluster
with this node as the only voter.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from barnabas.log.folder.data_dir import DataDir
from barnabas.log.folder.meta_properties import META_PROPERTIES, MetaProperties
from barnabas.log.segments.file_names import parse_folder
from barnabas.log.segments.open_files import FilePool
from barnabas.protocol import uuids
from barnabas.raft.format import format_metadata
from barnabas.raft.metadata_batches import VoterEndpoint, VoterNode
from barnabas.raft.metadata_log import metadata_folder
from barnabas.replication.log_store import OpenDir

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    metadata_folder: str
    metadata_directory_id: Uuid

    def unlock(self) -> None:
        for open_dir in self.dirs:
            open_dir.data_dir.unlock()


def open_folders(
    config: BrokerConfig, controller_endpoints: Sequence[Listener], *, disk: Disk, clock: Clock, random: Random
) -> Folders:
    """Locks every entry of `log.dirs`, and formats those that are new. Blocks."""
    files = FilePool(disk)
    paths = [path.rstrip("/") or "/" for path in config.log_dirs]
    locked: list[DataDir] = []
    try:
        for path in paths:
            disk.make_folders(path)
            locked.append(DataDir.lock(path, disk=disk, clock=clock, files=files, random=random))
        found = _check_identities(config, locked)
        cluster_id = next((meta.cluster_id for meta in found if meta), uuids.to_text(random.uuid()))
        for data_dir, meta in zip(locked, found, strict=True):
            if meta is None:
                _require_empty(data_dir, disk)
        metas = [
            meta or _format(config, data_dir, cluster_id, controller_endpoints, disk=disk, clock=clock, random=random)
            for data_dir, meta in zip(locked, found, strict=True)
        ]
    except BaseException:
        for data_dir in locked:
            data_dir.unlock()
        raise
    return Folders(
        cluster_id,
        tuple(OpenDir(meta.directory_id, data_dir) for meta, data_dir in zip(metas, locked, strict=True)),
        config.metadata_log_dir,
        metas[paths.index(config.metadata_log_dir.rstrip("/"))].directory_id,
    )


def _check_identities(config: BrokerConfig, dirs: Sequence[DataDir]) -> list[MetaProperties | None]:
    metas = [data_dir.read_meta() for data_dir in dirs]
    cluster_ids = {meta.cluster_id for meta in metas if meta}
    if len(cluster_ids) > 1:
        raise FolderError(f"the folders in log.dirs belong to different clusters: {', '.join(sorted(cluster_ids))}")
    for data_dir, meta in zip(dirs, metas, strict=True):
        if meta is not None and meta.node_id != config.node_id:
            raise FolderError(
                f"{data_dir.path} belongs to node {meta.node_id}, but this is node {config.node_id}: "
                f"set node.id={meta.node_id}, or use another folder"
            )
    return metas


def _require_empty(data_dir: DataDir, disk: Disk) -> None:
    """Rejects a folder with data but without `meta.properties`: formatting it would lose the data. The remains of an
    interrupted formatting do not count as data."""
    metadata = metadata_folder(data_dir.path)
    holds = [name for name in disk.list_folder(data_dir.path) if parse_folder(name) is not None]
    if holds == [metadata.rpartition("/")[2]] and not any(name.endswith(".log") for name in disk.list_folder(metadata)):
        holds = []
    if holds:
        raise FolderError(
            f"{data_dir.path} contains {holds[0]} but no {META_PROPERTIES}, so its cluster and node are unknown: "
            "restore that file, or use an empty folder"
        )


def _format(
    config: BrokerConfig,
    data_dir: DataDir,
    cluster_id: str,
    controller_endpoints: Sequence[Listener],
    *,
    disk: Disk,
    clock: Clock,
    random: Random,
) -> MetaProperties:
    meta = MetaProperties(cluster_id, config.node_id, random.uuid())
    if data_dir.path == config.metadata_log_dir.rstrip("/"):
        endpoints = tuple(VoterEndpoint(each.name, each.host, each.port) for each in controller_endpoints)
        voter = VoterNode(config.node_id, meta.directory_id, endpoints)
        format_metadata(disk, data_dir.path, voter, now_ms=clock.now_ms())
    data_dir.write_meta(meta)
    logger.info("formatted %s for node %d of cluster %s", data_dir.path, config.node_id, cluster_id)
    return meta
