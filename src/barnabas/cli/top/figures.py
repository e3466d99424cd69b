"""What `barnabas top` shows, from what nodes told now and what they told before. Pure."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from barnabas.cli.top.samples import Snapshot

REQUESTS: Final = "kafka_network_requestmetrics_"
TOPICS: Final = "kafka_server_brokertopicmetrics_"
REPLICAS: Final = "kafka_server_replicamanager_"
CONTROLLER: Final = "kafka_controller_kafkacontroller_"


class Throughput(NamedTuple):
    """For each second."""

    records_in: float
    bytes_in: float
    bytes_out: float
    requests: float
    errors: float


class NodeLine(NamedTuple):
    node: str
    is_controller: bool
    idle_share: float | None
    longest_turn_s: float | None
    processors: float
    """How many processors it keeps busy."""
    memory_bytes: float
    connections: int
    partitions: int
    leaders: int
    under_replicated: int


class RequestLine(NamedTuple):
    request: str
    per_second: float
    p50_ms: float
    p99_ms: float
    queue_ms: float
    """Of which the slowest of a hundred waits for its turn, and so on."""
    local_ms: float
    remote_ms: float
    send_ms: float


class GroupLine(NamedTuple):
    group: str
    topic: str
    lag: int
    behind_s: float
    members: int


class TopicLine(NamedTuple):
    topic: str
    records_in: float
    bytes_in: float
    bytes_out: float
    size_bytes: float


class Figures(NamedTuple):
    throughput: Throughput
    brokers: int
    active_controllers: int
    offline_partitions: int
    under_replicated: int
    under_min_isr: int
    nodes: tuple[NodeLine, ...]
    requests: tuple[RequestLine, ...]
    groups: tuple[GroupLine, ...]
    topics: tuple[TopicLine, ...]
    missing: tuple[str, ...]
    """Why some nodes told nothing."""


def figures(before: Sequence[Snapshot], now: Sequence[Snapshot], missing: Iterable[str] = ()) -> Figures:
    earlier = {snapshot.node: snapshot for snapshot in before}
    pairs = [(earlier.get(snapshot.node, snapshot), snapshot) for snapshot in now]
    return Figures(
        throughput=throughput(pairs),
        brokers=count(now, f"{CONTROLLER}activebrokercount"),
        active_controllers=count(now, f"{CONTROLLER}activecontrollercount"),
        offline_partitions=count(now, f"{CONTROLLER}offlinepartitionscount"),
        under_replicated=count(now, f"{REPLICAS}underreplicatedpartitions"),
        under_min_isr=count(now, f"{REPLICAS}underminisrpartitioncount"),
        nodes=tuple(node_line(old, new) for old, new in pairs),
        requests=request_lines(pairs),
        groups=group_lines(now),
        topics=topic_lines(pairs),
        missing=tuple(missing),
    )


Pair = tuple["Snapshot", "Snapshot"]
"""One node before and now."""


def rate(pair: Pair, name: str, **labels: str) -> float:
    """For each second. A node that was started again in between has counted from 0."""
    before, now = pair
    elapsed_s = now.taken_s - before.taken_s
    if elapsed_s <= 0:
        return 0.0
    return max(now.total(name, **labels) - before.total(name, **labels), 0.0) / elapsed_s


def rates_by(pairs: Iterable[Pair], name: str, label: str) -> dict[str, float]:
    """The same by the values of a label, over all nodes."""
    found: dict[str, float] = defaultdict(float)
    for before, now in pairs:
        elapsed_s = now.taken_s - before.taken_s
        if elapsed_s <= 0:
            continue
        change: dict[str, float] = defaultdict(float)
        for sample in now.samples.get(name, ()):
            change[sample.labels.get(label, "")] += sample.value
        for sample in before.samples.get(name, ()):
            change[sample.labels.get(label, "")] -= sample.value
        for value, difference in change.items():
            found[value] += max(difference, 0.0) / elapsed_s
    return found


def count(now: Iterable[Snapshot], name: str) -> int:
    return int(sum(snapshot.total(name) for snapshot in now))


def throughput(pairs: Sequence[Pair]) -> Throughput:
    def of_all_topics(name: str) -> float:
        # The sample without a topic is that of all of them.
        return rates_by(pairs, f"{TOPICS}{name}_total", "topic").get("", 0.0)

    by_error = rates_by(pairs, f"{REQUESTS}errors_total", "error")
    return Throughput(
        records_in=of_all_topics("messagesin"),
        bytes_in=of_all_topics("bytesin"),
        bytes_out=of_all_topics("bytesout"),
        requests=sum(rate(pair, f"{REQUESTS}requests_total") for pair in pairs),
        errors=sum(value for error, value in by_error.items() if error != "NONE"),
    )


def node_line(before: Snapshot, now: Snapshot) -> NodeLine:
    turns = [sample.value for sample in now.of("barnabas_event_loop_longest_turn_seconds")]
    return NodeLine(
        node=now.node,
        is_controller=now.total(f"{CONTROLLER}activecontrollercount") > 0,
        idle_share=now.first("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"),
        longest_turn_s=max(turns, default=None),
        processors=rate((before, now), "process_cpu_seconds_total"),
        memory_bytes=now.total("process_resident_memory_bytes"),
        connections=int(now.total("kafka_server_socket_server_metrics_connection_count")),
        partitions=int(now.total(f"{REPLICAS}partitioncount")),
        leaders=int(now.total(f"{REPLICAS}leadercount")),
        under_replicated=int(now.total(f"{REPLICAS}underreplicatedpartitions")),
    )


def request_lines(pairs: Sequence[Pair]) -> tuple[RequestLine, ...]:
    """Those that came since before, the most frequent first. Times are those of the slowest node. Fetches of consumers
    and of followers are counted together, and timed apart."""
    frequent = rates_by(pairs, f"{REQUESTS}requests_total", "request")
    timed = {sample.labels["request"] for _, now in pairs for sample in now.of(f"{REQUESTS}totaltimems_count")}
    lines = []
    for name, per_second in frequent.items():
        kinds = [name] if name != "Fetch" else sorted(kind for kind in timed if kind.startswith("Fetch"))
        if per_second > 0:
            lines += [
                request_line(pairs, kind, per_second if kind == name else fetches(pairs, kind))
                for kind in kinds
                if kind in timed
            ]
    return tuple(sorted(lines, key=lambda line: -line.per_second))


def fetches(pairs: Sequence[Pair], kind: str) -> float:
    return sum(rate(pair, f"{REQUESTS}totaltimems_count", request=kind) for pair in pairs)


def request_line(pairs: Sequence[Pair], kind: str, per_second: float) -> RequestLine:
    def slowest(phase: str, quantile: str) -> float:
        found = [now.first(f"{REQUESTS}{phase}", request=kind, quantile=quantile) for _, now in pairs]
        return max((value for value in found if value is not None), default=0.0)

    return RequestLine(
        kind,
        per_second,
        slowest("totaltimems", "0.50"),
        slowest("totaltimems", "0.99"),
        slowest("requestqueuetimems", "0.99"),
        slowest("localtimems", "0.99"),
        slowest("remotetimems", "0.99"),
        slowest("responsesendtimems", "0.99"),
    )


def group_lines(now: Iterable[Snapshot]) -> tuple[GroupLine, ...]:
    """By group and topic, those that are furthest behind first."""
    lag: dict[tuple[str, str], float] = defaultdict(float)
    behind_s: dict[tuple[str, str], float] = defaultdict(float)
    members: dict[str, float] = defaultdict(float)
    for snapshot in now:
        for sample in snapshot.of("kafka_consumergroup_lag"):
            lag[sample.labels["group"], sample.labels["topic"]] += sample.value
        for sample in snapshot.of("kafka_consumergroup_group_lag_seconds"):
            place = sample.labels["group"], sample.labels["topic"]
            behind_s[place] = max(behind_s[place], sample.value)
        for sample in snapshot.of("kafka_consumergroup_members"):
            members[sample.labels["group"]] += sample.value
    lines = [GroupLine(*place, int(lag[place]), behind_s[place], int(members[place[0]])) for place in lag]
    return tuple(sorted(lines, key=lambda line: (-line.lag, line.group, line.topic)))


def topic_lines(pairs: Sequence[Pair]) -> tuple[TopicLine, ...]:
    """Those with the most traffic first."""
    sizes: dict[str, float] = defaultdict(float)
    for _, now in pairs:
        for sample in now.of("kafka_log_log_size"):
            sizes[sample.labels["topic"]] += sample.value
    records, bytes_in, bytes_out = (
        rates_by(pairs, f"{TOPICS}{name}_total", "topic") for name in ("messagesin", "bytesin", "bytesout")
    )
    lines = [
        TopicLine(topic, records.get(topic, 0.0), bytes_in.get(topic, 0.0), bytes_out.get(topic, 0.0), sizes[topic])
        for topic in sizes
    ]
    return tuple(sorted(lines, key=lambda line: (-line.bytes_in - line.bytes_out, -line.size_bytes, line.topic)))
