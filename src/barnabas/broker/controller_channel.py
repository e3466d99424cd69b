"""How a broker speaks to the active controller: in Kafka's messages, wherever that controller runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from barnabas.protocol.compiler.structs import Message
    from barnabas.protocol.envelopes import ForwardedClient


class ControllerChannel(Protocol):
    async def send(self, request: Message) -> Any:
        """The controller's response to a request, of the type that belongs to it.

        A response that comes through a channel has been committed. The broker's own image already contains what it
        says, unless the controller is in another process and the image is late: a client that creates a topic and
        asks for it on the next line finds it.

        Errors are in the response. NOT_CONTROLLER means that there is no active controller at the moment, and that it
        is unknown whether the request took effect.
        """
        ...


class ForwardingChannel(ControllerChannel, Protocol):
    """A channel that also takes what clients have asked for."""

    async def forward(self, request: Message, client: ForwardedClient) -> Any:
        """As `send`, for a request of a client, which the controller is told of."""
        ...
