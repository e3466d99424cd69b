"""Requests that are refused as a whole: everything that they name has the error."""

from __future__ import annotations

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.errors import Error, KafkaError
from barnabas.protocol.refusals import elections_as, refusal


@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_partition_of_a_refused_election_has_the_error(version: int) -> None:
    """As Kafka answers: version 0 has no other place for it."""
    wanted = m.ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0, 3])
    response = refusal(
        m.ElectLeadersRequest(topic_partitions=[wanted]), KafkaError(Error.NOT_CONTROLLER, "Ask another.")
    )
    assert isinstance(response, m.ElectLeadersResponse)
    answer = decode(m.ElectLeadersResponse, encode(elections_as(response, version), version), version)
    assert answer.error_code == (Error.NOT_CONTROLLER if version > 0 else Error.NONE)
    (of_topic,) = answer.replica_election_results
    assert of_topic.topic == "t"
    assert [(each.partition_id, each.error_code, each.error_message) for each in of_topic.partition_result] == [
        (0, Error.NOT_CONTROLLER, "Ask another."),
        (3, Error.NOT_CONTROLLER, "Ask another."),
    ]


def test_a_refused_election_of_all_partitions_has_one_error() -> None:
    response = refusal(m.ElectLeadersRequest(topic_partitions=None), KafkaError(Error.NOT_CONTROLLER))
    assert isinstance(response, m.ElectLeadersResponse)
    assert (response.error_code, response.replica_election_results) == (Error.NOT_CONTROLLER, [])
