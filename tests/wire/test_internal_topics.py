"""What coordinators write, clients do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.wire.batches import batch
from tests.wire.requests import LATEST, Topic, list_offsets, produce

if TYPE_CHECKING:
    from tests.wire.connection import Connection


@pytest.mark.parametrize("version", [3, 9, 12, 13])
def test_a_client_may_not_write_to_the_offsets_of_groups(group_connection: Connection, version: int) -> None:
    described = group_connection.call(
        m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name="__consumer_offsets")]),
        12,
        m.MetadataResponse,
    )
    offsets = Topic("__consumer_offsets", described.topics[0].topic_id)
    before = list_offsets(group_connection, offsets, LATEST).offset
    for _ in range(2):
        answer = produce(group_connection, offsets, batch(), version)
        assert (answer.error_code, answer.base_offset) == (Error.INVALID_TOPIC_EXCEPTION, -1)
    assert list_offsets(group_connection, offsets, LATEST).offset == before
