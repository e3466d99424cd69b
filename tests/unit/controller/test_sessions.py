"""How long a broker counts as alive: by its heartbeats, and by the connection over which they come."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.controller.decisions.context import NO_GRACE, Settings
from barnabas.controller.decisions.sessions import Session
from barnabas.net.frames import WireError
from barnabas.net.peer import Peer, PeerEnvironment
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.testing.randomness import SeededRandom
from tests.unit.controller.cluster import CLUSTER_ID
from tests.unit.controller.quorums import Quorum, QuorumNode, registration

if TYPE_CHECKING:
    from collections.abc import Iterator

SESSION_MS = 9_000
GRACE_MS = 500


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    yield
    Quorum.bury()


def settings(grace_ms: int) -> Settings:
    return Settings(node_id=1, cluster_id=CLUSTER_ID, session_timeout_ms=SESSION_MS, disconnect_grace_ms=grace_ms)


def test_a_session_ends_when_no_heartbeat_came_for_its_time() -> None:
    session = Session(1_000).connected("a")
    assert session.ends_at_ms(settings(NO_GRACE)) == session.ends_at_ms(settings(GRACE_MS)) == 1_000 + SESSION_MS


def test_a_session_ends_a_grace_after_the_connection_was_closed() -> None:
    session = Session(1_000).connected("a").disconnected("a", 2_000)
    assert session.ends_at_ms(settings(GRACE_MS)) == 2_000 + GRACE_MS
    assert session.ends_at_ms(settings(0)) == 2_000
    assert session.ends_at_ms(settings(20_000)) == 1_000 + SESSION_MS, "never later than by silence"
    assert session.ends_at_ms(settings(NO_GRACE)) == 1_000 + SESSION_MS


def test_a_broker_that_comes_back_over_another_connection_keeps_its_session() -> None:
    alive = settings(GRACE_MS)
    came_back = Session(1_000).connected("a").disconnected("a", 2_000).connected("b")
    assert came_back.ends_at_ms(alive) == 1_000 + SESSION_MS
    came_first = Session(1_000).connected("a").connected("b").disconnected("a", 2_000)
    assert came_first.ends_at_ms(alive) == 1_000 + SESSION_MS, "the old connection ended after the new one had begun"


class RemoteBroker:
    """The part of a broker that registers and heartbeats, as a host of its own."""

    def __init__(self, quorum: Quorum, broker_id: int) -> None:
        self.quorum = quorum
        self.id = broker_id
        self.host = f"b{broker_id}"
        self.loop = quorum.scheduler.new_loop(self.host)
        quorum.loops.append(self.loop)
        self.epoch = -1
        self.peer: Peer | None = None
        self.beating: asyncio.Task[None] | None = None

    def join(self, controller: QuorumNode) -> None:
        """Registers, is unfenced, and goes on with heartbeats."""

        async def join() -> None:
            self._connect(controller)
            response = await self._send(registration(self.id))
            assert response.error_code == Error.NONE
            self.epoch = response.broker_epoch
            await self._beat()
            self.beating = asyncio.ensure_future(self._keep_beating())

        self.loop.run(join(), limit_s=30)

    def _connect(self, controller: QuorumNode) -> None:
        environment = PeerEnvironment.of(self.loop, self.quorum.network.host(self.host), SeededRandom(self.host))
        self.peer = Peer(controller.name, controller.name, controller.port, environment)

    async def _send(self, request: Any) -> Any:
        assert self.peer is not None
        return await self.peer.send(request, timeout_s=5)

    async def _beat(self) -> None:
        response = await self._send(
            m.BrokerHeartbeatRequest(
                broker_id=self.id, broker_epoch=self.epoch, current_metadata_offset=2**40, cordoned_log_dirs=[]
            )
        )
        assert response.error_code in (Error.NONE, Error.NOT_CONTROLLER)

    async def _keep_beating(self) -> None:
        while True:
            await asyncio.sleep(2)
            try:
                await self._beat()
            except WireError:
                await asyncio.sleep(0.05)

    def move_to(self, controller: QuorumNode) -> None:
        """Takes another connection, as a broker does whose connection broke, or that learns of another controller."""

        async def move() -> None:
            assert self.peer is not None
            await self.peer.close()
            self._connect(controller)
            await self._beat()

        self.loop.run(move(), limit_s=30)

    def die(self) -> None:
        """The process is killed: its system closes what it had open."""
        self.loop.kill()
        self.quorum.network.kill(self.host)

    def vanish(self) -> None:
        """The machine loses its network: nobody is told."""
        self.loop.kill()
        self.quorum.network.vanish(self.host)

    @property
    def is_fenced(self) -> bool:
        return is_fenced(self.quorum, self.id)


def is_fenced(quorum: Quorum, broker_id: int) -> bool:
    """As an active controller sees it; nobody is asked to wait for one."""
    return any(node.is_active and node.image.brokers[broker_id].fenced for node in quorum.nodes.values())


def resign(node: QuorumNode) -> None:
    async def resign() -> None:
        node.controller.quorum_client.driver.resign()

    node.thread.loop.run(resign(), limit_s=5)


def seconds_until_fenced(quorum: Quorum, broker: RemoteBroker) -> float:
    began = quorum.scheduler.now
    quorum.until(lambda: broker.is_fenced, limit_s=60)
    return float(quorum.scheduler.now - began)


def started(grace_ms: int, voters: int = 3) -> Quorum:
    quorum = Quorum(voters=voters, disconnect_grace_ms=grace_ms)
    quorum.start()
    return quorum


@pytest.mark.parametrize(("grace_ms", "least_s", "most_s"), [(GRACE_MS, 0.4, 1.0), (0, 0, 0.3), (NO_GRACE, 6.0, 10.0)])
def test_a_broker_that_is_killed_is_fenced_after_the_grace(
    grace_ms: int, least_s: float, most_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    quorum = started(grace_ms)
    broker = RemoteBroker(quorum, 100)
    broker.join(quorum.active)
    quorum.run_for(5)
    assert not broker.is_fenced
    broker.die()
    with caplog.at_level(logging.WARNING, "barnabas.controller"):
        assert least_s <= seconds_until_fenced(quorum, broker) <= most_s
    reason = "no heartbeat for" if grace_ms == NO_GRACE else f"did not come back within {grace_ms} ms"
    assert any("fencing broker 100: " in line and reason in line for line in caplog.messages)


def test_a_successor_of_a_killed_broker_registers_when_the_grace_is_over() -> None:
    quorum = started(GRACE_MS)
    broker = RemoteBroker(quorum, 100)
    broker.join(quorum.active)
    again = registration(100)
    again.incarnation_id = type(again.incarnation_id)(b"another-process-")
    assert quorum.send(quorum.active.number, again).error_code == Error.DUPLICATE_BROKER_REGISTRATION
    broker.die()
    seconds_until_fenced(quorum, broker)
    assert quorum.send(quorum.active.number, again).error_code == Error.NONE


def test_a_broker_whose_connection_breaks_stays_if_it_comes_back_in_time() -> None:
    quorum = started(GRACE_MS)
    broker = RemoteBroker(quorum, 100)
    broker.join(quorum.active)
    for _ in range(5):
        broker.move_to(quorum.active)
        quorum.run_for(GRACE_MS / 1000 * 3)
        assert not broker.is_fenced


def test_a_broker_that_is_cut_off_without_a_word_has_its_whole_session() -> None:
    quorum = started(GRACE_MS)
    broker = RemoteBroker(quorum, 100)
    broker.join(quorum.active)
    quorum.run_for(4)
    broker.vanish()
    assert 6.0 <= seconds_until_fenced(quorum, broker) <= 10.0


@pytest.mark.parametrize("grace_ms", [GRACE_MS, NO_GRACE])
def test_clocks_that_jump_end_no_session_and_no_leadership(grace_ms: int) -> None:
    quorum = started(grace_ms)
    broker = RemoteBroker(quorum, 100)
    broker.join(quorum.active)
    active = quorum.active
    epoch = active.controller.quorum_client.driver.epoch
    hour_ms = 3_600_000
    for node, jump_ms in zip(quorum.nodes.values(), (hour_ms, -hour_ms, 24 * hour_ms), strict=True):
        node.clock.jump_ms(jump_ms)
        quorum.run_for(3)
        assert not broker.is_fenced
    assert active.register(101) == Error.NONE
    quorum.agree_on(100, 101)
    assert active.controller.quorum_client.driver.epoch == epoch
    quorum.check()


def test_a_controller_that_hands_over_fences_nobody_whose_connection_moves() -> None:
    quorum = started(GRACE_MS)
    brokers = [RemoteBroker(quorum, number) for number in (100, 101)]
    for broker in brokers:
        broker.join(quorum.active)
    for _ in range(2):
        before = quorum.active
        resign(before)
        quorum.until(lambda before=before: any(each.is_active for each in quorum.nodes.values() if each is not before))  # type: ignore[misc]
        quorum.run_for(GRACE_MS / 1000 * 2)
        for broker in brokers:
            broker.move_to(quorum.active)
        quorum.run_for(GRACE_MS / 1000 * 2)
        assert not any(broker.is_fenced for broker in brokers)
    brokers[0].die()
    assert seconds_until_fenced(quorum, brokers[0]) <= 1.0
    assert not brokers[1].is_fenced


def test_the_broker_beside_a_controller_that_is_killed_is_fenced_by_the_next_one_after_the_grace() -> None:
    """A node in both roles: its heartbeats went to its own controller, so nobody else had a connection."""
    quorum = started(GRACE_MS)
    killed = quorum.active
    broker_id = killed.number
    assert killed.register(broker_id) == Error.NONE
    epoch = quorum.active.image.brokers[broker_id].epoch
    killed.ask(m.BrokerHeartbeatRequest(broker_id=broker_id, broker_epoch=epoch, current_metadata_offset=2**40))
    quorum.until(lambda: all(not node.image.brokers[broker_id].fenced for node in quorum.nodes.values()))
    killed.kill()
    began = quorum.scheduler.now
    quorum.until(lambda: is_fenced(quorum, broker_id), limit_s=60)
    assert quorum.scheduler.now - began <= 3.0
