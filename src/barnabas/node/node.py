"""A node: start → serve → stop. One process with a controller and a broker in it.

`run` is what `barnabas start` calls. Startup goes from the inside out: ports, folders, metadata, logs, registration,
and finally the client listeners are opened. Shutdown goes in the reverse order.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
from typing import TYPE_CHECKING

import uvloop

from barnabas.broker.api.client_connection import ClientConnection
from barnabas.broker.api.registry import register_all, routes_for
from barnabas.broker.broker import Broker, BrokerEnvironment
from barnabas.controller import controller_api
from barnabas.controller.config_rules import BrokerConfigRules, controller_settings, metadata_limits
from barnabas.controller.controller_node import ControllerNode, ControllerOptions, Environment, LocalControllerChannel
from barnabas.metadata.image import Endpoint
from barnabas.node.folders import Folders, open_folders
from barnabas.node.listener_servers import ListenerServers
from barnabas.ports import SystemClock, SystemDisk, SystemNetwork, SystemProcesses, SystemRandom, SystemThreads
from barnabas.raft.image_publisher import ImagePublisher

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable

    from barnabas.config.broker_config import BrokerConfig
    from barnabas.controller.quorum_controller import QuorumController
    from barnabas.net.endpoint import Listener
    from barnabas.ports import LoopThread

YOUNG_OBJECTS = 10_000
"""How many new objects trigger a collection of the youngest, which takes a millisecond or two."""

logger = logging.getLogger("barnabas.node")

ECHO_SECONDS = 0.25
PLAINTEXT_PROTOCOL = 0


class NodeServers:
    """All listeners of a node: those for clients on the broker's loop, those for the quorum on the controller's."""

    def __init__(self, config: BrokerConfig, loop: asyncio.AbstractEventLoop, controller: LoopThread) -> None:
        self._config = config
        self._controller = controller
        network = SystemNetwork()
        self.clients = ListenerServers(config, config.listeners, loop, network, ClientConnection)
        self.quorum = ListenerServers(config, config.controller_listeners, controller.loop, network)

    def bind(self) -> None:
        """Binds all ports, or none."""
        self.clients.bind()
        try:
            self.quorum.bind()
        except OSError:
            self.clients.stop_accepting()
            raise

    def release(self) -> None:
        """Releases the ports of listeners that were never opened."""
        self.clients.stop_accepting()
        self.quorum.stop_accepting()

    @property
    def advertised(self) -> tuple[Listener, ...]:
        """The addresses that clients are told to connect to."""
        return self.clients.with_ports(self._config.advertised_listeners)

    @property
    def advertised_controller(self) -> tuple[Listener, ...]:
        return self.quorum.with_ports(self._config.advertised_controller_listeners)

    def open_quorum(self, controller: QuorumController) -> None:
        """To be called on the controller's loop."""
        self.quorum.open(controller_api.routes_for(controller))

    async def close_quorum(self) -> None:
        await self._on_controller(self.quorum.close())

    async def _on_controller(self, work: Coroutine[None, None, None]) -> None:
        await asyncio.wrap_future(self._controller.submit(work))


class Node:
    def __init__(self, config: BrokerConfig, folders: Folders, servers: NodeServers, thread: LoopThread) -> None:
        self.loop = asyncio.get_running_loop()
        self._servers = servers
        self._stopping = asyncio.Event()
        self._failure: BaseException | None = None
        clock, disk, random, threads = SystemClock(), SystemDisk(), SystemRandom(), SystemThreads()
        publisher = ImagePublisher(folders.cluster_id)
        self._controller = ControllerNode(
            ControllerOptions(
                folders.metadata_folder,
                folders.metadata_directory_id,
                controller_settings(config, cluster_id=folders.cluster_id, sole_broker_id=config.node_id),
                metadata_limits(config),
            ),
            Environment(publisher, BrokerConfigRules(config), disk, clock, random, threads, self._fail_from_thread),
            thread,
        )
        self._broker = Broker(
            config,
            BrokerEnvironment(
                folders.cluster_id,
                folders.dirs,
                folders.unusable,
                folders.metadata_folder,
                publisher,
                LocalControllerChannel(self._controller, publisher),
                clock,
                disk,
                random,
                threads,
                SystemProcesses(),
                servers.clients.configure,
                self._fail,
            ),
        )

    @property
    def listeners(self) -> tuple[Listener, ...]:
        return self._servers.advertised

    async def start(self) -> None:
        """Returns when clients are served. A folder that must not be used is rejected before anything is written."""
        controller, broker, servers = self._controller, self._broker, self._servers
        controller.open()
        broker.subscribe()
        opening = broker.open_logs()
        try:
            await controller.start(endpoints(servers.advertised_controller), servers.open_quorum)
        finally:
            previous_epoch = await opening
        await broker.start(endpoints(servers.advertised), previous_epoch)
        servers.clients.open(routes_for(broker.environments()))
        gc.collect()
        gc.freeze()
        # What is made for a request is gone when it is answered. Collected too early it would count as long-lived, and
        # soon have everything that there is looked through, which takes much longer than the request.
        gc.set_threshold(YOUNG_OBJECTS, 5, 50)

    def request_stop(self) -> None:
        self._stopping.set()

    async def stop_requested(self) -> None:
        """Returns when the node should stop. If that is because of a failure, raises it."""
        await self._stopping.wait()
        if self._failure is not None:
            raise self._failure

    async def stop(self) -> None:
        """A clean shutdown: leadership is handed over, clients are disconnected, everything is written and synced. If a
        step fails, the error is logged and the remaining steps are taken all the same."""
        broker, servers = self._broker, self._servers
        servers.clients.stop_accepting()
        await broker.leave(self._take_step)
        await self._take_step(servers.clients.close())
        await broker.close(self._take_step)
        await self._take_step(servers.close_quorum())
        await self._take_step(self._controller.stop())
        broker.release()
        if self._failure is None:
            logger.info("stopped cleanly")

    async def _take_step(self, step: Awaitable[None]) -> None:
        try:
            await step
        except Exception as error:
            logger.exception("a step of the shutdown failed")
            self._failure = self._failure or error

    def _fail_from_thread(self, error: Exception) -> None:
        self.loop.call_soon_threadsafe(self._controller_failed, error)

    def _controller_failed(self, error: Exception) -> None:
        self._broker.controller_failed(error)
        self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Stops the node after a failure that it cannot recover from."""
        if self._failure is None:
            logger.critical("stopping the node after a fatal error: %s", error, exc_info=error)
            self._failure = error
        self._stopping.set()


def endpoints(listeners: Iterable[Listener]) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(each.name, each.host, each.port, PLAINTEXT_PROTOCOL) for each in listeners)


def run(config: BrokerConfig, *, on_ready: Callable[[Iterable[Listener]], None]) -> int:
    """Runs a node until it is told to stop. Returns the exit code; raises if the node cannot start."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(config, on_ready))


async def _run(config: BrokerConfig, on_ready: Callable[[Iterable[Listener]], None]) -> int:
    register_all()
    thread = SystemThreads().loop_thread("controller")
    servers = NodeServers(config, asyncio.get_running_loop(), thread)
    try:
        servers.bind()
        folders = open_folders(
            config, servers.advertised_controller, disk=SystemDisk(), clock=SystemClock(), random=SystemRandom()
        )
    except BaseException:
        servers.release()
        await thread.stop()
        raise
    node = Node(config, folders, servers, thread)
    signals = Signals(node)
    try:
        return await _serve(node, on_ready)
    finally:
        await node.stop()
        folders.unlock()
        signals.close()


async def _serve(node: Node, on_ready: Callable[[Iterable[Listener]], None]) -> int:
    """Starts the node and waits until it should stop, which may be before it has started."""
    starting = asyncio.ensure_future(node.start())
    stop_requested = asyncio.ensure_future(node.stop_requested())
    try:
        await asyncio.wait({starting, stop_requested}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            on_ready(node.listeners)
        await stop_requested
    finally:
        for task in (starting, stop_requested):
            task.cancel()
        await asyncio.gather(starting, stop_requested, return_exceptions=True)
    return 0


class Signals:
    """The first SIGTERM or SIGINT starts a clean shutdown, the second ends the process at once. Process supervisors may
    send the same signal to a process and then to its group: such an echo does not count as the second."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._first: tuple[signal.Signals, float] | None = None
        for number in (signal.SIGTERM, signal.SIGINT):
            node.loop.add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: signal.Signals) -> None:
        now = self._node.loop.time()
        if self._first is None:
            self._first = number, now
            logger.info("%s: stopping", number.name)
            self._node.request_stop()
        elif self._first[0] is not number or now - self._first[1] > ECHO_SECONDS:
            logger.warning("%s again: exiting immediately", number.name)
            os._exit(1)

    def close(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._node.loop.remove_signal_handler(number)
