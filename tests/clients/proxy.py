"""TCP proxies between a node and those who connect to it. A node behind one advertises the proxy's port.

`CuttingProxy` cuts connections, so that a client loses requests on the way out and answers on the way back. Each
connection gets a budget of bytes for each direction, drawn from a seed; the byte that exceeds it is not forwarded, and
both sides see the connection end. `calm()` ends the cutting.
"""

from __future__ import annotations

import contextlib
import random
import selectors
import socket
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self

HOST = "127.0.0.1"
_CHUNK_BYTES = 4_096
_POLL_S = 0.05


@dataclass(slots=True, eq=False)
class Direction:
    """One way through a proxy. While `unsent` waits for the sink, nothing more is read from the source."""

    source: socket.socket
    sink: socket.socket
    budget: int = 0
    unsent: bytes = b""


class Proxy:
    """Forwards to `target_port` of the loopback interface, which may be set after the proxy listens. One thread does it
    all."""

    def __init__(self) -> None:
        self.target_port = 0
        self._is_over = False
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server((HOST, 0), backlog=128)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run, name="proxy")

    def __enter__(self) -> Self:
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            self._close(key.fileobj)
        self._selector.close()

    def _turn(self) -> None:
        """Comes before each look at the connections, and a few times a second."""

    def _opened(self, out: Direction, back: Direction) -> None:
        """A connection is there; nothing has gone through it yet."""

    def _may_pass(self, direction: Direction, data: bytes) -> bool:
        """Whether what has come is forwarded. If not, it is lost, and this has done with the connection what should
        be done."""
        return True

    def _run(self) -> None:
        while not self._is_over:
            self._turn()
            for key, events in self._selector.select(_POLL_S):
                if key.fileobj is self._listener:
                    self._accept()
                elif key.data[0].source.fileno() >= 0:  # the other side's event may have closed it meanwhile
                    self._serve(key.data, events)

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            client, _ = self._listener.accept()
            try:
                server = socket.create_connection((HOST, self.target_port), 5)
            except OSError:
                client.close()
                return
            out, back = Direction(client, server), Direction(server, client)
            self._opened(out, back)
            for side, reading, writing in ((client, out, back), (server, back, out)):
                side.setblocking(False)
                self._selector.register(side, selectors.EVENT_READ, (reading, writing))

    def _serve(self, directions: tuple[Direction, Direction], events: int) -> None:
        reading, writing = directions
        try:
            if events & selectors.EVENT_WRITE:
                self._send(writing)
            if events & selectors.EVENT_READ and not reading.unsent:
                self._receive(reading)
        except OSError:
            self._end(reading)

    def _receive(self, direction: Direction) -> None:
        data = direction.source.recv(_CHUNK_BYTES)
        if not data:
            self._end(direction)
            return
        if self._may_pass(direction, data):
            direction.unsent = data
            self._send(direction)

    def _send(self, direction: Direction) -> None:
        with contextlib.suppress(BlockingIOError):
            direction.unsent = direction.unsent[direction.sink.send(direction.unsent) :]
        self._watch(direction.sink)
        self._watch(direction.source)

    def _watch(self, side: socket.socket) -> None:
        """A side is read while what it sent has left, and written to while something is left for it."""
        reading, writing = self._selector.get_key(side).data
        wanted = (0 if reading.unsent else selectors.EVENT_READ) | (selectors.EVENT_WRITE if writing.unsent else 0)
        self._selector.modify(side, wanted or selectors.EVENT_WRITE, (reading, writing))

    def _end(self, direction: Direction) -> None:
        self._close(direction.source)
        self._close(direction.sink)

    def _close(self, side: object) -> None:
        assert isinstance(side, socket.socket)
        if side in self._selector.get_map():
            self._selector.unregister(side)
        side.close()


class CuttingProxy(Proxy):
    """`calm`, `unleash` and the ranges may be changed from another thread at any time."""

    def __init__(self, seed: int, *, request_bytes: tuple[int, int], response_bytes: tuple[int, int]) -> None:
        super().__init__()
        self.cuts = 0
        self.request_bytes = request_bytes
        self.response_bytes = response_bytes
        self._is_calm = False
        self._random = random.Random(seed)

    def calm(self) -> None:
        """From now on nothing is cut."""
        self._is_calm = True

    def unleash(self) -> None:
        """From now on connections are cut again, also those that are open."""
        self._is_calm = False

    def _opened(self, out: Direction, back: Direction) -> None:
        out.budget = self._random.randint(*self.request_bytes)
        back.budget = self._random.randint(*self.response_bytes)

    def _may_pass(self, direction: Direction, data: bytes) -> bool:
        if len(data) > direction.budget and not self._is_calm:
            with contextlib.suppress(OSError):
                direction.sink.send(data[: direction.budget])
            self.cuts += 1
            self._end(direction)
            return False
        direction.budget -= len(data)
        return True
