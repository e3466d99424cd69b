"""A simulated machine with a node on it: its disk, its clock and its address outlive the lives of its process.

    node.start()         a new life: whatever the disk holds is found again
    node.stop()          a clean shutdown, which takes its time
    node.kill()          SIGKILL: what was written stays, synced or not; others see their connections closed
    node.lose_power()    what was not synced is lost, names included, and no peer is told
    node.pause()         SIGSTOP: the system goes on taking bytes for it, until `resume`

What runs is `barnabas.node.node.Node`, whole, on a main loop and a controller's loop of its own.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from barnabas.node.node import Node, Ports, open_node
from barnabas.testing.clock import SimulatedClock
from barnabas.testing.disk import SimulatedDisk
from barnabas.testing.processes import InlineProcesses
from barnabas.testing.randomness import SeededRandom
from barnabas.testing.threads import SimulatedThreads

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from barnabas.config.broker_config import BrokerConfig
    from barnabas.metadata.image import MetadataImage
    from barnabas.raft.quorum_client import QuorumClient
    from barnabas.replication.hosted import HostedPartition
    from barnabas.testing.event_loop import SimulatedLoop
    from barnabas.testing.simulator.cluster import SimulatedCluster

CLIENT_PORT = 9092
CONTROLLER_PORTS = 9190
"""Each controller has a port of its own beyond this one."""
DISK_LATENCY_S = (0.000_1, 0.002)
"""What a function in a thread takes, at least and at most: most of them sync."""


class SimulatedNode:
    """One machine. `node` is the process that runs there now, None if none does."""

    def __init__(self, cluster: SimulatedCluster, node_id: int) -> None:
        self.id = node_id
        self.name = host_name(node_id)
        self.clock = SimulatedClock(cluster.scheduler)
        self.disk = SimulatedDisk(self.clock, write_to_socket=cluster.network.write)
        self.life = 0
        self.is_paused = False
        self.failure: BaseException | None = None
        """What ended the last life, if it was not told to end."""
        self.disk_latency_s = DISK_LATENCY_S
        """May be replaced at any time."""
        self.on_ended: Callable[[SimulatedNode], None] = lambda _node: None
        """Called when a process has come to its end by itself, or because it was told to stop."""
        self.config: BrokerConfig
        self.node: Node | None = None
        self.is_up = False
        """Whether a process runs, from the moment that it is started."""
        self.is_ready = False
        """Whether it has said that it serves clients."""
        self._cluster = cluster
        self._host = cluster.network.host(self.name)
        self._loops: list[SimulatedLoop] = []
        self._dead_loops: list[SimulatedLoop] = []
        """Of former lives: what was suspended there must stay so."""
        self._main: asyncio.Task[None] | None = None

    # ── its lives ────────────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Begins a new life, and does not wait for it."""
        assert not self.is_up, f"{self.name} runs already"
        self.life += 1
        self.is_up, self.is_ready, self.is_paused = True, False, False
        self.failure = None
        cluster, name = self._cluster, f"{self.name}/{self.life}"
        cluster.network.back(self.name)
        seed = f"{cluster.seed} {name}"
        latency = random.Random(f"{seed} disk")
        threads = SimulatedThreads(cluster.scheduler, name)
        threads.takes_s = lambda _pool: latency.uniform(*self.disk_latency_s)
        main = cluster.scheduler.new_loop(name)
        threads.loops.append(main)
        self._loops = threads.loops
        ports = Ports(self.clock, self.disk, SeededRandom(seed), threads, self._host, InlineProcesses())
        cluster.trace.note(self.name, f"starts, life {self.life}")
        self._main = main.create_task(self._live(ports, main))
        self._main.add_done_callback(self._ended)

    def stop(self) -> None:
        """Begins a clean shutdown, and does not wait for it: `is_up` says when it is over."""
        self._cluster.trace.note(self.name, "is told to stop")
        if self.node is None:
            self.kill()
        else:
            self.node.request_stop()

    def kill(self) -> None:
        self._cluster.trace.note(self.name, "is killed")
        self._end()

    def lose_power(self) -> None:
        self._cluster.trace.note(self.name, "loses power")
        self._cluster.network.vanish(self.name)
        self._end()
        torn = random.Random(f"{self._cluster.seed} {self.name} torn {self.life}")
        self.disk.crash(lambda unsynced: torn.randrange(unsynced + 1))

    def pause(self) -> None:
        self._cluster.trace.note(self.name, "pauses")
        self.is_paused = True
        for loop in self._loops:
            loop.pause()

    def resume(self) -> None:
        self._cluster.trace.note(self.name, "resumes")
        self.is_paused = False
        for loop in self._loops:
            loop.resume()

    def bury(self) -> None:
        """Ends what still runs, because nobody is interested any more."""
        for loop in self._loops:
            loop.kill()
        for loop in (*self._dead_loops, *self._loops):
            loop.forget()

    async def _live(self, ports: Ports, loop: SimulatedLoop) -> None:
        node = self.node = await open_node(self.config, ports)
        failure: Exception | None = None
        try:
            await node.serve(self._ready)
        except Exception as error:
            failure = error
        if loop.is_dead:
            return  # It was killed, and is forgotten only now, which Python does by an exception.
        await node.stop()
        if failure is not None:
            raise failure

    def _ready(self, _node: Node) -> None:
        self.is_ready = True
        self._cluster.trace.note(self.name, "is ready")

    def _ended(self, main: asyncio.Task[None]) -> None:
        """The process has come to its end by itself."""
        self.failure = main.exception()
        self._cluster.trace.note(self.name, "has stopped" if self.failure is None else f"has failed: {self.failure}")
        self._end()
        self.on_ended(self)

    def _end(self) -> None:
        self.is_up = self.is_ready = self.is_paused = False
        self.node = None
        for loop in self._loops:
            loop.kill()
        self._dead_loops += self._loops
        self._cluster.network.kill(self.name)
        self.disk.release()

    # ── what there is to see ─────────────────────────────────────────────────────────────────────────────────

    @property
    def address(self) -> tuple[str, int]:
        """Where clients connect."""
        return self.name, CLIENT_PORT

    @property
    def is_serving(self) -> bool:
        """Whether it may answer clients, as far as it can be said from outside."""
        return self.is_ready and not self.is_paused

    @property
    def errors(self) -> list[dict[str, Any]]:
        """What nobody handled in this life, as asyncio reports it."""
        return [error for loop in self._loops for error in loop.errors]

    @property
    def image(self) -> MetadataImage | None:
        """The committed metadata that its broker has received; None while no process runs."""
        return None if self.node is None else self.node.image

    @property
    def partitions(self) -> Iterable[HostedPartition]:
        """What it hosts, leads or follows: `.topic`, `.index`, `.state`, `.log`. Nothing while no process runs."""
        replicas = None if self.node is None else self.node.replicas
        return () if replicas is None else tuple(replicas)

    @property
    def quorum(self) -> QuorumClient | None:
        """Its part in the metadata quorum: `.driver.core` knows role, epoch, leader and high watermark."""
        return None if self.node is None else self.node.quorum_client


def host_name(node_id: int) -> str:
    return f"node-{node_id}"
