"""What becomes of records that are handed to librdkafka, in the words of Java's producer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException

from barnabas.cli.kafka.java.java_exceptions import exception_name
from barnabas.cli.kafka.java.java_log import METADATA, NETWORK_CLIENT, log_error, log_warning
from barnabas.protocol.error_messages import message_of
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from confluent_kafka import Producer

MAX_BLOCK_MS: Final = "60000"
DELIVERY_TIMEOUT_MS: Final = "120000"
_ASK_S: Final = 0.5
_PAUSE_S: Final = 0.1
_ERRORS: Final = "org.apache.kafka.common.errors"


class Failure(NamedTuple):
    """Why a record was not accepted: the exception that Java's producer raises."""

    exception: str
    message: str

    def __str__(self) -> str:
        return f"{self.exception}: {self.message}"


def await_topic(producer: Producer, topic: str, client: str, max_block_ms: int) -> int | Failure:
    """How many partitions a topic has, once it is there: to ask for it may create it."""
    deadline = time.monotonic() + max_block_ms / 1000
    has_warned = False
    while (remaining_s := deadline - time.monotonic()) > 0:
        try:
            found = producer.list_topics(topic, timeout=min(remaining_s, _ASK_S)).topics[topic]
        except KafkaException:
            producer.poll(0)  # nobody answers: `error_cb` says so
            continue
        if found.error is None:
            return len(found.partitions)
        error = Error(found.error.code()) if found.error.code() >= 0 else Error.UNKNOWN_SERVER_ERROR
        if not has_warned:
            has_warned = True
            log_warning(
                f"[{client}] The metadata response from the cluster reported a recoverable issue with correlation "
                f"id 1 : {{{topic}={error.name}}}",
                NETWORK_CLIENT,
            )
        if error is Error.INVALID_TOPIC_EXCEPTION:
            log_error(f"[{client}] Metadata response reported invalid topics [{topic}]", METADATA)
            return Failure(f"{_ERRORS}.InvalidTopicException", f"Invalid topics: [{topic}]")
        if error is Error.TOPIC_AUTHORIZATION_FAILED:
            return Failure(exception_name(error), f"Not authorized to access topics: [{topic}]")
        time.sleep(min(max(remaining_s, 0), _PAUSE_S))
    return Failure(f"{_ERRORS}.TimeoutException", f"Topic {topic} not present in metadata after {max_block_ms} ms.")


def failure_of(code: int, reason: str, place: str, delivery_timeout_ms: str = DELIVERY_TIMEOUT_MS) -> Failure:
    """Why a record that had been taken was not delivered; `place` is its topic and partition."""
    if code == KafkaError._MSG_TIMED_OUT:  # noqa: SLF001 - its public name
        return Failure(
            f"{_ERRORS}.TimeoutException",
            f"Expiring 1 record(s) for {place}:{delivery_timeout_ms} ms has passed since batch creation",
        )
    if code < 0:
        return Failure("org.apache.kafka.common.KafkaException", reason)
    return Failure(exception_name(Error(code)), message_of(Error(code)))
