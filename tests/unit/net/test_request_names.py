"""What requests are called in metrics."""

from __future__ import annotations

from barnabas.net.request_metrics import kind_of, request_name
from barnabas.protocol.api import ApiKey
from barnabas.replication.fetcher import fetcher_name


def test_fetches_of_followers_are_told_from_those_of_consumers_by_their_client_id() -> None:
    assert kind_of(ApiKey.FETCH, f"broker-2-{fetcher_name(0)}") == "FetchFollower"
    assert kind_of(ApiKey.FETCH, "broker-2-fetcher-7") == "FetchFollower", "as Apache Kafka's brokers call themselves"
    assert kind_of(ApiKey.FETCH, "rdkafka") == kind_of(ApiKey.FETCH, None) == "FetchConsumer"


def test_other_requests_have_kafkas_names() -> None:
    assert kind_of(ApiKey.PRODUCE, "broker-2-fetcher-0") == request_name(ApiKey.PRODUCE) == "Produce"
    assert request_name(ApiKey.ADD_PARTITIONS_TO_TXN) == "AddPartitionsToTxn"
