"""A network in memory: byte streams between named hosts, with delay, cuts, resets and silence, all by a seed.

    network = SimulatedNetwork(scheduler, seed=7)
    one, two = network.host("one"), network.host("two")      # each a `Network` to the node that runs there
    network.cut("one", "two")                                 # until `heal`

Theory of operation. A stream has two ends, and each end is a `Socket` with a number that simulated event loops can
watch. What is sent is taken in pieces of a size that chance decides, so that frames arrive cut anywhere; each piece
arrives after a delay, never before those sent earlier on the same stream. A sender is taken no more from than the
window has room for: bytes under way and bytes that have arrived and have not been read.

What TCP hides is hidden here too: a lost packet is a delay. So a cut between two hosts holds pieces back, in one
direction or in both, and they arrive when it is healed, unless the sender's system has given up by then. New
connections are tried again while a cut lasts, as systems do. What TCP does not hide:

- `reset`: all streams between two hosts fail on both sides, at once.
- `silence`: their streams stay open and carry nothing, for ever, as if a firewall had forgotten them. New ones work.
- `kill`: a process ended. Its system closes its streams; others see that.
- `vanish`: a machine lost power. No other host is told; one that sends to it learns of it once it is `back`, by a
  reset.

The network keeps a trace of what happened (`trace`), which for equal seeds is equal.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
import socket
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.ports.network import MSG_PEEK, TUNED_BY_SYSTEM
from barnabas.testing.event_loop import SimulatedLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from _typeshed import ReadableBuffer, WriteableBuffer

    from barnabas.ports.network import SocketBuffers
    from barnabas.testing.event_loop import Scheduler

WINDOW_BYTES: Final = 256 * 1024
PIECE_BYTES_MAX: Final = 64 * 1024
TRACE_MAX: Final = 100_000
GIVE_UP_S: Final = 900.0
"""After so long without an acknowledgement the sender's system ends a stream."""
RESEND_S: Final = 0.2
"""After so long without an acknowledgement a piece is sent again, and after twice as long each time that follows."""
SYN_RETRY_S: Final = (0.0, 1.0, 3.0, 7.0, 15.0, 31.0, 63.0)
"""When, after the first attempt, a connection is tried that got no answer."""
CONNECT_GIVE_UP_S: Final = 127.0

_EPHEMERAL_PORTS: Final = 40_000
_OWN_NAMES: Final = ("", "localhost", "127.0.0.1", "0.0.0.0", "::1", "::")  # noqa: S104 (nothing is bound)
_END: Final = b""
"""In place of a piece: no more will come."""


class Delay(NamedTuple):
    """How long pieces are under way, at least and at most."""

    shortest_s: float = 0.000_2
    longest_s: float = 0.002


class SimulatedNetwork:
    def __init__(self, scheduler: Scheduler, seed: int) -> None:
        self.scheduler = scheduler
        self.trace: deque[str] = deque(maxlen=TRACE_MAX)
        self.is_traced = True
        """May be switched off by whoever has no use for the trace: it is a line for every piece."""
        self.delay = Delay()
        """May be replaced at any time."""
        self.loss = 0.0
        """How likely it is that a piece is lost, and arrives only when it is sent again."""
        self._random = random.Random(seed)
        self._hosts: dict[str, SimulatedHost] = {}
        self._cuts: set[tuple[str, str]] = set()
        self._sockets: dict[int, SimulatedSocket] = {}

    def host(self, name: str) -> SimulatedHost:
        if name not in self._hosts:
            number = len(self._hosts) + 1
            self._hosts[name] = SimulatedHost(self, name, f"10.0.{number >> 8}.{number & 255}")
        return self._hosts[name]

    def write(self, fd: int, data: ReadableBuffer) -> int:
        """Sends to the socket of this number: what `SimulatedDisk` does instead of `sendfile`."""
        return self._sockets[fd].send(data)

    # ── faults ───────────────────────────────────────────────────────────────────────────────────────────────

    def cut(self, one: str, other: str) -> None:
        """Nothing gets from one host to the other, nor back."""
        self.cut_one_way(one, other)
        self.cut_one_way(other, one)

    def cut_one_way(self, source: str, target: str) -> None:
        self.note(f"cut {source}→{target}")
        self._cuts.add((source, target))

    def heal(self, one: str, other: str) -> None:
        self._cuts -= {(one, other), (other, one)}
        self.note(f"heal {one}↔{other}")
        self._resume()

    def heal_one_way(self, source: str, target: str) -> None:
        self._cuts.discard((source, target))
        self.note(f"heal {source}→{target}")
        self._resume()

    def heal_all(self) -> None:
        self._cuts.clear()
        self.note("heal everything")
        self._resume()

    def isolate(self, name: str) -> None:
        """Cuts a host off from all others that there are by now."""
        for other in self._hosts:
            if other != name:
                self.cut(name, other)

    def reset(self, one: str, other: str) -> None:
        self.note(f"reset {one}↔{other}")
        for each in self._between(one, other):
            each.fail(errno.ECONNRESET)

    def silence(self, one: str, other: str) -> None:
        self.note(f"silence {one}↔{other}")
        for each in self._between(one, other):
            each.is_silent = True

    def kill(self, name: str) -> None:
        """Ends all streams of a host, and nobody listens there any more, as when its process is killed."""
        self.note(f"kill {name}")
        host = self._hosts[name]
        for acceptor in list(host.acceptors.values()):
            acceptor.close()
        for each in [sock for sock in self._sockets.values() if sock.host is host]:
            each.close()

    def vanish(self, name: str) -> None:
        """The same without anybody being told, and nothing gets there until it is `back`."""
        self.note(f"vanish {name}")
        host = self._hosts[name]
        host.is_up = False
        for acceptor in list(host.acceptors.values()):
            acceptor.close()
        for each in [sock for sock in self._sockets.values() if sock.host is host]:
            each.forget()

    def back(self, name: str) -> None:
        self.note(f"back {name}")
        self._hosts[name].is_up = True
        self._resume()

    # ── for hosts and sockets ────────────────────────────────────────────────────────────────────────────────

    def note(self, what: str) -> None:
        if self.is_traced:
            self.trace.append(f"{self.scheduler.now:.6f} {what}")

    def is_open(self, source: SimulatedHost, target: SimulatedHost) -> bool:
        return source.is_up and target.is_up and (source.name, target.name) not in self._cuts

    def some_delay(self) -> float:
        delay_s = self._random.uniform(*self.delay)
        if self.loss:
            wait_s = RESEND_S
            while self._random.random() < self.loss:
                delay_s += wait_s
                wait_s *= 2
        return delay_s

    def some_piece(self, size: int) -> int:
        """How much of what is sent travels together."""
        if size == 1 or self._random.random() < 0.5:
            return min(size, PIECE_BYTES_MAX)
        return self._random.randrange(1, min(size, PIECE_BYTES_MAX))

    def find(self, name: str) -> SimulatedHost:
        try:
            return self._hosts[name]
        except KeyError:
            raise socket.gaierror(socket.EAI_NONAME, f"{name} is no host of this network") from None

    def opened(self, sock: SimulatedSocket) -> int:
        fd = self.scheduler.new_descriptor(sock)
        self._sockets[fd] = sock
        return fd

    def closed(self, fd: int) -> None:
        self.scheduler.close_descriptor(fd)
        del self._sockets[fd]

    def _between(self, one: str, other: str) -> list[SimulatedSocket]:
        names = {one, other}
        return [sock for sock in self._sockets.values() if {sock.host.name, sock.other_host.name} == names]

    def _resume(self) -> None:
        for host in self._hosts.values():
            for sender in list(host.senders):
                sender.resume()


class SimulatedHost:
    """The `Network` of the processes on one host."""

    def __init__(self, network: SimulatedNetwork, name: str, address: str) -> None:
        self.network = network
        self.name = name
        self.address = address
        """What others see where it connects from."""
        self.is_up = True
        self.acceptors: dict[int, SimulatedAcceptor] = {}
        self.senders: dict[SimulatedSocket, None] = {}
        """Ends of streams here that have something under way, closed ones included."""
        self._next_port = _EPHEMERAL_PORTS

    def listen(
        self,
        host: str,
        port: int,
        *,
        backlog: int,
        buffers: SocketBuffers = TUNED_BY_SYSTEM,  # noqa: ARG002 (there is one window)
    ) -> SimulatedAcceptor:
        if host not in _OWN_NAMES and host != self.name:
            raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
        port = port or self.new_port()
        if port in self.acceptors:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        acceptor = self.acceptors[port] = SimulatedAcceptor(self, port, backlog)
        return acceptor

    async def addresses(self, host: str) -> list[str]:
        return [self.name if host in _OWN_NAMES else self.network.find(host).name]

    async def connect(
        self,
        host: str,
        port: int,
        *,
        attempt: int = 0,  # noqa: ARG002 (a host has one address)
        buffers: SocketBuffers = TUNED_BY_SYSTEM,  # noqa: ARG002 (there is one window)
    ) -> SimulatedSocket:
        target = self if host in _OWN_NAMES else self.network.find(host)
        connecting = _Connecting(self, target, port, asyncio.get_running_loop().create_future())
        connecting.start()
        try:
            return await connecting.done
        except BaseException:
            connecting.abandon()
            raise

    def new_port(self) -> int:
        self._next_port += 1
        return self._next_port


class _Connecting:
    """A connection on its way to be: asked for, again if there is no answer, and accepted or refused."""

    def __init__(
        self, source: SimulatedHost, target: SimulatedHost, port: int, done: asyncio.Future[SimulatedSocket]
    ) -> None:
        self._source = source
        self._target = target
        self._port = port
        self._network = source.network
        self._timers: list[asyncio.TimerHandle] = []
        self._client: SimulatedSocket | None = None
        self.done = done

    def start(self) -> None:
        self._network.note(f"{self._source.name} connects to {self._target.name}:{self._port}")
        later = self._network.scheduler.call_later
        self._timers = [later(seconds + self._network.some_delay(), self._ask) for seconds in SYN_RETRY_S]
        self._timers.append(later(CONNECT_GIVE_UP_S, self._fail, errno.ETIMEDOUT))

    def abandon(self) -> None:
        """Nobody waits for the stream any longer."""
        self._stop()
        if self._client is not None:
            self._client.close()

    def _stop(self) -> None:
        for timer in self._timers:
            timer.cancel()

    def _ask(self) -> None:
        network = self._network
        if not network.is_open(self._source, self._target) or not network.is_open(self._target, self._source):
            return
        acceptor = self._target.acceptors.get(self._port)
        if acceptor is None:
            self._timers.append(network.scheduler.call_later(network.some_delay(), self._fail, errno.ECONNREFUSED))
        elif acceptor.has_room():
            self._stop()
            self._client, server = connected(self._source, self._target, self._port)
            acceptor.offer(server)
            self._timers = [network.scheduler.call_later(network.some_delay(), self._succeed, self._client)]

    def _succeed(self, client: SimulatedSocket) -> None:
        loop = self.done.get_loop()
        if isinstance(loop, SimulatedLoop) and loop.is_dead:
            client.close()
        elif not self.done.done():
            self.done.set_result(client)

    def _fail(self, number: int) -> None:
        self._stop()
        if not self.done.done():
            self.done.set_exception(OSError(number, os.strerror(number)))


class _Watched:
    """A side of a descriptor (reading or writing) that somebody may watch. While it is ready, its callback is called
    again and again, once in each turn."""

    __slots__ = ("_callback", "_is_due", "_is_ready", "_loop")

    def __init__(self, is_ready: Callable[[], bool]) -> None:
        self._is_ready = is_ready
        self._callback: Callable[[], None] | None = None
        self._loop: SimulatedLoop | None = None
        self._is_due = False

    def watch(self, callback: Callable[[], None] | None, loop: SimulatedLoop) -> bool:
        was_watched = self._callback is not None
        self._callback, self._loop = callback, loop
        self.changed()
        return was_watched

    def changed(self) -> None:
        """To be called whenever it may have become ready."""
        if self._callback is not None and not self._is_due and self._is_ready():
            assert self._loop is not None
            self._is_due = True
            self._loop.call_soon(self._call)

    def _call(self) -> None:
        self._is_due = False
        if self._callback is not None and self._is_ready():
            self._callback()
            self.changed()


class SimulatedAcceptor:
    def __init__(self, host: SimulatedHost, port: int, backlog: int) -> None:
        self.port = port
        self._host = host
        self._backlog = backlog
        self._waiting: deque[SimulatedSocket] = deque()
        self._reading = _Watched(lambda: bool(self._waiting))
        self._fd = host.network.scheduler.new_descriptor(self)

    def fileno(self) -> int:
        return self._fd

    def accept(self) -> tuple[SimulatedSocket, str, int]:
        if not self._waiting:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        stream = self._waiting.popleft()
        return stream, stream.other_host.address, stream.other_port

    def close(self) -> None:
        if self._host.acceptors.get(self.port) is self:
            del self._host.acceptors[self.port]
            self._host.network.scheduler.close_descriptor(self._fd)
            for stream in self._waiting:
                stream.close()
            self._waiting.clear()

    def has_room(self) -> bool:
        return len(self._waiting) <= self._backlog

    def offer(self, stream: SimulatedSocket) -> None:
        self._waiting.append(stream)
        self._reading.changed()

    def watch_readable(self, callback: Callable[[], None] | None, loop: SimulatedLoop) -> bool:
        return self._reading.watch(callback, loop)

    def watch_writable(self, callback: Callable[[], None] | None, loop: SimulatedLoop) -> bool:  # noqa: ARG002
        return False


class SimulatedSocket:
    """One end of a stream."""

    def __init__(self, host: SimulatedHost, other_host: SimulatedHost, port: int, other_port: int) -> None:
        self.host = host
        self.other_host = other_host
        self.port = port
        self.other_port = other_port
        self.is_silent = False
        self.other: SimulatedSocket | None = None
        self._network = host.network
        self._arrived = bytearray()
        self._has_ended = False
        """The other side sends no more."""
        self._failure = 0
        self._is_closed = False
        self._is_forgotten = False
        self._under_way: deque[tuple[float, bytes]] = deque()
        """Pieces with the times of their arrival, which never decrease."""
        self._under_way_bytes = 0
        self._delivery: asyncio.TimerHandle | None = None
        self._giving_up: asyncio.TimerHandle | None = None
        self._reading = _Watched(self._is_readable)
        self._writing = _Watched(self._is_writable)
        self._fd = self._network.opened(self)

    def __str__(self) -> str:
        return f"{self.host.name}:{self.port}→{self.other_host.name}:{self.other_port}"

    # ── what a `Socket` can do ───────────────────────────────────────────────────────────────────────────────

    def fileno(self) -> int:
        return -1 if self._is_closed else self._fd

    def recv_into(self, buffer: WriteableBuffer, /) -> int:
        self._check_open()
        if self._arrived:
            view = memoryview(buffer).cast("B")
            size = min(len(view), len(self._arrived))
            view[:size] = self._arrived[:size]
            del self._arrived[:size]
            if self.other is not None:
                self.other.window_opened()
            return size
        self._check_health()
        if self._has_ended:
            return 0
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def recv(self, size: int, flags: int, /) -> bytes:
        assert flags == MSG_PEEK, "bytes are taken by recv_into"
        self._check_open()
        if self._arrived:
            return bytes(self._arrived[:size])
        self._check_health()
        if self._has_ended:
            return b""
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def send(self, data: ReadableBuffer, flags: int = 0, /) -> int:  # noqa: ARG002 (all packets are simulated alike)
        self._check_open()
        self._check_health()
        view = memoryview(data).cast("B")
        room = self._room()
        if not view:
            return 0
        if room <= 0:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        taken = min(room, len(view))
        position = 0
        while position < taken:
            size = self._network.some_piece(taken - position)
            self._send_piece(bytes(view[position : position + size]))
            position += size
        return taken

    def sendmsg(self, buffers: Iterable[ReadableBuffer], /) -> int:
        return self.send(b"".join(bytes(each) for each in buffers))

    def close(self) -> None:
        """What was sent still arrives. A side that leaves bytes unread resets the stream, as systems do."""
        if self._is_closed:
            return
        self._is_closed = True
        self._network.closed(self._fd)
        if self._failure or self._is_forgotten:
            return
        if self._arrived:
            self._network.note(f"{self} closed with bytes unread")
            self._drop()
            self._fail_other()
        else:
            self._send_piece(_END)

    def watch_readable(self, callback: Callable[[], None] | None, loop: SimulatedLoop) -> bool:
        return self._reading.watch(callback, loop)

    def watch_writable(self, callback: Callable[[], None] | None, loop: SimulatedLoop) -> bool:
        return self._writing.watch(callback, loop)

    @property
    def unread_bytes(self) -> int:
        return len(self._arrived)

    # ── what happens to it ───────────────────────────────────────────────────────────────────────────────────

    def fail(self, number: int) -> None:
        """Whoever uses this end next meets this error."""
        if not self._failure:
            self._network.note(f"{self} fails: {errno.errorcode[number]}")
            self._failure = number
            self._arrived.clear()
            self._drop()
            self._reading.changed()
            self._writing.changed()

    def forget(self) -> None:
        """The machine knows nothing of this stream any more, and nobody hears of that."""
        self._is_forgotten = True
        self._drop()
        self.close()

    def window_opened(self) -> None:
        self._writing.changed()

    def resume(self) -> None:
        """A cut was healed, or a machine is back."""
        if self._delivery is None:
            due = self._network.scheduler.now + self._network.some_delay()
            if self._giving_up is not None:
                self._giving_up.cancel()
                self._giving_up = None
            self._under_way = deque((max(due, former), piece) for former, piece in self._under_way)
            self._deliver_later()

    def arrive(self, piece: bytes) -> None:
        if self._is_closed or self._is_forgotten:
            if piece or self._is_forgotten:
                self._fail_other()
            return
        if self._failure:
            return
        if piece:
            self._arrived += piece
        else:
            self._has_ended = True
        self._reading.changed()

    def _send_piece(self, piece: bytes) -> None:
        due = self._network.scheduler.now + self._network.some_delay()
        if self._under_way:
            due = max(due, self._under_way[-1][0])
        self._under_way.append((due, piece))
        self._under_way_bytes += len(piece)
        self.host.senders[self] = None
        self._deliver_later()

    def _deliver_later(self) -> None:
        if self._delivery is None and self._under_way and self._giving_up is None:
            self._delivery = self._network.scheduler.call_at(self._under_way[0][0], self._deliver)

    def _deliver(self) -> None:
        """The next piece arrives, if the way is free; if not, all wait here until somebody says `resume`."""
        self._delivery = None
        if self.is_silent or not self._network.is_open(self.host, self.other_host):
            self._giving_up = self._network.scheduler.call_later(GIVE_UP_S, self.fail, errno.ETIMEDOUT)
            return
        _, piece = self._under_way.popleft()
        self._under_way_bytes -= len(piece)
        if self._network.is_traced:
            self._network.note(f"{self} {len(piece) or 'end'}")
        if not self._under_way:
            self.host.senders.pop(self, None)
        self._deliver_later()
        assert self.other is not None
        self.other.arrive(piece)

    def _fail_other(self) -> None:
        """Tells the other side that this end is gone, if word of it can get there."""
        if self.other is not None and not self.is_silent and self._network.is_open(self.host, self.other_host):
            self._network.scheduler.call_later(self._network.some_delay(), self.other.fail, errno.ECONNRESET)

    def _drop(self) -> None:
        self._under_way.clear()
        self._under_way_bytes = 0
        self.host.senders.pop(self, None)
        for timer in (self._delivery, self._giving_up):
            if timer is not None:
                timer.cancel()
        self._delivery = self._giving_up = None

    def _room(self) -> int:
        unread_bytes = 0 if self.other is None else self.other.unread_bytes
        return WINDOW_BYTES - self._under_way_bytes - unread_bytes

    def _is_readable(self) -> bool:
        return bool(self._arrived) or self._has_ended or self._failure != 0

    def _is_writable(self) -> bool:
        return self._failure != 0 or self._room() > 0

    def _check_open(self) -> None:
        if self._is_closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    def _check_health(self) -> None:
        if self._failure:
            raise OSError(self._failure, os.strerror(self._failure))


def connected(
    client_host: SimulatedHost, server_host: SimulatedHost, port: int
) -> tuple[SimulatedSocket, SimulatedSocket]:
    """Both ends of a new stream."""
    client_port = client_host.new_port()
    client = SimulatedSocket(client_host, server_host, client_port, port)
    server = SimulatedSocket(server_host, client_host, port, client_port)
    client.other, server.other = server, client
    return client, server
