"""Requests that brokers forward for their clients: answered as they would be by themselves, whatever their size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.controller.envelope import ENVELOPE_BYTES_MAX
from barnabas.net.frames import WireError, request_api_key
from barnabas.net.large_requests import WHOLE_BYTES_MAX
from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.api import APIS
from barnabas.protocol.envelopes import ForwardedClient, open_response, seal_request
from barnabas.protocol.errors import Error
from tests.unit.controller.quorums import Quorum

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.protocol.compiler.structs import Message

TOO_MANY = 10_001


@pytest.fixture
def quorum() -> Iterator[Quorum]:
    quorum = Quorum(voters=2)
    quorum.start()
    yield quorum
    quorum.check()
    Quorum.bury()


def quotas(count: int) -> m.AlterClientQuotasRequest:
    request = m.AlterClientQuotasRequest
    operations = [request.OpData(key="producer_byte_rate", value=1000.0)]
    return request(
        entries=[
            request.EntryData(
                entity=[request.EntityData(entity_type="user", entity_name=f"user-{number}")], ops=operations
            )
            for number in range(count)
        ]
    )


def elections(count: int) -> m.ElectLeadersRequest:
    request = m.ElectLeadersRequest
    topics = [request.TopicPartitions(topic=f"topic-{n}", partitions=[0, 1]) for n in range(count)]
    return request(topic_partitions=topics, timeout_ms=1000)


def deletions(count: int) -> m.DeleteTopicsRequest:
    request = m.DeleteTopicsRequest
    return request(topics=[request.DeleteTopicState(name=f"topic-{n}") for n in range(count)], timeout_ms=1000)


def described(count: int) -> m.DescribeQuorumRequest:
    request = m.DescribeQuorumRequest
    partitions = [request.PartitionData(partition_index=0)]
    return request(topics=[request.TopicData(topic_name=f"topic-{n}", partitions=partitions) for n in range(count)])


def sealed(request: Message) -> tuple[ForwardedClient, m.EnvelopeRequest]:
    version = APIS[request_api_key(request)].max_version
    client = ForwardedClient(version, 7, "client", "10.0.0.1")
    return client, seal_request(request_api_key(request), codec.encode(request, version), client)


def forward(quorum: Quorum, request: Message) -> Any:
    client, envelope = sealed(request)
    answer = quorum.send(quorum.active.number, envelope)
    assert answer.error_code == Error.NONE
    enclosed = open_response(answer, request_api_key(request), client)
    return codec.decode(enclosed.response_class, enclosed.data, client.api_version, enclosed.body_offset)


@pytest.mark.parametrize("count", [1, 3000, TOO_MANY])
@pytest.mark.parametrize("make", [quotas, elections, deletions])
def test_a_request_in_an_envelope_gets_the_answer_that_it_would_get_by_itself(
    quorum: Quorum, make: Any, count: int
) -> None:
    answer = forward(quorum, make(count))
    assert codec.encode(answer, answer_version(make)) == codec.encode(
        quorum.send(quorum.active.number, make(count)), answer_version(make)
    )


def answer_version(make: Any) -> int:
    return APIS[request_api_key(make(1))].max_version


def test_a_large_request_in_an_envelope_takes_effect(quorum: Quorum) -> None:
    answer = forward(quorum, quotas(3000))
    assert {entry.error_code for entry in answer.entries} == {Error.NONE}
    assert len(quorum.active.image.client_quotas) == 3000


@pytest.mark.parametrize("count", [1, 3000])
def test_whoever_does_not_lead_says_so_in_the_envelope(quorum: Quorum, count: int) -> None:
    (follower,) = quorum.others()
    for make in (quotas, elections, deletions):
        _, envelope = sealed(make(count))
        assert quorum.send(follower.number, envelope).error_code == Error.NOT_CONTROLLER


def test_more_than_can_be_read_in_one_go_is_refused_before_it_is_decided(quorum: Quorum) -> None:
    assert {topic.partitions[0].error_code for topic in forward(quorum, described(5000)).topics} == {
        Error.UNKNOWN_TOPIC_OR_PARTITION
    }
    _, envelope = sealed(described(100_000))
    assert quorum.send(quorum.active.number, envelope).error_code == Error.INVALID_REQUEST


def test_a_large_envelope_that_makes_no_sense_is_refused_as_a_small_one_is(quorum: Quorum) -> None:
    _, envelope = sealed(quotas(3000))
    assert len(envelope.request_data) > WHOLE_BYTES_MAX
    cut_short = m.EnvelopeRequest(
        request_data=envelope.request_data[:-1],
        request_principal=envelope.request_principal,
        client_host_address=envelope.client_host_address,
    )
    _, for_brokers = sealed(m.DescribeGroupsRequest(groups=[f"group-{number}" for number in range(3000)]))
    for refused in (cut_short, for_brokers):
        assert quorum.send(quorum.active.number, refused).error_code == Error.INVALID_REQUEST
    envelope.request_principal = b"\0\7"
    refused_client = quorum.send(quorum.active.number, envelope)
    assert refused_client.error_code == Error.PRINCIPAL_DESERIALIZATION_FAILURE
    assert quorum.active.image.client_quotas == {}


def test_a_principal_of_thousands_of_unknown_fields_is_refused(quorum: Quorum) -> None:
    _, envelope = sealed(quotas(1))
    assert envelope.request_principal is not None
    fields = b"\x90\x4e" + b"\x7f\0" * 10_000
    envelope.request_principal = envelope.request_principal[:-1] + fields
    assert quorum.send(quorum.active.number, envelope).error_code == Error.NONE
    envelope.request_principal = envelope.request_principal[: -len(fields)] + b"\xa0\x9c\x01" + b"\x7f\0" * 20_000
    assert quorum.send(quorum.active.number, envelope).error_code == Error.PRINCIPAL_DESERIALIZATION_FAILURE


def test_an_envelope_of_more_bytes_than_any_broker_sends_ends_its_connection(quorum: Quorum) -> None:
    _, envelope = sealed(quotas(1))
    envelope.request_data += bytes(ENVELOPE_BYTES_MAX)
    with pytest.raises(WireError, match="connection lost"):
        quorum.send(quorum.active.number, envelope)
