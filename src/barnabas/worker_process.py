"""What runs in a worker process: one task after the other, until the node closes the stream.

The node starts this file with a bare interpreter (see `ports.processes`), so it imports next to nothing: a worker is
there within a few hundredths of a second, and has in memory only what its tasks import.

A task comes as (module, name, arguments), pickled, behind its length; its outcome goes back the same way. A task whose
function is a generator has an outcome for each step, and goes on when the node says so, with an empty message. Nothing
but the node holds the other end of the stream, so what arrives is as trustworthy as the node itself.

A worker must not outlive its node. Between tasks it learns of the node's end by the end of the stream; during one, a
thread that does nothing but wait for that ends the process. Signals from a terminal do not get here, as each worker
has a session of its own.
"""

from __future__ import annotations

import _thread
import importlib
import os
import pickle
import resource
import select
import signal
import struct
import sys
import traceback

TYPE_CHECKING = False  # importing `typing` for it would take longer than everything else here
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

LENGTH = struct.Struct(">Q")
DONE, FAILED, STEP = 0, 1, 2
_PIECE_BYTES = 1 << 20


class TaskFailedError(Exception):
    """A task failed with something that cannot be brought over to the node; this says what it was."""


def main(fd: int, result_bytes_max: int, memory_bytes_max: int, niceness: int) -> None:
    os.nice(niceness)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes_max, memory_bytes_max))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _thread.start_new_thread(_end_with_node, (fd,))
    while (task := _receive(fd)) is not None:
        outcome = _perform(fd, task, result_bytes_max)
        del task
        _send(fd, outcome)


def _end_with_node(fd: int) -> None:
    poll = select.poll()
    poll.register(fd, select.POLLRDHUP)
    poll.poll()
    os._exit(0)


def _perform(fd: int, task: bytearray, result_bytes_max: int) -> bytes:
    try:
        module, name, arguments = pickle.loads(task)  # noqa: S301 (from the node)
        result = find(module, name)(*arguments)
        if not hasattr(result, "throw"):
            return _outcome(DONE, result, result_bytes_max)
        for step in result:  # type: ignore[attr-defined]
            _send(fd, _outcome(STEP, step, result_bytes_max))
            if _receive(fd) is None:
                os._exit(0)
        return _outcome(DONE, None, result_bytes_max)
    except Exception as error:
        return _failure(error)


def _outcome(kind: int, result: object, result_bytes_max: int) -> bytes:
    outcome = pickle.dumps((kind, result), pickle.HIGHEST_PROTOCOL)
    if len(outcome) > result_bytes_max:
        raise ValueError(f"the result has {len(outcome)} bytes, and {result_bytes_max} are allowed")
    return outcome


def _failure(error: Exception) -> bytes:
    """The error itself where it can be read back, so that the node meets the exception that its own call would raise;
    with the trace of this process in its notes."""
    trace = "".join(traceback.format_exception(error))
    error.__traceback__ = error.__cause__ = error.__context__ = None
    try:
        outcome = pickle.dumps((FAILED, error, trace), pickle.HIGHEST_PROTOCOL)
        pickle.loads(outcome)  # noqa: S301 (our own)
    except Exception:
        outcome = pickle.dumps((FAILED, TaskFailedError(f"{type(error).__name__}: {error}"), trace))
    return outcome


def find(module: str, name: str) -> Callable[..., object]:
    """A function by the module and the name it was defined under."""
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found  # type: ignore[no-any-return]


def _receive(fd: int) -> bytearray | None:
    """What the node sent; None when it sends no more."""
    head = _read(fd, LENGTH.size)
    if head is None:
        return None
    return _read(fd, LENGTH.unpack(head)[0])


def _read(fd: int, size: int) -> bytearray | None:
    data = bytearray(size)
    view = memoryview(data)
    filled = 0
    while filled < size:
        try:
            received = os.readv(fd, [view[filled : filled + _PIECE_BYTES]])
        except ConnectionError:  # the node was killed before it had read all that it was sent
            return None
        if not received:
            return None
        filled += received
    return data


def _send(fd: int, outcome: bytes) -> None:
    view = memoryview(LENGTH.pack(len(outcome)) + outcome)
    try:
        while view:
            view = view[os.write(fd, view[:_PIECE_BYTES]) :]
    except ConnectionError:
        os._exit(0)  # the node is gone


if __name__ == "__main__":
    # Under the name that the node knows it by, so that its classes are the same ones on both sides.
    from barnabas import worker_process

    worker_process.main(*map(int, sys.argv[1:]))
