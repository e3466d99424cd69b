"""Formats the folders of a node: `meta.properties`, `bootstrap.checkpoint`, and the voters of a new cluster.

    meta.properties                                                   whose folder it is; written last
    bootstrap.checkpoint                                              the feature levels of a new cluster
    __cluster_metadata-0/00000000000000000000-0000000000.checkpoint   the voters, if they are in the log

What is written is what Kafka's `kafka-storage format` writes, file by file. Whatever is wrong with any of the folders
is found before the first is touched. An interrupted formatting can be repeated: a folder without `meta.properties`
counts as not formatted.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from barnabas.log.folder.meta_properties import (
    META_PROPERTIES,
    MetaProperties,
    MetaPropertiesError,
    read_meta_properties,
    write_meta_properties,
)
from barnabas.metadata.snapshot_records import feature_record
from barnabas.node.initial_features import DEFAULT_FEATURES, InitialFeatures
from barnabas.protocol import uuids
from barnabas.raft.consensus.voter_sets import VoterEndpoint, VoterNode
from barnabas.raft.folder.format import format_voters
from barnabas.raft.folder.metadata_log import metadata_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from barnabas.config.initial_controllers import InitialController
    from barnabas.metadata.versions import VersionedRecord
    from barnabas.ports import Clock, Disk, Random
    from barnabas.protocol.uuids import Uuid


class FormatError(Exception):
    """The folders cannot be formatted as requested; nothing was written."""


class FolderKind(Enum):
    """What a folder is to its node, in the words in which Kafka announces it."""

    DATA = "data directory"
    METADATA = "metadata directory"
    METADATA_OF_OBSERVER = "dynamic metadata directory"
    METADATA_OF_VOTER = "dynamic metadata voter directory"


class FormatRequest(NamedTuple):
    """The folders of one node of a cluster.

    `initial_controllers` are the first voters of a new cluster. Without any, the node learns the voters from its
    settings (`controller.quorum.voters`) or by joining a cluster that runs.
    """

    cluster_id: str
    node_id: int
    folders: tuple[str, ...]
    metadata_folder: str
    controller_listener_name: str = "CONTROLLER"
    initial_controllers: tuple[InitialController, ...] = ()
    features: InitialFeatures = DEFAULT_FEATURES
    users: tuple[VersionedRecord, ...] = ()
    """Credentials that the new cluster begins with."""
    ignore_formatted: bool = False


class FormattedFolder(NamedTuple):
    path: str
    kind: FolderKind


def format_folders(request: FormatRequest, *, disk: Disk, clock: Clock, random: Random) -> Iterator[FormattedFolder]:
    """Formats the folders that are not formatted yet, one after the other; each is yielded when its turn has come, so
    that it can be announced."""
    found = check_folders(request, disk)
    taken = {meta.directory_id for meta in found.values() if meta is not None}
    for path in [path for path, meta in found.items() if meta is None]:
        kind = folder_kind(request, path)
        yield FormattedFolder(path, kind)
        directory_id = _directory_id(request, kind, taken, random)
        taken.add(directory_id)
        disk.make_folders(path)
        write_metadata(request, path, kind, disk=disk, now_ms=clock.now_ms())
        write_meta_properties(disk, path, MetaProperties(request.cluster_id, request.node_id, directory_id))


def check_folders(request: FormatRequest, disk: Disk) -> dict[str, MetaProperties | None]:
    """The identity of each folder, None if it has none yet. Refuses those of another cluster or node, and, unless that
    was allowed, any that is formatted already."""
    paths = sorted({_plain(path) for path in (*request.folders, request.metadata_folder)})
    try:
        found = {path: read_meta_properties(disk, path) if disk.exists(path) else None for path in paths}
    except MetaPropertiesError as error:
        raise FormatError(str(error)) from error
    _check_identities(request, found)
    formatted = [path for path, meta in found.items() if meta is not None]
    if formatted and not request.ignore_formatted:
        raise FormatError(
            f"Log directory {formatted[0]} is already formatted. "
            "Use --ignore-formatted to ignore this directory and format the others."
        )
    if found[_plain(request.metadata_folder)] is None:
        _require_no_log(metadata_folder(_plain(request.metadata_folder)), disk)
    return found


def _check_identities(request: FormatRequest, found: Mapping[str, MetaProperties | None]) -> None:
    owners: dict[Uuid, str] = {}
    for path, meta in found.items():
        if meta is None:
            continue
        file = f"{path}/{META_PROPERTIES}"
        if meta.cluster_id != request.cluster_id:
            raise FormatError(
                f"Invalid cluster.id in: {file}. Expected {request.cluster_id}, but read {meta.cluster_id}"
            )
        if meta.node_id != request.node_id:
            raise FormatError(
                f"Stored node id {meta.node_id} doesn't match previous node id {request.node_id} in {file}. If you "
                "moved your data, make sure your configured node id matches. If you intend to create a new node, you "
                "should remove all data in your data directories."
            )
        owner = owners.setdefault(meta.directory_id, path)
        if owner != path:
            directory_id = uuids.to_text(meta.directory_id)
            raise FormatError(
                f"Duplicate directory ID {directory_id} found. It was the ID of {owner}, but also of {path}"
            )


def _require_no_log(folder: str, disk: Disk) -> None:
    """A metadata log whose `meta.properties` is lost belongs to some cluster: it must not get the voters of another."""
    if disk.exists(folder) and any(name.endswith(".log") for name in disk.list_folder(folder)):
        raise FormatError(
            f"{folder} has a metadata log, but there is no {META_PROPERTIES} beside it that says whose it is: restore "
            "that file, or use an empty folder"
        )


def folder_kind(request: FormatRequest, path: str) -> FolderKind:
    if path != _plain(request.metadata_folder):
        return FolderKind.DATA
    if not request.initial_controllers:
        return FolderKind.METADATA
    if any(voter.node_id == request.node_id for voter in request.initial_controllers):
        return FolderKind.METADATA_OF_VOTER
    return FolderKind.METADATA_OF_OBSERVER


def write_metadata(request: FormatRequest, path: str, kind: FolderKind, *, disk: Disk, now_ms: int) -> None:
    """The files about the cluster in one folder, before `meta.properties` makes it count as formatted."""
    is_quorum_there = kind in (FolderKind.METADATA_OF_OBSERVER, FolderKind.METADATA_OF_VOTER)
    format_voters(
        disk,
        path,
        voter_nodes(request.initial_controllers, request.controller_listener_name) if is_quorum_there else None,
        now_ms=now_ms,
        records=bootstrap_records(request),
    )


def bootstrap_records(request: FormatRequest) -> list[VersionedRecord]:
    """What a new cluster begins with, which its first leader appends."""
    return [*(feature_record(name, level) for name, level in request.features.levels.items()), *request.users]


def voter_nodes(voters: Sequence[InitialController], listener_name: str) -> list[VoterNode]:
    return [
        VoterNode(voter.node_id, voter.directory_id, (VoterEndpoint(listener_name, voter.host, voter.port),))
        for voter in voters
    ]


def _directory_id(request: FormatRequest, kind: FolderKind, taken: set[Uuid], random: Random) -> Uuid:
    if kind is FolderKind.METADATA_OF_VOTER:
        return next(voter.directory_id for voter in request.initial_controllers if voter.node_id == request.node_id)
    while True:
        directory_id = random_id(random)
        if directory_id not in taken:
            return directory_id


def random_id(random: Random) -> Uuid:
    """A new id whose text can be a word of a command line: it does not begin with a dash."""
    while True:
        uuid = random.uuid()
        if not uuids.to_text(uuid).startswith("-"):
            return uuid


def _plain(path: str) -> str:
    return path.rstrip("/") or "/"
