"""`barnabas bench`: sends and reads records for a while, with figures every second, and draws how it went."""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.bench.charts import chart
from barnabas.cli.bench.load import SENT_AT, Load, Plan
from barnabas.cli.cluster_connection import partition_count
from barnabas.cli.cluster_session import add_cluster_arguments, cluster_of
from barnabas.cli.command_line import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    CommandError,
    Parser,
    positive_int,
    seconds,
)
from barnabas.cli.live import drawing, ending_with_signals
from barnabas.cli.output import print_json
from barnabas.client.admin.topics import NewTopic, create_topics, delete_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import RenderableType

    from barnabas.client.cluster import Cluster

INTERVAL_S = 1.0
CHART_HEIGHT = 6
CHART_WIDTH_MAX = 100
CHART_MARGIN = 12
EPILOG = """examples:
  barnabas bench
  barnabas bench --seconds 60 --size 1024 --rate 10000 --compression zstd
  barnabas bench --topic orders --no-read

Without --topic, a topic is made for it and deleted afterwards. Delays are from before a record is sent until it has
been read; without --rate that is mostly time spent in queues, because more is sent than gets through.
One process sends and reads, which is not the most that a cluster can take: `barnabas kafka kafka-producer-perf-test`
where that is there, and several of these at once, show more.
exit codes: 0 all was acknowledged, 1 it was not, 2 the command line is wrong, 130 ^C (what was measured is shown)
"""


class Sample(NamedTuple):
    """What happened in an interval that ended so many seconds after the start."""

    at_s: float
    sent_per_s: float
    read_per_s: float
    delays_ms: list[float]


class Outcome(NamedTuple):
    plan: Plan
    samples: list[Sample]
    seconds: float
    acknowledged: int
    read: int
    failed: int
    failures: list[str]

    @property
    def delays_ms(self) -> list[float]:
        return sorted(delay for sample in self.samples for delay in sample.delays_ms)


def run(arguments: Sequence[str]) -> int:
    options = build_parser().parse(arguments)
    with cluster_of(options) as cluster:
        if options.topic is not None:
            return put_under_load(options.topic, options)
        topic = f"barnabas-bench-{secrets.token_hex(4)}"
        make_topic(cluster, topic, options.partitions)
        try:
            return put_under_load(topic, options)
        finally:
            delete_topics(cluster, [topic])


def put_under_load(topic: str, options: argparse.Namespace) -> int:
    plan = Plan(
        options.bootstrap_server,
        topic,
        partition_count(options.bootstrap_server, topic),
        options.size,
        options.rate,
        options.acks,
        options.compression,
        options.read,
    )
    outcome, is_interrupted = measure(plan, options)
    if options.json:
        print_json(facts(outcome))
    else:
        show(outcome)
    sys.stdout.flush()
    for text in outcome.failures:
        print(f"barnabas: {text}", file=sys.stderr)
    if is_interrupted:
        return EXIT_INTERRUPTED
    return EXIT_FAILED if outcome.failed or outcome.failures else EXIT_OK


def build_parser() -> Parser:
    parser = Parser("barnabas bench", "Send and read records for a while, and show how quickly that goes.", EPILOG)
    parser.add_argument("--seconds", type=seconds, default=10.0, metavar="N", help="for how long (default 10)")
    parser.add_argument("--topic", metavar="TOPIC", help="send to this topic, which stays (default: one for this run)")
    parser.add_argument(
        "--partitions", type=positive_int, default=4, metavar="N", help="of the topic that is made (default 4)"
    )
    parser.add_argument(
        "--size",
        type=record_size,
        default=100,
        metavar="BYTES",
        help=f"of a record, {SENT_AT.size} or more (default 100)",
    )
    parser.add_argument("--rate", type=positive_int, metavar="N", help="records a second (default: as many as go)")
    parser.add_argument("--acks", choices=("0", "1", "all"), default="all", help="(default all)")
    parser.add_argument(
        "--compression", choices=("none", "gzip", "snappy", "lz4", "zstd"), default="none", help="(default none)"
    )
    parser.add_argument("--no-read", dest="read", action="store_false", help="only send")
    add_cluster_arguments(parser)
    return parser


def record_size(text: str) -> int:
    size = positive_int(text)
    if size < SENT_AT.size:
        raise argparse.ArgumentTypeError(f"{text!r} is too small: a record has {SENT_AT.size} bytes at least")
    return size


def make_topic(cluster: Cluster, topic: str, partitions: int) -> None:
    failure = create_topics(cluster, [NewTopic(topic, partition_count=partitions)])[topic]
    if failure is not None:
        raise CommandError(f"topic {topic!r} cannot be made: {failure}")


def measure(plan: Plan, options: argparse.Namespace) -> tuple[Outcome, bool]:
    """What happened, and whether ^C cut it short."""
    load = Load(plan)
    samples: list[Sample] = []
    is_interrupted = False
    started = time.monotonic()
    try:
        load.start()
        started = time.monotonic()
        view = draw_live if sys.stdout.isatty() and not options.json else print_live
        view(samples_of(load, started, options.seconds), samples, plan, is_silent=options.json)
    except KeyboardInterrupt:
        is_interrupted = True
    finally:
        load.stop()
    elapsed_s = time.monotonic() - started
    return (
        Outcome(plan, samples, elapsed_s, load.acknowledged, load.read, load.unacknowledged, list(load.failures)),
        is_interrupted,
    )


def samples_of(load: Load, started: float, duration_s: float) -> Iterator[Sample]:
    """One for each interval, as it ends."""
    before_s, sent, read = started, 0, 0
    while not load.failures:
        ends_at = min(before_s + INTERVAL_S, started + duration_s)
        time.sleep(max(0.0, ends_at - time.monotonic()))
        now_s, sent_now, read_now = time.monotonic(), load.acknowledged, load.read
        elapsed_s = max(now_s - before_s, 1e-6)
        yield Sample(
            now_s - started, (sent_now - sent) / elapsed_s, (read_now - read) / elapsed_s, load.taken_delays_ms()
        )
        before_s, sent, read = now_s, sent_now, read_now
        if now_s >= started + duration_s:
            return


def draw_live(arriving: Iterator[Sample], samples: list[Sample], plan: Plan, *, is_silent: bool) -> None:
    """Figures and curves on a part of the terminal that goes away at the end."""
    from rich.live import Live

    assert not is_silent, "there is something to draw"
    live = Live(transient=True, refresh_per_second=4)
    with ending_with_signals(), drawing(live):
        for sample in arriving:
            samples.append(sample)
            live.update(drawn(samples, plan), refresh=True)


def print_live(arriving: Iterator[Sample], samples: list[Sample], plan: Plan, *, is_silent: bool) -> None:
    for sample in arriving:
        samples.append(sample)
        if not is_silent:
            print(sample_line(sample, plan), flush=True)


def drawn(samples: Sequence[Sample], plan: Plan) -> RenderableType:
    from rich.text import Text

    return Text("\n".join([sample_line(samples[-1], plan), *curves(samples, plan)]), no_wrap=True)


def sample_line(sample: Sample, plan: Plan) -> str:
    parts = [f"{sample.at_s:6.1f} s", f"sent {rate_text(sample.sent_per_s, plan)}"]
    if plan.reads:
        parts += [f"read {rate_text(sample.read_per_s, plan)}", delays_text(sorted(sample.delays_ms))]
    return "   ".join(parts)


def rate_text(per_s: float, plan: Plan) -> str:
    return f"{per_s:>10,.0f}/s {per_s * plan.record_bytes / 1e6:>7.1f} MB/s"


def delays_text(in_order: Sequence[float]) -> str:
    if not in_order:
        return "delay -"
    shown = (f"p{share} {percentile(in_order, share):,.1f}" for share in (50, 99))
    return f"delay {' '.join(shown)} ms"


def percentile(in_order: Sequence[float], share: int) -> float:
    return in_order[min(len(in_order) * share // 100, len(in_order) - 1)]


def curves(samples: Sequence[Sample], plan: Plan) -> list[str]:
    width = max(10, min(CHART_WIDTH_MAX, shutil.get_terminal_size().columns - CHART_MARGIN))

    def curve(title: str, values: Sequence[float], label: Callable[[float], str]) -> list[str]:
        return ["", title, *chart(values, width=width, height=CHART_HEIGHT, label=label)]

    lines = curve("records sent per second", [each.sent_per_s for each in samples], "{:,.0f}".format)
    if plan.reads:
        medians = [percentile(sorted(each.delays_ms), 50) if each.delays_ms else 0.0 for each in samples]
        lines += curve("median delay, ms", medians, "{:,.1f}".format)
    return lines


def show(outcome: Outcome) -> None:
    plan = outcome.plan
    if outcome.samples:
        print("\n".join(curves(outcome.samples, plan)))
        print()
    sent_per_s = outcome.acknowledged / outcome.seconds
    print(f"sent {outcome.acknowledged:,} records in {outcome.seconds:.1f} s: {rate_text(sent_per_s, plan).strip()}")
    if plan.reads:
        read_per_s = outcome.read / outcome.seconds
        print(f"read {outcome.read:,} records: {rate_text(read_per_s, plan).strip()}, {delays_text(outcome.delays_ms)}")
    if outcome.failed:
        print(f"not acknowledged: {outcome.failed:,} records")


def facts(outcome: Outcome) -> dict[str, object]:
    delays = outcome.delays_ms
    return {
        "seconds": round(outcome.seconds, 3),
        "record_bytes": outcome.plan.record_bytes,
        "sent": outcome.acknowledged,
        "read": outcome.read,
        "failed": outcome.failed,
        "sent_per_s": round(outcome.acknowledged / outcome.seconds, 1),
        "read_per_s": round(outcome.read / outcome.seconds, 1),
        "delay_ms": {f"p{share}": round(percentile(delays, share), 3) for share in (50, 95, 99)} if delays else None,
        "samples": [
            {
                "at_s": round(each.at_s, 3),
                "sent_per_s": round(each.sent_per_s, 1),
                "read_per_s": round(each.read_per_s, 1),
                "delay_p50_ms": round(percentile(sorted(each.delays_ms), 50), 3) if each.delays_ms else None,
            }
            for each in outcome.samples
        ],
    }
