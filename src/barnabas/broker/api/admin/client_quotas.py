"""DescribeClientQuotas, AlterClientQuotas: limits for users, clients and addresses.

They are stored in the metadata and described from there. Nothing enforces them yet.

Both: v1 is flexible
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from barnabas.broker.api.admin.forwarding import DECIDED_AS_A_WHOLE, forward
from barnabas.broker.api.environments import AdminEnvironment
from barnabas.broker.api.registry import handles
from barnabas.net.large_requests import ADDED_AT_ONCE, Breather, Cut
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.metadata.image import QuotaEntity
    from barnabas.net.dispatch import Caller

    Filter = dict[str, m.DescribeClientQuotasRequest.ComponentData]

ENTITY_TYPES = ("user", "client-id", "ip")


class Match(IntEnum):
    """How a name is compared."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2
    """Any name, the default one too."""


@handles(ApiKey.DESCRIBE_CLIENT_QUOTAS, AdminEnvironment, versions=(0, 1), long_answer="entries")
async def describe_client_quotas(
    environment: AdminEnvironment,
    request: m.DescribeClientQuotasRequest,
    caller: Caller,  # noqa: ARG001 (every handler takes it)
) -> m.DescribeClientQuotasResponse:
    try:
        wanted = filter_of(request)
    except KafkaError as refused:
        return m.DescribeClientQuotasResponse(error_code=refused.error, error_message=refused.message, entries=None)
    breather = Breather()
    entries = []
    for number, (entity, quotas) in enumerate(environment.metadata.image.client_quotas.items()):
        if number % ADDED_AT_ONCE == 0:
            await breather.pause_if_due()
        if is_wanted(entity, wanted, is_strict=request.strict):
            entries.append(describe(entity, quotas))
    return m.DescribeClientQuotasResponse(entries=entries)


@handles(
    ApiKey.ALTER_CLIENT_QUOTAS,
    AdminEnvironment,
    versions=(0, 1),
    cuts=[Cut(("entries",), ("entries",))],
    large_handler=DECIDED_AS_A_WHOLE,
)
async def alter_client_quotas(
    environment: AdminEnvironment, request: m.AlterClientQuotasRequest, caller: Caller
) -> m.AlterClientQuotasResponse:
    response: m.AlterClientQuotasResponse = await forward(environment, request, caller)
    return response


def filter_of(request: m.DescribeClientQuotasRequest) -> Filter:
    """The components by type. Raises KafkaError for what is no filter."""
    wanted: Filter = {}
    for component in request.components:
        kind, match = component.entity_type, component.match
        if not kind:
            raise KafkaError(Error.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in wanted:
            raise KafkaError(Error.INVALID_REQUEST, f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in ENTITY_TYPES:
            raise KafkaError(Error.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if component.match_type not in list(Match):
            raise KafkaError(Error.INVALID_REQUEST, f"Unknown match type {component.match_type}")
        match_type = Match(component.match_type)
        if match_type is Match.EXACT and match is None:
            raise KafkaError(Error.INVALID_REQUEST, "Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if match_type is not Match.EXACT and match is not None:
            raise KafkaError(
                Error.INVALID_REQUEST,
                f"Request specified MATCH_TYPE_{match_type.name}, but also specified a match string.",
            )
        wanted[kind] = component
    if "ip" in wanted and len(wanted) > 1:
        raise KafkaError(
            Error.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component.",
        )
    return wanted


def is_wanted(entity: QuotaEntity, wanted: Filter, *, is_strict: bool) -> bool:
    """Whether an entity has all that is asked for; if `is_strict`, nothing else either."""
    names = dict(entity)
    if is_strict and len(names) != len(wanted):
        return False
    return all(kind in names and matches(names[kind], component) for kind, component in wanted.items())


def matches(name: str | None, component: m.DescribeClientQuotasRequest.ComponentData) -> bool:
    match component.match_type:
        case Match.EXACT:
            return name is not None and name == component.match
        case Match.DEFAULT:
            return name is None
        case _:
            return True


def describe(entity: QuotaEntity, quotas: Mapping[str, float]) -> m.DescribeClientQuotasResponse.EntryData:
    response = m.DescribeClientQuotasResponse
    return response.EntryData(
        entity=[response.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        values=[response.ValueData(key=key, value=value) for key, value in quotas.items()],
    )
