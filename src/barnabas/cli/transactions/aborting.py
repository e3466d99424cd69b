"""`barnabas transactions hanging`, `abort`: what keeps readers of committed data waiting, and how that ends."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from barnabas.cli.cluster_session import add_cluster_arguments, cluster_of
from barnabas.cli.command_line import EXIT_FAILED, EXIT_OK, CommandError, UsageError, non_negative_int
from barnabas.cli.confirmation import add_confirmation, check_confirmation, confirm
from barnabas.cli.output import Column, number, print_json, print_table
from barnabas.cli.times import AGO, parse_time_ms, time_text
from barnabas.cli.transactions.listing import NOTHING, failure_text, show
from barnabas.client.admin.hanging_transactions import Hanging, find_hanging
from barnabas.client.admin.topics import TopicState, describe_topics, list_topics
from barnabas.client.admin.transactions import (
    ProducerState,
    abort_in_partition,
    describe_producers,
    describe_transactions,
    force_end,
)
from barnabas.protocol.errors import KafkaError

if TYPE_CHECKING:
    from barnabas.cli.command_line import Parser
    from barnabas.client.cluster import Cluster, TopicPartition

TIMEOUT_MAX_MS = 900_000
"""The longest that a producer may keep a transaction open, where the cluster does not say otherwise."""
COLUMNS = (
    Column("topic"),
    number("partition"),
    number("start offset"),
    number("producer"),
    number("epoch"),
    Column("last record"),
    Column("transactional id"),
)
HANGING_EPILOG = """A transaction hangs when a partition has records of it and its coordinator knows nothing of that.
Only those are looked at whose last record is older than --older-than: 15m, the longest that a cluster lets a
transaction be open, unless transaction.max.timeout.ms says otherwise.

exit codes: 0 there are none, 1 some were found or the cluster refused, 2 the command line is wrong
"""
ABORT_EPILOG = """examples:
  barnabas transactions abort payments-1                               # fence its producer
  barnabas transactions abort --partition orders:0 --start-offset 42   # one that hangs there

exit codes: 0 it is done, 1 it was refused or you said no, 2 the command line is wrong
"""


def add_hanging_arguments(parser: Parser) -> None:
    parser.add_argument("--topic", action="append", default=[], metavar="TOPIC", help="(default: all topics)")
    parser.add_argument(
        "--older-than", type=parse_duration_ms, default=TIMEOUT_MAX_MS, metavar="15m", help="(default 15m)"
    )
    add_cluster_arguments(parser)


def add_abort_arguments(parser: Parser) -> None:
    parser.add_argument("id", metavar="TRANSACTIONAL-ID", nargs="?")
    parser.add_argument("--partition", type=parse_partition, metavar="TOPIC:N", help="one that hangs in this partition")
    parser.add_argument(
        "--start-offset", type=non_negative_int, metavar="OFFSET", help="where that one begins, as `hanging` shows it"
    )
    add_confirmation(parser)
    add_cluster_arguments(parser)


def parse_duration_ms(text: str) -> int:
    if AGO.fullmatch(f"-{text}") is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration: expected something like 90s, 15m or 2h")
    now_ms = 1 << 60
    return now_ms - parse_time_ms(f"-{text}", now_ms=now_ms)


def parse_partition(text: str) -> TopicPartition:
    found = re.fullmatch(r"(.+):(\d+)", text, re.ASCII)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not TOPIC:0")
    return found[1], int(found[2])


def show_hanging(options: argparse.Namespace) -> int:
    with cluster_of(options) as cluster:
        found = find_hanging(cluster, places_of(cluster, options.topic), older_than_ms=options.older_than)
    if options.json:
        print_json([facts(each) for each in found])
    elif not found:
        print("no transaction hangs")
    else:
        print_table(COLUMNS, [row(each) for each in found])
        print("readers of committed data wait in front of these; to end one:")
        (topic, partition), producer, _ = found[0]
        print(f"  barnabas transactions abort --partition {topic}:{partition} --start-offset {producer.start_offset}")
    return EXIT_FAILED if found else EXIT_OK


def places_of(cluster: Cluster, topics: list[str]) -> list[TopicPartition]:
    names = topics or [each.name for each in list_topics(cluster)]
    places = []
    for name, state in describe_topics(cluster, names).items():
        if isinstance(state, TopicState):
            places += [(name, each.partition) for each in state.partitions]
        elif topics:
            raise CommandError(f"topic {name!r} does not exist (`barnabas topic list` lists topics)")
    return places


def abort(options: argparse.Namespace) -> int:
    check_confirmation(options)
    if (options.id is None) == (options.partition is None):
        raise UsageError("say which: a TRANSACTIONAL-ID, or --partition with --start-offset")
    if (options.partition is None) != (options.start_offset is None):
        raise UsageError("--partition and --start-offset belong together")
    with cluster_of(options) as cluster:
        act = abort_hanging if options.id is None else abort_transaction
        aborted = act(cluster, options)
    if options.json:
        print_json(aborted)
    return EXIT_OK


def abort_transaction(cluster: Cluster, options: argparse.Namespace) -> dict[str, object]:
    state = describe_transactions(cluster, [options.id])[options.id]
    if isinstance(state, KafkaError):
        raise CommandError(failure_text(cluster, options.id, state))
    if not options.json:
        show(state)
    confirm("Abort what it has open, and fence its producer, which cannot go on then?", options)
    force_end(cluster, options.id)
    if not options.json:
        print(f"aborted {options.id}")
    return {"transactional_id": options.id}


def abort_hanging(cluster: Cluster, options: argparse.Namespace) -> dict[str, object]:
    topic, partition = options.partition
    producer = producer_at(cluster, options.partition, options.start_offset)
    where = f"{topic}-{partition}"
    if not options.json:
        print(f"{where}: producer {producer.producer_id}, epoch {producer.producer_epoch}, from {options.start_offset}")
    confirm(f"Abort this transaction in {where}, whatever its coordinator knows of it?", options)
    abort_in_partition(
        cluster,
        options.partition,
        producer.producer_id,
        producer.producer_epoch,
        max(producer.coordinator_epoch, 0),
    )
    if not options.json:
        print(f"aborted the transaction in {where}")
    return {"topic": topic, "partition": partition, "start_offset": options.start_offset}


def producer_at(cluster: Cluster, place: TopicPartition, offset: int) -> ProducerState:
    """The producer whose open transaction begins there."""
    producers = describe_producers(cluster, [place])[place]
    if isinstance(producers, KafkaError):
        raise producers
    started = {each.start_offset: each for each in producers if each.start_offset >= 0}
    if offset not in started:
        there = ", ".join(map(str, sorted(started))) or "nowhere"
        raise CommandError(f"no open transaction begins at offset {offset} of {place[0]}-{place[1]}, but at: {there}")
    return started[offset]


def row(hanging: Hanging) -> tuple[object, ...]:
    producer = hanging.producer
    return (
        *hanging.place,
        producer.start_offset,
        producer.producer_id,
        producer.producer_epoch,
        time_text(producer.last_timestamp_ms),
        hanging.transactional_id or NOTHING,
    )


def facts(hanging: Hanging) -> dict[str, object]:
    topic, partition = hanging.place
    return {
        "topic": topic,
        "partition": partition,
        "start_offset": hanging.producer.start_offset,
        "producer_id": hanging.producer.producer_id,
        "producer_epoch": hanging.producer.producer_epoch,
        "last_timestamp_ms": hanging.producer.last_timestamp_ms,
        "transactional_id": hanging.transactional_id,
    }
