"""Every API can be answered with an error, in every version, about everything that was asked for."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.api.registry import ROUTES, register_all
from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.api import APIS, ApiKey
from barnabas.protocol.compiler.structs import Struct, spec_of
from barnabas.protocol.errors import Error
from barnabas.protocol.uuids import Uuid
from barnabas.testing.kit.error_answers import error_answer

register_all()

ID = Uuid(bytes(range(16)))
PLACES = [
    (api_key, version) for api_key, each in ROUTES.items() for version in range(each.min_version, each.max_version + 1)
]


def full(cls: Any, version: int) -> Any:
    """A request that asks for something, on every level."""
    spec = spec_of(cls)
    values: dict[str, Any] = {}
    for field in spec.struct.fields:
        if not field.versions.covers(version):
            continue
        element: Any
        if field.is_struct:
            element = full(spec.classes[field.type], version)
        else:
            element = {"string": "x", "uuid": ID, "bool": False, "bytes": b"", "records": None, "float64": 0.5}.get(
                field.type, 7
            )
        values[field.attribute] = [element] if field.is_array else element
    return cls(**values)


def errors_in(answer: Struct) -> list[int]:
    found: list[int] = []
    for field in spec_of(type(answer)).struct.fields:
        value = getattr(answer, field.attribute)
        if field.attribute.endswith("error_code") and field.attribute != "topic_config_error_code":
            found.append(value)
        elif isinstance(value, list):
            found += [code for each in value if isinstance(each, Struct) for code in errors_in(each)]
    return found


@pytest.mark.parametrize(("api_key", "version"), PLACES)
def test_every_api_can_be_answered_with_an_error_in_every_version(api_key: int, version: int) -> None:
    api = APIS[ApiKey(api_key)]
    request_class, response_class = getattr(m, api.request), getattr(m, api.response)
    request, _ = codec.decode_prefix(request_class, codec.encode(full(request_class, version), version), version, 0)

    answer = error_answer(request, version, Error.REQUEST_TIMED_OUT)

    read, _ = codec.decode_prefix(response_class, codec.encode(answer, version), version, 0)
    assert Error.REQUEST_TIMED_OUT in errors_in(read)


def test_the_answer_names_the_partitions_that_the_request_names() -> None:
    partition = m.FetchRequest.FetchPartition
    topic = m.FetchRequest.FetchTopic(topic="t", partitions=[partition(partition=3), partition(partition=5)])

    answer: Any = error_answer(m.FetchRequest(topics=[topic]), 12, Error.NOT_LEADER_OR_FOLLOWER)

    (said,) = answer.responses
    assert said.topic == "t"
    assert [(each.partition_index, each.error_code, each.high_watermark) for each in said.partitions] == [
        (3, Error.NOT_LEADER_OR_FOLLOWER, -1),
        (5, Error.NOT_LEADER_OR_FOLLOWER, -1),
    ]
    assert answer.error_code == Error.NOT_LEADER_OR_FOLLOWER


def test_names_without_a_struct_of_their_own_are_named_too() -> None:
    answer: Any = error_answer(m.DeleteGroupsRequest(groups_names=["a", "b"]), 2, Error.NOT_COORDINATOR)
    assert [(each.group_id, each.error_code) for each in answer.results] == [
        ("a", Error.NOT_COORDINATOR),
        ("b", Error.NOT_COORDINATOR),
    ]
