"""A broker's way to the active controller, wherever it runs: `broker/controller_channel` for any node.

Where this node leads the quorum, a request goes to the controller's loop in this process. Elsewhere it goes to the
leader's CONTROLLER listener: what the broker asks for itself as it is, what a client asked for in an Envelope.

Theory of operation. `raft/current_leader` says which node leads. A request that finds no leader waits for one; a
request that gets NOT_CONTROLLER, or whose connection is lost, goes to the next leader, until its time is up. So do
Kafka's brokers: that a request took effect although its answer was lost is found out by asking again (a topic that
exists already, a broker epoch that is still the same). A request under way to a leader that has been replaced is not
waited for: a process that has been stopped never answers.

Answers come in the order of the requests, so each kind of request has a connection of its own: the creation of ten
thousand topics must not hold up a heartbeat.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from barnabas.net.frames import WireError, request_api_key
from barnabas.net.long_messages import decode_message, encode_message
from barnabas.net.peer import Peer, PeerSettings
from barnabas.node.visible_effects import is_visible
from barnabas.protocol import messages as m
from barnabas.protocol.envelopes import open_response, seal_request
from barnabas.protocol.errors import DecodeError, Error, KafkaError
from barnabas.protocol.refusals import refusal, says

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from barnabas.net.peer import PeerEnvironment
    from barnabas.protocol.compiler.structs import Message
    from barnabas.protocol.envelopes import ForwardedClient
    from barnabas.raft.current_leader import CurrentLeader, QuorumLeader
    from barnabas.raft.image_publisher import ImagePublisher

    Exchange = Callable[[Peer], Awaitable[Any]]

logger = logging.getLogger("barnabas.channel")

FORWARDING: Final = "forwarding"
HEARTBEATS: Final = m.BrokerHeartbeatRequest.__name__
RETRY_S: Final = 0.05
"""The pause before the same leader is asked again."""
SEND_S: Final = 2.0
"""How long the broker's own requests look for a controller before they give up for now: whoever sends them has
something to say about it, and asks again."""
VISIBLE_S: Final = 1.0
"""How long an answer of a remote controller is held back at most until this broker shows its effect."""
COMPLAINT_S: Final = 5.0


class Reply(Protocol):
    @property
    def response(self) -> Message: ...

    @property
    def offset(self) -> int: ...


class LocalController(Protocol):
    """The controller of this node."""

    @property
    def is_alone(self) -> bool:
        """Whether nobody else can lead."""
        ...

    async def ask(self, request: Message) -> Reply: ...


class ChannelSettings(NamedTuple):
    forward_timeout_s: float = 30.0
    """`request.timeout.ms`: how long a client's request without a time limit of its own is tried."""
    attempt_timeout_s: float = 4.5
    """How long the broker's own request waits for the answer of one controller: `controller.socket.timeout.ms`, and
    no longer than half a session, so that a heartbeat can still be sent to another."""
    connection_setup_timeout_s: float = 10.0
    """`socket.connection.setup.timeout.ms`"""


class _NoControllerError(Exception):
    """There is nobody to ask at the moment."""


_UNDECIDED: Final = (_NoControllerError, WireError, DecodeError)
"""How a request fails that may be asked of the next controller."""


class QuorumChannel:
    """Use it on the loop that the publisher is attached to."""

    def __init__(
        self,
        node_id: int,
        publisher: ImagePublisher,
        current_leader: CurrentLeader,
        local: LocalController | None,
        peers: PeerEnvironment | None,
        settings: ChannelSettings | None = None,
    ) -> None:
        """`local` is None on a node without a controller, `peers` on one without others."""
        self._node_id = node_id
        self._publisher = publisher
        self._current_leader = current_leader
        self._local = local
        self._environment = peers
        self._settings = settings or ChannelSettings()
        self._peers: dict[str, tuple[QuorumLeader, Peer]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._next_complaint = 0.0
        self.on_new_way: Callable[[], None] | None = None
        """Called when another controller leads, or the connection for heartbeats is lost: the next one should not wait
        until it is due, because the controller may take a broker without a connection for dead."""
        self._leave = current_leader.follow(asyncio.get_running_loop(), self._leader_changed)

    async def send(self, request: Message) -> Any:
        """A request of the broker's own."""

        def exchange(peer: Peer) -> Awaitable[Any]:
            return peer.send(request, timeout_s=self._settings.attempt_timeout_s)

        return await self._until_decided(request, type(request).__name__, exchange, SEND_S)

    async def forward(self, request: Message, client: ForwardedClient) -> Any:
        """A request of a client."""

        api_key = request_api_key(request)

        async def exchange(peer: Peer) -> Any:
            sealed = seal_request(api_key, await encode_message(request, client.api_version), client)
            envelope = await peer.send(sealed, timeout_s=self._settings.forward_timeout_s)
            try:
                enclosed = open_response(envelope, api_key, client)
                return await decode_message(
                    enclosed.response_class, enclosed.data, client.api_version, enclosed.body_offset
                )
            except KafkaError as error:
                if error.error is Error.NOT_CONTROLLER:
                    raise _NoControllerError(f"{peer} is not the active controller") from error
                logger.error("%s could not be forwarded to %s: %s", type(request).__name__, peer, error)
                return refusal(request, KafkaError(Error.UNKNOWN_SERVER_ERROR))

        return await self._until_decided(request, FORWARDING, exchange, self._settings.forward_timeout_s)

    async def close(self) -> None:
        self._leave()
        peers, self._peers = self._peers, {}
        await asyncio.gather(*(peer.close() for _, peer in peers.values()), *self._closing)

    async def _until_decided(self, request: Message, lane: str, exchange: Exchange, seconds: float) -> Any:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            leader = self._current_leader.leader
            try:
                return await self._ask(leader, request, lane, exchange)
            except _UNDECIDED as error:
                reason = str(error)
            if loop.time() >= deadline or (self._local is not None and self._local.is_alone):
                break
            self._complain(request, reason)
            await self._wait_for_another(leader, deadline - loop.time() if not leader.is_known else RETRY_S)
        return refusal(request, KafkaError(Error.NOT_CONTROLLER, f"There is no active controller: {reason}"))

    async def _ask(self, leader: QuorumLeader, request: Message, lane: str, exchange: Exchange) -> Any:
        """The answer of one controller. Raises one of several errors if it did not decide, or did not say so."""
        if self._local is not None and leader.id == self._node_id:
            reply = await self._local.ask(request)
            self._require_decision(leader, reply.response)
            await self._publisher.wait_for_offset(reply.offset)
            return reply.response
        if leader.endpoint is None:
            raise _NoControllerError("the leader of the metadata quorum is unknown")
        response = await self._answer(leader, exchange(self._peer(lane, leader)))
        self._require_decision(leader, response)
        await self._until_visible(request, response)
        return response

    def _require_decision(self, leader: QuorumLeader, response: Any) -> None:
        if says(response, Error.NOT_CONTROLLER):
            raise _NoControllerError(f"node {leader.id} is not the active controller")

    async def _answer(self, leader: QuorumLeader, answer: Awaitable[Any]) -> Any:
        answering = asyncio.ensure_future(answer)
        try:
            while not answering.done():
                if self._current_leader.leader != leader:
                    raise _NoControllerError(
                        f"node {leader.id} lost the leadership of the metadata quorum before it answered"
                    )
                changed = asyncio.ensure_future(self._changed.wait())
                try:
                    await asyncio.wait({answering, changed}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    changed.cancel()
        except (asyncio.CancelledError, _NoControllerError):
            await _give_up(answering)
            raise
        return answering.result()

    async def _until_visible(self, request: Message, response: Any) -> None:
        publisher = self._publisher
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(VISIBLE_S):
                while not is_visible(request, response, publisher.image):
                    await publisher.wait_for_offset(publisher.image.offset + 1)

    async def _wait_for_another(self, leader: QuorumLeader, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, 0)):
                while self._current_leader.leader == leader:
                    await self._changed.wait()

    def _leader_changed(self, leader: QuorumLeader) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        if leader.is_known:
            self._found_new_way()

    def _found_new_way(self) -> None:
        if self.on_new_way is not None:
            self.on_new_way()

    def _peer(self, lane: str, leader: QuorumLeader) -> Peer:
        assert self._environment is not None, "a node that is alone leads"
        assert leader.endpoint is not None
        known = self._peers.get(lane)
        if known is not None:
            if known[0].endpoint == leader.endpoint:
                return known[1]
            closing = asyncio.ensure_future(known[1].close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        settings = PeerSettings(
            client_id=f"broker-{self._node_id}",
            connection_setup_timeout_s=self._settings.connection_setup_timeout_s,
            reconnect_backoff_max_s=0.5,
        )
        endpoint = leader.endpoint
        peer = Peer(
            f"node {leader.id}",
            endpoint.host,
            endpoint.port,
            self._environment,
            settings,
            on_lost=self._found_new_way if lane == HEARTBEATS else None,
        )
        self._peers[lane] = leader, peer
        return peer

    def _complain(self, request: Message, reason: str) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._next_complaint:
            self._next_complaint = now + COMPLAINT_S
            logger.warning("%s is waiting for an active controller: %s", type(request).__name__, reason)


async def _give_up(answering: asyncio.Future[Any]) -> None:
    """Ends what nobody waits for any more. It may have failed by itself in the same moment, for instance when a stopped
    process goes on and both time limits are up. That a controller did not answer is then of no consequence; an error of
    this node is raised as ever."""
    if answering.cancel():
        await asyncio.wait({answering})
    with contextlib.suppress(asyncio.CancelledError, *_UNDECIDED):
        answering.result()
