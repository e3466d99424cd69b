"""A node: start → serve → stop. A controller, a broker, or both, on the ports that it is given.

Startup goes from the inside out: listeners are bound, folders, metadata, logs, registration, and finally the client
listeners are opened. Shutdown goes in the reverse order: the broker leaves the cluster, then the controller hands over
to another voter. `node/process` runs one on the system's ports, as `barnabas start` does; the simulator runs several on
simulated ones.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.api.client_connection import ClientConnection
from barnabas.broker.api.registry import register_all, routes_for
from barnabas.broker.broker import Broker, BrokerEnvironment
from barnabas.config.sole_node import is_sole_node
from barnabas.controller import controller_api
from barnabas.controller.config_rules import BrokerConfigRules, controller_settings, election_intervals, metadata_limits
from barnabas.controller.controller_node import ControllerNode, ControllerOptions, Environment
from barnabas.metadata.image import Endpoint
from barnabas.net.peer import PeerEnvironment
from barnabas.node.controller_channel import ChannelSettings, QuorumChannel
from barnabas.node.folders import Folders, open_folders
from barnabas.node.listener_servers import ListenerServers
from barnabas.node.time_watch import TimeWatch
from barnabas.raft.image_publisher import ImagePublisher
from barnabas.raft.observer import ObserverEnvironment, ObserverOptions, QuorumObserver
from barnabas.raft.quorum_client import QuorumIdentity
from barnabas.raft.quorum_config import quorum_settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from barnabas.config.broker_config import BrokerConfig
    from barnabas.controller.quorum_controller import QuorumController
    from barnabas.metadata.image import MetadataImage
    from barnabas.net.endpoint import Listener
    from barnabas.ports import Clock, Disk, LoopThread, Network, Processes, Random, Threads
    from barnabas.raft.quorum_client import QuorumClient
    from barnabas.replication.replica_manager import ReplicaManager

logger = logging.getLogger("barnabas.node")

PLAINTEXT_PROTOCOL = 0


class NodeServers:
    """All listeners of a node: those for clients on the broker's loop, those for the quorum on the controller's."""

    def __init__(
        self, config: BrokerConfig, loop: asyncio.AbstractEventLoop, controller: LoopThread, network: Network
    ) -> None:
        self._config = config
        """In force at the moment."""
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

    def configure(self, config: BrokerConfig) -> None:
        self._config = config
        self.clients.configure(config)

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


class QuorumServers:
    """The CONTROLLER listeners of a node, for its controller to open and close on its own loop."""

    def __init__(self, servers: ListenerServers) -> None:
        self._servers = servers

    def open(self, controller: QuorumController) -> None:
        self._servers.open(controller_api.routes_for(controller))

    async def close(self) -> None:
        await self._servers.close()


class Ports(NamedTuple):
    """The outside, as this node has it."""

    clock: Clock
    disk: Disk
    random: Random
    threads: Threads
    network: Network
    processes: Processes


class Node:
    """`process.roles` decide what is in it: a broker, a controller, or both. Without a controller of its own, a node
    follows the metadata quorum as an observer."""

    def __init__(
        self, config: BrokerConfig, ports: Ports, folders: Folders, servers: NodeServers, thread: LoopThread
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._config = config
        self._folders = folders
        self._servers = servers
        self._thread = thread
        self._stopping = asyncio.Event()
        self._failure: BaseException | None = None
        self._ports = ports
        self._publisher = ImagePublisher(folders.cluster_id)
        self._controller = self._make_controller(thread) if config.is_controller else None
        self._quorum = self._controller or self._make_observer(thread)
        self._channel = self._make_channel()
        self._broker = self._make_broker() if config.is_broker else None
        if self._broker is not None:
            self._channel.on_new_way = self._broker.beat_now
        self._is_started = asyncio.Event()
        self._time_watch = TimeWatch(self.loop, ports.clock, config.node_id)
        self._broker_stop: asyncio.Task[None] | None = None

    def _make_controller(self, thread: LoopThread) -> ControllerNode:
        config, folders, ports = self._config, self._folders, self._ports
        is_sole = is_sole_node(config)
        quorum = quorum_settings(config)
        if is_sole:
            # Its folder says who votes. One that Kafka formatted with static voters names no other than this node.
            quorum = quorum._replace(static_voters=(), bootstrap_servers=())
        settings = controller_settings(
            config, cluster_id=folders.cluster_id, sole_broker_id=config.node_id if is_sole else None
        )
        return ControllerNode(
            ControllerOptions(
                folders.metadata_folder,
                folders.metadata_directory_id,
                settings,
                metadata_limits(config),
                quorum,
                election_intervals(config),
            ),
            Environment(
                self._publisher,
                BrokerConfigRules(config),
                ports.disk,
                ports.clock,
                ports.random,
                ports.threads,
                self._fail_from_thread,
                ports.network,
            ),
            thread,
        )

    def _make_observer(self, thread: LoopThread) -> QuorumObserver:
        config, folders, ports = self._config, self._folders, self._ports
        return QuorumObserver(
            ObserverOptions(
                folders.metadata_folder,
                QuorumIdentity(config.node_id, folders.metadata_directory_id, folders.cluster_id),
                quorum_settings(config),
                metadata_limits(config),
            ),
            ObserverEnvironment(
                self._publisher,
                ports.disk,
                ports.clock,
                ports.random,
                ports.threads,
                ports.network,
                self._fail_from_thread,
            ),
            thread,
        )

    def _make_channel(self) -> QuorumChannel:
        config, ports = self._config, self._ports
        return QuorumChannel(
            config.node_id,
            self._publisher,
            self._quorum.current_leader,
            self._controller,
            PeerEnvironment.of(self.loop, ports.network, ports.random),
            ChannelSettings(
                config.request_timeout_ms / 1000,
                min(config.controller_socket_timeout_ms, config.broker_session_timeout_ms // 2) / 1000,
                config.socket_connection_setup_timeout_ms / 1000,
            ),
        )

    def _make_broker(self) -> Broker:
        folders, ports = self._folders, self._ports
        return Broker(
            self._config,
            BrokerEnvironment(
                folders.cluster_id,
                folders.dirs,
                folders.unusable,
                folders.metadata_folder,
                self._publisher,
                self._channel,
                ports.clock,
                ports.disk,
                ports.network,
                ports.random,
                ports.threads,
                ports.processes,
                self._configured,
                self._servers.clients.limit_addresses,
                self._fail,
            ),
        )

    def _configured(self, config: BrokerConfig) -> None:
        self._servers.configure(config)
        if self._broker is not None:
            self._broker.advertise(endpoints(self._servers.advertised))

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """Where this node serves: clients if it is a broker, else the quorum."""
        return self._servers.advertised if self._broker is not None else self._servers.advertised_controller

    @property
    def client_servers(self) -> ListenerServers:
        """The listeners for clients."""
        return self._servers.clients

    @property
    def image(self) -> MetadataImage:
        """The newest committed metadata that the broker has received."""
        return self._publisher.image

    @property
    def quorum_client(self) -> QuorumClient | None:
        """This node's part in the metadata quorum; None before it has begun."""
        return self._quorum.quorum_client

    @property
    def controller_servers(self) -> ListenerServers:
        """The listeners for the quorum, which run on a loop of their own."""
        return self._servers.quorum

    @property
    def quorum_controller(self) -> QuorumController | None:
        """What decides about the cluster; None on a node without a controller, and before it has begun."""
        return None if self._controller is None else self._controller.begun

    @property
    def controller_loop(self) -> asyncio.AbstractEventLoop:
        return self._thread.loop

    @property
    def is_controller(self) -> bool:
        return self._controller is not None

    @property
    def broker(self) -> Broker | None:
        return self._broker

    @property
    def is_started(self) -> bool:
        """Whether it serves, and is not about to stop."""
        return self._is_started.is_set() and not self._stopping.is_set()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    @property
    def replicas(self) -> ReplicaManager | None:
        """The partitions that the broker hosts; None without a broker."""
        return None if self._broker is None else self._broker.replicas

    async def start(self) -> None:
        """Returns when clients are served, or, without a broker, when the quorum has a leader that this node follows,
        if it is not itself. A folder that must not be used is rejected before anything is written."""
        self._quorum.open()
        if self._broker is None:
            await self._start_quorum()
        else:
            await self._start_both(self._broker)
        self._time_watch.start()
        self._is_started.set()

    async def _start_both(self, broker: Broker) -> None:
        broker.subscribe()
        opening = broker.open_logs()
        try:
            await self._start_quorum()
        finally:
            previous_epoch = await opening
        await broker.start(endpoints(self._servers.advertised), previous_epoch)
        self._servers.clients.open(routes_for(broker.environments()))

    async def _start_quorum(self) -> None:
        if self._controller is not None:
            listeners = QuorumServers(self._servers.quorum)
            await self._controller.start(endpoints(self._servers.advertised_controller), listeners)
        elif isinstance(self._quorum, QuorumObserver):
            await self._quorum.start()

    async def serve(self, on_ready: Callable[[Node], None]) -> None:
        """Starts, and returns when the node should stop, which may be before it has started. Raises if it cannot start
        or has failed. `stop` is to follow in any case."""
        starting = asyncio.ensure_future(self.start())
        stop_requested = asyncio.ensure_future(self.stop_requested())
        try:
            await asyncio.wait((starting, stop_requested), return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                on_ready(self)
            await stop_requested
        finally:
            for task in (starting, stop_requested):
                task.cancel()
            await asyncio.gather(starting, stop_requested, return_exceptions=True)

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
        self._time_watch.stop()
        await self.stop_broker()
        await self._take_step(self._channel.close())
        await self._take_step(self._quorum.stop())
        if self._broker is not None:
            self._broker.release()
        self._servers.release()
        self._folders.unlock()
        if self._failure is None:
            logger.info("stopped cleanly")

    async def stop_broker_when_started(self) -> None:
        """Stops the broker and keeps the controller, which the brokers of other nodes may still need."""
        await self._is_started.wait()
        await self.stop_broker()

    async def stop_broker(self) -> None:
        if self._broker is None:
            return
        if self._broker_stop is None:
            self._broker_stop = asyncio.ensure_future(self._stop_broker(self._broker))
        await asyncio.shield(self._broker_stop)

    async def _stop_broker(self, broker: Broker) -> None:
        clients = self._servers.clients
        clients.stop_accepting()
        await broker.leave(self._take_step)
        await self._take_step(clients.close())
        await broker.close(self._take_step)

    async def _take_step(self, step: Awaitable[None]) -> None:
        try:
            await step
        except Exception as error:
            logger.exception("a step of the shutdown failed")
            self._failure = self._failure or error

    def _fail_from_thread(self, error: Exception) -> None:
        self.loop.call_soon_threadsafe(self._quorum_failed, error)

    def _quorum_failed(self, error: Exception) -> None:
        if self._broker is not None:
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


async def open_node(config: BrokerConfig, ports: Ports) -> Node:
    """Binds the listeners and locks the folders of a node, or raises and leaves nothing behind."""
    register_all()
    thread = ports.threads.loop_thread("controller")
    servers = NodeServers(config, asyncio.get_running_loop(), thread, ports.network)
    try:
        servers.bind()
        folders = open_folders(
            config, servers.advertised_controller, disk=ports.disk, clock=ports.clock, random=ports.random
        )
    except BaseException:
        servers.release()
        await thread.stop()
        raise
    return Node(config, ports, folders, servers, thread)
