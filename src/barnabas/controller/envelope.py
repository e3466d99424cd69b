"""Envelope on the CONTROLLER listener: a broker hands on what a client asked it for, and gets the client's answer.

The request in an envelope is answered as it would be by itself: a large one in pieces, or not at all if it has more
elements than may be read in one go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from barnabas.net.connection import BadRequestError
from barnabas.net.dispatch import Caller, reply_parts
from barnabas.net.large_requests import UNIT_BYTES_MAX
from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.api import APIS, ApiKey
from barnabas.protocol.envelopes import open_request, seal_response, sealed_response
from barnabas.protocol.errors import DecodeError, Error, KafkaError
from barnabas.protocol.pieces import read_unit
from barnabas.protocol.refusals import says

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.controller.quorum_controller import QuorumController
    from barnabas.net.dispatch import Route
    from barnabas.net.large_requests import LargeRequest
    from barnabas.net.parts import Part
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

ENVELOPE_BYTES_MAX: Final = 2 * UNIT_BYTES_MAX
"""A broker refuses what is longer than half of this (`large_requests.as_a_whole`)."""


async def answer_envelope(
    controller: QuorumController, envelope: m.EnvelopeRequest, caller: Caller, routes: Mapping[int, Route]
) -> m.EnvelopeResponse:
    """The answer to the request in an envelope, in an envelope, or an error that is about the envelope itself."""
    try:
        forwarded = open_request(envelope)
        route = _route(forwarded, routes)
        response = await _answer_whole(controller, route, forwarded, caller)
    except (KafkaError, DecodeError) as error:
        return m.EnvelopeResponse(error_code=_error_of(error))
    if says(response, Error.NOT_CONTROLLER):
        return m.EnvelopeResponse(error_code=Error.NOT_CONTROLLER)
    return seal_response(forwarded, codec.encode(response, forwarded.header.api_version))


async def answer_large_envelope(
    controller: QuorumController, request: LargeRequest, caller: Caller, routes: Mapping[int, Route]
) -> list[Part]:
    """As `answer_envelope`. Returns the whole reply in parts."""
    if request.size > ENVELOPE_BYTES_MAX:
        raise BadRequestError(f"it has {request.size} bytes, but the limit is {ENVELOPE_BYTES_MAX}")
    header = request.header
    envelope = read_unit(m.EnvelopeRequest, request.frame, header.api_version, header.body_offset)
    try:
        forwarded = open_request(envelope)
        body = await _large_body(controller, request, forwarded, caller, routes)
    except (KafkaError, DecodeError) as error:
        refused = m.EnvelopeResponse(error_code=_error_of(error))
        return reply_parts(header, [codec.encode(refused, header.api_version)])
    return reply_parts(header, sealed_response(forwarded, body))


async def _large_body(
    controller: QuorumController,
    request: LargeRequest,
    forwarded: Forwarded,
    caller: Caller,
    routes: Mapping[int, Route],
) -> list[bytes]:
    """The encoded answer to the request in a large envelope."""
    route = _route(forwarded, routes)
    header = forwarded.header
    cut = route.cut_of(header.api_version)
    if cut is None:
        response = await _answer_whole(controller, route, forwarded, caller)
        body = [codec.encode(response, header.api_version)]
    else:
        classes = forwarded.request_class, getattr(m, APIS[header.api_key].response)
        enclosed = request.enclosed(header, memoryview(forwarded.data), cut, classes)
        assert route.handler is not None, "requests that are forwarded are decoded"
        response = await route.large_handler(route.handler, controller, enclosed, _caller(forwarded, caller))
        body = enclosed.answer.finish(response)
    if says(response, Error.NOT_CONTROLLER):
        raise KafkaError(Error.NOT_CONTROLLER)
    return body


async def _answer_whole(controller: QuorumController, route: Route, forwarded: Forwarded, caller: Caller) -> Any:
    header = forwarded.header
    request = read_unit(forwarded.request_class, forwarded.data, header.api_version, header.body_offset)
    assert route.handler is not None, "requests that are forwarded are decoded"
    response = route.handler(controller, request, _caller(forwarded, caller))
    return await response if route.is_async else response


def _caller(forwarded: Forwarded, caller: Caller) -> Caller:
    return Caller(forwarded.header, forwarded.client.host, caller.listener)


def _error_of(error: KafkaError | DecodeError) -> Error:
    return error.error if isinstance(error, KafkaError) else Error.INVALID_REQUEST


def _route(forwarded: Forwarded, routes: Mapping[int, Route]) -> Route:
    header = forwarded.header
    route = routes.get(header.api_key) if header.api_key in FORWARDABLE else None
    if route is None or not route.min_version <= header.api_version <= route.max_version:
        raise KafkaError(
            Error.INVALID_REQUEST,
            f"API {header.api_key} version {header.api_version} is not enabled or is not eligible for forwarding",
        )
    return route
