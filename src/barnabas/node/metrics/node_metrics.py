"""All figures of one node, and the server that shows them."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from barnabas.metrics.exposition import GAUGE, Family, gauge
from barnabas.net.request_metrics import RequestMeter
from barnabas.node.metrics import (
    broker_figures,
    cluster_figures,
    coordinator_figures,
    group_figures,
    process_figures,
    request_figures,
    storage_figures,
    waiting_figures,
)
from barnabas.node.metrics.broker_figures import TopicTraffic
from barnabas.node.metrics.group_figures import GroupPosition, LagClock
from barnabas.node.metrics.loop_watch import LoopWatch
from barnabas.node.metrics.metrics_server import MetricsServer

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

    from barnabas.broker.broker import Broker
    from barnabas.node.node import Node, Ports

logger = logging.getLogger("barnabas.metrics")

HANDLERS: Final = "kafka_server_kafkarequesthandlerpool_"
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
        self._controller_watch = LoopWatch(node.controller_loop)
        self._traffic = TopicTraffic()
        self._lag_clock = LagClock()
        self._has_begun = False
        self._look_timer: asyncio.TimerHandle | None = None
        self._window_ends_s = time.monotonic() + WINDOW_S

    async def start(self, host: str, port: int) -> None:
        """Raises OSError if the port is taken."""
        bound = await self._server.start(host, port)
        self._watch.start()
        self._node.controller_loop.call_soon_threadsafe(self._controller_watch.start)
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
        node = self._node
        yield from process_figures.process_families(self._started_s)
        yield from self._loop_families()
        yield from request_figures.request_families(self._client_meter, self._controller_meter)
        yield from waiting_figures.connection_families((*node.client_servers.servers, *node.controller_servers.servers))
        quorum = node.quorum_client
        if quorum is not None:
            is_active = node.is_controller and quorum.is_leader
            yield from cluster_figures.controller_families(node.image, is_active=is_active)
            yield from cluster_figures.quorum_families(quorum, is_controller=node.is_controller)
            yield from cluster_figures.metadata_families(node.image)
            if is_active:
                yield cluster_figures.registration_family(node.image)
        if (controller := node.quorum_controller) is not None:
            yield from cluster_figures.own_controller_families(controller, self._controller_watch)
        broker = node.broker
        if broker is not None:
            yield gauge(
                "kafka_server_kafkaserver_brokerstate", "1: it starts, 3: it serves, 6: it stops", self._broker_state()
            )
        if broker is not None and self._has_begun:
            yield from self._broker_families(broker)

    def _broker_families(self, broker: Broker) -> Iterator[Family]:
        self._look(broker)
        replicas = broker.replicas
        yield from broker_figures.topic_families(self._traffic)
        yield from request_figures.data_request_families(self._client_meter)
        yield from broker_figures.replica_families(replicas)
        yield broker_figures.reassignment_family(self._node.image, broker.node_id)
        yield from broker_figures.partition_families(replicas)
        yield from broker_figures.follower_families(replicas)
        yield from storage_figures.storage_families(broker, self._node.loop.time())
        positions = [
            GroupPosition(*each) for shard in broker.groups.served_shards() for each in shard.committed_offsets()
        ]
        yield from group_figures.group_families(positions, replicas, self._lag_clock, time.monotonic())
        yield from coordinator_figures.group_count_families(broker.groups, len(positions))
        yield from coordinator_figures.transaction_families(broker.transactions)
        yield from waiting_figures.purgatory_families(broker.purgatory)
        yield from waiting_figures.session_families(broker.fetch_sessions)
        yield gauge("barnabas_client_instances", "clients that push metrics (KIP-714)", len(broker.client_instances))

    def _broker_state(self) -> int:
        """As Kafka numbers them."""
        if self._node.is_stopping:
            return 6
        return 3 if self._node.is_started else 1

    def _loop_families(self) -> Iterator[Family]:
        yield gauge(
            f"{HANDLERS}requesthandleravgidle_percent",
            "the share of the last half minute in which the broker's event loop had nothing to do",
            round(self._watch.idle_share, 4),
        )
        yield gauge(
            "kafka_network_socketserver_networkprocessoravgidlepercent", "the same", round(self._watch.idle_share, 4)
        )
        yield gauge(f"{HANDLERS}brokerrequesthandleravgidle_percent", "the same", round(self._watch.idle_share, 4))
        yield gauge(
            f"{HANDLERS}controllerrequesthandleravgidle_percent",
            "the same of the event loop of controller and metadata quorum",
            round(self._controller_watch.idle_share, 4),
        )
        longest = Family(
            "barnabas_event_loop_longest_turn_seconds",
            GAUGE,
            "for how long an event loop was held by one thing at the most, in the last half minute",
        )
        for loop, watch in (("broker", self._watch), ("controller", self._controller_watch)):
            longest.add(round(watch.longest_s, 6), loop=loop)
        yield longest

    def _look_now_and_then(self) -> None:
        """On the node's loop. What is only seen now and then would be missed if nobody asked for figures for long."""
        self._look_timer = self._node.loop.call_later(broker_figures.LOOK_S, self._look_now_and_then)
        if time.monotonic() >= self._window_ends_s:
            self._window_ends_s += WINDOW_S
            self._client_meter.turn_over()
            self._controller_meter.turn_over()
            self._controller_watch.waits.turn_over()
            if self._node.broker is not None:
                self._node.broker.flusher.times.turn_over()
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
