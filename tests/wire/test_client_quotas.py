"""Quotas are stored, described by any filter, and refused where they make no sense."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.peers import wait_until
from tests.wire.connection import Connection

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.conftest import MakeNode

EXACT, DEFAULT, ANY = 0, 1, 2
USER, CLIENT, IP = "user", "client-id", "ip"
PRODUCED, CONSUMED, CONNECTED = "producer_byte_rate", "consumer_byte_rate", "connection_creation_rate"

Entity = tuple[tuple[str, str | None], ...]


class Alteration(NamedTuple):
    entity: Entity
    quotas: Mapping[str, float | None]


def alter(
    connection: Connection, *alterations: Alteration, version: int = 1, validate_only: bool = False
) -> dict[Entity, tuple[int, str | None]]:
    request = m.AlterClientQuotasRequest
    entries = [
        request.EntryData(
            entity=[request.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            ops=[request.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()],
        )
        for entity, quotas in alterations
    ]
    asked = request(entries=entries, validate_only=validate_only)
    answer = connection.call(asked, version, m.AlterClientQuotasResponse)
    outcomes = {
        tuple(sorted((each.entity_type, each.entity_name) for each in entry.entity)): (
            entry.error_code,
            entry.error_message,
        )
        for entry in answer.entries
    }
    assert len(outcomes) == len(answer.entries)
    return outcomes


def require_altered(connection: Connection, *alterations: Alteration, version: int = 1) -> None:
    assert set(alter(connection, *alterations, version=version).values()) == {(Error.NONE, None)}


def ask(
    connection: Connection, components: Sequence[tuple[str, int, str | None]], *, strict: bool = False, version: int = 1
) -> m.DescribeClientQuotasResponse:
    request = m.DescribeClientQuotasRequest
    wanted = [request.ComponentData(entity_type=kind, match_type=how, match=match) for kind, how, match in components]
    return connection.call(request(components=wanted, strict=strict), version, m.DescribeClientQuotasResponse)


def described(
    connection: Connection, components: Sequence[tuple[str, int, str | None]], *, strict: bool = False, version: int = 1
) -> dict[Entity, dict[str, float]]:
    answer = ask(connection, components, strict=strict, version=version)
    assert answer.error_code == Error.NONE
    assert answer.entries is not None
    return {
        tuple(sorted((each.entity_type, each.entity_name) for each in entry.entity)): {
            each.key: each.value for each in entry.values
        }
        for entry in answer.entries
    }


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_stored_changed_and_removed(connection: Connection, topic: str, version: int) -> None:
    entity = ((CLIENT, f"client of {topic}"), (USER, topic))
    wanted = [(USER, EXACT, topic)]
    require_altered(connection, Alteration(entity, {PRODUCED: 1000.0, "request_percentage": 12.5}), version=version)
    expected = {entity: {PRODUCED: 1000.0, "request_percentage": 12.5}}
    wait_until(lambda: described(connection, wanted, version=version) == expected, "the quotas are described")
    require_altered(connection, Alteration(entity, {PRODUCED: 2000.0, "request_percentage": None}), version=version)
    wait_until(lambda: described(connection, wanted) == {entity: {PRODUCED: 2000.0}}, "they have changed")
    require_altered(connection, Alteration(entity, {PRODUCED: None}), version=version)
    wait_until(lambda: described(connection, wanted) == {}, "nothing is left")


def test_quotas_can_be_validated_only(connection: Connection, topic: str) -> None:
    entity = ((USER, topic),)
    outcome = alter(connection, Alteration(entity, {PRODUCED: 1000.0}), validate_only=True)
    assert outcome == {entity: (Error.NONE, None)}
    assert described(connection, [(USER, EXACT, topic)]) == {}


def test_filters_find_names_defaults_and_anything(make_node: MakeNode) -> None:
    node = make_node({})
    user, client, both = ((USER, "u"),), ((CLIENT, "c"),), ((CLIENT, "c"), (USER, "u"))
    any_user, any_both = ((USER, None),), ((CLIENT, None), (USER, None))
    address = ((IP, "10.0.0.1"),)
    everything = [user, client, both, any_user, any_both, address]
    with Connection(node.port) as connection:
        require_altered(
            connection,
            *(Alteration(each, {CONNECTED if each is address else CONSUMED: 5.0}) for each in everything),
        )
        wait_until(lambda: set(described(connection, [])) == set(everything), "all are described")
        assert described(connection, [], strict=True) == {}
        assert set(described(connection, [(USER, EXACT, "u")])) == {user, both}
        assert set(described(connection, [(USER, EXACT, "u")], strict=True)) == {user}
        assert set(described(connection, [(USER, DEFAULT, None)])) == {any_user, any_both}
        assert set(described(connection, [(USER, ANY, None)])) == {user, both, any_user, any_both}
        assert set(described(connection, [(USER, ANY, None), (CLIENT, ANY, None)])) == {both, any_both}
        assert set(described(connection, [(USER, ANY, None)], strict=True)) == {user, any_user}
        assert set(described(connection, [(IP, ANY, None)])) == {address}
        assert described(connection, [(USER, EXACT, "nobody")]) == {}
    node.stop()
    node.start()
    with Connection(node.port) as connection:
        assert set(described(connection, [])) == set(everything)


@pytest.mark.parametrize(
    ("components", "error", "why"),
    [
        ([(IP, ANY, None), (USER, ANY, None)], Error.INVALID_REQUEST, "IP filter component should not be used with"),
        ([(USER, EXACT, None)], Error.INVALID_REQUEST, "MATCH_TYPE_EXACT, but set match string to null"),
        ([(USER, DEFAULT, "x")], Error.INVALID_REQUEST, "MATCH_TYPE_DEFAULT, but also specified a match string"),
        ([(USER, ANY, "x")], Error.INVALID_REQUEST, "MATCH_TYPE_SPECIFIED, but also specified a match string"),
        ([(USER, 7, "x")], Error.INVALID_REQUEST, "Unknown match type 7"),
        ([("group", ANY, None)], Error.UNSUPPORTED_VERSION, "Unsupported entity type group"),
        ([("", ANY, None)], Error.INVALID_REQUEST, "Invalid empty entity type."),
        ([(USER, ANY, None), (USER, ANY, None)], Error.INVALID_REQUEST, "cannot appear more than once"),
    ],
)
def test_what_is_no_filter_is_refused(
    connection: Connection, components: Sequence[tuple[str, int, str | None]], error: Error, why: str
) -> None:
    answer = ask(connection, components)
    assert (answer.error_code, answer.entries) == (error, None)
    assert why in (answer.error_message or "")


@pytest.mark.parametrize(
    ("entity", "quotas", "why"),
    [
        ((), {PRODUCED: 1.0}, "Invalid empty client quota entity"),
        ((("group", "x"),), {PRODUCED: 1.0}, "Unhandled client quota entity type: group"),
        (((USER, ""),), {PRODUCED: 1.0}, "Empty user not supported"),
        (((IP, "10.0.0.1"), (USER, "x")), {PRODUCED: 1.0}, "Invalid quota entity combination"),
        (((IP, "not an address!"),), {CONNECTED: 1.0}, "not an address! is not a valid IP or resolvable host."),
        (((USER, "x"),), {"no_such_rate": 1.0}, "Invalid configuration key no_such_rate"),
        (((USER, "x"),), {CONNECTED: 1.0}, "Invalid configuration key connection_creation_rate"),
        (((IP, "10.0.0.1"),), {PRODUCED: 1.0}, "Invalid configuration key producer_byte_rate"),
        (((USER, "x"),), {PRODUCED: -1.0}, "Quota producer_byte_rate must be greater than 0"),
        (((USER, "x"),), {PRODUCED: 1.5}, "producer_byte_rate cannot be a fractional value."),
        (((USER, "x"),), {PRODUCED: 1e300}, "Proposed value for producer_byte_rate is too large for a LONG."),
        (((IP, "10.0.0.1"),), {CONNECTED: 3e9}, "Proposed value for connection_creation_rate is too large for an INT"),
    ],
)
def test_what_is_no_quota_is_refused(
    connection: Connection, topic: str, entity: Entity, quotas: dict[str, float | None], why: str
) -> None:
    good = ((USER, topic),)
    outcomes = alter(connection, Alteration(entity, quotas), Alteration(good, {PRODUCED: 1.0}))
    assert outcomes[good] == (Error.NONE, None)
    error, message = outcomes[entity]
    assert error == Error.INVALID_REQUEST
    assert why in (message or "")


def test_of_an_entity_that_is_named_twice_the_first_alteration_counts(connection: Connection, topic: str) -> None:
    entity = ((USER, topic),)
    outcomes = alter(connection, Alteration(entity, {PRODUCED: 1.0}), Alteration(entity, {CONSUMED: 2.0}))
    message = f"Ignoring duplicate entity ClientQuotaEntity(entries={{user={topic}}})"
    assert outcomes == {entity: (Error.INVALID_REQUEST, message)}
    wanted = [(USER, EXACT, topic)]
    wait_until(lambda: described(connection, wanted) == {entity: {PRODUCED: 1.0}}, "the first has taken effect")


def test_more_alterations_than_fit_into_one_decision_are_all_done(connection: Connection, topic: str) -> None:
    entities: list[Entity] = [((CLIENT, f"{number}"), (USER, topic)) for number in range(500)]
    require_altered(connection, *(Alteration(entity, {PRODUCED: 1.0}) for entity in entities))
    wanted = [(USER, EXACT, topic), (CLIENT, ANY, None)]
    wait_until(lambda: set(described(connection, wanted)) == set(entities), "all are described")
