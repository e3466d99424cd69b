"""What the commands that use librdkafka share: its basic settings, and its errors as readable text."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError

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
