"""Envelope on the CONTROLLER listener: a broker hands on what a client asked it for, and gets the client's answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.net.dispatch import Caller
from barnabas.net.long_messages import decode_message, encode_message
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.envelopes import open_request, seal_response
from barnabas.protocol.errors import DecodeError, Error, KafkaError
from barnabas.protocol.refusals import says

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.controller.quorum_controller import QuorumController
    from barnabas.net.dispatch import Route
    from barnabas.protocol.envelopes import Forwarded

FORWARDABLE: Final = frozenset(
    {
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.ELECT_LEADERS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.UPDATE_FEATURES,
    }
)
"""What a broker may hand on for a client."""


async def answer_envelope(
    controller: QuorumController, envelope: m.EnvelopeRequest, caller: Caller, routes: Mapping[int, Route]
) -> m.EnvelopeResponse:
    """The answer to the request in an envelope, in an envelope, or an error that is about the envelope itself."""
    try:
        forwarded = open_request(envelope)
        route = _route(forwarded, routes)
        header = forwarded.header
        request = await decode_message(forwarded.request_class, forwarded.data, header.api_version, header.body_offset)
    except KafkaError as error:
        return m.EnvelopeResponse(error_code=error.error)
    except DecodeError:
        return m.EnvelopeResponse(error_code=Error.INVALID_REQUEST)
    assert route.handler is not None, "requests that are forwarded are decoded"
    response = route.handler(controller, request, Caller(forwarded.header, forwarded.client.host, caller.listener))
    if route.is_async:
        response = await response
    if says(response, Error.NOT_CONTROLLER):
        return m.EnvelopeResponse(error_code=Error.NOT_CONTROLLER)
    return seal_response(forwarded, await encode_message(response, header.api_version))


def _route(forwarded: Forwarded, routes: Mapping[int, Route]) -> Route:
    header = forwarded.header
    route = routes.get(header.api_key) if header.api_key in FORWARDABLE else None
    if route is None or not route.min_version <= header.api_version <= route.max_version:
        raise KafkaError(
            Error.INVALID_REQUEST,
            f"API {header.api_key} version {header.api_version} is not enabled or is not eligible for forwarding",
        )
    return route
