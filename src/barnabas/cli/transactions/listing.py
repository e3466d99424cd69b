"""`barnabas transactions list`, `describe`."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from barnabas.cli.cluster_session import add_cluster_arguments, cluster_of, refusal_text
from barnabas.cli.command_line import EXIT_FAILED, EXIT_OK, nearest
from barnabas.cli.output import Column, comma_list, number, print_json, print_table
from barnabas.cli.times import duration_text, time_text
from barnabas.client.admin.transactions import (
    TransactionListing,
    TransactionState,
    describe_transactions,
    list_transactions,
)
from barnabas.client.offset_queries import by_topic
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    import argparse

    from barnabas.cli.command_line import Parser
    from barnabas.client.cluster import Cluster

NOTHING = "-"
ONGOING = "Ongoing"
OPEN_STATES = (ONGOING, "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
"""In which a transaction has been begun, and not all of its partitions know yet how it ended."""
COLUMNS = (
    Column("transactional id"),
    Column("state"),
    number("producer"),
    number("epoch"),
    Column("open for"),
    Column("timeout"),
    number("partitions"),
    number("coordinator"),
)


def add_list_arguments(parser: Parser) -> None:
    parser.add_argument("--open", action="store_true", help="only those that have a transaction open")
    parser.add_argument(
        "--state", action="append", default=[], metavar="STATE", help="only in this state, such as CompleteAbort"
    )
    add_cluster_arguments(parser)


def add_describe_arguments(parser: Parser) -> None:
    parser.add_argument("ids", metavar="TRANSACTIONAL-ID", nargs="+")
    add_cluster_arguments(parser)


def list_all(options: argparse.Namespace) -> int:
    states = [each.lower() for each in (*options.state, *([ONGOING] if options.open else []))]
    with cluster_of(options) as cluster:
        listed = [each for each in sorted(list_transactions(cluster)) if not states or each.state.lower() in states]
        described = describe_transactions(cluster, [each.transactional_id for each in listed])
    rows = []
    for each in listed:
        state = described[each.transactional_id]
        if isinstance(state, TransactionState):
            rows.append(state)
    if options.json:
        print_json([facts(each) for each in rows])
    else:
        print_table(COLUMNS, [row(each) for each in rows])
    return EXIT_OK


def describe(options: argparse.Namespace) -> int:
    names = list(dict.fromkeys(options.ids))
    with cluster_of(options) as cluster:
        found = describe_transactions(cluster, names)
        failures = [failure_text(cluster, name, each) for name, each in found.items() if isinstance(each, KafkaError)]
    states = [each for each in found.values() if isinstance(each, TransactionState)]
    if options.json:
        print_json([facts(each) for each in states])
    else:
        for each in states:
            show(each)
    for text in failures:
        print(f"barnabas: {text}", file=sys.stderr)
    return EXIT_FAILED if failures else EXIT_OK


def failure_text(cluster: Cluster, name: str, failure: KafkaError) -> str:
    if failure.error is not Error.TRANSACTIONAL_ID_NOT_FOUND:
        return f"transactional id {name!r}: {refusal_text(failure)}"
    names: list[TransactionListing] = list_transactions(cluster)
    hint = nearest(name, [each.transactional_id for each in names]) if names else ""
    if not hint.startswith("did you mean"):
        hint = "`barnabas transactions list` lists them"
    return f"transactional id {name!r} does not exist ({hint})"


def row(state: TransactionState) -> tuple[object, ...]:
    return (
        state.transactional_id,
        state.state,
        state.producer_id,
        state.producer_epoch,
        open_for_text(state.start_ms) if is_open(state) else NOTHING,
        duration_text(state.timeout_ms),
        len(state.partitions),
        state.coordinator_id,
    )


def is_open(state: TransactionState) -> bool:
    return state.state in OPEN_STATES


def open_for_text(started_ms: int) -> str:
    return duration_text(max(0, time.time() * 1000 - started_ms))


def show(state: TransactionState) -> None:
    print(f"{state.transactional_id}  {state.state}  producer {state.producer_id}, epoch {state.producer_epoch}")
    print(f"  coordinator: {state.coordinator_id}")
    if is_open(state):
        print(f"  open for: {open_for_text(state.start_ms)}, since {time_text(state.start_ms)}")
    else:
        print("  open: nothing")
    print(f"  timeout: {duration_text(state.timeout_ms)}")
    for topic, partitions in by_topic(sorted(state.partitions)).items():
        print(f"  writes to: {topic}, partitions {comma_list(partitions)}")


def facts(state: TransactionState) -> dict[str, object]:
    return {
        "transactional_id": state.transactional_id,
        "state": state.state,
        "producer_id": state.producer_id,
        "producer_epoch": state.producer_epoch,
        "started_ms": state.start_ms if is_open(state) else None,
        "timeout_ms": state.timeout_ms,
        "coordinator_id": state.coordinator_id,
        "partitions": [{"topic": topic, "partition": partition} for topic, partition in sorted(state.partitions)],
    }
