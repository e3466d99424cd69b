"""A broker's way to the active controller, in a quorum whose leaders change: real channels in simulated time."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.controller.controller_node import ControllerNode
from barnabas.net.peer import PeerEnvironment
from barnabas.node.controller_channel import SEND_S, ChannelSettings, QuorumChannel
from barnabas.protocol import messages as m
from barnabas.protocol.envelopes import ForwardedClient
from barnabas.protocol.errors import Error
from barnabas.protocol.refusals import CHANGES_MAX
from tests.unit.controller.quorums import Quorum, QuorumNode, registration

if TYPE_CHECKING:
    from collections.abc import Iterator

CLIENT = ForwardedClient(api_version=0, correlation_id=7, client_id="client", host="10.0.0.1")


@pytest.fixture(autouse=True)
def _buried() -> Iterator[None]:
    yield
    Quorum.bury()


def channel_of(node: QuorumNode, settings: ChannelSettings | None = None) -> QuorumChannel:
    """The channel of a broker on this node."""
    local = node.node if isinstance(node.node, ControllerNode) else None

    async def make() -> QuorumChannel:
        peers = PeerEnvironment.of(node.outside, node.quorum.network.host(node.name), node.random)
        return QuorumChannel(node.number, node.publisher, node.node.current_leader, local, peers, settings)

    channel: QuorumChannel = node.run(make())
    return channel


def register(node: QuorumNode, channel: QuorumChannel, broker_id: int, limit_s: float = 60) -> int:
    response: m.BrokerRegistrationResponse = node.run(channel.send(registration(broker_id)), limit_s)
    return response.error_code


def unregister(node: QuorumNode, channel: QuorumChannel, broker_id: int) -> m.UnregisterBrokerResponse:
    response: m.UnregisterBrokerResponse = node.run(
        channel.forward(m.UnregisterBrokerRequest(broker_id=broker_id), CLIENT)
    )
    return response


def test_every_node_reaches_the_controller_and_sees_the_effect_when_it_has_the_answer() -> None:
    quorum = Quorum(voters=3, observers=1)
    quorum.start()
    for node in quorum.nodes.values():
        channel = channel_of(node)
        assert register(node, channel, 100 + node.number) == Error.NONE
        assert 100 + node.number in node.publisher.image.brokers
        assert unregister(node, channel, 100 + node.number).error_code == Error.NONE
        assert unregister(node, channel, 100 + node.number).error_code == Error.BROKER_ID_NOT_REGISTERED
    quorum.check()


def test_the_largest_requests_that_a_broker_forwards_are_decided() -> None:
    """As many changes as one request may ask for, and as many bytes (`as_a_whole`)."""
    quorum = Quorum(voters=1, observers=1)
    quorum.start()
    observer = quorum.nodes[2]
    channel = channel_of(observer)
    request = m.AlterClientQuotasRequest
    client = ForwardedClient(api_version=1, correlation_id=7, client_id="client", host="10.0.0.1")

    def quotas(count: int, name_bytes: int) -> m.AlterClientQuotasRequest:
        operations = [request.OpData(key="producer_byte_rate", value=1000.0)]
        names = (f"{number:0{name_bytes}}" for number in range(count))
        return request(
            entries=[
                request.EntryData(entity=[request.EntityData(entity_type="user", entity_name=name)], ops=operations)
                for name in names
            ],
            validate_only=True,
        )

    for largest in (quotas(CHANGES_MAX, 10), quotas(275, 30_000)):
        decided = observer.run(channel.forward(largest, client))
        assert [entry.error_code for entry in decided.entries] == [Error.NONE] * len(largest.entries)
        assert decided.entries[-1].entity[0].entity_name == largest.entries[-1].entity[0].entity_name
    quorum.check()


def test_a_request_waits_for_the_next_leader_when_the_controller_dies() -> None:
    quorum = Quorum(voters=3, observers=1)
    quorum.start()
    observer = quorum.nodes[4]
    channel = channel_of(observer)
    assert register(observer, channel, 101) == Error.NONE
    quorum.active.kill()
    assert unregister(observer, channel, 101).error_code == Error.NONE
    assert register(observer, channel, 102) == Error.NONE


def test_a_leader_that_is_cut_off_is_not_waited_for() -> None:
    quorum = Quorum(voters=3, observers=1)
    quorum.start()
    observer, cut_off = quorum.nodes[4], quorum.active
    channel = channel_of(observer, ChannelSettings(attempt_timeout_s=60, forward_timeout_s=60))
    assert register(observer, channel, 101) == Error.NONE
    quorum.network.isolate(cut_off.name)
    before = quorum.scheduler.now
    assert unregister(observer, channel, 101).error_code == Error.NONE
    assert quorum.scheduler.now - before < 20


def test_without_a_majority_the_broker_is_told_in_time_that_there_is_no_controller() -> None:
    quorum = Quorum(voters=3, observers=1)
    quorum.start()
    observer = quorum.nodes[4]
    channel = channel_of(observer)
    for node in (quorum.nodes[1], quorum.nodes[2]):
        node.kill()
    quorum.run_for(10)
    before = quorum.scheduler.now
    assert register(observer, channel, 101) == Error.NOT_CONTROLLER
    assert quorum.scheduler.now - before < SEND_S + 1


def test_what_is_asked_of_a_sole_voter_that_does_not_lead_is_refused_at_once() -> None:
    quorum = Quorum(voters=1)
    quorum.start()
    (node,) = quorum.nodes.values()
    channel = channel_of(node)
    assert register(node, channel, 101) == Error.NONE
    node.run(node.node.stop())
    response: Any = node.run(channel.send(registration(102)))
    assert response.error_code == Error.NOT_CONTROLLER


def test_a_request_that_is_given_up_in_the_moment_in_which_it_fails_leaves_no_error_behind() -> None:
    quorum = Quorum(voters=3, observers=1)
    quorum.start()
    observer = quorum.nodes[4]
    channel = channel_of(observer, ChannelSettings(attempt_timeout_s=1))
    assert register(observer, channel, 101) == Error.NONE
    quorum.network.isolate(quorum.active.name)

    async def give_up_after(seconds: float) -> None:
        async with asyncio.timeout(seconds):
            await channel.send(registration(102))

    giving_up = observer.outside.create_task(give_up_after(2))
    quorum.run_for(0.5)
    for loop in (observer.outside, observer.thread.loop):
        loop.pause()
    quorum.run_for(3)
    for loop in (observer.outside, observer.thread.loop):
        loop.resume()
    quorum.until(giving_up.done)
    assert isinstance(giving_up.exception(), TimeoutError)
    # asyncio complains of an error that nobody took when nothing refers to it: no traceback, no callback that is due.
    del giving_up
    quorum.run_for(0.1)
    gc.collect()
    assert observer.outside.errors == []


def test_an_error_of_the_node_is_raised_even_if_the_request_is_given_up_in_the_same_moment() -> None:
    quorum = Quorum(voters=3, observers=1)
    quorum.start()
    observer = quorum.nodes[4]
    channel = channel_of(observer)

    class GivenUpWhileEncoded:
        def __index__(self) -> int:
            asking.cancel()
            raise ZeroDivisionError

    request: Any = m.UnregisterBrokerRequest(broker_id=GivenUpWhileEncoded())  # type: ignore[arg-type]
    asking = observer.outside.create_task(channel.forward(request, CLIENT))
    quorum.until(asking.done)
    assert isinstance(asking.exception(), ZeroDivisionError)
    assert observer.outside.errors == []
