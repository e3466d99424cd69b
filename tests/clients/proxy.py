"""A TCP proxy that cuts connections, so that a client loses requests on the way out and answers on the way back.

A node behind it advertises the proxy's port. Each connection gets a budget of bytes for each direction, drawn from a
seed; the byte that exceeds it is not forwarded, and both sides see the connection end. `calm()` ends the cutting.
"""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

HOST = "127.0.0.1"
_CHUNK_BYTES = 4_096


class CuttingProxy:
    """Forwards to `target_port` of the loopback interface, which may be set after the proxy listens."""

    def __init__(self, seed: int, *, request_bytes: tuple[int, int], response_bytes: tuple[int, int]) -> None:
        self.target_port = 0
        self.cuts = 0
        self._random = random.Random(seed)
        self.request_bytes = request_bytes
        self.response_bytes = response_bytes
        self._is_calm = False
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> CuttingProxy:
        self._spawn(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        # Only a shutdown wakes a thread that waits in accept or recv.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive(), "a thread of the proxy did not end"
        for each in self._open:
            each.close()

    def calm(self) -> None:
        """From now on nothing is cut."""
        self._is_calm = True

    def unleash(self) -> None:
        """From now on connections are cut again, also those that are open."""
        self._is_calm = False

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection((HOST, self.target_port), 10)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            with self._lock:
                self._open |= {client, server}
                out = self._random.randint(*self.request_bytes)
                back = self._random.randint(*self.response_bytes)
            self._spawn(self._forward, client, server, out)
            self._spawn(self._forward, server, client, back)

    def _forward(self, source: socket.socket, sink: socket.socket, budget: int) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK_BYTES):
                if len(data) > budget and not self._is_calm:
                    sink.sendall(data[:budget])
                    self._cut(source, sink)
                    return
                budget -= len(data)
                sink.sendall(data)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _cut(self, *sides: socket.socket) -> None:
        with self._lock:
            self.cuts += 1
        for each in sides:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _spawn(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()
