"""Receive buffers for frames too large for the shared scratch buffer, reused because fresh pages cost more than
copying into them.

Very large ones are mappings of their own, not reused. They have pages only where bytes arrived, which the system clears
one by one as they come, and they grow in place: to clear or to copy a hundred megabytes would block the event loop.
"""

from __future__ import annotations

from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap

Buffer = bytearray | mmap

SCRATCH_BYTES = 256 * 1024
KEPT_BYTES_MAX = 16 * 1024 * 1024
REUSED_BUFFER_BYTES_MAX = 4 * 1024 * 1024


class BufferPool:
    """Buffers by power of two. `in_use_bytes` is what requests on their way in hold at this moment."""

    __slots__ = ("_free", "_kept_bytes", "in_use_bytes")

    def __init__(self) -> None:
        self._free: dict[int, list[bytearray]] = {}
        self._kept_bytes = 0
        self.in_use_bytes = 0

    def take(self, size: int) -> Buffer:
        """A buffer of at least `size` bytes, with whatever an earlier frame left in it."""
        if size > REUSED_BUFFER_BYTES_MAX:
            self.in_use_bytes += size
            return mmap(-1, size, flags=MAP_PRIVATE | MAP_ANONYMOUS)
        capacity = 1 << (size - 1).bit_length()
        self.in_use_bytes += capacity
        free = self._free.get(capacity)
        if free:
            self._kept_bytes -= capacity
            return free.pop()
        return bytearray(capacity)

    def grow(self, buffer: Buffer, size: int) -> Buffer:
        """A buffer of at least `size` bytes with what is in this one, which is used up. Nobody may view it."""
        if isinstance(buffer, mmap):
            self.in_use_bytes += size - len(buffer)
            buffer.resize(size)
            return buffer
        larger = self.take(size)
        larger[: len(buffer)] = buffer
        self.give_back(buffer)
        return larger

    def give_back(self, buffer: Buffer) -> None:
        capacity = len(buffer)
        self.in_use_bytes -= capacity
        if isinstance(buffer, bytearray) and self._kept_bytes + capacity <= KEPT_BYTES_MAX:
            self._kept_bytes += capacity
            self._free.setdefault(capacity, []).append(buffer)


class ReceiveSpace:
    """Where all connections of one event loop receive: a scratch buffer, used by one at a time and never across turns
    of the loop, and a pool for what does not fit or has to stay."""

    __slots__ = ("pool", "scratch", "view")

    def __init__(self, scratch_bytes: int = SCRATCH_BYTES) -> None:
        self.scratch = bytearray(scratch_bytes)
        self.view = memoryview(self.scratch)
        self.pool = BufferPool()
