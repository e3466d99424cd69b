"""All figures of one node, and the server that shows them."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from barnabas.metrics.exposition import COUNTER, GAUGE, Family
from barnabas.net.request_metrics import RequestMeter
from barnabas.node.metrics import broker_figures, cluster_figures, group_figures, process_figures, request_figures
from barnabas.node.metrics.broker_figures import TopicTraffic
from barnabas.node.metrics.group_figures import GroupPosition, LagClock
from barnabas.node.metrics.metrics_server import MetricsServer
from barnabas.node.metrics.process_figures import LoopWatch

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Iterator

    from barnabas.broker.broker import Broker
    from barnabas.node.listener_servers import ListenerServers
    from barnabas.node.node import Node, Ports

logger = logging.getLogger("barnabas.metrics")

WINDOW_S: Final = 60.0
"""Percentiles are of the last one to two of these."""


class NodeMetrics:
    def __init__(self, node: Node, ports: Ports) -> None:
        self._node = node
        self._started_s = ports.clock.now_ms() / 1000
        self._client_meter = RequestMeter()
        self._controller_meter = RequestMeter()
        node.client_servers.meter_by(self._client_meter)
        node.controller_servers.meter_by(self._controller_meter)
        self._server = MetricsServer(ports.threads.loop_thread("metrics"), self.families, self.state)
        self._watch = LoopWatch(node.loop)
        self._traffic = TopicTraffic()
        self._lag_clock = LagClock()
        self._has_begun = False
        self._look_timer: asyncio.TimerHandle | None = None
        self._window_ends_s = time.monotonic() + WINDOW_S

    async def start(self, host: str, port: int) -> None:
        """Raises OSError if the port is taken."""
        bound = await self._server.start(host, port)
        self._watch.start()
        self._look_now_and_then()
        logger.info("metrics are at http://%s:%d/metrics", host or "this machine", bound)

    def begin(self) -> None:
        """The node serves from now on."""
        if self._node.broker is not None:
            self._traffic.begin(list(self._node.broker.replicas))
        self._has_begun = True

    async def stop(self) -> None:
        self._watch.stop()
        if self._look_timer is not None:
            self._look_timer.cancel()
        await self._server.stop()

    def state(self) -> dict[str, object]:
        node = self._node
        return {
            "ready": node.is_started,
            "listeners": [str(each) for each in node.listeners] if node.is_started else [],
        }

    def families(self) -> Iterator[Family]:
        """Everything there is to tell now. Runs in the thread of the server."""
        yield from process_figures.process_families(self._started_s)
        yield from self._loop_families()
        yield from request_figures.request_families(self._client_meter, self._controller_meter)
        yield from self._connection_families()
        image = self._node.image
        quorum = self._node.quorum_client
        if quorum is not None:
            is_active = self._node.is_controller and quorum.is_leader
            yield from cluster_figures.controller_families(image, is_active=is_active)
            yield from cluster_figures.quorum_families(quorum)
        broker = self._node.broker
        if broker is not None and self._has_begun:
            yield from self._broker_families(broker)

    def _broker_families(self, broker: Broker) -> Iterator[Family]:
        self._look(broker)
        yield from broker_figures.topic_families(self._traffic)
        yield from broker_figures.replica_families(broker.replicas)
        yield from broker_figures.log_families(broker.replicas)
        positions = [
            GroupPosition(*each) for shard in broker.groups.served_shards() for each in shard.committed_offsets()
        ]
        yield from group_figures.group_families(positions, broker.replicas, self._lag_clock, time.monotonic())
        waiting = Family(
            "kafka_server_delayedoperationpurgatory_numdelayedoperations",
            GAUGE,
            "produce and fetch requests that wait for replicas or for records",
        )
        waiting.add(len(broker.purgatory))
        yield waiting

    def _loop_families(self) -> Iterator[Family]:
        idle = Family(
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
            GAUGE,
            "the share of time, since it was last asked for, in which the broker's event loop had nothing to do",
        )
        idle.add(round(self._watch.take_idle_share(), 4))
        yield idle
        longest = Family(
            "barnabas_event_loop_longest_turn_seconds",
            GAUGE,
            "for how long the broker's event loop was held by one thing at the most, since it was last asked for",
        )
        longest.add(round(self._watch.take_longest_s(), 6))
        yield longest

    def _connection_families(self) -> Iterator[Family]:
        count = Family("kafka_server_socket_server_metrics_connection_count", GAUGE, "connections that are open")
        total = Family("kafka_server_socket_server_metrics_connection_creation_total", COUNTER, "connections accepted")
        servers: Iterable[ListenerServers] = (self._node.client_servers, self._node.controller_servers)
        for each in servers:
            for server in each.servers:
                count.add(len(server.connections), listener=server.listener.name)
                total.add(server.accepted, listener=server.listener.name)
        yield count
        yield total

    def _look_now_and_then(self) -> None:
        """On the node's loop. What is only seen now and then would be missed if nobody asked for figures for long."""
        self._look_timer = self._node.loop.call_later(broker_figures.LOOK_S, self._look_now_and_then)
        if time.monotonic() >= self._window_ends_s:
            self._window_ends_s += WINDOW_S
            self._client_meter.turn_over()
            self._controller_meter.turn_over()
        self._server.run(self._look_if_broker)

    def _look_if_broker(self) -> None:
        if self._node.broker is not None and self._has_begun:
            self._look(self._node.broker)

    def _look(self, broker: Broker) -> None:
        """In the thread of the server, which alone has these figures."""
        self._traffic.look(list(broker.replicas))
        followed = {
            (topic, partition)
            for shard in broker.groups.served_shards()
            for _, topic, partition, _ in shard.committed_offsets()
        }
        ends = {
            (topic, partition): hosted.state.high_watermark.offset
            for topic, partition in followed
            if (hosted := broker.replicas.partitions_of(topic).get(partition)) is not None
        }
        self._lag_clock.note(ends, time.monotonic())
