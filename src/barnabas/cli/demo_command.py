"""`barnabas demo`: starts a node, sends a million records through it, and shows how fast that was.

It fails if what comes out is not what went in. Without a terminal it prints the same, without bars and colours.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import KafkaException

from barnabas.cli import demo_load
from barnabas.cli.cluster_connection import connect, error_text
from barnabas.cli.command_line import EXIT_OK, CommandError, Parser, parse_bootstrap_server, positive_int
from barnabas.cli.demo_load import Tally, Target, percentile
from barnabas.cli.output import Column, number, print_table
from barnabas.cli.progress_bar import counting_bar
from barnabas.cli.rdkafka import reason
from barnabas.net.frames import WireError
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.testing.node_process import Node, NodeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PARTITIONS = 4
REQUEST_TIMEOUT_MS = 30_000
RECORDS = 1_000_000
TIMED_RECORDS = 2_000
UNTIMED_RECORDS = 200  # a warm-up before the timed ones, so that both sides have seen each request before


class Cluster(NamedTuple):
    bootstrap_server: str
    started_in_s: float | None
    pid: int | None


class Figures(NamedTuple):
    sent: Tally
    read: Tally
    produce_s: list[float]
    end_to_end_s: list[float]


def run(arguments: Sequence[str]) -> int:
    options = build_parser().parse(arguments)
    try:
        with cluster(options.bootstrap_server) as target:
            figures = measure(target.bootstrap_server, options.records)
            memory = memory_mb(target.pid)
        show(target, figures, memory)
    except (NodeError, WireError) as error:
        raise CommandError(str(error)) from error
    except KafkaException as error:
        raise CommandError(reason(error)) from error
    return EXIT_OK


def build_parser() -> Parser:
    parser = Parser(
        "barnabas demo", "Start a node in a temporary folder, move records through it, check them and show the figures."
    )
    parser.add_argument("--records", type=positive_int, default=RECORDS, metavar="N", help=f"(default {RECORDS:,})")
    parser.add_argument(
        "--bootstrap-server",
        type=parse_bootstrap_server,
        metavar="HOST:PORT",
        help="use this cluster instead of starting a node",
    )
    return parser


@contextlib.contextmanager
def cluster(bootstrap_server: str | None) -> Iterator[Cluster]:
    """The cluster to use: the given one, or a new node that runs as long as the block."""
    if bootstrap_server is not None:
        yield Cluster(bootstrap_server, None, None)
        return
    with tempfile.TemporaryDirectory(prefix="barnabas-demo-") as folder:
        started = time.perf_counter()
        with Node(Path(folder) / "data") as node:
            elapsed = time.perf_counter() - started
            say(f"node ready at {node.bootstrap} after {elapsed:.2f} s")
            yield Cluster(node.bootstrap, elapsed, node.pid)


def measure(bootstrap_server: str, records: int) -> Figures:
    """Runs the whole load on a topic of its own. If it fails, the topic is left to be examined."""
    target = create_topic(bootstrap_server, f"barnabas-demo-{os.getpid()}")
    with counting_bar("producing", records, "records") as advance:
        sent = demo_load.send_records(target, records, advance)
    say(f"{sent.records:,} records of {demo_load.VALUE_BYTES} bytes acknowledged after {sent.seconds:.2f} s")
    with counting_bar("consuming", records, "records") as advance:
        read = demo_load.read_records(target, records, advance)
    demo_load.require_same(sent, read)
    say(f"{read.records:,} records read and checked after {read.seconds:.2f} s")
    with connect(bootstrap_server) as producer, connect(bootstrap_server) as consumer:
        demo_load.produce_round_trips(producer, target, UNTIMED_RECORDS)
        produce_s = demo_load.produce_round_trips(producer, target, TIMED_RECORDS)
        demo_load.end_to_end_times(producer, consumer, target, UNTIMED_RECORDS)
        end_to_end_s = demo_load.end_to_end_times(producer, consumer, target, TIMED_RECORDS)
    delete_topic(target)
    return Figures(sent, read, produce_s, end_to_end_s)


def create_topic(bootstrap_server: str, name: str) -> Target:
    request = m.CreateTopicsRequest
    topic = request.CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=-1)
    with connect(bootstrap_server) as connection:
        response: m.CreateTopicsResponse = connection.send(request(topics=[topic], timeout_ms=REQUEST_TIMEOUT_MS))
    (created,) = response.topics
    if created.error_code != Error.NONE:
        raise CommandError(f"topic {name!r}: {error_text(created.error_code, created.error_message)}")
    return Target(bootstrap_server, name, created.topic_id, PARTITIONS)


def delete_topic(target: Target) -> None:
    request = m.DeleteTopicsRequest
    topic = request.DeleteTopicState(name=target.topic)
    with connect(target.bootstrap_server) as connection:
        response: m.DeleteTopicsResponse = connection.send(request(topics=[topic], timeout_ms=REQUEST_TIMEOUT_MS))
    (deleted,) = response.responses
    if deleted.error_code != Error.NONE:
        raise CommandError(f"topic {target.topic!r}: {error_text(deleted.error_code, deleted.error_message)}")


def show(target: Cluster, figures: Figures, memory: float | None) -> None:
    throughput = [
        (name, f"{tally.records_per_second:,.0f}", f"{tally.megabytes_per_second:,.1f}", f"{tally.seconds:.2f}")
        for name, tally in (("produce, acks=all", figures.sent), ("consume", figures.read))
    ]
    print_table((Column("throughput"), number("records/s"), number("MB/s"), number("seconds")), throughput)
    print()
    latency = [
        (name, *(f"{percentile(times, share) * 1000:.3f}" for share in (0.5, 0.99)))
        for name, times in (
            ("produce round trip, acks=all", figures.produce_s),
            ("producer to a waiting consumer", figures.end_to_end_s),
        )
    ]
    print_table((Column("latency of one record"), number("p50 ms"), number("p99 ms")), latency)
    print()
    if target.started_in_s is not None:
        print(f"time from start to ready: {target.started_in_s:.2f} s")
    if memory is not None:
        print(f"memory of the node: {memory:.0f} MB")
    read = figures.read
    print(f"{read.records:,} records in, the same {read.records:,} out: checksum {read.checksum:x}")


def memory_mb(pid: int | None) -> float | None:
    """The resident memory of a process, if the system has /proc."""
    status = Path(f"/proc/{pid}/status")
    if pid is None or not status.exists():
        return None
    (kilobytes,) = (line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmRSS:"))
    return int(kilobytes) / 1000


def say(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    from barnabas.cli.main import main

    sys.exit(main(["demo", *sys.argv[1:]]))
