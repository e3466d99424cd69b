"""A whole controller, and a broker that beats, in simulated time: no part waits for a real clock, thread or disk."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from barnabas.broker.lifecycle import BrokerIdentity, BrokerLifecycle
from barnabas.controller.controller_node import ControllerNode, ControllerOptions, Environment
from barnabas.controller.decisions.context import Settings
from barnabas.node.controller_channel import QuorumChannel
from barnabas.protocol.errors import Error
from barnabas.raft.image_publisher import ImagePublisher
from barnabas.testing.clock import SimulatedClock
from barnabas.testing.disk import SimulatedDisk
from barnabas.testing.event_loop import Scheduler
from barnabas.testing.randomness import SeededRandom
from barnabas.testing.threads import SimulatedThreads
from tests.unit.controller.cluster import CLUSTER_ID, RULES, creation
from tests.unit.controller.nodes import CONTROLLER, DIRECTORY, PLAINTEXT, QUIET, at_once, format_folder, join

if TYPE_CHECKING:
    from barnabas.protocol import messages as m

FOLDER = "/metadata"
SYNC_S = 0.5
TOPICS = ("one", "two", "three")


def run_once(seed: int) -> tuple[list[str], int, float]:
    """Topics are created on a slow disk. Their ids, how many events it took, and how long, in simulated seconds."""
    scheduler = Scheduler()
    loop = scheduler.new_loop("node")
    threads = SimulatedThreads(scheduler, "node")
    threads.takes_s = lambda _pool: SYNC_S
    clock = SimulatedClock(scheduler)
    disk = SimulatedDisk(clock)
    disk.make_folder(FOLDER)
    format_folder(disk, FOLDER)
    failures: list[Exception] = []

    async def scenario() -> list[str]:
        publisher = ImagePublisher(CLUSTER_ID)
        publisher.attach(loop)
        environment = Environment(publisher, RULES, disk, clock, SeededRandom(seed), threads, failures.append)
        settings = Settings(node_id=1, cluster_id=CLUSTER_ID, sole_broker_id=1)
        options = ControllerOptions(FOLDER, DIRECTORY, settings, QUIET)
        controller = ControllerNode(options, environment, threads.loop_thread("controller"))
        controller.open()
        await controller.start([CONTROLLER])
        channel = QuorumChannel(1, publisher, controller.current_leader, controller, None)
        identity = BrokerIdentity(1, CLUSTER_ID, SeededRandom(seed).uuid(), (PLAINTEXT,), (DIRECTORY,))
        broker = BrokerLifecycle(identity, channel, publisher, at_once(), heartbeat_interval_ms=2000)
        await join(broker)
        ids = []
        for name in TOPICS:
            response: m.CreateTopicsResponse = await channel.send(creation(name, 1))
            assert response.topics[0].error_code == Error.NONE
            ids.append(response.topics[0].topic_id.hex())
        await asyncio.sleep(60)
        await broker.stop()
        await controller.stop()
        publisher.detach()
        return ids

    ids = loop.run(scenario(), limit_s=100)
    assert not failures
    assert not loop.errors
    return ids, scheduler.events, scheduler.now


def test_a_controller_on_a_slow_disk_takes_its_time_in_simulation_and_none_outside() -> None:
    begun = time.monotonic()
    _, _, took_s = run_once(1)
    assert took_s >= 60 + len(TOPICS) * SYNC_S
    assert time.monotonic() - begun < took_s / 2


def test_the_same_seed_gives_the_same_run() -> None:
    assert run_once(5) == run_once(5)
