"""What verifiable clients do, as lines of JSON on standard output: programs that start them follow them by these."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType

EXIT_TERMINATED = 143
"""What a shell reports for a command that SIGTERM ended."""


class Terminated(KeyboardInterrupt):
    """Somebody ended the process in order: it ends as after a ^C."""


def print_event(name: str, **fields: Any) -> None:
    event = {"timestamp": time.time_ns() // 1_000_000, "name": name, **fields}
    print(json.dumps(event, ensure_ascii=False, separators=(",", ":")), flush=True)


def end_in_order_when_terminated() -> None:
    """A SIGTERM becomes an exception in the main thread."""
    signal.signal(signal.SIGTERM, _terminate)


def _terminate(_signal_number: int, _frame: FrameType | None) -> None:
    raise Terminated
