"""`barnabas top`: what nodes do, live, from the metrics that they tell (`barnabas start --metrics 9308`).

At a terminal it fills the screen until ^C, and leaves the terminal as it was. In a pipe, and with --json, it prints a
picture or an object for each interval; --count says how many.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from barnabas.cli.command_line import EXIT_OK, CommandError, Parser, parse_addresses, positive_int, seconds
from barnabas.cli.top.figures import figures
from barnabas.cli.top.samples import take_all

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence
    from types import FrameType

    from rich.console import Console

    from barnabas.cli.top.figures import Figures
    from barnabas.cli.top.samples import Address, Snapshot

DEFAULT_METRICS: Final = "127.0.0.1:9308"
INTERVAL_S: Final = 2.0
FIRST_INTERVAL_S: Final = 0.5
"""The first picture need not wait for a whole interval."""
PIPE_WIDTH: Final = 120
PIPE_HEIGHT: Final = 40
EPILOG = """examples:
  barnabas start --metrics 9308                             in another terminal
  barnabas top
  barnabas top --metrics 127.0.0.1:9308,127.0.0.1:9309,127.0.0.1:9310
  barnabas top --json --count 1

Times are of the last one or two minutes, those of the slowest node. idle is the share of time in which a node's event
loop had nothing to do: below 20 % requests begin to wait. URP are partitions that lack a replica in sync.
"""


def run(arguments: Sequence[str]) -> int:
    options = build_parser().parse(arguments)
    addresses = parse_addresses(options.metrics)
    watch = Watch(addresses, options.interval)
    try:
        if options.json:
            print_objects(watch, options.count)
        elif sys.stdout.isatty():
            fill_screen(watch, options)
        else:
            print_pictures(watch, options)
    except KeyboardInterrupt:
        # The way out.
        return EXIT_OK
    return EXIT_OK


def build_parser() -> Parser:
    parser = Parser("barnabas top", "Show live what nodes do: throughput, requests, lag, memory.", EPILOG)
    parser.add_argument(
        "--metrics",
        metavar="HOST:PORT[,HOST:PORT...]",
        default=DEFAULT_METRICS,
        help=f"where nodes tell their metrics (default {DEFAULT_METRICS})",
    )
    parser.add_argument(
        "--interval", type=seconds, default=INTERVAL_S, metavar="SECONDS", help=f"(default {INTERVAL_S:g})"
    )
    parser.add_argument("--count", type=positive_int, metavar="N", help="end after N pictures (default: only at ^C)")
    parser.add_argument("--json", action="store_true", help="print an object in each line instead of a picture")
    return parser


class Watch:
    """Asks nodes again and again."""

    def __init__(self, addresses: list[Address], interval_s: float) -> None:
        self._addresses = addresses
        self.interval_s = interval_s
        self._before: list[Snapshot] = []

    def begin(self) -> None:
        """Raises CommandError if no node answers."""
        self._before, failures = take_all(self._addresses)
        if not self._before:
            raise CommandError(f"{'; '.join(failures)} (`barnabas start --metrics 9308` tells them there)")

    def look(self) -> Figures:
        now, failures = take_all(self._addresses)
        found = figures(self._before, now, failures)
        self._before = now or self._before
        return found


def print_objects(watch: Watch, count: int | None) -> None:
    for found in regular(watch, count):
        print(json.dumps(as_json(found), ensure_ascii=False), flush=True)


def as_json(found: Figures) -> dict[str, object]:
    """Documented in docs/metrics.md."""
    return {
        **{name: value for name, value in found._asdict().items() if not isinstance(value, tuple)},
        "throughput": found.throughput._asdict(),
        "nodes": [line._asdict() for line in found.nodes],
        "requests": [line._asdict() for line in found.requests],
        "groups": [line._asdict() for line in found.groups],
        "topics": [line._asdict() for line in found.topics],
        "missing": list(found.missing),
    }


def regular(watch: Watch, count: int | None) -> Iterator[Figures]:
    watch.begin()
    number = 0
    while count is None or number < count:
        time.sleep(min(watch.interval_s, FIRST_INTERVAL_S) if number == 0 else watch.interval_s)
        yield watch.look()
        number += 1


def print_pictures(watch: Watch, options: argparse.Namespace) -> None:
    from rich.console import Console

    from barnabas.cli.top.screen import History, picture

    console = Console(width=PIPE_WIDTH, height=PIPE_HEIGHT, no_color=True)
    history = History()
    for found in regular(watch, options.count or 1):
        history.points.append(found.throughput)
        console.print(picture(found, history, title_of(options), width=PIPE_WIDTH, height=PIPE_HEIGHT))


def fill_screen(watch: Watch, options: argparse.Namespace) -> None:
    from rich.console import Console
    from rich.live import Live

    from barnabas.cli.top.screen import History, picture

    watch.begin()
    console = Console()
    history = History()
    woken = threading.Event()
    found: Figures | None = None
    due_s = time.monotonic() + min(watch.interval_s, FIRST_INTERVAL_S)
    shown = 0
    with (
        ended_by_signals(),
        told_of_resizes(woken),
        Live(console=console, screen=True, auto_refresh=False, transient=True) as live,
    ):
        while options.count is None or shown < options.count:
            woken.wait(max(due_s - time.monotonic(), 0.0))
            woken.clear()
            if time.monotonic() >= due_s:
                due_s = time.monotonic() + watch.interval_s
                found = watch.look()
                history.points.append(found.throughput)
                shown += 1
            if found is not None:
                width, height = size_of(console)
                live.update(picture(found, history, title_of(options), width=width, height=height), refresh=True)


def size_of(console: Console) -> tuple[int, int]:
    return console.size.width, console.size.height


def title_of(options: argparse.Namespace) -> str:
    return f"barnabas top  {time.strftime('%H:%M:%S')}  every {options.interval:g} s, ^C ends"


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM and a terminal that goes away end the view as ^C does, so that the screen is put back. So does SIGINT
    where a shell has had it ignored, as for commands in the background."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, end) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


@contextmanager
def told_of_resizes(woken: threading.Event) -> Iterator[None]:
    before = signal.signal(signal.SIGWINCH, lambda _number, _frame: woken.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)
