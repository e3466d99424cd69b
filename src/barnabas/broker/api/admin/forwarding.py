"""Requests that the controller decides, forwarded by the broker that received them.

The controller answers when its decision is committed. The broker then waits until it has caught up, so that a client
that has its answer sees the effect here: the topic can be produced to, the setting is described.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from barnabas.net.large_requests import as_a_whole
from barnabas.protocol.envelopes import ForwardedClient
from barnabas.protocol.errors import Error, KafkaError
from barnabas.protocol.refusals import CHANGES_MAX, refusal, refuse_too_many

if TYPE_CHECKING:
    from barnabas.broker.api.environments import AdminEnvironment
    from barnabas.net.dispatch import Caller
    from barnabas.protocol.compiler.structs import Message


DECIDED_AS_A_WHOLE = as_a_whole(CHANGES_MAX, refuse_too_many)


async def forward(environment: AdminEnvironment, request: Message, caller: Caller) -> Any:
    """The controller's response, once it has taken effect on this broker."""
    client = ForwardedClient(caller.api_version, caller.correlation_id, caller.client_id, caller.host)
    response = await environment.channel.forward(request, client)
    await environment.metadata.settled()
    return response


async def forward_within(environment: AdminEnvironment, request: Message, caller: Caller, timeout_ms: int) -> Any:
    """As `forward`, or REQUEST_TIMED_OUT for everything in the request. Without any time, the controller is not
    asked."""
    try:
        if timeout_ms <= 0:
            raise TimeoutError
        async with asyncio.timeout(timeout_ms / 1000):
            return await forward(environment, request, caller)
    except TimeoutError:
        return refusal(request, KafkaError(Error.REQUEST_TIMED_OUT))
