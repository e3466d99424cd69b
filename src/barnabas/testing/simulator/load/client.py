"""What all simulated clients have in common: they find leaders and coordinators, ask them, and try again.

A client has a machine and an event loop of its own. It knows some addresses to begin with, learns the others from
Metadata, and hears of new leaders from the answers of old ones (KIP-951). It asks for the coordinator of a group or a
transactional id once, and again when an answer says that it has moved, or when none comes.
"""

from __future__ import annotations

import asyncio
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.net.frames import WireError
from barnabas.net.peer import Peer, PeerSettings
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.testing.simulator.load.history import NO_EPOCH, TopicPartition

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from barnabas.net.peer import PeerEnvironment
    from barnabas.protocol.compiler.structs import Message
    from barnabas.protocol.uuids import Uuid

REQUEST_TIMEOUT_S: Final = 4.0
CONNECT_TIMEOUT_S: Final = 2.0
BACKOFF_S: Final = 0.1
BACKOFF_S_MAX: Final = 1.0
METADATA_AGE_S_MIN: Final = 0.1
"""Metadata that is younger is not asked for again."""

MOVED: Final = frozenset({Error.NOT_COORDINATOR, Error.COORDINATOR_NOT_AVAILABLE})
"""The coordinator is somebody else now."""
COORDINATOR_RETRIABLE: Final = MOVED | {
    Error.COORDINATOR_LOAD_IN_PROGRESS,
    Error.CONCURRENT_TRANSACTIONS,
    Error.NOT_ENOUGH_REPLICAS,
    Error.REQUEST_TIMED_OUT,
    Error.UNSTABLE_OFFSET_COMMIT,
    Error.UNKNOWN_TOPIC_OR_PARTITION,
}
NEW_LEADER: Final = frozenset(
    {
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.FENCED_LEADER_EPOCH,
        Error.UNKNOWN_LEADER_EPOCH,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.UNKNOWN_TOPIC_ID,
        Error.LEADER_NOT_AVAILABLE,
        Error.KAFKA_STORAGE_ERROR,
        Error.REPLICA_NOT_AVAILABLE,
    }
)


class GaveUpError(Exception):
    """No useful answer within the time that the client had for it. What was asked may have been done."""


class Kind(IntEnum):
    """Of a coordinator, as FindCoordinator numbers them."""

    GROUP = 0
    TRANSACTION = 1


class Leader(NamedTuple):
    broker: int
    epoch: int


class Answer(NamedTuple):
    """What a coordinator said, and which broker that was."""

    response: Any
    node: int


class ClusterClient:
    """`chance` decides all that a client does by chance, so each has its own."""

    def __init__(
        self,
        name: str,
        environment: PeerEnvironment,
        bootstrap: Sequence[tuple[str, int]],
        chance: random.Random,
        *,
        rack: str = "",
        coordinator_epoch: Callable[[int, str], int] = lambda _node, _group: NO_EPOCH,
        leader_epoch: Callable[[int, TopicPartition], int] = lambda _node, _partition: NO_EPOCH,
    ) -> None:
        """`leader_epoch` says in which leader epoch a node leads a partition, from outside, and `coordinator_epoch` the
        same of the partition of a group."""
        self.name = name
        self.loop = environment.loop
        self.chance = chance
        self.rack = rack
        self.coordinator_epoch = coordinator_epoch
        self.leader_epoch = leader_epoch
        self._environment = environment
        self._bootstrap = tuple(bootstrap)
        self._settings = PeerSettings(
            client_id=name,
            request_timeout_s=REQUEST_TIMEOUT_S,
            connection_setup_timeout_s=CONNECT_TIMEOUT_S,
            reconnect_backoff_s=0.05,
            reconnect_backoff_max_s=1.0,
        )
        self._brokers: dict[int, tuple[str, int]] = {}
        self._peers: dict[tuple[str, int, str], Peer] = {}
        self._leaders: dict[TopicPartition, Leader] = {}
        self.topic_ids: dict[str, Uuid] = {}
        self._topic_names: dict[Uuid, str] = {}
        self._coordinators: dict[tuple[Kind, str], int] = {}
        self._refreshing: asyncio.Task[None] | None = None
        self._refreshed_s = float("-inf")

    @property
    def now_s(self) -> float:
        return self.loop.time()

    @property
    def brokers(self) -> list[int]:
        """All that it has heard of."""
        return sorted(self._brokers)

    async def pause(self, longest_s: float) -> None:
        """Some time, by chance."""
        await asyncio.sleep(self.chance.uniform(0, longest_s))

    async def back_off(self, attempt: int) -> None:
        """Before the `attempt`-th repetition, which counts from 0."""
        longest = min(BACKOFF_S * 2 ** min(attempt, 10), BACKOFF_S_MAX)
        await asyncio.sleep(longest * self.chance.uniform(0.8, 1.2))

    # ── brokers ──────────────────────────────────────────────────────────────────────────────────────────────

    async def ask(
        self,
        broker: int,
        request: Message,
        version: int | None = None,
        *,
        purpose: str = "",
        timeout_s: float | None = None,
    ) -> Any:
        """One request, once. WireError if there is no answer. Each purpose has connections of its own, for what waits
        for long would hold up whatever comes behind it."""
        address = self._brokers.get(broker)
        if address is None:
            raise WireError(f"{self.name} does not know the address of broker {broker}")
        return await self._peer(address, purpose).send(request, version, timeout_s=timeout_s)

    def _peer(self, address: tuple[str, int], purpose: str) -> Peer:
        key = (*address, purpose)
        peer = self._peers.get(key)
        if peer is None:
            host, port = address
            peer = self._peers[key] = Peer(f"{self.name}{purpose}", host, port, self._environment, self._settings)
        return peer

    async def close(self) -> None:
        peers, self._peers = self._peers, {}
        for peer in peers.values():
            await peer.close()

    # ── metadata ─────────────────────────────────────────────────────────────────────────────────────────────

    def leader_of(self, partition: TopicPartition) -> Leader | None:
        """As far as this client has heard."""
        return self._leaders.get(partition)

    def topic_name(self, topic_id: Uuid) -> str:
        return self._topic_names[topic_id]

    async def refresh(self) -> None:
        """Asks somebody for the metadata. Whoever asks meanwhile waits for the same answer."""
        if self._refreshing is None:
            self._refreshing = self.loop.create_task(self._refresh())
            self._refreshing.add_done_callback(self._refreshed)
        await asyncio.shield(self._refreshing)

    def _refreshed(self, task: asyncio.Task[None]) -> None:
        self._refreshing = None
        if not task.cancelled() and task.exception() is not None:
            raise task.exception()  # type: ignore[misc]

    async def _refresh(self) -> None:
        wait_s = self._refreshed_s + METADATA_AGE_S_MIN - self.now_s
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        known = sorted(set(self._brokers.values()) | set(self._bootstrap))
        address = self.chance.choice(known)
        request = m.MetadataRequest(topics=None, allow_auto_topic_creation=False)
        try:
            response = await self._peer(address, "").send(request)
        except WireError:
            return
        finally:
            self._refreshed_s = self.now_s
        self._take_metadata(response)

    def _take_metadata(self, response: m.MetadataResponse) -> None:
        for broker in response.brokers:
            self._brokers[broker.node_id] = (broker.host, broker.port)
        for topic in response.topics:
            if topic.error_code or topic.name is None:
                continue
            self.topic_ids[topic.name] = topic.topic_id
            self._topic_names[topic.topic_id] = topic.name
            for each in topic.partitions:
                self.heard_of(TopicPartition(topic.name, each.partition_index), each.leader_id, each.leader_epoch)

    def heard_of(self, partition: TopicPartition, leader: int, epoch: int) -> None:
        """Somebody says who leads. What is older than what was heard before is ignored."""
        known = self._leaders.get(partition)
        if epoch >= 0 and leader >= 0 and (known is None or epoch >= known.epoch):
            self._leaders[partition] = Leader(leader, epoch)

    def take_hints(self, endpoints: Sequence[Any]) -> None:
        """The addresses in an answer that names new leaders."""
        for endpoint in endpoints:
            self._brokers[endpoint.node_id] = (endpoint.host, endpoint.port)

    async def known_leader(self, partition: TopicPartition) -> Leader | None:
        """Asks for the metadata if need be."""
        leader = self._leaders.get(partition)
        if leader is None or leader.broker not in self._brokers:
            await self.refresh()
            leader = self._leaders.get(partition)
        return leader

    # ── coordinators ─────────────────────────────────────────────────────────────────────────────────────────

    async def ask_coordinator(
        self,
        kind: Kind,
        key: str,
        request: Message,
        *,
        version: int | None = None,
        give_up_s: float,
        errors_in: Callable[[Any], int] = lambda response: response.error_code,
        timeout_s: float | None = None,
    ) -> Answer:
        """Asks until there is an answer that is more than "not now" or "not me". GaveUpError after so long."""
        deadline = self.now_s + give_up_s
        attempt = 0
        while True:
            node = await self._coordinator(kind, key)
            if node is not None:
                try:
                    response = await self.ask(
                        node, request, version, purpose=f" {kind.name.lower()}", timeout_s=timeout_s
                    )
                except WireError:
                    self._coordinators.pop((kind, key), None)
                else:
                    error = Error(errors_in(response))
                    if error not in COORDINATOR_RETRIABLE:
                        return Answer(response, node)
                    if error in MOVED:
                        self._coordinators.pop((kind, key), None)
            if self.now_s >= deadline:
                raise GaveUpError(f"{self.name}: no coordinator of {key} answered within {give_up_s:g} s")
            await self.back_off(attempt)
            attempt += 1

    def forget_coordinator(self, kind: Kind, key: str) -> None:
        """It is somebody else now."""
        self._coordinators.pop((kind, key), None)

    async def ask_coordinator_once(
        self, kind: Kind, key: str, request: Message, version: int | None = None
    ) -> tuple[int, Any]:
        """Asks whoever coordinates, one time, and says who that was. GaveUpError without an answer."""
        node = await self._coordinator(kind, key)
        if node is None:
            raise GaveUpError(f"{self.name}: nobody knows who coordinates {key}")
        try:
            return node, await self.ask(node, request, version, purpose=f" {kind.name.lower()}")
        except WireError as failure:
            self._coordinators.pop((kind, key), None)
            raise GaveUpError(str(failure)) from failure

    async def _coordinator(self, kind: Kind, key: str) -> int | None:
        known = self._coordinators.get((kind, key))
        if known is not None:
            return known
        address = self.chance.choice(sorted(set(self._brokers.values()) | set(self._bootstrap)))
        request = m.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        try:
            response = await self._peer(address, "").send(request)
        except WireError:
            return None
        (found,) = response.coordinators
        if found.error_code:
            return None
        self._brokers[found.node_id] = (found.host, found.port)
        self._coordinators[kind, key] = found.node_id
        node: int = found.node_id
        return node
