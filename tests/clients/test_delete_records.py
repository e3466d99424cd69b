"""Records that an administrator deletes are gone for every client, also after a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.protocol.errors import Error
from tests.clients.adapter import Client, ClientError, consume, values

if TYPE_CHECKING:
    from tests.conftest import MakeNode


def test_a_consumer_begins_where_the_deletion_ended(client: Client, topic: str) -> None:
    client.create_topic(topic)
    written = values(10)
    client.produce(topic, written)
    assert client.delete_records(topic, 4) == 4
    assert client.offset_range(topic) == (4, 10)
    received = consume(client, topic, 6)
    assert [each.value for each in received] == [each.value for each in written[4:]]


def test_all_records_can_be_deleted(client: Client, topic: str) -> None:
    client.create_topic(topic)
    client.produce(topic, values(10))
    assert client.delete_records(topic, -1) == 10
    client.produce(topic, values(1, prefix="later"))
    assert client.offset_range(topic) == (10, 11)


def test_more_than_there_is_cannot_be_deleted(client: Client, topic: str) -> None:
    client.create_topic(topic)
    client.produce(topic, values(3))
    with pytest.raises(ClientError) as refused:
        client.delete_records(topic, 4)
    assert refused.value.code == Error.OFFSET_OUT_OF_RANGE
    assert client.offset_range(topic) == (0, 3)


def test_deleted_records_stay_away_after_a_restart(make_node: MakeNode, library: type[Client], topic: str) -> None:
    node = make_node({})
    client = library(node.bootstrap)
    client.create_topic(topic)
    client.produce(topic, values(5))
    client.delete_records(topic, 3)
    node.stop()
    node.start()
    again = library(node.bootstrap)
    assert again.offset_range(topic) == (3, 5)
    assert len(consume(again, topic, 2)) == 2
