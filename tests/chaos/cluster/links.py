"""The links between the nodes of a cluster, each a way of its own that can be cut or slowed down, in one direction too.

Nodes advertise to each other the ports of a TCP proxy, and clients the nodes' own ports: so that clients still reach a
node that its peers have lost. The proxy knows which node opened a connection by looking for the socket among the open
files of the nodes, which are processes of this user: that needs neither rights nor a word from the node.

What is sent into a way that is cut is neither lost nor answered, and nor is the end of a connection: as with packets
that TCP sends again and again, the rest comes when the way is open again, if anybody still waits for it. A connection
that is opened meanwhile is made with the proxy only, and nobody speaks there.

A proxy rather than network namespaces, because it needs no root, and works wherever Linux does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import threading
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import uvloop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping

    T = TypeVar("T")

HOST = "127.0.0.1"
CHUNK_BYTES = 256 * 1024
ANSWER_S = 10.0

_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST = 4, 20, 1
_HEADER = struct.Struct("=IHHII")
_DIAG_REQUEST = struct.Struct("=BBBBI")
_ALL_STATES = 0xFFFFFFFF
_ANY_SOCKET = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
"""On any interface, without the cookie of an earlier answer."""
_INODE, _INODE_AT = struct.Struct("=I"), _HEADER.size + 4 + 48 + 16
"""In struct inet_diag_msg: behind four bytes of states, the connection, and four counters."""


@dataclass(slots=True)
class Way:
    """From one node to another."""

    is_open: asyncio.Event = field(default_factory=asyncio.Event)
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Door:
    """A port of the proxy, and the port of the node behind it."""

    node_id: int
    port: int
    target_port: int


class Links:
    """One thread with an event loop of its own carries everything. `pid_of` says where a node runs, if it does."""

    def __init__(self, doors: Iterable[Door], pid_of: Callable[[int], int | None]) -> None:
        self._doors = list(doors)
        self._pid_of = pid_of
        node_ids = {door.node_id for door in self._doors}
        self._ways: Mapping[tuple[int, int], Way] = {(one, two): Way() for one in node_ids for two in node_ids}
        for way in self._ways.values():
            way.is_open.set()
        self._servers: list[asyncio.Server] = []
        self._carrying: set[asyncio.Task[None]] = set()
        self._writers: weakref.WeakSet[asyncio.StreamWriter] = weakref.WeakSet()
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links")

    def __enter__(self) -> Links:
        self._thread.start()
        self._run(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self, *ways: tuple[int, int]) -> None:
        """Nothing passes from the first node to the second any more."""

        async def close() -> None:
            for way in ways:
                self._ways[way].is_open.clear()

        self._run(close())

    def slow_down(self, delay_s: float, *ways: tuple[int, int]) -> None:
        async def delay() -> None:
            for way in ways:
                self._ways[way].delay_s = delay_s

        self._run(delay())

    def heal(self, *ways: tuple[int, int]) -> None:
        """These are open and quick again; without any, all are."""

        async def open_up() -> None:
            for way in ways or self._ways:
                self._ways[way].delay_s = 0.0
                self._ways[way].is_open.set()

        self._run(open_up())

    def _run(self, what: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(ANSWER_S)

    async def _listen(self) -> None:
        for door in self._doors:
            self._servers.append(await asyncio.start_server(self._through(door), HOST, door.port, backlog=128))

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for task in self._carrying:
            task.cancel()
        await asyncio.gather(*self._carrying, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0)

    def _through(self, door: Door) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = self._loop.create_task(self._carry(door, reader, writer))
            self._carrying.add(task)
            task.add_done_callback(self._carrying.discard)

        return accept

    async def _carry(self, door: Door, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            source = self._owner(writer.get_extra_info("peername")[1], door.port)
            if source is None:
                return
            out, back = self._ways[source, door.node_id], self._ways[door.node_id, source]
            await out.is_open.wait()
            await back.is_open.wait()
            with contextlib.suppress(OSError):
                answers, requests = await asyncio.open_connection(HOST, door.target_port)
                self._writers.add(requests)
                try:
                    await _first_of(_pump(reader, requests, out), _pump(answers, writer, back))
                finally:
                    requests.close()
        finally:
            writer.close()

    def _owner(self, port: int, door_port: int) -> int | None:
        """The node that has opened the connection from this port; None if it is gone already."""
        inode = _inode_of(port, door_port)
        if inode is None:
            return None
        for node_id in {door.node_id for door in self._doors}:
            pid = self._pid_of(node_id)
            if pid is not None and inode in _sockets_of(pid):
                return node_id
        return None


async def _first_of(*pumps: Coroutine[object, object, None]) -> None:
    """Until one of them ends, which ends the others."""
    tasks = [asyncio.ensure_future(each) for each in pumps]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(CHUNK_BYTES):
            if way.delay_s:
                await asyncio.sleep(way.delay_s)
            await way.is_open.wait()
            writer.write(data)
            await writer.drain()
    # Nor does the other side hear of an end that came behind a cut.
    await way.is_open.wait()


def _inode_of(port: int, remote_port: int) -> str | None:
    """The socket of a connection from one port of the loopback interface to another, as the system numbers it.

    The kernel is asked for this one connection: its table of all of them takes long to read where there are many.
    """
    address = socket.inet_aton(HOST)
    connection = struct.pack(">HH4s12x4s12x", port, remote_port, address, address) + _ANY_SOCKET
    request = _DIAG_REQUEST.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, 0, _ALL_STATES) + connection
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(ANSWER_S)
        length = _HEADER.size + len(request)
        kernel.send(_HEADER.pack(length, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0) + request)
        answer = kernel.recv(8192)
    kind = _HEADER.unpack_from(answer)[1]
    return str(_INODE.unpack_from(answer, _INODE_AT)[0]) if kind == _SOCK_DIAG_BY_FAMILY else None


def _sockets_of(pid: int) -> set[str]:
    found = set()
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                target = os.readlink(entry.path)
                if target.startswith("socket:["):
                    found.add(target[len("socket:[") : -1])
    return found
