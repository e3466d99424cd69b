"""`barnabas watch`: how well a cluster serves, measured from outside by a client that writes and reads."""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import time
from typing import TYPE_CHECKING, Final

from barnabas.cli.command_line import (
    EXIT_FAILED,
    EXIT_OK,
    Parser,
    add_bootstrap_server,
    positive_int,
    seconds,
)
from barnabas.cli.watch.outcome import Objective, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

    from barnabas.cli.watch.outcome import Result
    from barnabas.cli.watch.probe import Prober

TOPIC: Final = "barnabas-watch"
EPILOG = """examples:
  barnabas watch --count 60
  barnabas watch --interval 0.2 --slo 99.9 --within 250
  barnabas watch --json --report 60 >> watch.jsonl

A probe writes a record with acks=all to the topic, one partition after the other, and reads it back. The last two lines
are its figures, and the objective (SLO) with what was reached. Exit code 1 says that the objective was missed.
^C ends it with the same two lines.
"""


def run(arguments: Sequence[str]) -> int:
    options = build_parser().parse(arguments)
    from barnabas.cli.watch.probe import Prober

    outcome = Outcome(Objective(options.slo, options.within))
    # ^C is the way out of a watch without --count.
    with (
        Prober(options.bootstrap_server, options.topic, options.timeout) as prober,
        ended_by_signals(),
        contextlib.suppress(KeyboardInterrupt),
    ):
        keep_probing(prober, outcome, options)
    report(outcome, options)
    return EXIT_OK if outcome.is_met else EXIT_FAILED


def build_parser() -> Parser:
    parser = Parser("barnabas watch", "Measure from outside how available and how quick a cluster is.", EPILOG)
    add_bootstrap_server(parser)
    parser.add_argument("--topic", default=TOPIC, help=f"is made if it is not there (default {TOPIC})")
    parser.add_argument("--interval", type=seconds, default=1.0, metavar="SECONDS", help="between probes (default 1)")
    parser.add_argument("--timeout", type=seconds, default=5.0, metavar="SECONDS", help="of a probe (default 5)")
    parser.add_argument("--count", type=positive_int, metavar="N", help="end after N probes (default: only at ^C)")
    parser.add_argument("--report", type=seconds, metavar="SECONDS", help="tell the figures so often, too")
    parser.add_argument(
        "--slo", type=percentage, default=99.9, metavar="PERCENT", help="how many probes are to succeed (default 99.9)"
    )
    parser.add_argument(
        "--within", type=positive_int, default=1000, metavar="MS", help="in which they are read back (default 1000)"
    )
    parser.add_argument("--json", action="store_true", help="tell figures as an object in a line")
    return parser


def percentage(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value <= 100:
        raise argparse.ArgumentTypeError(f"{text!r} is no share of a hundred, such as 99.9")
    return value


def keep_probing(prober: Prober, outcome: Outcome, options: argparse.Namespace) -> None:
    begun_s = due_s = time.monotonic()
    report_due_s = None if options.report is None else begun_s + options.report
    number = 0
    while options.count is None or number < options.count:
        time.sleep(max(due_s - time.monotonic(), 0))
        # A probe that took longer than the interval does not make the next ones follow on its heels.
        due_s = max(due_s, time.monotonic() - options.interval) + options.interval
        result = prober.probe()
        outcome.add(result)
        number += 1
        tell(result, options)
        if report_due_s is not None and time.monotonic() >= report_due_s:
            report(outcome, options)
            report_due_s += options.report


def tell(result: Result, options: argparse.Namespace) -> None:
    """Failures are worth a line; what went well is, too, where somebody looks on."""
    where = f"{time.strftime('%H:%M:%S')} partition {result.partition}"
    if result.failure is not None:
        print(f"{where}: {result.failure}", file=sys.stderr, flush=True)
    elif sys.stdout.isatty() and not options.json:
        times = f"acknowledged after {result.acknowledged_ms:.1f} ms, read back after {result.read_ms:.1f} ms"
        print(f"{where}: {times}", flush=True)


def report(outcome: Outcome, options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps({"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **outcome.as_json()}), flush=True)
    else:
        print(outcome.figures_line(), flush=True)
        print(outcome.objective_line(), flush=True)


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM ends a watch as ^C does, so that whoever supervises it gets its figures. So does SIGINT where a shell has
    had it ignored, as for commands in the background."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, end) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
