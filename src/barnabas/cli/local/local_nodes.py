"""Which processes of this machine have data folders open, and what can be seen of them from outside.

A node holds a lock on the file `.lock` in each of its folders for as long as it runs, Apache Kafka's as well, and the
system tells who holds it. So a folder leads to its process, however that was started, and a file that a dead node left
behind leads nowhere.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.cli.start_command import CLUSTER_PROPERTIES
from barnabas.log.folder.data_dir import LOCK
from barnabas.log.folder.meta_properties import META_PROPERTIES, MetaPropertiesError, read_meta_properties
from barnabas.ports import SystemDisk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.log.folder.meta_properties import MetaProperties

_PROC: Final = "/proc"
_FLOCK: Final = struct.Struct("hhqqi")
_LISTENING: Final = "0A"
_KAFKAS_CLASS: Final = "kafka.Kafka"
NODE: Final = "node"
CLUSTER: Final = "cluster"


class LocalNode(NamedTuple):
    """A process with data folders of its own; or the one that runs the nodes of a cluster, and has their folders."""

    pid: int
    kind: str
    folders: tuple[str, ...]
    cluster_id: str | None
    node_id: int | None
    is_apache_kafka: bool
    ports: tuple[int, ...]
    """Where it listens."""
    up_s: float
    resident_bytes: int

    @property
    def home(self) -> str:
        return self.folders[0]


def running_nodes() -> list[LocalNode]:
    """Every node of this machine that this user may look at."""
    folders: dict[int, set[str]] = {}
    for pid in _pids():
        for path in _open_files(pid):
            if os.path.basename(path) == LOCK and is_data_folder(os.path.dirname(path)):
                folder = os.path.dirname(path)
                if holder_of(folder) == pid:
                    folders.setdefault(pid, set()).add(folder)
    return sorted((_node(pid, sorted(held)) for pid, held in folders.items()), key=lambda node: node.home)


def node_at(folder: str) -> LocalNode | None:
    """The process that has this folder open."""
    pid = holder_of(folder)
    if pid is None:
        return None
    own = os.path.realpath(folder)
    held = {os.path.dirname(path) for path in _open_files(pid) if os.path.basename(path) == LOCK}
    return _node(pid, [own, *sorted(each for each in held - {own} if is_data_folder(each))])


def is_data_folder(folder: str) -> bool:
    return any(os.path.exists(f"{folder}/{name}") for name in (META_PROPERTIES, CLUSTER_PROPERTIES))


def holder_of(folder: str) -> int | None:
    """Who holds the lock of a folder; None for nobody, or a folder without one."""
    try:
        fd = os.open(f"{folder}/{LOCK}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    finally:
        os.close(fd)
    return None if kind == fcntl.F_UNLCK else pid


def identity_of(folder: str) -> MetaProperties | None:
    """The ids in a folder; None where there are none that can be read."""
    try:
        return read_meta_properties(SystemDisk(), folder)
    except (OSError, MetaPropertiesError):
        return None


def _node(pid: int, folders: list[str]) -> LocalNode:
    is_cluster = os.path.exists(f"{folders[0]}/{CLUSTER_PROPERTIES}")
    identity = identity_of(f"{folders[0]}/node-1" if is_cluster else folders[0])
    return LocalNode(
        pid,
        CLUSTER if is_cluster else NODE,
        tuple(folders),
        None if identity is None else identity.cluster_id,
        None if identity is None or is_cluster else identity.node_id,
        _KAFKAS_CLASS in _words(pid),
        tuple(sorted(_listening_ports(pid))),
        _up_s(pid),
        _resident_bytes(pid),
    )


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir(_PROC) if name.isdecimal())


def _open_files(pid: int) -> Iterator[str]:
    """What a process has open; nothing where it has ended, or is somebody else's."""
    try:
        names = os.listdir(f"{_PROC}/{pid}/fd")
    except OSError:
        return
    for name in names:
        try:
            yield os.readlink(f"{_PROC}/{pid}/fd/{name}")
        except OSError:
            continue


def _words(pid: int) -> list[str]:
    return _read(f"{pid}/cmdline").split("\0")


def _listening_ports(pid: int) -> set[int]:
    """The ports of all sockets of a process that wait for connections."""
    sockets = {path[8:-1] for path in _open_files(pid) if path.startswith("socket:[")}
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in _read(f"{pid}/net/{table}").splitlines()[1:]:
            cells = line.split()
            if cells[3] == _LISTENING and cells[9] in sockets:
                ports.add(int(cells[1].rpartition(":")[2], 16))
    return ports


def _up_s(pid: int) -> float:
    """How long a process has been there."""
    cells = _read(f"{pid}/stat").rpartition(")")[2].split()
    if not cells:
        return 0.0
    started_s = int(cells[19]) / os.sysconf("SC_CLK_TCK")
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started_s)


def _resident_bytes(pid: int) -> int:
    cells = _read(f"{pid}/statm").split()
    return int(cells[1]) * os.sysconf("SC_PAGE_SIZE") if cells else 0


def _read(name: str) -> str:
    try:
        with open(f"{_PROC}/{name}", encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""  # it has ended
