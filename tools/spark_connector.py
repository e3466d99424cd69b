"""Spark's own connector to Kafka, `format("kafka")`, beside which ours is checked and measured."""

from __future__ import annotations

from tools import maven

VERSION = "4.2.0"

ARTIFACTS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.1"),
    ("org.apache.commons", "commons-pool2", "2.12.0"),
)
"""All that Spark's own jars lack, each by its name: what else their descriptions ask for is there or never used."""


class ConnectorMissingError(RuntimeError):
    """Spark's connector cannot be had here; the message says what is missing."""


def settings() -> dict[str, str]:
    """What a session must be told to know `format("kafka")`. The jars are resolved by Maven on first use."""
    try:
        folder = maven.ensure_jars(f"spark-sql-kafka-{VERSION}", ARTIFACTS, alone=True)
    except maven.MavenError as error:
        raise ConnectorMissingError(f"Spark's own connector to Kafka: {error}") from error
    return {"spark.jars": ",".join(str(jar) for jar in sorted(folder.glob("*.jar")))}
