"""AlterClientQuotas: how much users, clients and addresses may use. Stored in the metadata, entity by entity."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, NamedTuple

from barnabas.controller.decisions.context import Decision
from barnabas.controller.decisions.topic_changes import check_record_count
from barnabas.metadata.versions import VersionedRecord
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.controller.decisions.context import Context
    from barnabas.controller.decisions.controller_state import ControllerState
    from barnabas.metadata.image import QuotaEntity

USER, CLIENT_ID, IP = "user", "client-id", "ip"
FRACTION_MAX = 1e-6
"""By which a number may miss a whole one and still count as it."""

_HOST = re.compile(r"[0-9A-Za-z][0-9A-Za-z.-]*|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%\w+)?")


class QuotaKind(NamedTuple):
    most: float
    what: str
    """The type of number that is too small for more."""


_LONG = QuotaKind(2.0**63, "a LONG")
_INT = QuotaKind(2.0**31 - 1, "an INT")
_ANY: QuotaKind | None = None

_OF_CLIENTS: Mapping[str, QuotaKind | None] = {
    "producer_byte_rate": _LONG,
    "consumer_byte_rate": _LONG,
    "request_percentage": _ANY,
    "controller_mutation_rate": _ANY,
}
_OF_ADDRESSES: Mapping[str, QuotaKind | None] = {"connection_creation_rate": _INT}


def alter_client_quotas(state: ControllerState, request: m.AlterClientQuotasRequest, _context: Context) -> Decision:
    outcomes: dict[QuotaEntity, KafkaError] = {}
    records: list[VersionedRecord] = []
    for entry in request.entries:
        entity = entity_of(entry.entity)
        if entity in outcomes or _changes_twice(entry.ops):
            outcomes[entity] = _ignored(entity)
            continue
        outcomes[entity] = KafkaError(Error.NONE)
        try:
            _check_entity(entity)
            _check_operations(entity, entry.ops)
            records += _changes(state, entity, entry.ops)
        except KafkaError as error:
            outcomes[entity] = error
    check_record_count(records)
    response = m.AlterClientQuotasResponse(
        entries=[
            m.AlterClientQuotasResponse.EntryData(
                error_code=outcome.error, error_message=outcome.message or None, entity=_named(entity)
            )
            for entity, outcome in outcomes.items()
        ]
    )
    return Decision(response, [] if request.validate_only else records)


def entity_of(given: Sequence[m.AlterClientQuotasRequest.EntityData]) -> QuotaEntity:
    """Of several names of one type, the last one counts."""
    return tuple(sorted({each.entity_type: each.entity_name for each in given}.items()))


def _named(entity: QuotaEntity) -> list[m.AlterClientQuotasResponse.EntityData]:
    return [m.AlterClientQuotasResponse.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]


def _ignored(entity: QuotaEntity) -> KafkaError:
    entries = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity)
    return KafkaError(Error.INVALID_REQUEST, f"Ignoring duplicate entity ClientQuotaEntity(entries={{{entries}}})")


def _check_entity(entity: QuotaEntity) -> None:
    names = dict(entity)
    if not names:
        raise KafkaError(Error.INVALID_REQUEST, "Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            raise KafkaError(Error.INVALID_REQUEST, f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise KafkaError(Error.INVALID_REQUEST, f"Empty {kind} not supported")
    if IP in names and len(names) > 1:
        raise KafkaError(
            Error.INVALID_REQUEST,
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        )
    address = names.get(IP)
    if address is not None and not _HOST.fullmatch(address):
        raise KafkaError(Error.INVALID_REQUEST, f"{address} is not a valid IP or resolvable host.")


def _changes_twice(operations: Sequence[m.AlterClientQuotasRequest.OpData]) -> bool:
    """Whether one quota is named twice, of which Kafka complains before it looks at anything else."""
    return len({operation.key for operation in operations}) != len(operations)


def _check_operations(entity: QuotaEntity, operations: Sequence[m.AlterClientQuotasRequest.OpData]) -> None:
    known = _OF_ADDRESSES if IP in dict(entity) else _OF_CLIENTS
    for operation in operations:
        if operation.remove:
            continue
        if operation.key not in known:
            raise KafkaError(Error.INVALID_REQUEST, f"Invalid configuration key {operation.key}")
        if operation.value <= 0:
            raise KafkaError(Error.INVALID_REQUEST, f"Quota {operation.key} must be greater than 0")
        kind = known[operation.key]
        if kind is not None:
            _check_whole(operation.key, operation.value, kind)


def _check_whole(key: str, value: float, kind: QuotaKind) -> None:
    if value > kind.most:
        raise KafkaError(Error.INVALID_REQUEST, f"Proposed value for {key} is too large for {kind.what}.")
    if not math.isnan(value) and abs(value - round(value)) > FRACTION_MAX:
        raise KafkaError(Error.INVALID_REQUEST, f"{key} cannot be a fractional value.")


def _changes(
    state: ControllerState, entity: QuotaEntity, operations: Sequence[m.AlterClientQuotasRequest.OpData]
) -> list[VersionedRecord]:
    known = state.metadata.client_quotas.get(entity, {})
    record = m.ClientQuotaRecord
    members = [record.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
    return [
        VersionedRecord(
            record(entity=members, key=each.key, value=0.0 if each.remove else each.value, remove=each.remove), 0
        )
        for each in operations
        if (each.key in known if each.remove else known.get(each.key) != each.value)
    ]
