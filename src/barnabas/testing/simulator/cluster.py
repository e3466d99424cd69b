"""A cluster of whole nodes in one thread, in simulated time.

    cluster = SimulatedCluster(seed=7, nodes=3)
    cluster.start()
    cluster.run_until(cluster.is_ready, limit_s=60)
    cluster.nodes[2].lose_power()
    cluster.run_for(10)
    cluster.close()

Machine i is the host `node-i` of the network. Folders are formatted as `barnabas format` does it; roles, voters and
better defaults for internal topics are those of `barnabas start --nodes N`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.api.admin.topic_creations import creatable_topic
from barnabas.broker.api.registry import register_all
from barnabas.broker.coordinators.coordinator_spec import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.cluster_layout import (
    CLIENT_LISTENER,
    CONTROLLER_LISTENER,
    DECIDED,
    NODES_FOR_MIN_ISR_OF_TWO,
    quorum_servers,
    replication_defaults,
    voter_count,
)
from barnabas.config.initial_controllers import InitialController
from barnabas.config.topic_config import resolve_topic_config
from barnabas.net.endpoint import Listener
from barnabas.net.peer import PeerEnvironment
from barnabas.node.format_folders import FormatRequest, format_folders, random_id
from barnabas.protocol import uuids
from barnabas.testing.event_loop import Scheduler
from barnabas.testing.network import SimulatedNetwork
from barnabas.testing.randomness import SeededRandom
from barnabas.testing.simulator.nodes import CLIENT_PORT, CONTROLLER_PORTS, SimulatedNode, host_name
from barnabas.testing.simulator.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from barnabas.config.topic_config import TopicConfig
    from barnabas.testing.event_loop import SimulatedLoop

FOLDER = "/data"
IN_SYNC_MIN = 2
"""Replicas that have a record when it is acknowledged, if it is promised to outlive the loss of one."""

SMALL_CLUSTER = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "1500",
    "replica.lag.time.max.ms": "8000",
    "group.initial.rebalance.delay.ms": "500",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "500",
}
"""Unless the settings say otherwise: a failure costs seconds, not half a minute, and an internal topic is small."""


class SimulatedClient(NamedTuple):
    """A machine with clients on it: its loop, and what `Peer`s on it need."""

    name: str
    loop: SimulatedLoop
    environment: PeerEnvironment


class SimulatedCluster:
    """`settings` are those of a properties file, for all nodes alike."""

    def __init__(
        self, seed: int, nodes: int = 3, settings: Mapping[str, str] | None = None, *, is_traced: bool = False
    ) -> None:
        register_all()
        self.seed = seed
        self.scheduler = Scheduler()
        self.trace = Trace(self.scheduler, is_on=is_traced)
        self.network = SimulatedNetwork(self.scheduler, seed)
        self.network.is_traced = False
        self.random = SeededRandom(f"{seed} cluster")
        self.cluster_id = uuids.to_text(random_id(self.random))
        self.voters = tuple(
            InitialController(node_id, host_name(node_id), CONTROLLER_PORTS + node_id, random_id(self.random))
            for node_id in range(1, voter_count(nodes) + 1)
        )
        self.nodes = {node_id: SimulatedNode(self, node_id) for node_id in range(1, nodes + 1)}
        self.clients: dict[str, SimulatedClient] = {}
        for node in self.nodes.values():
            properties = node_properties(node.id, nodes, self.voters, settings or {})
            node.config = BrokerConfig.from_properties(properties)[0]
            self._format(node)

    # ── time ─────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def now_s(self) -> float:
        return self.scheduler.now

    def run_for(self, seconds: float) -> None:
        self.scheduler.run_for(seconds)

    def run_until(self, is_reached: Callable[[], bool], *, limit_s: float) -> None:
        """Raises SimulationError if that takes longer."""
        self.scheduler.run_until(is_reached, limit_s=limit_s)

    # ── nodes and clients ────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Begins a life of every node that has none now."""
        for node in self.nodes.values():
            if not node.is_up:
                node.start()

    def is_ready(self) -> bool:
        return all(node.is_ready for node in self.nodes.values())

    @property
    def live_nodes(self) -> list[SimulatedNode]:
        """Those with a process that has opened its folders, paused ones included."""
        return [node for node in self.nodes.values() if node.node is not None]

    @property
    def bootstrap(self) -> list[tuple[str, int]]:
        """The address of every node, for clients."""
        return [node.address for node in self.nodes.values()]

    def client(self, name: str) -> SimulatedClient:
        """The machine of this name, with an event loop of its own and the address `name`."""
        if name not in self.clients:
            loop = self.scheduler.new_loop(name)
            random = SeededRandom(f"{self.seed} client {name}")
            environment = PeerEnvironment.of(loop, self.network.host(name), random)
            self.clients[name] = SimulatedClient(name, loop, environment)
        return self.clients[name]

    def close(self) -> None:
        """Ends everything that still runs, without a word."""
        for node in self.nodes.values():
            node.bury()
        for client in self.clients.values():
            client.loop.kill()
            client.loop.forget()

    # ── how nodes are made ───────────────────────────────────────────────────────────────────────────────────

    def _format(self, node: SimulatedNode) -> None:
        request = FormatRequest(
            cluster_id=self.cluster_id,
            node_id=node.id,
            folders=(FOLDER,),
            metadata_folder=FOLDER,
            controller_listener_name=CONTROLLER_LISTENER,
            initial_controllers=self.voters,
        )
        for _ in format_folders(request, disk=node.disk, clock=node.clock, random=self.random):
            pass
        node.disk.sync_all()


def node_properties(
    node_id: int, nodes: int, voters: Sequence[InitialController], given: Mapping[str, str]
) -> dict[str, str]:
    """The settings of one of so many nodes."""
    listeners = [Listener(CLIENT_LISTENER, CLIENT_LISTENER, host_name(node_id), CLIENT_PORT)]
    roles = ["broker"]
    if voter := next((voter for voter in voters if voter.node_id == node_id), None):
        roles.append("controller")
        listeners.append(Listener(CONTROLLER_LISTENER, CLIENT_LISTENER, voter.host, voter.port))
    return {
        **replication_defaults(nodes),
        **SMALL_CLUSTER,
        "min.insync.replicas": "2" if nodes >= NODES_FOR_MIN_ISR_OF_TWO else "1",
        **{name: value for name, value in given.items() if name not in DECIDED},
        "process.roles": ",".join(roles),
        "node.id": str(node_id),
        "controller.listener.names": CONTROLLER_LISTENER,
        "controller.quorum.bootstrap.servers": quorum_servers(voters),
        "listeners": ",".join(map(str, listeners)),
        "log.dirs": FOLDER,
    }


def exposed_topics(config: BrokerConfig) -> list[str]:
    """The internal topics that are created so that a record may be acknowledged by a single node."""
    exposed = []
    for name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
        topic = creatable_topic(name, config)
        overrides = {each.name: each.value for each in topic.configs if each.value is not None}
        if is_exposed(topic.replication_factor, resolve_topic_config(overrides, config)):
            exposed.append(name)
    return exposed


def is_exposed(replicas: int, config: TopicConfig) -> bool:
    """Whether a record of a partition with so many replicas may be acknowledged by a single node."""
    return min(replicas, config.min_insync_replicas) < IN_SYNC_MIN


def examine_settings(nodes: int, settings: Mapping[str, str]) -> list[str]:
    """Raises ConfigError if no cluster can be made with these settings. Returns its `exposed_topics`."""
    cluster = SimulatedCluster(0, nodes, settings)
    cluster.close()
    return exposed_topics(cluster.nodes[1].config)
