"""TLS over any `Socket`, as a `Socket`: what goes out is encrypted, what comes in is decrypted, and nothing waits.

    stream = TlsStream(plain, context, server_hostname="broker-2")
    await stream.shake_hands(loop)

The cipher works on two buffers in memory, so the stream below may be a real one or a simulated one. Two things are
different from a plain socket, and callers have to know them:

- Bytes may be at hand that the event loop knows nothing of, because they have left the socket below. After a
  `recv_into` that filled its buffer, `has_more` says so; a caller that stops reading then has to come back of its own
  accord.
- What `send` has encrypted must go out before anything else can. If the socket below does not take all of it, `send`
  raises `BlockingIOError` although it has the bytes; asked again with the same bytes, it sends the rest and counts
  them. That is within what `Socket` promises.

A range of a file cannot be sent from the file (`sendfile`): it has to be read and sent as bytes.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Final

from barnabas.net.frames import AuthenticationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _typeshed import ReadableBuffer, WriteableBuffer

    from barnabas.ports.network import Socket

CIPHERTEXT_BYTES: Final = 64 * 1024
"""What is taken from the socket below at once."""
ENCRYPTED_BYTES_MAX: Final = 128 * 1024
"""What is encrypted ahead of being sent."""


class TlsStream:
    """A client's end, or with `server_side` a server's. To be used by one task or one set of callbacks."""

    def __init__(
        self, plain: Socket, context: ssl.SSLContext, *, server_hostname: str | None = None, server_side: bool = False
    ) -> None:
        self._plain = plain
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_hostname
        )
        self._ciphertext = memoryview(bytearray(CIPHERTEXT_BYTES))
        self._unsent = memoryview(b"")
        """Encrypted bytes that the socket below has not taken yet."""
        self._encrypted_bytes = 0
        """How many bytes of the caller's are in `_unsent` without having been counted as sent."""

    async def shake_hands(self, loop: asyncio.AbstractEventLoop) -> None:
        """To be done before anything else. AuthenticationError if the two sides do not trust each other, OSError if
        the stream fails."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._send_all(loop)
                await self._receive_some(loop)
            except ssl.SSLError as error:
                await self._send_all(loop)  # the alert that tells the other side why
                raise AuthenticationError(_reason(error)) from error
            else:
                await self._send_all(loop)
                return

    def fileno(self) -> int:
        return self._plain.fileno()

    def has_more(self) -> bool:
        """Whether there are bytes for `recv_into` that the event loop will not tell of."""
        return self._tls.pending() > 0 or self._incoming.pending > 0

    def recv_into(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        filled = 0
        while filled < len(view):
            try:
                received: int = self._tls.read(len(view) - filled, view[filled:])  # type: ignore[assignment]
            except ssl.SSLWantReadError:
                if filled:
                    break
                self._fill()
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                break
            else:
                if not received:
                    break
                filled += received
        return filled

    def recv(self, size: int, flags: int, /) -> bytes:
        """Tells whether anything came, not what: it is encrypted."""
        return self._plain.recv(size, flags)

    def send(self, data: ReadableBuffer, flags: int = 0, /) -> int:
        if not self._encrypted_bytes:
            self._flush(flags)
            view = memoryview(data).cast("B")[:ENCRYPTED_BYTES_MAX]
            if not view:
                return 0
            self._encrypted_bytes = self._tls.write(view)
        self._flush(flags)
        sent, self._encrypted_bytes = self._encrypted_bytes, 0
        return sent

    def sendmsg(self, buffers: Iterable[ReadableBuffer], /) -> int:
        return self.send(b"".join(bytes(each) for each in buffers))

    def close(self) -> None:
        """Without a farewell: frames say themselves where they end."""
        self._plain.close()

    def _fill(self) -> None:
        received = self._plain.recv_into(self._ciphertext)
        if received:
            self._incoming.write(self._ciphertext[:received])
        else:
            self._incoming.write_eof()

    def _flush(self, flags: int = 0) -> None:
        """Sends all that is encrypted; BlockingIOError if that does not go now."""
        while True:
            if not self._unsent:
                if not self._outgoing.pending:
                    return
                self._unsent = memoryview(self._outgoing.read())
            self._unsent = self._unsent[self._plain.send(self._unsent, flags) :]

    async def _send_all(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            try:
                self._flush()
            except BlockingIOError:
                await _until_ready(loop.add_writer, loop.remove_writer, self.fileno())
            else:
                return

    async def _receive_some(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            try:
                self._fill()
            except BlockingIOError:
                await _until_ready(loop.add_reader, loop.remove_reader, self.fileno())
            else:
                return


if TYPE_CHECKING:
    from collections.abc import Callable


async def _until_ready(watch: Callable[..., None], unwatch: Callable[[int], bool], fd: int) -> None:
    ready = asyncio.Event()
    watch(fd, ready.set)
    try:
        await ready.wait()
    finally:
        unwatch(fd)


def _reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate was rejected: {error.verify_message}"
    if isinstance(error, ssl.SSLEOFError):
        return "it closed the connection during the TLS handshake (does its listener speak TLS?)"
    return f"TLS handshake failed: {error.reason or error}"
