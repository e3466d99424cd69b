"""What the commands that use librdkafka share: its basic settings, and its errors as readable text."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError

from barnabas.protocol.error_messages import message_of
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from confluent_kafka import KafkaException


def base_settings(bootstrap_server: str) -> dict[str, object]:
    """Settings without librdkafka's own log, which is for its developers. `error_cb` reports what users should know."""

    def report_error(error: KafkaError) -> None:
        """Called once per outage; librdkafka keeps trying by itself."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - its public name
            print(f"barnabas: no node answers at {bootstrap_server}; still trying to connect", file=sys.stderr)

    return {
        "bootstrap.servers": bootstrap_server,
        "client.id": "barnabas-cli",
        "log_level": 0,
        "error_cb": report_error,
    }


def reason(failure: KafkaException | KafkaError) -> str:
    error = failure if isinstance(failure, KafkaError) else failure.args[0]
    return error.str() if isinstance(error, KafkaError) else str(error)


def kafkas_words(error: KafkaError) -> str:
    """What Kafka's own clients say about an error of a broker; librdkafka's words for one of its own."""
    code = error.code()
    return str(error.str()) if code < 0 else message_of(Error(code))
