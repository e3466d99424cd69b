"""Receive buffers for frames too large for the shared scratch buffer, reused because fresh pages cost more than
copying into them."""

from __future__ import annotations

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

    def take(self, size: int) -> bytearray:
        """A buffer of at least `size` bytes, with whatever an earlier frame left in it."""
        capacity = 1 << (size - 1).bit_length()
        if capacity > REUSED_BUFFER_BYTES_MAX:
            capacity = size
        self.in_use_bytes += capacity
        free = self._free.get(capacity)
        if free:
            self._kept_bytes -= capacity
            return free.pop()
        return bytearray(capacity)

    def give_back(self, buffer: bytearray) -> None:
        capacity = len(buffer)
        self.in_use_bytes -= capacity
        if capacity <= REUSED_BUFFER_BYTES_MAX and self._kept_bytes + capacity <= KEPT_BYTES_MAX:
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
