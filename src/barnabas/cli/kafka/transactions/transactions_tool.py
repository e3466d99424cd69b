"""kafka-transactions: which transactions there are, who writes in them, and how to end those that hang."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from barnabas.cli.command_line import EXIT_OK
from barnabas.cli.kafka.admin_access import admin_at, properties_at
from barnabas.cli.kafka.java.java_order import in_hash_order, int_hash, partition_hash
from barnabas.cli.kafka.java.java_tables import print_table
from barnabas.cli.kafka.subcommands import PrintVersion, ToolParser, java_int, java_long, java_short
from barnabas.cli.kafka.tool import EXIT_FAILED, KAFKA_VERSION, ToolError
from barnabas.cli.kafka.transactions.failures import failed, failing
from barnabas.client.admin.transactions import (
    ProducerState,
    abort_in_partition,
    describe_producers,
    describe_transactions,
    force_end,
    list_transactions,
)
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    import argparse

    from barnabas.client.cluster import Cluster, TopicPartition

TOOL: Final = "kafka-transactions.sh"
VERSION: Final = f"{KAFKA_VERSION} (Commit:26b251a451ce941d)"
"""As Kafka's tool shows the version that it is of."""
NONE: Final = "None"
STATES: Final = (
    "Ongoing",
    "PrepareAbort",
    "PrepareCommit",
    "CompleteAbort",
    "CompleteCommit",
    "Empty",
    "PrepareEpochFence",
)
LIST_HEADINGS: Final = ("TransactionalId", "Coordinator", "ProducerId", "TransactionState")
DESCRIBE_HEADINGS: Final = (
    "CoordinatorId",
    "TransactionalId",
    "ProducerId",
    "ProducerEpoch",
    "TransactionState",
    "TransactionTimeoutMs",
    "CurrentTransactionStartTimeMs",
    "TransactionDurationMs",
    "TopicPartitions",
)
PRODUCER_HEADINGS: Final = (
    "ProducerId",
    "ProducerEpoch",
    "LatestCoordinatorEpoch",
    "LastSequence",
    "LastTimestamp",
    "CurrentTransactionStartOffset",
)
_MINUTES_MAX: Final = 15
"""How long a transaction may be open with the settings that brokers begin with."""


def run(words: list[str]) -> int:
    options = build_parser().parse(words)
    try:
        properties = properties_at(options.command_config)
    except ToolError as failure:
        raise failed("Failed to load admin client properties", failure) from None
    with admin_at(options.bootstrap_server, properties) as cluster:
        _ACTIONS[options.command](cluster, options)
    return EXIT_OK


def build_parser() -> ToolParser:
    parser = ToolParser(
        TOOL, description="Transactions of a cluster, and how to end those that hang.", help_exit_code=EXIT_FAILED
    )
    parser.add_argument("-v", "--version", action=PrintVersion, version=VERSION, help="show the version and exit")
    parser.add_argument("--command-config", metavar="FILE", help="a file with properties for the admin client")
    parser.add_argument("--bootstrap-server", metavar="host:port", required=True, help="the brokers to connect to")
    actions = parser.add_actions()
    listing = actions.add_parser("list", help="list transactions")
    listing.add_argument(
        "--duration-filter", type=java_long, default=-1, help="only those that have been open for longer, in ms"
    )
    listing.add_argument("--transactional-id-pattern", help="only those whose ids match a regular expression")
    describe = actions.add_parser("describe", help="show the transaction of a transactional id")
    describe.add_argument("--transactional-id", required=True, help="the transactional id")
    producers = actions.add_parser("describe-producers", help="show the producers that a partition remembers")
    abort = actions.add_parser("abort", help="abort a transaction that hangs")
    for each in (producers, abort):
        each.add_argument("--topic", required=True, help="the topic")
        each.add_argument("--partition", type=java_int, required=True, help="the number of the partition")
    producers.add_argument("--broker-id", type=java_int, help="the broker to ask; the leader without this")
    abort.add_argument("--start-offset", type=java_long, help="where the transaction begins; since Kafka 3.0")
    abort.add_argument("--producer-id", type=java_long, help="its producer, for brokers before Kafka 3.0")
    abort.add_argument("--producer-epoch", type=java_short, help="the epoch of the producer")
    abort.add_argument("--coordinator-epoch", type=java_int, help="the epoch of its coordinator")
    hanging = actions.add_parser("find-hanging", help="find transactions that hang")
    hanging.add_argument("--broker-id", type=java_int, help="the broker on whose partitions to look")
    hanging.add_argument(
        "--max-transaction-timeout",
        type=java_int,
        default=_MINUTES_MAX,
        help=f"how many minutes a transaction may take (default {_MINUTES_MAX})",
    )
    hanging.add_argument("--topic", help="the topic in whose partitions to look")
    hanging.add_argument("--partition", type=java_int, help="the only partition of it to look at")
    force = actions.add_parser("forceTerminateTransaction", help="end the open transaction of a transactional id")
    force.add_argument("--transactionalId", dest="transactional_id", required=True, help="the transactional id")
    return parser


def list_all(cluster: Cluster, options: argparse.Namespace) -> None:
    with failing("Failed to list transactions", "listTransactions(api=METADATA)"):
        listed = list_transactions(
            cluster, min_duration_ms=options.duration_filter, id_pattern=options.transactional_id_pattern
        )
    coordinators = in_hash_order((each.coordinator_id for each in listed), int_hash)
    rows = [
        (each.transactional_id, each.coordinator_id, each.producer_id, _known(each.state))
        for coordinator in coordinators
        for each in listed
        if each.coordinator_id == coordinator
    ]
    print_table(LIST_HEADINGS, rows)


def describe(cluster: Cluster, options: argparse.Namespace) -> None:
    transactional_id = options.transactional_id
    what = f"Failed to describe transaction state of transactional-id `{transactional_id}`"
    with failing(what, "describeTransactions(api=FIND_COORDINATOR)"):
        state = describe_transactions(cluster, [transactional_id])[transactional_id]
        if isinstance(state, KafkaError):
            if state.error is Error.TRANSACTIONAL_ID_NOT_FOUND:
                raise KafkaError(
                    state.error,
                    f"DescribeTransactions request for transactionalId `{transactional_id}` failed because the ID "
                    "could not be found",
                )
            raise state
    is_timed = state.start_ms >= 0
    partitions = in_hash_order(state.partitions, partition_hash)
    row = (
        state.coordinator_id,
        transactional_id,
        state.producer_id,
        state.producer_epoch,
        _known(state.state),
        state.timeout_ms,
        state.start_ms if is_timed else NONE,
        _now_ms() - state.start_ms if is_timed else NONE,
        ",".join(f"{topic}-{partition}" for topic, partition in partitions),
    )
    print_table(DESCRIBE_HEADINGS, [row])


def show_producers(cluster: Cluster, options: argparse.Namespace) -> None:
    asked = "leader" if options.broker_id is None else f"broker {options.broker_id}"
    what = f"Failed to describe producers for partition {options.topic}-{options.partition} on {asked}"
    producers = _producers_of(cluster, (options.topic, options.partition), what, options.broker_id)
    rows = [
        (
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            each.last_sequence,
            each.last_timestamp_ms,
            NONE if each.start_offset < 0 else each.start_offset,
        )
        for each in producers
    ]
    print_table(PRODUCER_HEADINGS, rows)


def abort(cluster: Cluster, options: argparse.Namespace) -> None:
    place: TopicPartition = (options.topic, options.partition)
    name = f"{options.topic}-{options.partition}"
    if options.start_offset is not None:
        producers = _producers_of(cluster, place, f"Failed to validate producer state for partition {name}")
        found = next((each for each in producers if each.start_offset == options.start_offset), None)
        if found is None or options.start_offset < 0:
            raise ToolError(
                f"Could not find any open transactions starting at offset {options.start_offset} on partition {name}"
            )
        producer_id, epoch, coordinator_epoch = found.producer_id, found.producer_epoch, found.coordinator_epoch
    elif options.producer_id is not None:
        for argument in ("producer_epoch", "coordinator_epoch"):
            if getattr(options, argument) is None:
                raise ToolError(f"Missing required argument --{argument.replace('_', '-')}")
        producer_id, epoch = options.producer_id, options.producer_epoch
        coordinator_epoch = options.coordinator_epoch
    else:
        raise ToolError(
            "The transaction to abort must be identified either with --start-offset (for brokers on 3.0 or above) "
            "or with --producer-id, --producer-epoch, and --coordinator-epoch (for older brokers)"
        )
    # Where no coordinator has ended anything for the producer yet, 0 is an epoch that none can be behind.
    coordinator_epoch = max(coordinator_epoch, 0)
    what = (
        f"Failed to abort transaction AbortTransactionSpec(topicPartition={name}, producerId={producer_id}, "
        f"producerEpoch={epoch}, coordinatorEpoch={coordinator_epoch})"
    )
    with failing(what, "abortTransaction(api=METADATA)"):
        abort_in_partition(cluster, place, producer_id, epoch, coordinator_epoch)


def find(cluster: Cluster, options: argparse.Namespace) -> None:
    from barnabas.cli.kafka.transactions.hanging import find_hanging

    find_hanging(cluster, options)


def force(cluster: Cluster, options: argparse.Namespace) -> None:
    what = f"Failed to force terminate transactionalId `{options.transactional_id}`"
    with failing(what, "fenceProducer(api=FIND_COORDINATOR)"):
        force_end(cluster, options.transactional_id)


_ACTIONS: Final = {
    "list": list_all,
    "describe": describe,
    "describe-producers": show_producers,
    "abort": abort,
    "find-hanging": find,
    "forceTerminateTransaction": force,
}


def _producers_of(
    cluster: Cluster, place: TopicPartition, what: str, broker_id: int | None = None
) -> list[ProducerState]:
    api = "METADATA" if broker_id is None else "DESCRIBE_PRODUCERS"
    with failing(what, f"describeProducers(api={api})"):
        producers = describe_producers(cluster, [place], broker_id)[place]
        if isinstance(producers, KafkaError):
            raise producers
    return producers


def _known(state: str) -> str:
    return state if state in STATES else "Unknown"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
