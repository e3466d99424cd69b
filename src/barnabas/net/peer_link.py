"""One stream to another node, seen from the side that asks: requests go out, their answers come in, in order.

Theory of operation. Nothing here waits; a request and the caller that waits for its answer are an `Exchange`, and the
link settles its future. Requests of one turn of the event loop leave together. Answers are received as `connection`
receives requests: small ones into a scratch buffer that all links of the loop share, decoded there and then; large ones
into a buffer of their own from a pool.

A *raw* exchange hands the body out undecoded, in such a buffer: replicas fetch megabytes, and want them where the log
can write them from. To spare those the way through the scratch buffer, only a few kilobytes are received there while
a raw answer is next: enough for its length, or for all of an answer that says there is nothing new. The buffer grows
with what really arrived unless as much came before, so a length alone makes no large one.

Whatever goes wrong (the stream ends or fails, an answer is not the one that is due, bytes come that were not asked for)
ends the link, once: every exchange under way fails with the reason, and `on_lost` hears it.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from barnabas.net import frames
from barnabas.net.frames import LENGTH, ConnectionLostError, Expected, MalformedAnswerError, WireError
from barnabas.net.tls_stream import TlsStream

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from types import TracebackType

    from barnabas.net.buffers import Buffer, BufferPool, ReceiveSpace
    from barnabas.ports.network import Socket
    from barnabas.protocol.messages import Message

logger = logging.getLogger("barnabas.peer")

STASH_BYTES: Final = 16 * 1024
"""An incomplete answer up to this size is kept as it is; a larger one gets a buffer."""
RAW_HEAD_BYTES: Final = 4 * 1024
"""What is received into the scratch buffer when a raw answer is next."""
FIRST_BUFFER_BYTES: Final = 1024 * 1024
RECEIVE_BYTES_MAX: Final = 1024 * 1024
"""What one link receives before others have their turn."""
OUT_BYTES_MAX: Final = 1024 * 1024
"""A link that has this much to send takes no further requests."""


class RawResponse:
    """The body of an answer, as it came. It lies in a buffer that others use after `release`, which also the end of a
    `with` block does; nobody may look at `body`, or at a slice of it, after that."""

    __slots__ = ("_buffer", "_pool", "body", "version")

    def __init__(self, body: memoryview, version: int, buffer: Buffer, pool: BufferPool) -> None:
        self.body = body
        self.version = version
        self._buffer: Buffer | None = buffer
        self._pool = pool

    def release(self) -> None:
        if self._buffer is not None:
            buffer, self._buffer = self._buffer, None
            self.body.release()
            self._pool.give_back(buffer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class Exchange:
    """A request in the version it leaves in, and who waits for its answer."""

    __slots__ = ("api_key", "body", "done", "is_raw", "request", "timer", "version")

    def __init__(self, api_key: int, version: int, done: asyncio.Future[Any]) -> None:
        self.api_key = api_key
        self.version = version
        self.done = done
        self.request: Message | None = None
        """What is asked; None where only its encoded `body` is there."""
        self.body: bytes | memoryview = b""
        self.is_raw = False
        self.timer: asyncio.TimerHandle | None = None

    def succeed(self, answer: Any) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if not self.done.done():
            self.done.set_result(answer)
        elif isinstance(answer, RawResponse):
            answer.release()

    def fail(self, error: Exception) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if not self.done.done():
            self.done.set_exception(error)

    def __str__(self) -> str:
        return f"{frames.api_name(self.api_key)} v{self.version}"


class OnLost(Protocol):
    def __call__(self, link: PeerLink, reason: str) -> None: ...


class PeerLink:
    """To be used on one event loop. `name` is how messages call the other side."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        stream: Socket,
        space: ReceiveSpace,
        *,
        name: str,
        client_id: str,
        in_flight_max: int,
        response_bytes_max: int,
        on_lost: OnLost,
        on_room: Callable[[], None],
    ) -> None:
        self.name = name
        self.is_lost = False
        self._loop = loop
        self._stream = stream
        self._fd = stream.fileno()
        self._has_more = stream.has_more if isinstance(stream, TlsStream) else None
        self._space = space
        self._client_id = client_id
        self._in_flight_max = in_flight_max
        self._response_bytes_max = response_bytes_max
        self._on_lost = on_lost
        self._on_room = on_room
        self._correlation_id = 0
        self._exchanges: deque[tuple[Expected, Exchange]] = deque()
        self._out: deque[bytes | memoryview] = deque()
        self._out_bytes = 0
        self._is_flush_due = False
        self._is_writing = False
        self._stash = b""
        self._buffer: Buffer | None = None
        self._frame_bytes = 0
        self._filled = 0
        self._largest_frame = FIRST_BUFFER_BYTES
        loop.add_reader(self._fd, self._on_readable)

    @property
    def in_flight(self) -> int:
        return len(self._exchanges)

    def has_room(self) -> bool:
        return len(self._exchanges) < self._in_flight_max and self._out_bytes < OUT_BYTES_MAX

    def is_waiting_for(self, exchange: Exchange) -> bool:
        return any(each is exchange for _, each in self._exchanges)

    async def ask(self, request: Message, version: int) -> Any:
        """Sends one request and waits for its answer, without a limit of time: for what comes before the link is put
        to use."""
        exchange = Exchange(frames.request_api_key(request), version, self._loop.create_future())
        exchange.request = request
        self.submit(exchange)
        return await exchange.done

    # ── going out ────────────────────────────────────────────────────────────────────────────────────────────

    def submit(self, exchange: Exchange) -> None:
        """Sends a request, at the end of this turn. What cannot be encoded raises, and is not sent."""
        correlation_id = self._correlation_id
        version = exchange.version
        if exchange.request is not None:
            frame = frames.request_frame(exchange.request, version, correlation_id, self._client_id)
            exchange.request = None  # the bytes are all that is needed from here on
        else:
            size = len(exchange.body)
            head = frames.request_head(exchange.api_key, version, correlation_id, self._client_id, size)
            frame = head + exchange.body
            exchange.body = b""
        self._correlation_id = frames.next_correlation_id(correlation_id)
        self._exchanges.append((Expected(correlation_id, exchange.api_key, version), exchange))
        self._out.append(frame)
        self._out_bytes += len(frame)
        if not self._is_flush_due and not self._is_writing:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        if not self.is_lost and not self._is_writing:
            self._send()

    def _send(self) -> None:
        out = self._out
        try:
            while out:
                if len(out) > 1:
                    joined = b"".join(out)
                    out.clear()
                    out.append(joined)
                data = out[0]
                sent = self._stream.send(data)
                self._out_bytes -= sent
                if sent < len(data):
                    out[0] = memoryview(data)[sent:]
                else:
                    out.clear()
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self.lose(f"sending failed: {error.strerror or error}")
            return
        if out and not self._is_writing:
            self._is_writing = True
            self._loop.add_writer(self._fd, self._on_writable)
        elif not out and self._is_writing:
            self._is_writing = False
            self._loop.remove_writer(self._fd)

    def _on_writable(self) -> None:
        self._send()
        if not self.is_lost and self.has_room():
            self._on_room()

    # ── coming in ────────────────────────────────────────────────────────────────────────────────────────────

    def _on_readable(self) -> None:
        in_flight = len(self._exchanges)
        try:
            if self._buffer is None:
                self._receive()
            else:
                self._receive_large(self._buffer)
        except WireError as error:
            logger.warning("%s: closing the connection: %s", self.name, error)
            self.lose(str(error))
            return
        except Exception as error:
            logger.exception("%s: closing the connection after an internal error", self.name)
            self.lose(f"internal error: {error}")
            return
        if self.is_lost:
            return
        if len(self._exchanges) < in_flight:
            self._on_room()
        if self._has_more is not None and self._has_more():
            self._loop.call_soon(self._go_on_reading)

    def _go_on_reading(self) -> None:
        if not self.is_lost:
            self._on_readable()

    def _receive(self) -> None:
        space = self._space
        kept = len(self._stash)
        end = kept + RAW_HEAD_BYTES if self._exchanges and self._exchanges[0][1].is_raw else len(space.scratch)
        space.scratch[:kept] = self._stash
        received = self._receive_into(space.view[kept:end])
        if received:
            self._stash = b""
            self._cut_frames(space.view, kept + received)

    def _receive_into(self, buffer: memoryview) -> int:
        """How many bytes came; 0 when there are none, or when the other side is gone."""
        try:
            received = self._stream.recv_into(buffer)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            self.lose(error.strerror or str(error))
            return 0
        if not received:
            self.lose("the other side closed it")
        return received

    def _cut_frames(self, data: memoryview, end: int) -> None:
        """Takes every whole answer in `data[:end]` and keeps the rest."""
        position = 0
        while position < end:
            if not self._exchanges:
                raise MalformedAnswerError(f"{self.name} sent {end - position} unexpected bytes")
            if end - position < LENGTH.size:
                break
            (size,) = LENGTH.unpack_from(data, position)
            expected, exchange = self._exchanges[0]
            frames.check_response_length(size, self._response_bytes_max, self.name, expected)
            begin = position + LENGTH.size
            if begin + size > end:
                if size > STASH_BYTES:
                    self._start_large(data[begin:end], size)
                    return
                break
            if exchange.is_raw:
                buffer = self._space.pool.take(size)
                buffer[:size] = data[begin : begin + size]
                self._answer_raw(buffer, size)
            else:
                self._answer(data[begin : begin + size])
            position = begin + size
        self._stash = bytes(data[position:end])

    def _start_large(self, received: memoryview, size: int) -> None:
        have = len(received)
        buffer = self._space.pool.take(size if size <= self._largest_frame else max(self._largest_frame, 4 * have))
        buffer[:have] = received
        self._buffer = buffer
        self._frame_bytes = size
        self._filled = have
        self._receive_large(buffer)

    def _receive_large(self, buffer: Buffer) -> None:
        size, filled = self._frame_bytes, self._filled
        if filled == len(buffer):
            buffer = self._buffer = self._space.pool.grow(buffer, min(size, 4 * filled))
        end = min(size, len(buffer), filled + RECEIVE_BYTES_MAX)
        with memoryview(buffer) as view, view[filled:end] as free:
            received = self._receive_into(free)
        if not received:
            return
        self._filled = filled = filled + received
        if filled < size:
            return
        self._buffer = None
        self._largest_frame = max(self._largest_frame, size)
        if self._exchanges[0][1].is_raw:
            self._answer_raw(buffer, size)
            return
        try:
            with memoryview(buffer) as view:
                self._answer(view[:size])
        finally:
            self._space.pool.give_back(buffer)

    def _answer(self, frame: memoryview) -> None:
        """The oldest exchange is left where it is until its answer is known to be good: if it is not, it fails with
        the others."""
        expected, exchange = self._exchanges[0]
        if exchange.done.cancelled():
            frames.response_body(frame, expected, self.name)
            answer = None
        else:
            if expected.api_key in frames.RESPONSES_WITH_RECORDS:
                frame = memoryview(bytes(frame))
            answer = frames.parse_response(frame, expected, self.name)
        self._exchanges.popleft()
        exchange.succeed(answer)

    def _answer_raw(self, buffer: Buffer, size: int) -> None:
        expected, exchange = self._exchanges[0]
        pool = self._space.pool
        frame = memoryview(buffer)[:size]
        try:
            position = frames.response_body(frame, expected, self.name)
        except WireError:
            pool.give_back(buffer)
            raise
        self._exchanges.popleft()
        exchange.succeed(RawResponse(frame[position:], expected.version, buffer, pool))

    # ── ending ───────────────────────────────────────────────────────────────────────────────────────────────

    def lose(self, reason: str, error: Callable[[str], Exception] = ConnectionLostError) -> None:
        """Ends the link. What is under way fails, with an error that names the other side, the request and why."""
        if self.is_lost:
            return
        self.is_lost = True
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self._stream.close()
        if self._buffer is not None:
            self._space.pool.give_back(self._buffer)
            self._buffer = None
        self._out.clear()
        self._stash = b""
        exchanges, self._exchanges = self._exchanges, deque()
        for _, exchange in exchanges:
            exchange.fail(error(f"{self.name}: no answer to {exchange}: connection lost: {reason}"))
        # Not from within: whoever hears of it may be in the middle of using this link.
        self._loop.call_soon(partial(self._on_lost, self, reason))
