"""One client's connection: frames come in, replies go out in the order of their requests.

Theory of operation. The sockets are our own and non-blocking, because `os.sendfile` needs that. Small requests are
received into one buffer shared by all connections of the server: whatever arrived is cut into frames and handled
at once, as slices of that buffer, and only an incomplete tail is copied aside. A frame too large for that gets a
buffer of its own from a pool, received into directly. So an idle connection holds no buffer.

A handler answers at once (`reply`), or takes a `Slot` and completes it later. Replies wait behind earlier slots.
What leaves is a run of *parts*: bytes, or ranges of segment files that go out by `sendfile`. All replies of one
wake-up are sent together.

A request that has to wait before it takes effect, or that takes long, holds back those behind it (`hold`), so that a
connection keeps one such request at most. One that sends many requests at once has its turn like the others: after
`HANDLING_SECONDS` they come first.

Limits. Reading pauses while `BACKLOG_BYTES` of replies or `MAX_IN_FLIGHT` unanswered requests are pending, so that
a client that does not read its replies costs a bounded amount of memory. A frame's buffer grows with the bytes that
really arrived, never by what its length field claims.
"""

from __future__ import annotations

import errno
import logging
from collections import deque
from collections.abc import Callable
from struct import Struct
from time import perf_counter_ns
from typing import TYPE_CHECKING, Protocol

from barnabas.net.parts import FilePart, Part, release_parts
from barnabas.net.purgatory import Parked
from barnabas.ports.network import MSG_MORE, MSG_PEEK
from barnabas.protocol.codec import DecodeError

if TYPE_CHECKING:
    from barnabas.net.buffers import Buffer
    from barnabas.net.listener import ListenerServer
    from barnabas.ports.network import Socket

logger = logging.getLogger("barnabas.connection")


STASH_BYTES = 16 * 1024
BACKLOG_BYTES = 1024 * 1024
MAX_IN_FLIGHT = 256
SENDFILE_BYTES = 128 * 1024
"""How much one connection sends from files before others get their turn: a tenth of a millisecond or so."""
SENDFILE_BYTES_ALONE = 512 * 1024
"""The same while nobody else has sent anything for a while: fewer and larger steps cost less."""
FIRST_BUFFER_BYTES = 64 * 1024
SEND_BYTES = 256 * 1024
"""How much of small replies is sent in one call."""
SEND_BYTES_PER_TURN = 1024 * 1024
HANDLING_SECONDS = 0.005
"""How long requests of one connection are handled in one turn of the loop."""

_LENGTH = Struct(">i")
_FILE_ERRORS = (errno.EIO, errno.EUCLEAN)
"""Errors that come from a disk, not from a client that has gone away."""


FrameHandler = Callable[["Connection", memoryview], None]
"""A frame is valid, and may be changed, until the handler returns."""


class BadRequestError(Exception):
    """What a client sent cannot be answered: its connection is closed with this line in the log."""


class Timing(Protocol):
    """Wants to know what becomes of the answer to one request."""

    def answered(self) -> None: ...
    def left(self) -> None:
        """It is no longer behind other answers."""
        ...

    def sent(self) -> None: ...


class Slot(Parked):
    """The place of one unanswered request in its connection's order of replies. It may wait in the purgatory."""

    __slots__ = ("connection", "is_in_line", "parts", "timing")

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.connection = connection
        self.is_in_line = False
        self.parts: list[Part] | None = None
        self.timing: Timing | None = None
        """Of a request that is timed."""

    def fill(self, parts: list[Part]) -> None:
        """The reply has come: it leaves as soon as those before it have."""
        self.parts = parts
        self.connection.slot_filled(self)

    def cancel(self) -> None:
        """The connection is gone, and nobody waits for the reply."""

    def fail(self) -> None:
        self.connection.close()


class Connection:
    __slots__ = (
        "__weakref__",
        "_backlog_bytes",
        "_buffer",
        "_fd",
        "_filled",
        "_frame_bytes",
        "_handled_buffer",
        "_held",
        "_is_paused",
        "_is_writing",
        "_largest_frame",
        "_out",
        "_slots",
        "_sock",
        "_stash",
        "_timing",
        "correlation_id",
        "is_closed",
        "last_active",
        "listener",
        "on_left",
        "peer",
        "server",
    )

    def __init__(self, server: ListenerServer, sock: Socket, peer: tuple[str, int]) -> None:
        self.server = server
        self.listener = server.listener
        self.peer = peer
        self.is_closed = False
        self.last_active = server.loop.time()
        self.correlation_id = -1
        self.on_left: Callable[[], None] | None = None
        """Called when the client has ended this connection, or its system has: not when this node does."""
        self._sock = sock
        self._fd = sock.fileno()
        self._out: deque[Part] = deque()
        self._backlog_bytes = 0
        self._slots: deque[Slot] = deque()
        self._stash: bytes | bytearray = b""
        self._buffer: Buffer | None = None
        self._filled = 0
        self._frame_bytes = 0
        self._largest_frame = 0
        self._handled_buffer: Buffer | None = None
        """The buffer of the large frame that is being handled."""
        self._held: Buffer | None = None
        """The request that holds back others, if one does."""
        self._is_paused = False
        self._is_writing = False
        self._timing: Timing | None = None
        """Of the newest timed answer that is being sent."""
        server.loop.add_reader(self._fd, self._on_readable)

    # ── coming in ────────────────────────────────────────────────────────────────────────────────────────────

    def _on_readable(self) -> None:
        self.last_active = now = self.server.loop.time()
        if self.server.last_sender is not self:
            self.server.last_sender = self
            self.server.last_sender_change_s = now
        if self.server.is_metered:
            self.server.read_ns = perf_counter_ns()
        try:
            if self._buffer is None:
                self._receive()
            else:
                self._receive_large_frame(self._buffer)
        except Exception as error:
            self._end_by(error)
        if self._out and not self._is_writing and not self.is_closed:
            self._send()

    def _end_by(self, error: Exception) -> None:
        """Whatever goes wrong while requests are handled ends this connection, and no other."""
        if isinstance(error, BadRequestError | DecodeError):
            self.refuse(str(error))
        else:
            logger.error(
                "%s: closed after an internal error, correlation id %d", self, self.correlation_id, exc_info=error
            )
            self.close()

    def _receive(self) -> None:
        server = self.server
        kept = len(self._stash)
        if kept:
            server.scratch[:kept] = self._stash
            received = self._receive_into(server.scratch_view[kept:])
        else:
            received = self._receive_into(server.scratch)
        if received:
            self._stash = b""
            self._cut_frames(server.scratch_view, kept + received)

    def _receive_into(self, buffer: Buffer | memoryview) -> int:
        """How many bytes came; 0 when there are none, or when the client is gone."""
        try:
            received = self._sock.recv_into(buffer)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            logger.debug("%s: %s", self, error)
            received = 0
        if not received:
            self._client_left()
        return received

    def _cut_frames(self, data: memoryview, end: int) -> None:
        """Handles every whole frame in `data[:end]` and keeps the tail."""
        position = 0
        handle = self.server.handle_frame
        turn_ends_at = 0.0
        while end - position >= 4:
            size = _LENGTH.unpack_from(data, position)[0]
            if size < 0 or size > self.server.max_frame_bytes:
                raise BadRequestError(self._describe_bad_size(size))
            frame_end = position + 4 + size
            if frame_end > end:
                if size > STASH_BYTES:
                    if not self.server.has_memory_for(size):
                        self.server.resume_when_memory_is_free(self)
                        self._pause()
                        break
                    self._start_large_frame(data[position + 4 : end], size)
                    return
                break
            handle(self, data[position + 4 : frame_end])
            position = frame_end
            if self.is_closed:
                return
            if self._must_pause() and self._pause_unless_relieved():
                break
            if end - position > 4:
                if not turn_ends_at:
                    turn_ends_at = self.server.turn_clock() + HANDLING_SECONDS
                elif self.server.turn_clock() > turn_ends_at:
                    self._pause()
                    self.server.flush_soon(self)
                    break
        if position < end and not self.is_closed:
            self._stash = bytearray(data[position:end])

    def _describe_bad_size(self, size: int) -> str:
        if size & 0xFFFFFF00 == 0x16030100:
            return "sent a TLS handshake to a PLAINTEXT listener: use security.protocol=PLAINTEXT"
        if size < 0:
            return f"sent a frame with a negative length ({size})"
        limit = self.server.max_frame_bytes
        return f"sent a frame of {size} bytes where socket.request.max.bytes allows {limit}"

    def _start_large_frame(self, received: memoryview, size: int) -> None:
        have = len(received)
        self._frame_bytes = size
        capacity = size if size <= self._largest_frame else max(FIRST_BUFFER_BYTES, 4 * have)
        buffer = self.server.buffers.take(min(size, capacity))
        buffer[:have] = received
        self._buffer = buffer
        self._filled = have

    def _receive_large_frame(self, buffer: Buffer) -> None:
        size = self._frame_bytes
        filled = self._filled
        if filled == len(buffer) and filled < size:
            buffer = self._buffer = self.server.buffers.grow(buffer, min(size, 4 * filled))
        with memoryview(buffer) as view, view[filled : min(size, len(buffer))] as free:
            received = self._receive_into(free)
        if not received:
            return
        self._filled = filled = filled + received
        if filled < size:
            return
        self._buffer = None
        self._largest_frame = max(self._largest_frame, size)
        self._handled_buffer = buffer
        try:
            self.server.handle_frame(self, memoryview(buffer)[:size])
        finally:
            if self._handled_buffer is not None:
                self._handled_buffer = None
                self.server.buffers.give_back(buffer)
                self.server.frame_memory_freed()
        if self._must_pause():
            self._pause_unless_relieved()

    def _must_pause(self) -> bool:
        return self._backlog_bytes >= BACKLOG_BYTES or len(self._slots) >= MAX_IN_FLIGHT or self._held is not None

    def hold(self, frame: memoryview) -> memoryview:
        """Handles no further request until `let_go`: the one being handled must have its effect before any other.
        Returns it as bytes that last until then, or until the connection is closed. The buffer that connections share
        is used again at once, so what lies in there is copied."""
        assert self._held is None, "requests behind one that holds are not handled"
        if self._handled_buffer is not None:
            self._held, self._handled_buffer = self._handled_buffer, None
            return frame
        self._held = self.server.buffers.take(len(frame))
        copy = memoryview(self._held)[: len(frame)]
        copy[:] = frame
        return copy

    def let_go(self) -> None:
        self._release_held()
        self.server.flush_soon(self)

    def _release_held(self) -> None:
        if self._held is not None:
            self.server.buffers.give_back(self._held)
            self._held = None
            self.server.frame_memory_freed()

    def _pause_unless_relieved(self) -> bool:
        """Sends what it can. If too much is left, or the client is gone, stops reading for now and returns True."""
        self._send()
        if not self._must_pause() and not self.is_closed:
            return False
        self._pause()
        return True

    def _pause(self) -> None:
        if not self._is_paused and not self.is_closed:
            self._is_paused = True
            self.server.loop.remove_reader(self._fd)

    def resume_if_paused(self) -> None:
        if self._is_paused and not self.is_closed and not self._must_pause():
            self._resume()
            if self._out and not self._is_writing and not self.is_closed:
                self._send()

    def _resume(self) -> None:
        """Goes on with what was received before the pause, then listens again."""
        self._is_paused = False
        kept, self._stash = self._stash, b""
        if kept:
            # As they are, not in the shared buffer: that may be in use further up the stack.
            try:
                self._cut_frames(memoryview(kept), len(kept))
            except Exception as error:
                self._end_by(error)
        if not self._is_paused and not self.is_closed:
            self.server.loop.add_reader(self._fd, self._on_readable)

    # ── going out ────────────────────────────────────────────────────────────────────────────────────────────

    def reply(self, parts: list[Part]) -> None:
        """Answers the request being handled. It leaves at the end of this wake-up, or behind earlier slots."""
        self._count(parts)
        if self._slots:
            self.reserve().parts = parts
        else:
            self._out.extend(parts)

    def reply_bytes(self, data: bytes) -> None:
        """`reply` for the common single part."""
        if self._slots:
            self.reply([data])
        else:
            self._out.append(data)
            self._backlog_bytes += len(data)

    def reserve(self) -> Slot:
        """Takes the place of a reply that comes later."""
        slot = Slot(self)
        self.line_up(slot)
        return slot

    def line_up(self, slot: Slot) -> None:
        slot.is_in_line = True
        self._slots.append(slot)

    def reply_behind(self, slot: Slot) -> list[Part] | None:
        """The reply that leaves as soon as that of this slot has; None while there is none, or others come before."""
        return self._slots[1].parts if len(self._slots) > 1 and self._slots[0] is slot else None

    @property
    def newest_slot(self) -> Slot | None:
        """The place of the last request that is not answered yet, or that was answered out of turn."""
        return self._slots[-1] if self._slots else None

    def time_sending(self, timing: Timing) -> None:
        """Tell `timing` when all that is to be sent by now has been."""
        if self._timing is not None:
            self._timing.sent()
        self._timing = timing

    def slot_filled(self, slot: Slot) -> None:
        if self.is_closed:
            release_parts(slot.parts or ())
            return
        if slot.timing is not None:
            slot.timing.answered()
        self._count(slot.parts or [])
        slots = self._slots
        if slots[0] is not slot:
            return
        while slots and (parts := slots[0].parts) is not None:
            first = slots.popleft()
            first.is_in_line = False
            first.parts = None
            self._out.extend(parts)
            if first.timing is not None:
                first.timing.left()
                self.time_sending(first.timing)
        if not self._is_writing:
            self.server.flush_soon(self)

    def flush(self) -> None:
        """Sends what `slot_filled` gathered during this turn of the loop."""
        if self._out and not self._is_writing and not self.is_closed:
            self._send()
        if self._is_paused:
            self.resume_if_paused()

    def _count(self, parts: list[Part]) -> None:
        """Bytes in memory count from the moment a reply is ready, also while it waits behind another."""
        for part in parts:
            if type(part) is bytes:
                self._backlog_bytes += len(part)

    def _send(self) -> None:
        """Sends as much as the socket takes; waits for it to take more."""
        out = self._out
        budget = 0
        bytes_left = SEND_BYTES_PER_TURN
        try:
            while out:
                head = out[0]
                if type(head) is FilePart:
                    budget = budget or (SENDFILE_BYTES_ALONE if self.server.has_one_sender() else SENDFILE_BYTES)
                    sent = head.file.send(self._fd, head.position, min(head.length, budget))
                    if sent == 0:
                        raise OSError(errno.EIO, "a segment file ended before the range that was to be sent")
                    head.position += sent
                    head.length -= sent
                    budget -= sent
                    if head.length == 0:
                        out.popleft()
                        head.file.release()
                    if budget <= 0:
                        break
                else:
                    sent = self._send_bytes(out)
                    bytes_left -= sent
                    if not sent or bytes_left <= 0:
                        break
        except BlockingIOError:
            pass
        except OSError as error:
            if error.errno in _FILE_ERRORS:
                self.refuse(f"cannot send it records from a file: {error}")
            else:
                logger.debug("%s: %s", self, error)
                self._client_left()
            return
        if out:
            if not self._is_writing:
                self._is_writing = True
                self.server.loop.add_writer(self._fd, self._on_writable)
        elif self._is_writing:
            self._is_writing = False
            self.server.loop.remove_writer(self._fd)
            self.server.answer_memory_freed()
        if self._timing is not None and not out:
            self._timing.sent()
            self._timing = None

    def _send_bytes(self, out: deque[Part]) -> int:
        """Sends bytes at the head of the queue in one call, as many replies as are small. Returns how many bytes the
        socket took; 0 when it takes no more for now."""
        data = out.popleft()
        if out and type(out[0]) is not FilePart:
            run = [data]
            size = len(data)  # type: ignore[arg-type]
            while out and not isinstance(head := out[0], FilePart) and (size := size + len(head)) <= SEND_BYTES:
                run.append(out.popleft())
            if len(run) > 1:
                data = b"".join(run)  # type: ignore[arg-type]
        assert not isinstance(data, FilePart)
        try:
            sent = self._sock.send(data, MSG_MORE if out else 0)
        except BlockingIOError:
            sent = 0
        self._backlog_bytes -= sent
        if sent < len(data):
            out.appendleft(memoryview(data)[sent:])
            return 0
        return sent

    def _on_writable(self) -> None:
        self.last_active = self.server.loop.time()
        self._send()
        self.resume_if_paused()

    # ── ending ───────────────────────────────────────────────────────────────────────────────────────────────

    def refuse(self, reason: str) -> None:
        logger.warning("%s closed: %s", self, reason)
        self.close()

    def close_idle(self, idle_seconds: float) -> None:
        """Ends a connection that neither sent nor took a byte for `connections.max.idle.ms`."""
        if self._out:
            self.refuse(f"has not read its replies for {idle_seconds:.0f} s (connections.max.idle.ms)")
        else:
            logger.debug("%s closed: idle for %.0f s", self, idle_seconds)
            self.close()

    def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        loop = self.server.loop
        loop.remove_reader(self._fd)
        loop.remove_writer(self._fd)
        release_parts(self._out)
        self._out.clear()
        for slot in self._slots:
            release_parts(slot.parts or ())
            slot.cancel()
        self._slots.clear()
        if self._buffer is not None:
            self.server.buffers.give_back(self._buffer)
            self._buffer = None
        self._release_held()
        self._stash = b""
        self._sock.close()
        self.server.connection_closed(self)

    def close_if_left(self) -> None:
        """Checks whether the client has left, which a connection that is not read from does not notice by itself."""
        if self.is_closed:
            return
        try:
            has_left = not self._sock.recv(1, MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            logger.debug("%s: %s", self, error)
            has_left = True
        if has_left:
            self._client_left()

    def _client_left(self) -> None:
        self.close()
        if self.on_left is not None:
            self.on_left()

    @property
    def backlog_bytes(self) -> int:
        """The size of the replies that the client has not taken yet."""
        return self._backlog_bytes

    def __str__(self) -> str:
        return f"connection {self.listener.name}:{self.peer[0]}:{self.peer[1]}"
