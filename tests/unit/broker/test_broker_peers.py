"""Other brokers are reached where the metadata says that they are, over one connection for each purpose."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker.broker_peers import BrokerPeers
from barnabas.net.frames import WireError
from barnabas.net.peer import PeerEnvironment
from barnabas.testing.event_loop import Scheduler
from barnabas.testing.network import SimulatedNetwork
from barnabas.testing.randomness import SeededRandom
from tests.unit.broker.api.stand_ins import NODE_ID, a_config, a_registration, an_image
from tests.unit.net.serving import Served, heartbeat, metadata

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from barnabas.metadata.image import BrokerImage, MetadataImage

OTHER = 2


class Household:
    """A broker that knows where another one is, which answers at port 9092."""

    def __init__(self) -> None:
        self.scheduler = Scheduler()
        network = SimulatedNetwork(self.scheduler, 1)
        self.loop = self.scheduler.new_loop("broker")
        self.image: MetadataImage = an_image(brokers=[a_registration(NODE_ID), a_registration(OTHER)])
        self.config = a_config()
        environment = PeerEnvironment.of(self.loop, network.host("here"), SeededRandom("1"))
        self.peers = BrokerPeers(environment, lambda: self.image, lambda: self.config)
        self.served = Served(self.loop, network.host("host-2"), "host-2", 9092)
        self.served_elsewhere = Served(self.loop, network.host("host-2"), "host-2", 9999)

    def now(self, *brokers: BrokerImage) -> None:
        """The metadata says so, from now on."""
        image = an_image(brokers=brokers)
        delta = image.diff(self.image)
        self.image = image
        self.peers.image_changed(image, delta)


def run(scenario: Callable[[Household], Coroutine[Any, Any, None]]) -> None:
    house = Household()
    house.loop.run(scenario(house), limit_s=100)
    house.loop.run(house.peers.close(), limit_s=100)
    assert house.loop.errors == []


def test_those_with_one_purpose_share_a_connection() -> None:
    async def scenario(house: Household) -> None:
        peer = house.peers.peer(OTHER, "markers")
        assert peer is not None
        assert peer is house.peers.peer(OTHER, "markers")
        assert peer is not house.peers.peer(OTHER, "questions")
        assert (await peer.send(metadata("x"))).cluster_id == "x"
        assert peer.settings.client_id == f"broker-{NODE_ID}-markers"

    run(scenario)


def test_a_connection_of_ones_own_is_another_one() -> None:
    async def scenario(house: Household) -> None:
        first, second = house.peers.connect(OTHER, "fetcher-0"), house.peers.connect(OTHER, "fetcher-0")
        assert first is not None
        assert first is not second
        await house.peers.close()
        assert (await first.send(metadata("x"))).cluster_id == "x"
        await first.close()

    run(scenario)


def test_a_broker_that_is_unknown_or_fenced_or_not_on_the_listener_cannot_be_reached() -> None:
    async def scenario(house: Household) -> None:
        for unreachable in ([], [a_registration(OTHER, fenced=True)], [a_registration(OTHER, endpoints={"ELSE": 1})]):
            house.now(*unreachable)
            assert house.peers.peer(OTHER, "markers") is None
            assert house.peers.connect(OTHER, "markers") is None

    run(scenario)


def test_a_broker_that_was_fenced_for_a_moment_keeps_its_connection() -> None:
    async def scenario(house: Household) -> None:
        peer = house.peers.peer(OTHER, "markers")
        house.now(a_registration(OTHER, fenced=True))
        house.now(a_registration(OTHER))
        assert house.peers.peer(OTHER, "markers") is peer

    run(scenario)


@pytest.mark.parametrize("is_gone", [True, False])
def test_what_waits_for_a_broker_that_is_gone_or_has_moved_fails_at_once(*, is_gone: bool) -> None:
    async def scenario(house: Household) -> None:
        peer = house.peers.peer(OTHER, "markers")
        assert peer is not None
        waiting = asyncio.ensure_future(peer.send(heartbeat("g")))
        await asyncio.sleep(1)
        begun = house.scheduler.now
        house.now(*([] if is_gone else [a_registration(OTHER, endpoints={"PLAINTEXT": 9999})]))
        with pytest.raises(WireError):
            await waiting
        assert house.scheduler.now - begun < 0.1
        now = house.peers.peer(OTHER, "markers")
        assert now is not peer
        if now is not None:
            assert (await now.send(metadata("x"))).cluster_id == "x"
            assert house.served_elsewhere.asked == ["x"]

    run(scenario)
