"""What Kafka's tools log on standard error: a line with time, level, message and class, and one for the exception."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Final

NETWORK_CLIENT: Final = "org.apache.kafka.clients.NetworkClient"
METADATA: Final = "org.apache.kafka.clients.Metadata"


def log_warning(message: str, logger: str) -> None:
    _print("WARN", message, logger)


def log_error(message: str, logger: str, exception: str = "") -> None:
    """`exception` is its name with what it says, as Java prints one before its trace."""
    _print("ERROR", message, logger)
    if exception:
        print(exception, file=sys.stderr)


def _print(level: str, message: str, logger: str) -> None:
    now = datetime.now().astimezone()
    sys.stdout.flush()
    print(f"[{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03}] {level} {message} ({logger})", file=sys.stderr)
