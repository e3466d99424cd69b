"""Functions that worker processes are asked to call."""

from __future__ import annotations

import os
import signal
import sys
import time

from barnabas.protocol.errors import Error, KafkaError


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
