"""A node as a process of its own: what `barnabas start` runs until a signal ends it.

What belongs to the process and not to the node is here: the event loop, the ports to the system, signals, and how the
garbage collector is tuned.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
from typing import TYPE_CHECKING, NamedTuple

import uvloop

from barnabas.node.node import Ports, open_node
from barnabas.ports import SystemClock, SystemDisk, SystemNetwork, SystemProcesses, SystemRandom, SystemThreads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sized

    from barnabas.config.broker_config import BrokerConfig
    from barnabas.net.endpoint import Listener
    from barnabas.node.metrics.node_metrics import NodeMetrics
    from barnabas.node.node import Node

logger = logging.getLogger("barnabas.node")

YOUNG_OBJECTS = 10_000
"""How many new objects trigger a collection of the youngest, which takes a millisecond or two."""
PARTITIONS_TO_SETTLE = 1_000
"""Not fewer: what is settled is never looked through again, though it may be garbage one day."""
ECHO_SECONDS = 0.25


class Outside(NamedTuple):
    """What a node is given, and who is told of it before it starts."""

    ports: Ports
    on_open: Callable[[Node], None] = lambda node: None  # noqa: ARG005


def run(
    config: BrokerConfig,
    *,
    on_ready: Callable[[Iterable[Listener]], None],
    on_broker_stopped: Callable[[], None] = lambda: None,
    outside: Outside | None = None,
) -> int:
    """Runs a node until it is told to stop. Returns the exit code; raises if the node cannot start. SIGUSR1 stops the
    broker only; `on_broker_stopped` is called when it has left the cluster. Without an `outside`, the node has the
    system's ports."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(config, on_ready, on_broker_stopped, outside or Outside(system_ports())))


async def _run(
    config: BrokerConfig,
    on_ready: Callable[[Iterable[Listener]], None],
    on_broker_stopped: Callable[[], None],
    outside: Outside,
) -> int:
    def ready(node: Node) -> None:
        settle_memory()
        if metrics is not None:
            metrics.begin()
        if node.replicas is not None:
            node.replicas.listeners.append(SettledPartitions(node.replicas).look)
        on_ready(node.listeners)

    node = await open_node(config, outside.ports)
    outside.on_open(node)
    signals = Signals(node, on_broker_stopped)
    metrics = await measured(node, config, outside.ports)
    try:
        await node.serve(ready)
        return 0
    finally:
        await node.stop()
        if metrics is not None:
            await metrics.stop()
        signals.close()


async def measured(node: Node, config: BrokerConfig, ports: Ports) -> NodeMetrics | None:
    """Measures what the node does, if somebody is to see it."""
    if not config.barnabas_metrics_listener:
        return None
    from barnabas.config.metrics_listener import metrics_address
    from barnabas.node.metrics.node_metrics import NodeMetrics

    host, port = metrics_address(config.barnabas_metrics_listener)
    metrics = NodeMetrics(node, ports)
    try:
        await metrics.start(host, port)
    except OSError:
        await node.stop()
        await metrics.stop()
        raise
    return metrics


def system_ports() -> Ports:
    return Ports(SystemClock(), SystemDisk(), SystemRandom(), SystemThreads(), SystemNetwork(), SystemProcesses())


def settle_memory() -> None:
    """What a node has made to start stays, and need not be looked through again."""
    gc.collect()
    gc.freeze()
    # What is made for a request is gone when it is answered. Collected too early it would count as long-lived, and
    # soon have everything that there is looked through, which takes much longer than the request.
    gc.set_threshold(YOUNG_OBJECTS, 5, 50)


class SettledPartitions:
    """Partitions that come later stay as well. With ten thousand of them, looking through everything holds up the node
    for a tenth of a second."""

    def __init__(self, partitions: Sized) -> None:
        self._partitions = partitions
        self._settled = len(partitions)

    def look(self) -> None:
        """Called when partitions have come or gone."""
        count = len(self._partitions)
        if count >= self._settled + PARTITIONS_TO_SETTLE:
            gc.freeze()
            self._settled = count
        else:
            self._settled = min(self._settled, count)


class Signals:
    """The first SIGTERM or SIGINT starts a clean shutdown, the second ends the process at once. Process supervisors may
    send the same signal to a process and then to its group: such an echo does not count as the second. SIGUSR1 stops
    the broker and keeps the controller."""

    def __init__(self, node: Node, on_broker_stopped: Callable[[], None]) -> None:
        self._node = node
        self._on_broker_stopped = on_broker_stopped
        self._first: tuple[signal.Signals, float] | None = None
        self._broker_stop: asyncio.Task[None] | None = None
        for number in (signal.SIGTERM, signal.SIGINT):
            node.loop.add_signal_handler(number, self._on_signal, number)
        node.loop.add_signal_handler(signal.SIGUSR1, self._on_broker_signal)

    def _on_signal(self, number: signal.Signals) -> None:
        now = self._node.loop.time()
        if self._first is None:
            self._first = number, now
            logger.info("%s: stopping", number.name)
            self._node.request_stop()
        elif self._first[0] is not number or now - self._first[1] > ECHO_SECONDS:
            logger.warning("%s again: exiting immediately", number.name)
            os._exit(1)

    def _on_broker_signal(self) -> None:
        if self._broker_stop is None:
            logger.info("SIGUSR1: stopping the broker")
            self._broker_stop = asyncio.ensure_future(self._stop_broker())

    async def _stop_broker(self) -> None:
        await self._node.stop_broker_when_started()
        self._on_broker_stopped()

    def close(self) -> None:
        if self._broker_stop is not None:
            self._broker_stop.cancel()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            self._node.loop.remove_signal_handler(number)
