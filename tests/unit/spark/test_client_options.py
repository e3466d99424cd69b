"""Options that begin with `kafka.`: what is a mistake, and what is only of no use here."""

from __future__ import annotations

import pytest
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from barnabas.spark.client_options import CONSUMER_SETTINGS, PRODUCER_SETTINGS, client_settings, ignored_settings
from barnabas.spark.raw_options import OptionError
from barnabas.spark.write.sink import StreamWriter

WHERE = {"bootstrap.servers": "localhost:9092"}
WITH_PASSWORD = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "ada",
    "sasl.password": "secret",
}


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("isolation.levle", "isolation.level"),
        ("isolation_level", "isolation.level"),
        ("groupid", "group.id"),
        ("fetch.max.byte", "fetch.max.bytes"),
        ("securty.protocol", "security.protocol"),
        ("ssl.ca.locaton", "ssl.ca.location"),
        ("compresion.type", "compression.type"),
        ("transactional.ids", "transactional.id"),
        ("ack", "acks"),
    ],
)
@pytest.mark.parametrize("other", [{}, WITH_PASSWORD])
def test_a_misspelt_setting_is_refused_with_the_nearest_right_one(name: str, meant: str, other: dict[str, str]) -> None:
    with pytest.raises(OptionError) as raised:
        client_settings(WHERE | other | {name: "read_committed"})
    assert str(raised.value) == f"option kafka.{name} is not a setting of Kafka's clients; did you mean kafka.{meant}?"


@pytest.mark.parametrize(
    "name",
    [
        "compression.level",
        "fetch.min.bytes",
        "linger.ms",
        "max.poll.records",
        "message.max.bytes",
        "metadata.max.age.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.scope",
        "session.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
        "statistics.interval.ms",
    ],
)
def test_a_setting_of_other_clients_is_worth_a_warning(name: str) -> None:
    settings = client_settings(WHERE | WITH_PASSWORD | {name: "1"})
    for own, of in ((CONSUMER_SETTINGS, "this source"), (PRODUCER_SETTINGS, "this sink")):
        assert ignored_settings(settings, own, of) == (f"option kafka.{name} has no effect on {of}",)


def test_what_is_for_a_sink_means_nothing_to_a_source() -> None:
    settings = client_settings(WHERE | {"acks": "all", "isolation.level": "read_committed"})
    assert ignored_settings(settings, CONSUMER_SETTINGS, "this source") == (
        "option kafka.acks has no effect on this source",
    )
    assert ignored_settings(settings, PRODUCER_SETTINGS, "this sink") == (
        "option kafka.isolation.level has no effect on this sink",
    )


def test_a_sink_says_so_once_however_many_batches_it_writes(caplog: pytest.LogCaptureFixture) -> None:
    schema = StructType([StructField("value", BinaryType()), StructField("topic", StringType())])
    options = {"kafka.bootstrap.servers": "x:1", "delivery": "at_least_once", "kafka.linger.ms": "5"}
    for _ in range(2):
        StreamWriter(options, schema, overwrite=False)
    assert caplog.text.count("option kafka.linger.ms has no effect on this sink") == 1
    with pytest.raises(OptionError, match=r"kafka.compresion.type .*did you mean kafka.compression.type\?"):
        StreamWriter({**options, "kafka.compresion.type": "lz4"}, schema, overwrite=False)
