"""Functions that worker processes are asked to call."""

from __future__ import annotations

import os
import signal
import sys
import time

from barnabas.protocol.errors import Error, KafkaError

TYPE_CHECKING = False  # a worker imports `typing` only if its tasks do
if TYPE_CHECKING:
    from collections.abc import Iterator


def total(*numbers: int) -> int:
    return sum(numbers)


def pid() -> int:
    return os.getpid()


def reverse(data: bytes) -> bytes:
    return data[::-1]


def zeros(size: int) -> bytes:
    return bytes(size)


def refuse(text: str) -> None:
    raise KafkaError(Error.CORRUPT_MESSAGE, text)


class UnpicklableError(Exception):
    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")


def refuse_in_own_way() -> None:
    raise UnpicklableError("this", "that")


def kill_oneself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def leave() -> None:
    os._exit(3)


def spin(seconds: float) -> None:
    """Keeps the interpreter busy."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def spin_after_saying(path: str, seconds: float) -> None:
    with open(path, "w") as file:
        file.write(str(os.getpid()))
    spin(seconds)


def open_files() -> list[str]:
    """What this process holds open, beside the folder it looks into for that."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:
            continue
    return found


def session() -> int:
    return os.getsid(0)


def imported() -> list[str]:
    return sorted(sys.modules)


def count_up(start: int, end: int) -> Iterator[int]:
    yield from range(start, end)


def note_steps(path: str) -> Iterator[int]:
    """Says in a file how far it has come."""
    for number in range(1_000_000):
        with open(path, "w") as file:
            file.write(str(number))
        yield number


def pid_and_niceness() -> Iterator[tuple[int, int]]:
    while True:
        yield os.getpid(), os.nice(0)


def fail_after(steps: int) -> Iterator[int]:
    yield from range(steps)
    raise KafkaError(Error.CORRUPT_MESSAGE, "no more")


def spin_in_second_step(seconds: float) -> Iterator[int]:
    yield os.getpid()
    spin(seconds)
    yield 0


def take_memory(size: int) -> Iterator[int]:
    yield len(bytes(size))
