"""Receive buffers keep what is in them when they grow, take memory as bytes arrive, and cost little per byte."""

from __future__ import annotations

import os
import time

from barnabas.net.buffers import REUSED_BUFFER_BYTES_MAX, BufferPool
from tests.peers import resident_bytes

MEGABYTE = 1024 * 1024


def test_a_buffer_that_grows_keeps_its_bytes_and_is_counted_by_its_size() -> None:
    pool = BufferPool()
    buffer = pool.take(64 * 1024)
    buffer[:] = os.urandom(len(buffer))
    content = bytes(buffer)
    for size in (REUSED_BUFFER_BYTES_MAX, REUSED_BUFFER_BYTES_MAX + 1, 5 * REUSED_BUFFER_BYTES_MAX - 7):
        buffer = pool.grow(buffer, size)
        assert len(buffer) == pool.in_use_bytes == size
        assert buffer[: len(content)] == content
        buffer[size - 3 : size] = b"end"
    pool.give_back(buffer)
    assert pool.in_use_bytes == 0


def test_a_buffer_that_was_reused_is_taken_again() -> None:
    pool = BufferPool()
    buffer = pool.take(100_000)
    pool.give_back(buffer)
    assert pool.take(120_000) is buffer


def test_a_very_large_buffer_has_memory_only_for_what_arrived_and_grows_in_no_time() -> None:
    pool = BufferPool()
    resident_before = resident_bytes(os.getpid())
    began = time.thread_time()
    buffer = pool.take(REUSED_BUFFER_BYTES_MAX + 1)
    for megabytes in (16, 64, 256):
        buffer = pool.grow(buffer, megabytes * MEGABYTE)
    took_s = time.thread_time() - began
    assert resident_bytes(os.getpid()) - resident_before < 64 * MEGABYTE
    assert took_s < 0.02
    buffer[: 8 * MEGABYTE] = bytes(8 * MEGABYTE)
    pool.give_back(buffer)
