"""The cluster that is ill-treated: its nodes with the links between them and their disks, and questions to it.

Topics have three replicas, of which two must be in sync. Failures are noticed within seconds, so that a run has room
for many of them.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.testing.several_nodes import HOST, reserved_port
from tests import disks
from tests.chaos.cluster.links import Door, Links
from tests.nodes import Cluster
from tests.wire.connection import ClosedError, Connection

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.config.cluster_layout import Layout

REPLICAS, MIN_IN_SYNC = 3, 2
SESSION_S = 2.0
LAG_S = 3.0
SETTINGS = {
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": str(int(SESSION_S * 1000)),
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "controller.socket.timeout.ms": "5000",
    "replica.lag.time.max.ms": str(int(LAG_S * 1000)),
    "replica.socket.timeout.ms": "5000",
    "num.recovery.threads.per.data.dir": "1",
    "default.replication.factor": str(REPLICAS),
    "min.insync.replicas": str(MIN_IN_SYNC),
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
DISK_BYTES = 256 << 20
FILE_BYTES_MAX = 1 << 40
START_S_MAX = 120.0
STOP_S_MAX = 120.0
ASK_S = 3.0
METADATA_TOPIC = "__cluster_metadata"


@dataclass(frozen=True, slots=True)
class PartitionView:
    topic: str
    partition: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class View:
    """The cluster as one of its brokers knows it."""

    asked: int
    brokers: frozenset[int]
    partitions: tuple[PartitionView, ...]

    def is_whole(self) -> bool:
        """Every partition has a leader, and all its replicas are in sync."""
        return bool(self.partitions) and all(
            each.leader in each.in_sync and set(each.in_sync) == set(each.replicas) for each in self.partitions
        )

    def lacking(self) -> list[str]:
        return [
            f"{each.topic}-{each.partition}: leader {each.leader}, in sync {each.in_sync} of {each.replicas}"
            for each in self.partitions
            if each.leader not in each.in_sync or set(each.in_sync) != set(each.replicas)
        ]


class Nodes:
    """Starts with `with`, and leaves nothing behind."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        self._reservations = [reserved_port() for _ in range(3 * count)]
        self._doors: list[Door] = []
        self.cluster = Cluster(folder, nodes=count, settings=SETTINGS, settings_of=self._listeners)
        self.links = Links(self._doors, self._pid_of)
        self.impaired: set[int] = set()
        """Nodes that are down, stopped or cut off, of which nothing should be asked."""
        self._mounted: list[Path] = []
        self._stack = contextlib.ExitStack()

    @property
    def ids(self) -> list[int]:
        return list(self.cluster.nodes)

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    def others(self, *node_ids: int) -> list[int]:
        return [node_id for node_id in self.ids if node_id not in node_ids]

    def __enter__(self) -> Nodes:
        with contextlib.ExitStack() as stack:
            for reservation in self._reservations:
                stack.callback(reservation.close)
            stack.callback(self._unmount)
            self._mount()
            stack.enter_context(self.links)
            stack.callback(self.cluster.close)
            self.cluster.start(deadline_s=START_S_MAX)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start_node(self, node_id: int) -> None:
        self.cluster[node_id].start(deadline_s=START_S_MAX)

    def restart_node(self, node_id: int) -> None:
        """A clean stop, and a start."""
        self.cluster[node_id].stop(deadline_s=STOP_S_MAX)
        self.start_node(node_id)

    def fill_disk(self, node_id: int) -> None:
        """From now on a node cannot write: no space is left on its disk, or, where it has none of its own, no file of
        it may grow."""
        if self.cluster[node_id].data_dir in self._mounted:
            with open(self._filler(node_id), "wb", buffering=0) as filler, contextlib.suppress(OSError):
                while filler.write(bytes(1 << 20)):
                    pass
            with open(self._filler(node_id), "ab", buffering=0) as filler, contextlib.suppress(OSError):
                while filler.write(bytes(4096)):
                    pass
        else:
            resource.prlimit(self.cluster[node_id].pid, resource.RLIMIT_FSIZE, (1, FILE_BYTES_MAX))

    def free_disk(self, node_id: int) -> None:
        if self.cluster[node_id].data_dir in self._mounted:
            os.truncate(self._filler(node_id), 0)
        else:
            resource.prlimit(self.cluster[node_id].pid, resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, FILE_BYTES_MAX))

    def create_topic(self, name: str, partitions: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        config = {"retention.ms": "-1", "min.insync.replicas": str(MIN_IN_SYNC)}
        new = NewTopic(name, partitions, REPLICAS, config=config)
        admin.create_topics([new], operation_timeout=START_S_MAX, request_timeout=START_S_MAX)[name].result(START_S_MAX)

    def view(self) -> View | None:
        """As the first broker says that is fit to be asked; None while nobody answers."""
        for node_id in self._fit():
            with contextlib.suppress(OSError, ClosedError), self._ask(node_id) as connection:
                answer = connection.call(m.MetadataRequest(topics=None), 12, m.MetadataResponse)
                return View(
                    node_id,
                    frozenset(broker.node_id for broker in answer.brokers),
                    tuple(
                        PartitionView(
                            topic.name or "",
                            at.partition_index,
                            at.leader_id,
                            tuple(at.replica_nodes),
                            tuple(at.isr_nodes),
                        )
                        for topic in answer.topics
                        for at in topic.partitions
                    ),
                )
        return None

    def quorum_leader(self) -> int | None:
        request = m.DescribeQuorumRequest
        asked = request(
            topics=[request.TopicData(topic_name=METADATA_TOPIC, partitions=[request.PartitionData(partition_index=0)])]
        )
        for node_id in self._fit():
            with contextlib.suppress(OSError, ClosedError), self._ask(node_id) as connection:
                answer = connection.call(asked, 2, m.DescribeQuorumResponse)
                if answer.error_code == Error.NONE and answer.topics[0].partitions[0].error_code == Error.NONE:
                    return answer.topics[0].partitions[0].leader_id
        return None

    def coordinator(self, key: str, key_type: int) -> int | None:
        for node_id in self._fit():
            with contextlib.suppress(OSError, ClosedError), self._ask(node_id) as connection:
                asked = m.FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type)
                (found,) = connection.call(asked, 4, m.FindCoordinatorResponse).coordinators
                if found.error_code == Error.NONE:
                    return found.node_id
        return None

    def await_whole(self, deadline_s: float) -> float:
        """Returns the moment at which all replicas of all partitions were in sync, as every node sees it."""
        deadline = time.monotonic() + deadline_s
        views: dict[int, View | None] = {}
        while True:
            views = {node_id: self._view_of(node_id) for node_id in self.ids}
            if all(view is not None and view.is_whole() for view in views.values()):
                return time.monotonic()
            lacking = {node_id: view.lacking() if view is not None else "no answer" for node_id, view in views.items()}
            assert time.monotonic() < deadline, f"the cluster is not whole after {deadline_s} s: {lacking}"
            time.sleep(0.1)

    def log_position(self, node_id: int) -> int:
        return len(self.cluster.log_text(node_id))

    def log_since(self, node_id: int, position: int) -> str:
        return self.cluster.log_text(node_id)[position:]

    def _view_of(self, node_id: int) -> View | None:
        before, self.impaired = self.impaired, set(self.others(node_id))
        try:
            return self.view()
        finally:
            self.impaired = before

    def _fit(self) -> list[int]:
        return [node_id for node_id in self.cluster.running if node_id not in self.impaired]

    def _ask(self, node_id: int) -> Connection:
        return Connection(self.cluster[node_id].port, ASK_S)

    def _pid_of(self, node_id: int) -> int | None:
        node = self.cluster.nodes.get(node_id)
        return node.pid if node is not None and node.is_running else None

    def _listeners(self, layout: Layout) -> dict[int, dict[str, str]]:
        """Nodes reach each other through the links; clients go straight to the node."""
        ports = iter([each.getsockname()[1] for each in self._reservations])
        settings = {}
        for voter in layout.voters:
            client = f"PLAINTEXT://{layout.client_address(voter.node_id)}"
            internal, advertised, controller = next(ports), next(ports), next(ports)
            self._doors.append(Door(voter.node_id, advertised, internal))
            self._doors.append(Door(voter.node_id, voter.port, controller))
            settings[voter.node_id] = {
                "listeners": f"{client},INTERNAL://{HOST}:{internal},CONTROLLER://{HOST}:{controller}",
                "advertised.listeners": f"{client},INTERNAL://{HOST}:{advertised},CONTROLLER://{HOST}:{voter.port}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
                "inter.broker.listener.name": "INTERNAL",
            }
        assert len(settings) == len(layout.client_ports), "every node is a voter"
        return settings

    def _filler(self, node_id: int) -> Path:
        return self.cluster[node_id].data_dir / ".filler"

    def _mount(self) -> None:
        """A disk of its own for each node, if that is allowed here."""
        for node in self.cluster.nodes.values():
            if disks.mount(node.data_dir, DISK_BYTES) is not None:
                break
            self._mounted.append(node.data_dir)

    def _unmount(self) -> None:
        for folder in self._mounted:
            disks.unmount(folder)
