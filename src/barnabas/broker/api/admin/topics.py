"""CreateTopics, DeleteTopics, CreatePartitions: decided by the controller, answered once this broker has caught up.

Once a client has its answer, the topic can be produced to, or is gone, on the broker that it asked: no client has to
guess how long metadata takes to arrive.

CreateTopics: v4 takes the broker's defaults for -1 · v5 is flexible and answers partition counts and settings ·
v7 answers topic ids
DeleteTopics: v3 has an error for deletion being disabled · v4 is flexible · v5 gives messages · v6 names topics by id
CreatePartitions: v2 is flexible
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.api.admin.forwarding import DECIDED_AS_A_WHOLE, forward_within
from barnabas.broker.api.environments import AdminEnvironment
from barnabas.broker.api.registry import handles
from barnabas.net.large_requests import Cut
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from barnabas.net.dispatch import Caller
    from barnabas.protocol import messages as m

FIRST_VERSION_WITH_DELETION_DISABLED = 3
FIRST_VERSION_WITH_TOPIC_IDS = 6


@handles(
    ApiKey.CREATE_TOPICS,
    AdminEnvironment,
    versions=(2, 7),
    cuts=[Cut(("topics",), ("topics",))],
    large_handler=DECIDED_AS_A_WHOLE,
)
async def create_topics(
    environment: AdminEnvironment,
    request: m.CreateTopicsRequest,
    caller: Caller,
) -> m.CreateTopicsResponse:
    response: m.CreateTopicsResponse = await forward_within(environment, request, caller, request.timeout_ms)
    return response


@handles(
    ApiKey.CREATE_PARTITIONS,
    AdminEnvironment,
    versions=(0, 3),
    cuts=[Cut(("topics",), ("results",))],
    large_handler=DECIDED_AS_A_WHOLE,
)
async def create_partitions(
    environment: AdminEnvironment,
    request: m.CreatePartitionsRequest,
    caller: Caller,
) -> m.CreatePartitionsResponse:
    response: m.CreatePartitionsResponse = await forward_within(environment, request, caller, request.timeout_ms)
    return response


@handles(
    ApiKey.DELETE_TOPICS,
    AdminEnvironment,
    versions=(1, 6),
    cuts=[
        Cut(("topic_names",), ("responses",), last_version=FIRST_VERSION_WITH_TOPIC_IDS - 1),
        Cut(("topics",), ("responses",), first_version=FIRST_VERSION_WITH_TOPIC_IDS),
    ],
    large_handler=DECIDED_AS_A_WHOLE,
)
async def delete_topics(
    environment: AdminEnvironment, request: m.DeleteTopicsRequest, caller: Caller
) -> m.DeleteTopicsResponse:
    response: m.DeleteTopicsResponse = await forward_within(environment, request, caller, request.timeout_ms)
    if caller.api_version < FIRST_VERSION_WITH_DELETION_DISABLED:
        for result in response.responses:
            if result.error_code == Error.TOPIC_DELETION_DISABLED:
                result.error_code = Error.INVALID_REQUEST
    return response
