"""Quotas of users, clients and addresses: what they are, and how to set them and take them back.

    alter_quotas(cluster, {"user": "alice"}, {"producer_byte_rate": 1024.0, "request_percentage": None})

An entity is one of these types or a user and a client together, each with a name, or None for the default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.client.admin.outcomes import passing, raise_first, refusal
from barnabas.client.cluster import Call
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.client.cluster import Cluster

USER: Final = "user"
CLIENT: Final = "client-id"
ADDRESS: Final = "ip"

EXACTLY: Final = 0
THE_DEFAULT: Final = 1
ANY: Final = 2


class Component(NamedTuple):
    """What part of an entity is looked for."""

    type: str
    match: int
    name: str | None = None


class Quotas(NamedTuple):
    entity: dict[str, str | None]
    values: dict[str, float]


def describe_quotas(cluster: Cluster, components: Iterable[Component]) -> list[Quotas]:
    """The quotas of entities that consist of these parts and no other."""
    struct = m.DescribeClientQuotasRequest
    request = struct(
        components=[
            struct.ComponentData(entity_type=each.type, match_type=each.match, match=each.name) for each in components
        ],
        strict=True,
    )
    call = Call(ApiKey.DESCRIBE_CLIENT_QUOTAS, lambda _: request, lambda answer: passing(answer.error_code))
    response: m.DescribeClientQuotasResponse = ask_administration(cluster, call)
    failure = refusal(response.error_code, response.error_message)
    if failure is not None:
        raise failure
    return [
        Quotas(
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in response.entries or ()
    ]


def alter_quotas(cluster: Cluster, entity: Mapping[str, str | None], changes: Mapping[str, float | None]) -> None:
    """Set quotas of an entity, or take them back where the value is None. The others stay as they are."""
    struct = m.AlterClientQuotasRequest
    entry = struct.EntryData(
        entity=[struct.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[
            struct.OpData(key=key, value=0.0 if value is None else value, remove=value is None)
            for key, value in changes.items()
        ],
    )

    def error_code(response: m.AlterClientQuotasResponse) -> int:
        return next((code for each in response.entries if (code := passing(each.error_code))), 0)

    call = Call(ApiKey.ALTER_CLIENT_QUOTAS, lambda _: struct(entries=[entry]), error_code)
    response: m.AlterClientQuotasResponse = ask_administration(cluster, call)
    raise_first({at: refusal(each.error_code, each.error_message) for at, each in enumerate(response.entries)})


def ask_administration(cluster: Cluster, call: Call) -> Any:
    """The answer of a broker, or of the controller, where nobody else is to be asked."""
    return cluster.ask_controller(call) if cluster.settings.at_controllers else cluster.ask_any(call)
