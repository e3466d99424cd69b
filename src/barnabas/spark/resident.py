"""Python processes of Spark that live on between tasks.

After each task Spark has such a process look for garbage among all objects that it has, those of the libraries that it
has imported included: 20 ms each time, of which a trigger of a small query had ten. Objects that are there when the
first task begins stay for as long as the process does, and are left out of that from then on.

When a process has had nothing to do for a minute, Spark hangs up on it. It ends by that, but not without an attempt to
answer, which over a socket of the file system leaves a trace on the screen.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    Worker = Callable[[socket.socket, bool], int]

_DAEMON: Final = "pyspark.daemon"
"""What those are forks of that plan; they call its function `worker` for each task. For others see `spark_daemon`."""

_settled_process_id: int | None = None


def settle_in() -> None:
    """Called by tasks when what they need is imported; does its work once in a process."""
    global _settled_process_id
    if _settled_process_id != os.getpid():
        _settled_process_id = os.getpid()
        gc.freeze()
        program = sys.modules["__main__"]
        if program.__spec__ is not None and program.__spec__.name == _DAEMON:
            vars(program)["worker"] = quiet(vars(program)["worker"])


def quiet(worker: Worker) -> Worker:
    """A worker that just ends when Spark has hung up on it: nobody waits for its answer."""

    def run(connection: socket.socket, is_authenticated: bool) -> int:
        try:
            return worker(connection, is_authenticated)
        except BrokenPipeError:
            return 1

    return run
