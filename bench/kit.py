"""`python -m bench kit`: how long the brokers of the test kit take to be ready. There is nothing to compare them with.

The first broker of a session is measured in a process of its own each time, from the import of `barnabas.testing` on:
that of a test suite. The further ones follow it in the same process.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

SESSIONS: Final = 5
FURTHER_BROKERS: Final = 5
FIRST_SECONDS_MAX: Final = 0.5
FURTHER_SECONDS_MAX: Final = 0.15
SESSION_SECONDS_MAX: Final = 60.0
SESSION: Final = """
import json, sys, time

started = time.monotonic()
from barnabas.testing import Broker

took_s = []
for _ in range(int(sys.argv[1])):
    with Broker():
        took_s.append(time.monotonic() - started)
    started = time.monotonic()
print(json.dumps(took_s))
"""


def main(arguments: Sequence[str], console: Console) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench kit", description=__doc__)
    parser.add_argument("--sessions", type=int, default=SESSIONS, metavar="N", help=f"(default {SESSIONS})")
    sessions = [session() for _ in range(parser.parse_args(arguments).sessions)]
    first = [took_s[0] for took_s in sessions]
    further = [each for took_s in sessions for each in took_s[1:]]
    outcomes = [
        report(console, "first broker of a session", first, FIRST_SECONDS_MAX),
        report(console, "each further broker", further, FURTHER_SECONDS_MAX),
    ]
    return 0 if all(outcomes) else 1


def session() -> list[float]:
    """Seconds until each broker of a session was ready."""
    done = subprocess.run(
        [sys.executable, "-c", SESSION, str(1 + FURTHER_BROKERS)],
        capture_output=True,
        text=True,
        check=True,
        timeout=SESSION_SECONDS_MAX,
    )
    took_s: list[float] = json.loads(done.stdout)
    return took_s


def report(console: Console, what: str, took_s: Sequence[float], limit_s: float) -> bool:
    """Whether the median is within the limit."""
    median_s = statistics.median(took_s)
    is_met = median_s <= limit_s
    console.print(
        f"{what} ready: {median_s:.3f} s ({min(took_s):.3f}–{max(took_s):.3f} s, {len(took_s)} runs), "
        f"at most {limit_s} {'✓' if is_met else '✗'}"
    )
    return is_met
