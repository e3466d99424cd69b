"""The way to other brokers: peers by broker id, at their endpoints for the listener between brokers.

Answers come in the order of requests, so what may wait long on the other side must not share a connection with what is
in a hurry: a shared peer is for one purpose, such as transaction markers. Peers are made when they are first asked for.
One whose broker has moved to another endpoint, or is gone, is closed, and callers that wait for an answer from it get
an error. A broker that is merely fenced keeps its peers, as it may be back in a moment, but no caller is given one
meanwhile.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from barnabas.net.peer import Peer, PeerSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.config.broker_config import BrokerConfig
    from barnabas.metadata.image import Endpoint, MetadataDelta, MetadataImage
    from barnabas.net.peer import PeerEnvironment

ANSWER_SLACK_SECONDS = 5.0
"""How much longer than `request.timeout.ms` an answer is waited for: the other side answers REQUEST_TIMED_OUT by then,
and a connection should not be given up just before."""


class BrokerPeers:
    """To be used on the event loop of its environment."""

    def __init__(
        self,
        environment: PeerEnvironment,
        image: Callable[[], MetadataImage],
        config: Callable[[], BrokerConfig],
    ) -> None:
        self._environment = environment
        self._image = image
        self._config = config
        self._shared: dict[tuple[int, str], Peer] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def peer(self, broker_id: int, purpose: str) -> Peer | None:
        """The peer that all share who have this purpose; None if the broker cannot be reached now, by what the metadata
        says. Not to be closed, nor to be kept for later."""
        endpoint = self._endpoint(broker_id)
        if endpoint is None or self._is_closed:
            return None
        key = broker_id, purpose
        peer = self._shared.get(key)
        if peer is not None and not is_at(peer, endpoint):
            self._drop(key)
            peer = None
        if peer is None:
            self._shared[key] = peer = self._make(broker_id, purpose, endpoint, None)
        return peer

    def connect(self, broker_id: int, purpose: str, settings: PeerSettings | None = None) -> Peer | None:
        """A new peer, which belongs to the caller, who closes it; None if the broker cannot be reached now. It stays
        where it is when the broker moves."""
        endpoint = self._endpoint(broker_id)
        return None if endpoint is None else self._make(broker_id, purpose, endpoint, settings)

    def image_changed(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Closes the peers of brokers that have moved, or are gone."""
        if not delta.changed_brokers:
            return
        name = self._config().inter_broker_listener_name
        for key, peer in list(self._shared.items()):
            if key[0] in delta.changed_brokers:
                broker = image.brokers.get(key[0])
                endpoint = None if broker is None else broker.endpoint(name)
                if endpoint is None or not is_at(peer, endpoint):
                    self._drop(key)

    async def close(self) -> None:
        self._is_closed = True
        for key in list(self._shared):
            self._drop(key)
        if self._closing:
            await asyncio.wait(self._closing)

    def settings(self, purpose: str) -> PeerSettings:
        config = self._config()
        return PeerSettings(
            client_id=f"broker-{config.node_id}-{purpose}",
            request_timeout_s=config.request_timeout_ms / 1000 + ANSWER_SLACK_SECONDS,
            connection_setup_timeout_s=config.socket_connection_setup_timeout_ms / 1000,
        )

    def _endpoint(self, broker_id: int) -> Endpoint | None:
        broker = self._image().brokers.get(broker_id)
        if broker is None or broker.fenced:
            return None
        return broker.endpoint(self._config().inter_broker_listener_name)

    def _make(self, broker_id: int, purpose: str, endpoint: Endpoint, settings: PeerSettings | None) -> Peer:
        name = f"broker {broker_id} ({purpose})"
        return Peer(name, endpoint.host, endpoint.port, self._environment, settings or self.settings(purpose))

    def _drop(self, key: tuple[int, str]) -> None:
        closing = asyncio.ensure_future(self._shared.pop(key).close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


def is_at(peer: Peer, endpoint: Endpoint) -> bool:
    return (peer.host, peer.port) == (endpoint.host, endpoint.port)
