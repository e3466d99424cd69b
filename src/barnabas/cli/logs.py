"""The node's log for a person: one line each on stderr, with time, level and component."""

from __future__ import annotations

import logging
import sys

LEVELS = ("debug", "info", "warning", "error")
DATE_FORMAT = "%Y-%m-%d %H:%M:%S"


class LineFormatter(logging.Formatter):
    """`2026-01-31 12:00:00.123 INFO    broker.server  text`; the component is the logger without the package's name."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03d %(levelname)-7s %(component)-16s %(message)s", DATE_FORMAT)

    def format(self, record: logging.LogRecord) -> str:
        record.component = record.name.removeprefix("barnabas.")
        return super().format(record)


def set_up(level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
