"""What `kafka-broker-api-versions` says of single APIs, and in which order it goes through brokers."""

from __future__ import annotations

from barnabas.cli.kafka.cluster.api_versions_tool import described, in_table_order
from barnabas.client.admin.topics import Broker
from barnabas.net.frames import VersionRange
from barnabas.protocol.api import APIS, ApiKey


def test_brokers_are_in_the_order_of_kafkas_table() -> None:
    ports = {1: 44073, 2: 45877, 3: 35927}
    brokers = {broker_id: Broker("127.0.0.1", port, "this-machine") for broker_id, port in ports.items()}
    assert in_table_order(brokers) == [2, 1, 3]  # as Kafka's own tool printed these three


def test_an_api_is_usable_where_both_sides_have_a_version() -> None:
    newest = APIS[ApiKey.FETCH].max_version
    offered = {
        ApiKey.PRODUCE: VersionRange(0, 0),
        ApiKey.FETCH: VersionRange(4, newest + 1),
        ApiKey.METADATA: VersionRange(90, 99),
        999: VersionRange(0, 1),
    }
    lines = list(described(offered))
    assert f"Fetch(1): 4 to {newest + 1} [usable: {newest}]" in lines
    assert "Produce(0): 0 [unusable: node too old]" in lines
    assert "Metadata(3): 90 to 99 [unusable: node too new]" in lines
    assert "JoinGroup(11): UNSUPPORTED" in lines
    assert lines[-1] == "UNKNOWN(999): 0 to 1"
