"""What is measured of the coordinators: large groups, many groups, offset commits and transactions."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

from bench import many_groups
from bench.case import CaseError, LifecycleCase, Row, SteadyCase, run_load
from bench.loads.offset_commits import OffsetCommitsLoad
from bench.loads.rolling import RollingLoad
from bench.loads.transactions import TransactionsLoad
from bench.nodes import HOST
from bench.stats import AtLeast, AtMost, Measure
from bench.topics import Topic, fresh_topic, standing_topic

if TYPE_CHECKING:
    from bench.case import Case, Context, Plan
    from bench.nodes import Node
    from bench.results import Figures

AS_MANY = (AtLeast(Measure.RATIO, 1.0),)
AS_FAST = (AtMost(Measure.RATIO, 1.0),)

WAVES = 5
SESSION_TIMEOUT_MS = 45_000
HEARTBEAT_SECONDS = 1.0
COMMITTERS = 16
PRODUCERS = 8
TRANSACTION_PARTITIONS = 3
RECORD_BYTES = 100
MARKERS_SECONDS_MAX = 30.0
POLL_SECONDS = 0.05


def every(plan: Plan) -> list[Case[Node]]:
    return [
        _many_groups_case(plan),
        _OFFSET_COMMITS,
        *(_transactions_case(records) for records in (1, 100)),
        _READ_COMMITTED,
        *(_rolling_case(plan, protocol, name) for protocol, name in _PROTOCOLS),
    ]


_PROTOCOLS = (("classic", "classic, cooperative"), ("consumer", "KIP-848"))


def _rolling_case(plan: Plan, protocol: str, name: str) -> SteadyCase[Node]:
    def run(context: Context, node: Node) -> Figures:
        topic = standing_topic(node.bootstrap, context.plan.members)
        load = RollingLoad(
            host=HOST,
            port=node.port,
            broker_pid=node.pid,
            group=f"bench-{uuid.uuid4().hex}",
            protocol=protocol,
            topic=topic.name,
            topic_id=topic.id(),
            partitions=topic.partitions,
            members=context.plan.members,
            waves=WAVES,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_seconds=HEARTBEAT_SECONDS,
        )
        return run_load("rolling-restart", load)

    label = f"rolling restart of {plan.members:,} members, {name}"
    rows = (
        Row(label, "s", "seconds", targets=AS_FAST),
        Row(f"longest time without an owner, {name}", "s", "longest_idle_seconds"),
    )
    return SteadyCase(f"rolling-{protocol}", rows, run)


def _offset_commits(context: Context, node: Node) -> Figures:
    with fresh_topic(node.bootstrap, 1) as topic:
        load = OffsetCommitsLoad(
            host=HOST,
            port=node.port,
            broker_pid=node.pid,
            topic=topic.name,
            partitions=topic.partitions,
            connections=COMMITTERS,
            seconds=context.plan.seconds,
        )
        return run_load("offset-commits", load)


_OFFSET_COMMITS = SteadyCase(
    "offset-commits",
    (Row(f"offset commits, {COMMITTERS} groups", "k commits/s", "rate", 1e-3, True, AS_MANY),),
    _offset_commits,
)


def _transactions_case(records: int) -> SteadyCase[Node]:
    def run(context: Context, node: Node) -> Figures:
        with fresh_topic(node.bootstrap, TRANSACTION_PARTITIONS) as topic:
            figures = run_load("transactions", _transactions_load(context, node, topic, records, PRODUCERS))
            _await_records(topic, figures["log_records"])
        return figures

    plural = "" if records == 1 else "s"
    label = f"transactions of {records} record{plural}, {TRANSACTION_PARTITIONS} partitions"
    return SteadyCase(
        f"transactions-{records}", (Row(label, "transactions/s", "rate", has_cpu=True, targets=AS_MANY),), run
    )


def _read_committed(context: Context, node: Node) -> Figures:
    with fresh_topic(node.bootstrap, TRANSACTION_PARTITIONS) as topic:
        figures = run_load("read-committed", _transactions_load(context, node, topic, records=1, producers=1))
        _await_records(topic, figures["log_records"])
    return figures


_READ_COMMITTED = SteadyCase(
    "read-committed",
    (
        Row("transaction to read_committed reader, p50", "ms", "p50_ms", has_cpu=True, targets=AS_FAST),
        Row("transaction to read_committed reader, p99", "ms", "p99_ms", targets=AS_FAST),
    ),
    _read_committed,
)


def _transactions_load(context: Context, node: Node, topic: Topic, records: int, producers: int) -> TransactionsLoad:
    return TransactionsLoad(
        host=HOST,
        port=node.port,
        broker_pid=node.pid,
        topic=topic.name,
        partitions=topic.partitions,
        records=records,
        record_bytes=RECORD_BYTES,
        producers=producers,
        seconds=context.plan.seconds,
    )


def _await_records(topic: Topic, expected: float) -> None:
    """Records and markers, the last of which come after their transaction was answered."""
    deadline = time.monotonic() + MARKERS_SECONDS_MAX
    while (found := topic.record_count()) != expected:
        if time.monotonic() > deadline:
            raise CaseError(f"{topic.name} holds {found:,} records and markers, but {expected:,.0f} are due")
        time.sleep(POLL_SECONDS)


def _many_groups(plan: Plan, node: Node) -> Figures:
    """Groups with offsets, made once; then what a person at a shell does with them, and a restart."""
    node.start()
    topic = Topic.create(node.bootstrap, many_groups.PARTITIONS)
    groups = [f"group-{number}" for number in range(plan.groups)]
    many_groups.commit_all(HOST, node.port, topic.name, groups)
    figures = {
        "list_seconds": many_groups.list_all(HOST, node.port, len(groups)),
        "describe_seconds": many_groups.describe_all(HOST, node.port, groups),
    }
    node.stop()
    started = time.perf_counter()
    node.start()
    many_groups.await_all(HOST, node.port, len(groups))
    figures["restart_seconds"] = time.perf_counter() - started
    node.stop()
    return figures


def _many_groups_case(plan: Plan) -> LifecycleCase[Node]:
    said = f"{plan.groups:,} groups with {many_groups.PARTITIONS} partitions"
    rows = (
        Row(f"list {said}", "ms", "list_seconds", 1e3, targets=AS_FAST),
        Row(f"describe {said}", "ms", "describe_seconds", 1e3, targets=AS_FAST),
        Row(f"start until {said} are loaded", "s", "restart_seconds", targets=AS_FAST),
    )
    return LifecycleCase("many-groups", rows, _many_groups)
