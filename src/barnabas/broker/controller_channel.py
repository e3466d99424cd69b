"""How a broker speaks to the active controller: in Kafka's messages, wherever that controller runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from barnabas.protocol.compiler.structs import Message


class ControllerChannel(Protocol):
    async def send(self, request: Message) -> Any:
        """The controller's response to a request, of the type that belongs to it.

        A response that comes through a channel has been committed, and the broker's own image already contains what
        it says: a client that creates a topic and asks for it on the next line finds it.

        Errors are in the response. NOT_CONTROLLER means that there is no active controller at the moment, and that it
        is unknown whether the request took effect.
        """
        ...
