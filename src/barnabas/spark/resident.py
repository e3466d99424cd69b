"""Python processes of Spark that live on between tasks.

After each task Spark has such a process look for garbage among all objects that it has, those of the libraries that it
has imported included: 20 ms each time, of which a trigger of a small query had ten. Objects that are there when the
first task begins stay for as long as the process does, and are left out of that from then on.

When a process has had nothing to do for a minute, Spark hangs up on it. It ends by that, but not without an attempt to
answer, which over a socket of the file system leaves a trace on the screen. That is prevented in all that come by here;
the one that Spark has look for data sources, once in a program, does not.
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
"""What they are forks of, unless of `spark_daemon`. They call its function `worker` for each task."""

_settled_process_id: int | None = None


def settle_in() -> None:
    """Called in each process that plans or runs tasks, as late as may be; does its work once."""
    global _settled_process_id
    if _settled_process_id != os.getpid():
        _settled_process_id = os.getpid()
        gc.freeze()
        program = sys.modules["__main__"]
        if program.__spec__ is not None and program.__spec__.name == _DAEMON:
            vars(program)["worker"] = quiet(vars(program)["worker"])


def quiet(worker: Worker) -> Worker:
    """A worker that ends its process at once when Spark has hung up on it: nobody waits for its answer, and its streams
    would only try again to send it."""

    def run(connection: socket.socket, is_authenticated: bool) -> int:
        try:
            return worker(connection, is_authenticated)
        except BrokenPipeError:
            os._exit(0)

    return run
