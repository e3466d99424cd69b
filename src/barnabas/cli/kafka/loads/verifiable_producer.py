"""kafka-verifiable-producer: write growing numbers to a topic, and print what becomes of each as a line of JSON.

Programs that test clusters start it, kill nodes meanwhile, and compare what was acknowledged with what is there.
"""

from __future__ import annotations

import time
from argparse import ArgumentTypeError
from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.kafka.loads.arguments import (
    a_long,
    an_integer,
    construction_failed,
    help_asked_for,
    parser_for,
    properties_given,
)
from barnabas.cli.kafka.loads.events import Ending, print_event, watching_for_the_end
from barnabas.cli.kafka.loads.pace import Pace

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping

    from confluent_kafka import KafkaError, Message, Producer

    from barnabas.cli.kafka.subcommands import ToolParser

NAME: Final = "verifiable-producer"
SUMMARY: Final = "Write growing numbers to a topic, and print as JSON which of them were acknowledged and which not."
NO_TIME: Final = -1
_PAUSE_S: Final = 0.1
_CHOICES: Final = (0, 1, -1)


def parser() -> ToolParser:
    made = parser_for(NAME, SUMMARY)
    made.add_argument("--topic", required=True, metavar="TOPIC", help="the topic to write to")
    made.add_argument("--max-messages", type=an_integer, default=-1, metavar="N", help="how many; -1 goes on for ever")
    made.add_argument("--throughput", type=an_integer, default=-1, metavar="N", help="at most so many in a second")
    made.add_argument("--acks", type=_acks, default=-1, metavar="ACKS", help="0, 1 or -1, which is all")
    made.add_argument("--command-config", metavar="FILE", help="a file with properties for the producer")
    made.add_argument("--producer.config", dest="producer_config", metavar="FILE", help="the same, by its older name")
    made.add_argument("--message-create-time", type=a_long, default=NO_TIME, metavar="MS", help="when they are from")
    made.add_argument("--value-prefix", type=an_integer, metavar="N", help="what stands before each number and a dot")
    made.add_argument("--repeating-keys", type=an_integer, metavar="N", help="keys: 0 to N - 1, again and again")
    connection = made.add_mutually_exclusive_group(required=True)
    connection.add_argument("--bootstrap-server", metavar="HOST:PORT,…", help="the brokers to connect to; required")
    return made


def run(words: list[str]) -> int:
    made = parser()
    code = help_asked_for(made, words)
    if code is not None:
        return code
    options = made.parse(words)
    with watching_for_the_end() as ending:
        sender = _Sender(options, _properties(made, options))
        sender.send_all(ending)
        sender.close()
    return ending.exit_code


def _properties(made: ToolParser, options: Namespace) -> dict[str, str]:
    given = properties_given(made, "--producer.config", options.producer_config, options.command_config)
    return {
        "bootstrap.servers": options.bootstrap_server,
        "client.id": "producer-1",
        "acks": str(options.acks),
        "retries": "0",
    } | given


class _Sender:
    """A producer, and the count of what it sent."""

    def __init__(self, options: Namespace, properties: Mapping[str, str]) -> None:
        from barnabas.cli.kafka.loads.delivery import MAX_BLOCK_MS

        self._options = options
        self._client = f"Producer clientId={properties['client.id']}"
        self._max_block_ms = int(properties.get("max.block.ms", MAX_BLOCK_MS))
        self._producer = _producer(properties, self._client)
        self._is_known = False
        self._started = time.monotonic()
        self._sent = 0
        self._acknowledged = 0

    def send_all(self, ending: Ending) -> None:
        print_event("startup_complete")
        pace = Pace(self._options.throughput)
        while not ending.is_wanted and (self._options.max_messages < 0 or self._sent < self._options.max_messages):
            self._send()
            self._producer.poll(0)
            while not ending.is_wanted and (pause_s := pace.pause_s(self._sent)) > 0:
                self._producer.poll(min(pause_s, _PAUSE_S))

    def close(self) -> None:
        while self._producer.flush(_PAUSE_S):
            pass
        print_event("shutdown_complete")
        seconds = time.monotonic() - self._started
        print_event(
            "tool_data",
            sent=self._sent,
            acked=self._acknowledged,
            target_throughput=self._options.throughput,
            avg_throughput=self._acknowledged / seconds,
        )

    def _send(self) -> None:
        number, options = self._sent, self._options
        value = str(number) if options.value_prefix is None else f"{options.value_prefix}.{number}"
        key = None if options.repeating_keys is None else str(number % max(options.repeating_keys, 1))
        self._sent += 1
        if not self._is_known and not self._find_topic(key, value):
            return
        placed: dict[str, Any] = {}
        if options.message_create_time != NO_TIME:
            placed["timestamp"] = options.message_create_time + round((time.monotonic() - self._started) * 1000)

        def tell(error: KafkaError | None, message: Message) -> None:
            self._tell(key, value, error, message)

        while True:
            try:
                self._producer.produce(options.topic, value, key, on_delivery=tell, **placed)
            except BufferError:
                self._producer.poll(_PAUSE_S)
            else:
                return

    def _find_topic(self, key: str | None, value: str) -> bool:
        from barnabas.cli.kafka.loads.delivery import Failure, await_topic

        found = await_topic(self._producer, self._options.topic, self._client, self._max_block_ms)
        if isinstance(found, Failure):
            self._tell_failure(key, value, found.exception, found.message)
            return False
        self._is_known = True
        return True

    def _tell(self, key: str | None, value: str, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            from barnabas.cli.kafka.loads.delivery import failure_of

            place = f"{self._options.topic}-{message.partition()}"
            self._tell_failure(key, value, *failure_of(error.code(), error.str(), place))
            return
        self._acknowledged += 1
        # With acks=0 nobody says where a record went.
        offset = message.offset()
        print_event(
            "producer_send_success",
            key=key,
            value=value,
            offset=-1 if offset is None or offset < 0 else offset,
            topic=self._options.topic,
            partition=message.partition(),
        )

    def _tell_failure(self, key: str | None, value: str, exception: str, reason: str) -> None:
        print_event(
            "producer_send_error",
            topic=self._options.topic,
            key=key,
            value=value,
            exception=f"class {exception}",
            message=reason,
        )


def _producer(properties: Mapping[str, str], client: str) -> Producer:
    from confluent_kafka import KafkaException, Producer

    from barnabas.cli.kafka.bootstrap_servers import check_names
    from barnabas.cli.kafka.rdkafka_events import reporter
    from barnabas.cli.kafka.rdkafka_properties import PRODUCER, rdkafka_settings

    settings = rdkafka_settings(properties, PRODUCER) | {
        "error_cb": reporter(client),
        "partitioner": "murmur2_random",  # as Java's: a key goes where its producer sends it
    }
    check_names(properties["bootstrap.servers"], "kafka producer")
    try:
        return Producer(settings)
    except KafkaException as failure:
        raise construction_failed("producer", failure.args[0].str()) from None


def _acks(text: str) -> int:
    number = an_integer(text)
    if number not in _CHOICES:
        raise ArgumentTypeError(f"invalid choice: '{text}' (choose from {{{','.join(map(str, _CHOICES))}}})")
    return number
