"""Byte streams to and from other machines.

A stream is a non-blocking socket, and nothing is wrapped around it: a `socket.socket` is a `Socket` as it is, so that
sending and receiving cost what the system calls cost. Readiness is the event loop's matter (`add_reader`,
`add_writer`), by the number that `fileno` gives.

The twin in `barnabas.testing.network` gives out numbers of its own, and the simulated event loop knows them; code that
works with a `Socket` and a loop cannot tell the difference. That is also why file ranges are sent through the disk
(`Disk.send_range`), to a number: on the real one this is `sendfile`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _typeshed import ReadableBuffer, WriteableBuffer

MSG_MORE: Final = socket.MSG_MORE
MSG_PEEK: Final = socket.MSG_PEEK
"""Said of what is sent: more follows at once, so it need not leave in a packet of its own."""

_MAPPED_IPV4: Final = "::ffff:"


class SocketBuffers(NamedTuple):
    """The sizes of the kernel's buffers for a stream; -1 leaves them to the system's own tuning, which does better
    than any fixed size unless the distance is unusual."""

    send_bytes: int = -1
    receive_bytes: int = -1


TUNED_BY_SYSTEM: Final = SocketBuffers()


class Socket(Protocol):
    """One end of a byte stream. Nothing here waits: what cannot be done now raises `BlockingIOError`, and the event
    loop tells when it can. A stream that has failed raises another `OSError`.

    `send` may be asked again for bytes that it did not take; whoever does so begins with the same bytes.
    """

    def fileno(self) -> int: ...

    def recv_into(self, buffer: WriteableBuffer, /) -> int:
        """How many bytes came; 0 when the other side has ended the stream."""
        ...

    def recv(self, size: int, flags: int, /) -> bytes:
        """With `MSG_PEEK`: what `recv_into` would give, left where it is."""
        ...

    def send(self, data: ReadableBuffer, flags: int = 0, /) -> int:
        """How many bytes were taken, from the first on."""
        ...

    def sendmsg(self, buffers: Iterable[ReadableBuffer], /) -> int:
        """`send` of several buffers, one after the other, in one call."""
        ...

    def close(self) -> None: ...


class Acceptor(Protocol):
    """A port that somebody listens on."""

    @property
    def port(self) -> int:
        """The port that was taken, where any would do."""
        ...

    def fileno(self) -> int: ...

    def accept(self) -> tuple[Socket, str, int]:
        """The next stream that was opened to this port, and the other side's host and port."""
        ...

    def close(self) -> None: ...


class Network(Protocol):
    def listen(self, host: str, port: int, *, backlog: int, buffers: SocketBuffers = TUNED_BY_SYSTEM) -> Acceptor:
        """Takes a port; an empty host means every interface. Streams wait in the backlog until they are accepted."""
        ...

    async def addresses(self, host: str) -> list[str]:
        """The addresses of a host in figures, as `accept` gives them; OSError if there are none."""
        ...

    async def connect(
        self, host: str, port: int, *, attempt: int = 0, buffers: SocketBuffers = TUNED_BY_SYSTEM
    ) -> Socket:
        """Opens a stream. A host may have several addresses: they are tried in turn, and each further `attempt`
        begins with the next of them, so that one that swallows everything does not hide the others. There is no limit
        of time here: the caller cancels."""
        ...


class SystemAcceptor:
    __slots__ = ("_buffers", "_socket", "port")

    def __init__(self, listening: socket.socket, buffers: SocketBuffers) -> None:
        self._socket = listening
        self._buffers = buffers
        self.port: int = listening.getsockname()[1]

    def fileno(self) -> int:
        return self._socket.fileno()

    def accept(self) -> tuple[socket.socket, str, int]:
        stream, address = self._socket.accept()
        try:
            stream.setblocking(False)
            _configure(stream, self._buffers.send_bytes, -1)  # what it receives into, it inherits
        except OSError:
            stream.close()
            raise
        return stream, address[0].removeprefix(_MAPPED_IPV4), address[1]

    def close(self) -> None:
        self._socket.close()


class SystemNetwork:
    """TCP."""

    __slots__ = ()

    def listen(self, host: str, port: int, *, backlog: int, buffers: SocketBuffers = TUNED_BY_SYSTEM) -> SystemAcceptor:
        family = socket.AF_INET6 if ":" in host or not host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            if buffers.receive_bytes > 0:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffers.receive_bytes)
            listening.bind((host, port))
            listening.listen(backlog)
            listening.setblocking(False)
            return SystemAcceptor(listening, buffers)
        except BaseException:
            listening.close()
            raise

    async def addresses(self, host: str) -> list[str]:
        return [str(found[0]) for *_, found in await _resolve(host, 0)]

    async def connect(
        self, host: str, port: int, *, attempt: int = 0, buffers: SocketBuffers = TUNED_BY_SYSTEM
    ) -> socket.socket:
        addresses = await _resolve(host, port)
        first = attempt % len(addresses)
        failures: list[OSError] = []
        for family, kind, protocol, _, address in (*addresses[first:], *addresses[:first]):
            stream = socket.socket(family, kind, protocol)
            try:
                stream.setblocking(False)
                _configure(stream, buffers.send_bytes, buffers.receive_bytes)
                await asyncio.get_running_loop().sock_connect(stream, address)
                _refuse_own_echo(stream)
            except OSError as error:
                stream.close()
                # In the system's words: event loops have their own for it, which do not say what is wrong.
                failures.append(OSError(error.errno, os.strerror(error.errno)) if error.errno else error)
            except BaseException:
                stream.close()
                raise
            else:
                return stream
        raise failures[0]


def _configure(stream: socket.socket, send_bytes: int, receive_bytes: int) -> None:
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if send_bytes > 0:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_bytes)
    if receive_bytes > 0:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)


if TYPE_CHECKING:
    ResolvedAddress = tuple[
        socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int] | tuple[str, int, int, int]
    ]


async def _resolve(host: str, port: int) -> list[ResolvedAddress]:
    """All addresses of a host. An address in figures needs no look-up, and so no thread that waits for one."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return found  # type: ignore[return-value]


def _refuse_own_echo(stream: socket.socket) -> None:
    """A connection to a free port of this machine may be given that very port as its own, and then meets itself."""
    if stream.getsockname() == stream.getpeername():
        raise OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
