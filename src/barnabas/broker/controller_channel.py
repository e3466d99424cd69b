"""How a broker speaks to the active controller: in Kafka's messages, wherever that controller runs.

On one node the channel crosses into the thread of the metadata quorum and back. A response that comes through it
has been committed, and the broker's own image already contains what it says: a client that creates a topic and asks
for it on the next line finds it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from barnabas.broker.controller import ControllerNode
    from barnabas.broker.metadata_loader import MetadataLoader
    from barnabas.protocol.structs import Message


class ControllerChannel(Protocol):
    async def send(self, request: Message) -> Any:
        """The controller's response to a request: of the type that belongs to the request's.

        Errors are in the response. NOT_CONTROLLER means that there is no active controller at the moment, and that it
        is unknown whether the request took effect.
        """
        ...


class LocalControllerChannel:
    """To the controller in this process. To be used on the loop that the loader is attached to."""

    def __init__(self, controller: ControllerNode, loader: MetadataLoader) -> None:
        self._controller = controller
        self._loader = loader

    async def send(self, request: Message) -> Any:
        reply = await asyncio.wrap_future(self._controller.submit(request))
        await self._loader.wait_for_offset(reply.offset)
        return reply.response
