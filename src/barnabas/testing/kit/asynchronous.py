"""Brokers and clusters in tests that run on an event loop: what waits is awaited, and the loop goes on meanwhile."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

from barnabas.testing.kit.broker import Broker
from barnabas.testing.kit.client_helpers import ClientHelpers
from barnabas.testing.kit.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from barnabas.testing.kit.faults import Faults

P = ParamSpec("P")
T = TypeVar("T")
B = TypeVar("B", bound=ClientHelpers)


def awaited(
    method: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[Awaited[Any], P], Coroutine[Any, Any, T]]:
    """The method of the same name, carried out in a thread."""

    @functools.wraps(method)
    async def call(self: Awaited[Any], /, *arguments: P.args, **named: P.kwargs) -> T:
        return await asyncio.to_thread(method, self.blocking, *arguments, **named)

    return call


class Awaited(Generic[B]):
    """`blocking` is the same broker or cluster, as tests without an event loop have it."""

    def __init__(self, blocking: B) -> None:
        self.blocking = blocking

    @property
    def bootstrap(self) -> str:
        """What a client takes as `bootstrap.servers`."""
        return self.blocking.bootstrap

    create_topic = awaited(ClientHelpers.create_topic)
    produce = awaited(ClientHelpers.produce)
    consume = awaited(ClientHelpers.consume)
    expect = awaited(ClientHelpers.expect)
    wait_until_stable = awaited(ClientHelpers.wait_until_stable)
    lag = awaited(ClientHelpers.lag)
    wait_until_no_lag = awaited(ClientHelpers.wait_until_no_lag)


class AsyncBroker(Awaited[Broker]):
    """What `async with Broker() as broker` gives."""

    @property
    def faults(self) -> Faults:
        """Switched on and off within milliseconds, and therefore not awaited."""
        return self.blocking.faults

    async def start(self, settings: Mapping[str, str] | None = None) -> None:
        await asyncio.to_thread(self.blocking.start, settings)

    async def restart(self, settings: Mapping[str, str] | None = None) -> None:
        await asyncio.to_thread(self.blocking.restart, settings)

    stop = awaited(Broker.stop)
    kill = awaited(Broker.kill)
    pause = awaited(Broker.pause)
    resume = awaited(Broker.resume)


class AsyncCluster(Awaited[Cluster]):
    """What `async with Cluster() as cluster` gives."""

    def __getitem__(self, node_id: int) -> AsyncBroker:
        return AsyncBroker(self.blocking[node_id])

    stop_node = awaited(Cluster.stop_node)
    start_node = awaited(Cluster.start_node)
    restart_node = awaited(Cluster.restart_node)
    kill = awaited(Cluster.kill)
