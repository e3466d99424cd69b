"""Options of the source: Spark's names and meanings, and errors that say what to write instead."""

from __future__ import annotations

import dataclasses

import pytest

from barnabas.spark.raw_options import OptionError, duration_ms
from barnabas.spark.read.source_options import (
    SOURCE_OPTIONS,
    Assign,
    Query,
    SourceOptions,
    Subscribe,
    SubscribePattern,
    parse_source,
)
from barnabas.spark.read.topic_positions import (
    AtTimestamp,
    Earliest,
    GroupOffsets,
    Latest,
    SpecificOffsets,
    SpecificTimestamps,
)

WHERE = {"kafka.bootstrap.servers": "localhost:9092"}
ORDERS = {**WHERE, "subscribe": "orders"}


def streaming(**options: str) -> SourceOptions:
    return parse_source({**ORDERS, **options}, Query.STREAMING)


def batch(**options: str) -> SourceOptions:
    return parse_source({**ORDERS, **options}, Query.BATCH)


def test_without_more_than_a_topic_the_defaults_are_those_of_spark() -> None:
    parsed = streaming()
    assert dataclasses.asdict(parsed) == {
        "selection": {"topics": ("orders",)},
        "starting": {},
        "ending": {},
        "latest_where_no_record_is_that_late": False,
        "max_offsets_per_trigger": None,
        "min_offsets_per_trigger": None,
        "max_trigger_delay_ms": 900_000,
        "min_partitions": None,
        "max_records_per_partition": None,
        "fail_on_data_loss": True,
        "include_headers": False,
        "group_id": None,
        "read_committed": False,
        "poll_timeout_ms": 120_000,
        "offset_retries": 3,
        "offset_retry_interval_ms": 10,
        "client": {"bootstrap.servers": "localhost:9092"},
        "warnings": (),
    }
    assert parsed.starting == Latest()
    assert batch().starting == Earliest()
    assert batch().ending == Latest()


def test_names_are_known_in_any_case() -> None:
    parsed = parse_source(
        {"KAFKA.Bootstrap.Servers": "localhost:9092", "SUBSCRIBE": "orders", "failondataloss": "FALSE"}, Query.BATCH
    )
    assert parsed.client == {"bootstrap.servers": "localhost:9092"}
    assert not parsed.fail_on_data_loss


OF_A_TABLE = {
    "provider": "Barnabas",
    "owner": "me",
    "comment": "what is ordered",
    "collation": "UTF8_LCASE",
    "team": "red",
    **{f"option.{name}": value for name, value in ORDERS.items()},
}
"""What Spark adds to the options of a table of its catalog: what is reserved, TBLPROPERTIES, and each option again."""


def test_what_spark_says_of_a_table_is_no_option() -> None:
    assert batch(**OF_A_TABLE) == batch()


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({**OF_A_TABLE, "subscribed": "orders", "option.subscribed": "orders"}, "subscribed"),
        ({**OF_A_TABLE, "path": "file:/orders", "location": "file:/orders"}, "path"),
        ({**OF_A_TABLE, "provider": "another"}, "provider"),
        ({"comment": "what is ordered"}, "comment"),
        ({"option.subscribe": "orders"}, "option.subscribe"),
    ],
)
def test_nothing_else_is_taken_for_the_property_of_a_table(given: dict[str, str], refused: str) -> None:
    with pytest.raises(OptionError, match=f"option {refused} is not known to the source"):
        batch(**given)


def test_without_a_cluster_it_is_said_that_tables_do_not_keep_it() -> None:
    with pytest.raises(OptionError, match="CREATE TEMPORARY VIEW"):
        parse_source({}, Query.BATCH)


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("subscribe", " orders , clicks,orders,", Subscribe(("orders", "clicks"))),
        ("subscribePattern", "log-.*", SubscribePattern("log-.*")),
        ("assign", '{"orders": [2, 0], "clicks": [1]}', Assign((("clicks", 1), ("orders", 0), ("orders", 2)))),
    ],
)
def test_topics_are_named_listed_by_pattern_or_assigned(option: str, value: str, expected: object) -> None:
    assert parse_source({**WHERE, option: value}, Query.STREAMING).selection == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": "earliest"}, Earliest()),
        ({"startingOffsets": "LATEST"}, Latest()),
        ({"startingOffsets": "group", "kafka.group.id": "g"}, GroupOffsets()),
        (
            {"startingOffsets": '{"orders": {"0": 23, "1": -2, "2": -1}}'},
            SpecificOffsets({("orders", 0): 23, ("orders", 1): -2, ("orders", 2): -1}),
        ),
        (
            {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"orders": {"0": 1000}}'},
            SpecificTimestamps({("orders", 0): 1000}),
        ),
        (
            {
                "startingOffsets": "earliest",
                "startingOffsetsByTimestamp": '{"orders": {"0": 1000}}',
                "startingTimestamp": "2000",
            },
            AtTimestamp(2000),
        ),
        ({"startingTimestamp": "0"}, AtTimestamp(0)),
    ],
)
def test_a_time_for_all_goes_before_a_time_for_each_and_that_before_offsets(
    options: dict[str, str], expected: object
) -> None:
    assert streaming(**options).starting == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"endingOffsets": "latest"}, Latest()),
        ({"endingOffsets": '{"orders": {"0": 23, "1": -1}}'}, SpecificOffsets({("orders", 0): 23, ("orders", 1): -1})),
        (
            {"endingOffsets": "latest", "endingOffsetsByTimestamp": '{"orders": {"0": 1000}}'},
            SpecificTimestamps({("orders", 0): 1000}),
        ),
        ({"endingOffsetsByTimestamp": '{"orders": {"0": 1000}}', "endingTimestamp": "2000"}, AtTimestamp(2000)),
    ],
)
def test_the_end_of_a_batch_has_the_same_order(options: dict[str, str], expected: object) -> None:
    assert batch(**options).ending == expected


def test_what_begins_with_kafka_is_for_the_client() -> None:
    parsed = streaming(**{"kafka.group.id": "g", "kafka.isolation.level": "read_committed", "kafka.client.id": "me"})
    assert parsed.group_id == "g"
    assert parsed.read_committed
    assert parsed.client["client.id"] == "me"


def test_the_prefix_of_group_ids_tells_the_broker_whose_requests_these_are() -> None:
    assert streaming(groupIdPrefix="report").client["client.id"] == "report"
    assert "client.id" not in streaming(groupIdPrefix="report", **{"kafka.group.id": "g"}).client


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("15m", 900_000),
        ("90s", 90_000),
        ("250", 250),
        ("2 h", 7_200_000),
        ("1d", 86_400_000),
        ("5min", 300_000),
        ("3000us", 3),
    ],
)
def test_a_time_has_a_unit_or_is_in_milliseconds(text: str, expected_ms: int) -> None:
    assert duration_ms(text) == expected_ms


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribed": "x"}, "option subscribed is not known to the source; did you mean subscribe?"),
        ({"topic": "x"}, "did you mean subscribe?"),
        ({"startingOffset": "earliest"}, "did you mean startingOffsets?"),
        ({"maxOffsetPerTrigger": "5"}, "did you mean maxOffsetsPerTrigger?"),
        ({"isolation.level": "read_committed"}, "as in kafka.isolation.level"),
        ({"zzz": "1"}, "the options are subscribe, subscribePattern, assign"),
        ({"minPartitions": "0"}, "option minPartitions is '0': it takes a whole number, 1 or greater"),
        (
            {"startingTimestamp": "2026-01-01"},
            "option startingTimestamp is '2026-01-01': it takes a timestamp in milliseconds since 1970",
        ),
        ({"minPartitions": "many"}, "option minPartitions is 'many'"),
        ({"maxOffsetsPerTrigger": "-1"}, "option maxOffsetsPerTrigger is '-1'"),
        ({"maxRecordsPerPartition": "1e3"}, "option maxRecordsPerPartition is '1e3'"),
        ({"maxTriggerDelay": "soon"}, "option maxTriggerDelay is 'soon': it takes a duration with a unit"),
        ({"failOnDataLoss": "maybe"}, "option failOnDataLoss is 'maybe': it takes true or false"),
        ({"includeHeaders": "yes"}, "option includeHeaders is 'yes'"),
        ({"startingOffsetsByTimestampStrategy": "earliest"}, "it takes error or latest"),
        ({"startingTimestamp": "yesterday"}, "option startingTimestamp is 'yesterday'"),
        ({"startingOffsets": "newest"}, "option startingOffsets is 'newest': it takes earliest, latest, group or"),
        ({"startingOffsets": "group"}, "option startingOffsets is group, but option kafka.group.id does not say"),
        ({"startingOffsets": '{"orders": {"0": "x"}}'}, 'option startingOffsets is malformed: orders-0 has "x"'),
        ({"startingOffsets": '{"orders"'}, "option startingOffsets is malformed: it is not JSON"),
        ({"startingOffsetsByTimestamp": '{"orders": {"0": -2}}'}, "has a time before 1970 for orders-0"),
        ({"kafka.isolation.level": "read_all"}, "option kafka.isolation.level is 'read_all'"),
        ({"kafka.group.id": ""}, "option kafka.group.id is empty"),
        ({"kafka.auto.offset.reset": "earliest"}, "option kafka.auto.offset.reset cannot be set in a pipeline"),
        ({"kafka.key.deserializer": "x"}, "option kafka.key.deserializer cannot be set"),
        ({"kafka.value.deserializer": "x"}, "option kafka.value.deserializer cannot be set"),
        ({"kafka.enable.auto.commit": "true"}, "option kafka.enable.auto.commit cannot be set"),
        ({"kafka.interceptor.classes": "x"}, "option kafka.interceptor.classes cannot be set"),
        ({"subscribePattern": "x"}, "option subscribe and option subscribePattern are both given"),
        ({"subscribe": " , "}, "which names no topic"),
        ({"subscribe": ""}, "option subscribe is empty"),
        (
            {"minOffsetsPerTrigger": "20", "maxOffsetsPerTrigger": "10"},
            "option minOffsetsPerTrigger is 20, more than option maxOffsetsPerTrigger, which is 10",
        ),
    ],
)
def test_a_wrong_option_is_named_with_what_it_takes(options: dict[str, str], said: str) -> None:
    for query in (Query.BATCH, Query.STREAMING, None):
        with pytest.raises(OptionError) as raised:
            parse_source({**ORDERS, **options}, query)
        assert said in str(raised.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (WHERE, "option subscribe is missing: one of subscribe, subscribePattern and assign says what to read"),
        ({"subscribe": "orders"}, "option kafka.bootstrap.servers is missing"),
        (
            {"subscribe": "orders", "kafka.bootstrap.server": "localhost:9092"},
            "is kafka.bootstrap.server a misspelling of it?",
        ),
        ({**WHERE, "subscribePattern": "("}, "which is not a regular expression"),
        ({**WHERE, "assign": "orders"}, "option assign is malformed: it is not JSON"),
        ({**WHERE, "assign": '{"orders": []}'}, "topic 'orders' has [] instead of a list of partitions"),
        ({**WHERE, "assign": '{"orders": [0, 0]}'}, "a partition is named twice"),
    ],
)
def test_what_to_read_and_where_must_be_said(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as raised:
        parse_source(options, Query.STREAMING)
    assert said in str(raised.value)


@pytest.mark.parametrize("option", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_streaming_query_has_no_end(option: str) -> None:
    value = {"endingOffsets": "latest", "endingTimestamp": "5"}.get(option, '{"orders": {"0": 5}}')
    assert parse_source({**ORDERS, option: value}, None)
    with pytest.raises(OptionError, match=f"option {option} cannot be used in a streaming query"):
        streaming(**{option: value})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingOffsets": "latest"}, "option startingOffsets is latest: a batch query would read nothing"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "option startingOffsets has -1 for orders-0"),
        ({"endingOffsets": "earliest"}, "option endingOffsets is 'earliest': it takes latest or offsets as JSON"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "option endingOffsets has -2 for orders-0"),
        (
            {"startingOffsets": '{"orders": {"0": 5}}', "endingOffsets": '{"orders": {"1": 9}}'},
            "name different partitions: only one of them has orders-0, orders-1",
        ),
        (
            {"startingOffsets": '{"orders": {"0": 5}}', "endingOffsets": '{"orders": {"0": 4}}'},
            "option startingOffsets has 5 for orders-0, after 4 in endingOffsets",
        ),
        (
            {
                "startingOffsetsByTimestamp": '{"orders": {"0": 5}}',
                "endingOffsetsByTimestamp": '{"orders": {"0": 4}}',
            },
            "option startingOffsetsByTimestamp has 5 for orders-0, after 4",
        ),
        ({"startingTimestamp": "5", "endingTimestamp": "4"}, "option startingTimestamp is 5, after option ending"),
    ],
)
def test_a_batch_query_that_would_read_nothing_is_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as raised:
        batch(**options)
    assert said in str(raised.value)


def test_a_batch_may_end_where_partitions_end_whatever_it_starts_at() -> None:
    parsed = batch(startingOffsets='{"orders": {"0": 5}}', endingOffsets='{"orders": {"0": -1}}')
    assert parsed.ending == SpecificOffsets({("orders", 0): -1})


@pytest.mark.parametrize(
    ("options", "query", "said"),
    [
        ({"maxOffsetsPerTrigger": "5"}, Query.BATCH, "option maxOffsetsPerTrigger has no effect on a batch query"),
        ({"maxTriggerDelay": "5s"}, Query.STREAMING, "option maxTriggerDelay has no effect without"),
        ({"groupIdPrefix": "x", "kafka.group.id": "g"}, Query.STREAMING, "option groupIdPrefix has no effect where"),
    ],
)
def test_an_option_without_effect_is_worth_a_warning(options: dict[str, str], query: Query, said: str) -> None:
    (warning,) = parse_source({**ORDERS, **options}, query).warnings
    assert said in warning


def test_every_option_of_sparks_own_connector_is_known() -> None:
    assert set(SOURCE_OPTIONS) == {
        "assign",
        "endingOffsets",
        "endingOffsetsByTimestamp",
        "endingTimestamp",
        "failOnDataLoss",
        "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs",
        "groupIdPrefix",
        "includeHeaders",
        "kafkaConsumer.pollTimeoutMs",
        "maxOffsetsPerTrigger",
        "maxRecordsPerPartition",
        "maxTriggerDelay",
        "minOffsetsPerTrigger",
        "minPartitions",
        "startingOffsets",
        "startingOffsetsByTimestamp",
        "startingOffsetsByTimestampStrategy",
        "startingTimestamp",
        "subscribe",
        "subscribePattern",
    }
