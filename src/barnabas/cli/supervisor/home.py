"""The folder of a cluster on one machine: what it remembers, and the folders of its nodes.

DIR/cluster.properties    the cluster's id, its ports and its voters, as first chosen, and whether its nodes have served
DIR/node-1.properties     the settings of node 1, written anew at every start
DIR/node-1                the data of node 1
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Final

from barnabas.cli.command_line import CommandError
from barnabas.cli.start_command import CLUSTER_PROPERTIES
from barnabas.config.cluster_layout import (
    CONTROLLER_HOST,
    CONTROLLER_LISTENER,
    LayoutError,
    consecutive_ports,
    format_layout,
    is_same_cluster,
    make_layout,
    node_properties,
    parse_layout,
    require_folders,
    require_same_cluster,
    voter_count,
)
from barnabas.config.properties import format_properties
from barnabas.log.folder.checkpoints import read_text, write_text
from barnabas.log.folder.data_dir import LOCK, METADATA_TOPIC
from barnabas.log.folder.meta_properties import META_PROPERTIES, MetaPropertiesError, read_meta_properties
from barnabas.log.segments.file_names import parse_folder
from barnabas.node.format_folders import FormatError, FormatRequest, format_folders, random_id
from barnabas.ports import SystemClock, SystemDisk, SystemRandom
from barnabas.protocol import uuids
from barnabas.raft.folder.metadata_log import metadata_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.config.cluster_layout import Layout
    from barnabas.protocol.uuids import Uuid


ON_ONE_MACHINE: Final = {"barnabas.broker.disconnect.grace.ms": "500"}
"""Between processes of one machine a connection is not lost unless one of them dies, so its broker need not be waited
for: it is fenced before it is started again, and registers without a pause."""


class Home:
    """A cluster's folder, locked for this process."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        self._file = f"{self.path}/{CLUSTER_PROPERTIES}"
        self._disk = SystemDisk()
        self._disk.make_folders(self.path)
        if self._disk.exists(f"{self.path}/{META_PROPERTIES}"):
            raise CommandError(
                f"{self.path} has the data of one node: start it without --nodes, or use another --data-dir"
            )
        self._lock = self._lock_folder(self.path)

    def _lock_folder(self, folder: str) -> int:
        try:
            return self._disk.lock(f"{folder}/{LOCK}")
        except BlockingIOError:
            raise CommandError(
                f"{folder} is in use by another process, which holds {folder}/{LOCK}: stop it, or use another folder"
            ) from None

    def close(self) -> None:
        self._disk.close(self._lock)

    def layout(self, nodes: int, listen: tuple[str, int] | None, default_listen: tuple[str, int]) -> Layout:
        """The layout that the folder remembers, else a new one. Nothing is written.

        A layout whose nodes have never served binds nobody: they may have failed because of it."""
        text = read_text(self._disk, self._file)
        try:
            if text is not None:
                layout = parse_layout(text)
                layout = layout._replace(has_served=self._has_served(layout))
                if layout.has_served or is_same_cluster(layout, nodes=nodes, listen=listen):
                    require_same_cluster(layout, self.path, nodes=nodes, listen=listen)
                    if layout.has_served:
                        require_folders(layout, self.path, self._directory_ids(layout))
                    return layout
            return new_layout(nodes, *(listen or default_listen))
        except LayoutError as error:
            where = f"{self._file} " if text is not None and not str(error).startswith(self.path) else ""
            raise CommandError(f"{where}{error}") from error

    def remember(self, layout: Layout) -> None:
        """Has the folder remember what `layout` returned, and forget a cluster that never served."""
        text = read_text(self._disk, self._file)
        if text is not None:
            before = parse_layout(text)
            if before.cluster_id != layout.cluster_id:
                for node_id in before.node_ids:
                    self._forget_node(node_id)
        write_text(self._disk, self._file, format_layout(layout))

    def _forget_node(self, node_id: int) -> None:
        """Takes away what a node that never served may have: its settings, its identity and a metadata log."""
        if self._disk.exists(self.config_file(node_id)):
            self._disk.unlink(self.config_file(node_id))
        folder = self.node_folder(node_id)
        if not self._disk.exists(folder):
            return
        lock = self._lock_folder(folder)
        try:
            # The identity goes last: a log without one would be refused as somebody else's.
            self._remove_files(metadata_folder(folder))
            self._remove_files(folder)
        finally:
            self._disk.close(lock)

    def _remove_files(self, folder: str) -> None:
        names = self._disk.list_folder(folder) if self._disk.exists(folder) else []
        for name in names:
            if name != LOCK and not self._disk.is_folder(f"{folder}/{name}"):
                self._disk.unlink(f"{folder}/{name}")

    def _has_served(self, layout: Layout) -> bool:
        """Whether there may be something that a client has written, or a vote that a node must remember."""
        if layout.has_served is None:
            return any(self._directory_ids(layout).values())
        return layout.has_served or any(map(self._has_partitions, layout.node_ids))

    def _has_partitions(self, node_id: int) -> bool:
        """True for a node that has served before the command could note it."""
        folder = self.node_folder(node_id)
        names = self._disk.list_folder(folder) if self._disk.exists(folder) else []
        partitions = filter(None, map(parse_folder, names))
        return any(partition.topic != METADATA_TOPIC for partition in partitions)

    def _directory_ids(self, layout: Layout) -> dict[int, Uuid | None]:
        """By node; None where the folder is empty or gone."""
        found = {}
        for node_id in layout.node_ids:
            folder = self.node_folder(node_id)
            try:
                meta = read_meta_properties(self._disk, folder) if self._disk.exists(folder) else None
            except MetaPropertiesError as error:
                raise CommandError(str(error)) from error
            found[node_id] = None if meta is None else meta.directory_id
        return found

    def note_service(self, layout: Layout) -> None:
        """From now on the folders of all nodes must be there."""
        if not layout.has_served:
            write_text(self._disk, self._file, format_layout(layout._replace(has_served=True)))

    def node_folder(self, node_id: int) -> str:
        return f"{self.path}/node-{node_id}"

    def config_file(self, node_id: int) -> str:
        return f"{self.path}/node-{node_id}.properties"

    def format_nodes(self, layout: Layout) -> None:
        """Formats the folders of nodes that have not been formatted yet."""
        for node_id in layout.node_ids:
            folder = self.node_folder(node_id)
            request = FormatRequest(
                cluster_id=layout.cluster_id,
                node_id=node_id,
                folders=(folder,),
                metadata_folder=folder,
                controller_listener_name=CONTROLLER_LISTENER,
                initial_controllers=layout.voters,
                ignore_formatted=True,
            )
            try:
                for _ in format_folders(request, disk=self._disk, clock=SystemClock(), random=SystemRandom()):
                    pass
            except FormatError as error:
                raise CommandError(str(error)) from error

    def configs(self, layout: Layout, given: Mapping[str, str]) -> dict[int, dict[str, str]]:
        """The settings of each node."""
        machine = socket.gethostname()
        given_here = {**ON_ONE_MACHINE, **given}
        return {
            node_id: node_properties(layout, node_id, self.node_folder(node_id), given_here, machine=machine)
            for node_id in layout.node_ids
        }

    def write_configs(self, configs: Mapping[int, Mapping[str, str]]) -> None:
        for node_id, properties in configs.items():
            write_text(self._disk, self.config_file(node_id), format_properties(properties))


def new_layout(nodes: int, host: str, port: int) -> Layout:
    random = SystemRandom()
    ports = consecutive_ports(port, nodes) if port else free_ports(host, nodes)
    directory_ids = [random_id(random) for _ in range(voter_count(nodes))]
    return make_layout(uuids.to_text(random_id(random)), host, nodes, ports, directory_ids)


def free_ports(host: str, nodes: int) -> tuple[int, ...]:
    """Ports that nobody uses now, for clients and then for controllers; all are held until the last is found."""
    hosts = [host] * nodes + [CONTROLLER_HOST] * voter_count(nodes)
    held = []
    try:
        for each in hosts:
            family = socket.AF_INET6 if ":" in each else socket.AF_INET
            held.append(socket.create_server((each, 0), family=family))
        return tuple(server.getsockname()[1] for server in held)
    except OSError as error:
        raise CommandError(f"no free port at {host}: {error.strerror or error}") from error
    finally:
        for server in held:
            server.close()
