"""Lives of clusters: from nothing to the first record that three replicas have, and what many partitions take."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # not in its __all__

from barnabas.client.broker_connection import TRANSIENT
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from bench import procfs, wire
from bench.case import CaseError, LifecycleCase, Row
from bench.clusters import questions
from bench.clusters.failovers import IN_SYNC_SECONDS_MAX, kill_controller
from bench.clusters.nodes import REPLICAS, Cluster, bootstrap, pids
from bench.clusters.steady import MIN_ISR
from bench.nodes import HOST
from bench.stats import AtMost, Measure

if TYPE_CHECKING:
    from bench.case import Plan
    from bench.results import Figures

START_SECONDS_MAX = 120.0
CREATE_SECONDS_MAX = 120.0
RETRY_SECONDS = 0.005
TOPIC_PARTITIONS_MAX = 100
SETTLE_SECONDS = 5.0
"""From the end of a load until a cluster counts as idle."""

_NOT_YET = frozenset(
    {
        Error.INVALID_REPLICATION_FACTOR,
        Error.NOT_CONTROLLER,
        Error.REQUEST_TIMED_OUT,
        Error.BROKER_NOT_AVAILABLE,
        Error.UNKNOWN_SERVER_ERROR,
    }
)
"""What a cluster answers that has not enough brokers yet, or no controller."""


def every(plan: Plan) -> list[LifecycleCase[Cluster]]:
    return [_START, _many_partitions_case(plan)]


def _start(_plan: Plan, cluster: Cluster) -> Figures:
    started = time.perf_counter()
    for node_id in cluster.nodes:
        cluster.nodes[node_id].launch()
    topic = f"bench-{uuid.uuid4().hex}"
    _create_when_possible(cluster, topic)
    _await_acknowledged(cluster, topic)
    return {"start_seconds": time.perf_counter() - started}


def _create_when_possible(cluster: Cluster, topic: str) -> None:
    """A topic of one partition on all nodes, as soon as there are so many."""
    struct = m.CreateTopicsRequest
    new = struct.CreatableTopic(name=topic, num_partitions=1, replication_factor=REPLICAS)
    request = struct(topics=[new], timeout_ms=int(START_SECONDS_MAX * 1e3))
    deadline = time.monotonic() + START_SECONDS_MAX
    asked = min(cluster.nodes)
    while True:
        try:
            with questions.connect(cluster, asked) as connection:
                while (error := _creation_error(connection.send(request, questions.CREATE_TOPICS_VERSION))) in _NOT_YET:
                    _pause_until(deadline, f"{topic} is not created: {Error(error).name}")
            if error not in (Error.NONE, Error.TOPIC_ALREADY_EXISTS):
                raise CaseError(f"{topic} was not created: {Error(error).name}")
            return
        except TRANSIENT as error:
            _pause_until(deadline, f"no answer from node {asked}: {error}")


def _creation_error(answer: m.CreateTopicsResponse) -> int:
    return answer.topics[0].error_code


def _await_acknowledged(cluster: Cluster, topic: str) -> None:
    leader_id = questions.leader_of(cluster, topic, 0)
    wire.first_acknowledged(HOST, cluster.nodes[leader_id].port, topic, START_SECONDS_MAX, wire.ACKS_ALL)


def _pause_until(deadline: float, reason: str) -> None:
    if time.monotonic() > deadline:
        raise CaseError(reason)
    time.sleep(RETRY_SECONDS)


def _many_partitions(plan: Plan, cluster: Cluster) -> Figures:
    cluster.start()
    figures = _create_many(cluster, plan.cluster_partitions)
    time.sleep(SETTLE_SECONDS)
    before = sum(map(procfs.cpu_seconds, pids(cluster)))
    time.sleep(plan.cluster_idle_seconds)
    figures["idle_cpu"] = (sum(map(procfs.cpu_seconds, pids(cluster))) - before) / plan.cluster_idle_seconds
    figures["bytes"] = sum(map(procfs.resident_bytes, pids(cluster)))
    figures |= _restart_one(cluster)
    return figures | kill_controller(cluster, questions.active_controller(cluster))


def _create_many(cluster: Cluster, partitions: int) -> Figures:
    """Until every partition has acknowledged a record that all its replicas have."""
    count, rest = divmod(partitions, TOPIC_PARTITIONS_MAX)
    sizes = [TOPIC_PARTITIONS_MAX] * count + [rest] * (rest > 0)
    topics = {f"bench-many-{number}": size for number, size in enumerate(sizes)}
    admin = AdminClient({"bootstrap.servers": bootstrap(cluster), "log_level": 2})
    new = [NewTopic(name, size, REPLICAS, config=MIN_ISR) for name, size in topics.items()]
    started = time.perf_counter()
    answers = admin.create_topics(new, operation_timeout=CREATE_SECONDS_MAX, request_timeout=CREATE_SECONDS_MAX)
    for answer in answers.values():
        answer.result(CREATE_SECONDS_MAX)
    answered = time.perf_counter() - started
    _write_to_each(bootstrap(cluster), topics)
    return {"create_answered_seconds": answered, "create_seconds": time.perf_counter() - started}


def _write_to_each(servers: str, topics: dict[str, int]) -> None:
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "log_level": 2})
    failures: list[KafkaError] = []

    def note(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    for topic, partitions in topics.items():
        for partition in range(partitions):
            producer.produce(topic, b"first", partition=partition, on_delivery=note)
            producer.poll(0)
    left = producer.flush(CREATE_SECONDS_MAX)
    if left or failures:
        raise CaseError(f"{left + len(failures)} partitions took no record: {failures[:1]}")


def _restart_one(cluster: Cluster) -> Figures:
    """A node that does not lead the quorum: from SIGTERM until all replicas are in sync again."""
    controller_id = questions.active_controller(cluster)
    node_id, asked, *_ = sorted(cluster.nodes, key=lambda each: each == controller_id)
    started = time.perf_counter()
    cluster.stop_node(node_id)
    stopped = time.perf_counter()
    cluster.nodes[node_id].launch()
    questions.await_in_sync(cluster, asked, REPLICAS, IN_SYNC_SECONDS_MAX)
    ended = time.perf_counter()
    return {"stop_seconds": stopped - started, "restart_seconds": ended - started}


def _many_partitions_case(plan: Plan) -> LifecycleCase[Cluster]:
    what = f"{plan.cluster_partitions:,} partitions × {REPLICAS}"
    lower = (AtMost(Measure.RATIO, 0.7),)
    rows = (
        Row(f"create {what}, until all are written to", "s", "create_seconds", targets=lower),
        Row(f"idle CPU of all nodes, {what}", "%", "idle_cpu", 100.0, targets=lower),
        Row(f"memory of all nodes, {what}", "MB", "bytes", 1e-6, targets=(AtMost(Measure.RATIO, 0.4),)),
        Row(f"stop of a node, {what}", "s", "stop_seconds"),
        Row(f"restart of a node until in sync, {what}", "s", "restart_seconds", targets=lower),
        Row(f"controller killed: elected to topic created, {what}", "ms", "elected_to_decided_ms", targets=lower),
        Row(f"controller killed: killed to topic created, {what}", "s", "controller_gap_seconds"),
    )
    return LifecycleCase("many-partitions", rows, _many_partitions)


_START = LifecycleCase(
    "start",
    (Row("start of 3 nodes to a record on all of them", "s", "start_seconds", targets=(AtMost(Measure.RATIO, 0.3),)),),
    _start,
)
