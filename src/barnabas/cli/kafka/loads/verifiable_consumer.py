"""kafka-verifiable-consumer: read a topic as a member of a group, and print what happens as lines of JSON.

Programs that test clusters start several, kill some, and compare who had which partition and read what.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.kafka.java.java_order import in_hash_order, partition_hash
from barnabas.cli.kafka.loads.arguments import (
    an_integer,
    construction_failed,
    help_asked_for,
    parser_for,
    properties_given,
)
from barnabas.cli.kafka.loads.events import Ending, print_event, watching_for_the_end
from barnabas.cli.kafka.tool import ToolError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Mapping, Sequence

    from confluent_kafka import Consumer, Message, TopicPartition

    from barnabas.cli.kafka.subcommands import ToolParser

NAME: Final = "verifiable-consumer"
SUMMARY: Final = "Read a topic as a member of a group, and print as JSON what is assigned, read and committed."
PROTOCOLS: Final = ("classic", "consumer")
RESETS: Final = {"earliest": "earliest", "latest": "latest", "none": "error"}
"""Under librdkafka's names."""
RANGE: Final = "org.apache.kafka.clients.consumer.RangeAssignor"
RECORDS_MAX: Final = 500
"""At most so many come at a time, as with Java's consumer."""
_WAIT_S: Final = 0.1


def parser() -> ToolParser:
    made = parser_for(NAME, SUMMARY)
    made.add_argument("--topic", required=True, metavar="TOPIC", help="the topic to read")
    made.add_argument("--group-protocol", default="classic", metavar="PROTOCOL", help="classic or consumer")
    made.add_argument("--group-remote-assignor", metavar="NAME", help="for the protocol consumer: uniform or range")
    made.add_argument("--group-id", required=True, metavar="GROUP", help="the group to join")
    made.add_argument("--group-instance-id", metavar="ID", help="the name of a static member")
    made.add_argument("--max-messages", type=an_integer, default=-1, metavar="N", help="how many; -1 goes on for ever")
    made.add_argument("--session-timeout", type=an_integer, metavar="MS", help="for the protocol classic")
    made.add_argument("--verbose", action="store_true", help="print every record")
    made.add_argument("--enable-autocommit", action="store_true", help="commit now and then instead of after each read")
    made.add_argument("--reset-policy", default="earliest", metavar="POLICY", help="earliest, latest or none")
    made.add_argument("--assignment-strategy", default=RANGE, metavar="CLASS", help="for the protocol classic")
    made.add_argument("--command-config", metavar="FILE", help="a file with properties for the consumer")
    made.add_argument("--consumer.config", dest="consumer_config", metavar="FILE", help="the same, by its older name")
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
        reader = _Reader(options, _properties(made, options))
        reader.read_all(ending)
        reader.close()
    return ending.exit_code


def _properties(made: ToolParser, options: Namespace) -> dict[str, str]:
    properties = properties_given(made, "--consumer.config", options.consumer_config, options.command_config)
    protocol = options.group_protocol.lower()
    if protocol not in PROTOCOLS:
        raise ToolError(
            "java.lang.IllegalArgumentException: No enum constant "
            f"org.apache.kafka.clients.consumer.GroupProtocol.{options.group_protocol.upper()}"
        )
    if protocol == "consumer":
        properties["group.protocol"] = protocol
        if options.group_remote_assignor is not None:
            properties["group.remote.assignor"] = options.group_remote_assignor
        if options.session_timeout is not None:
            raise _config_error("session.timeout.ms cannot be set when group.protocol=CONSUMER")
    else:
        properties["partition.assignment.strategy"] = options.assignment_strategy
        if options.session_timeout is not None:
            properties["session.timeout.ms"] = str(options.session_timeout)
    if options.group_instance_id is not None:
        properties["group.instance.id"] = options.group_instance_id
    return (
        {"client.id": f"consumer-{options.group_id}-1"}
        | properties
        | {
            "group.id": options.group_id,
            "bootstrap.servers": options.bootstrap_server,
            "enable.auto.commit": str(options.enable_autocommit).lower(),
            "auto.offset.reset": options.reset_policy,
        }
    )


class _Reader:
    """A consumer, and the count of what it read."""

    def __init__(self, options: Namespace, properties: Mapping[str, str]) -> None:
        self._options = options
        self._consumer = _consumer(properties)
        self._read = 0

    def read_all(self, ending: Ending) -> None:
        print_event("startup_complete")
        self._consumer.subscribe(
            [self._options.topic],
            on_assign=lambda _, partitions: _tell_partitions("partitions_assigned", partitions),
            on_revoke=lambda _, partitions: _tell_partitions("partitions_revoked", partitions),
        )
        while not ending.is_wanted and not self._is_done():
            messages = self._next()
            if messages is None:
                return
            if messages:
                self._commit(self._take(messages))

    def close(self) -> None:
        self._consumer.close()
        print_event("shutdown_complete")
        print_event("shutdown_requested")

    def _is_done(self) -> bool:
        return bool(0 <= self._options.max_messages <= self._read)

    def _next(self) -> list[Message] | None:
        """What has come; None after an error that does not pass."""
        first = self._consumer.poll(_WAIT_S)
        if first is None:
            return []
        messages = [first, *self._consumer.consume(RECORDS_MAX - 1, timeout=0)]
        for each in messages:
            error = each.error()
            if error is not None and (error.fatal() or _is_final(error.code())):
                sys.stdout.flush()
                print(f"Error during processing, terminating consumer process: {error.str()}", file=sys.stderr)
                return None
        return [each for each in messages if each.error() is None]

    def _take(self, messages: Sequence[Message]) -> dict[tuple[str, int], int]:
        """Tell of records, as many as are wanted: where to go on in each of their partitions."""
        places: dict[tuple[str, int], list[Message]] = {}
        for each in messages:
            places.setdefault(_place(each), []).append(each)
        positions, summaries = {}, []
        for (topic, partition), found in places.items():
            if self._options.max_messages >= 0:
                found = found[: self._options.max_messages - self._read]
            first, last = _offset(found[0]), _offset(found[-1])
            positions[topic, partition] = last + 1
            summaries.append(
                {"topic": topic, "partition": partition, "count": len(found), "minOffset": first, "maxOffset": last}
            )
            if self._options.verbose:
                _tell_records(found)
            self._read += len(found)
            if self._is_done():
                break
        print_event("records_consumed", count=len(messages), partitions=summaries)
        return positions

    def _commit(self, positions: Mapping[tuple[str, int], int]) -> None:
        if self._options.enable_autocommit:
            return
        from confluent_kafka import KafkaException, TopicPartition

        from barnabas.cli.rdkafka import kafkas_words

        places = in_hash_order(positions, partition_hash)
        outcome: dict[str, Any] = {"success": True}
        try:
            self._consumer.commit(
                offsets=[TopicPartition(*place, positions[place]) for place in places], asynchronous=False
            )
        except KafkaException as failure:
            outcome = {"error": kafkas_words(failure.args[0]), "success": False}
        offsets = [
            {"topic": topic, "partition": partition, "offset": positions[topic, partition]}
            for topic, partition in places
        ]
        print_event("offsets_committed", offsets=offsets, **outcome)


def _consumer(properties: Mapping[str, str]) -> Consumer:
    from confluent_kafka import Consumer, KafkaException

    from barnabas.cli.kafka.bootstrap_servers import check_names
    from barnabas.cli.kafka.rdkafka_events import reporter
    from barnabas.cli.kafka.rdkafka_properties import CONSUMER, rdkafka_settings

    policy = properties["auto.offset.reset"]
    if policy not in RESETS:
        raise _config_error(
            f"Invalid value {policy} for configuration auto.offset.reset: Invalid value `{policy}` for configuration "
            "auto.offset.reset. The value must be either 'earliest', 'latest', 'none' or of the format "
            "'by_duration:<PnDTnHnMn.nS.>'."
        )
    settings = rdkafka_settings(properties, CONSUMER) | {
        "auto.offset.reset": RESETS[policy],
        "error_cb": reporter(f"Consumer clientId={properties['client.id']}, groupId={properties['group.id']}"),
    }
    check_names(properties["bootstrap.servers"], "kafka consumer")
    try:
        return Consumer(settings)
    except KafkaException as failure:
        raise construction_failed("consumer", failure.args[0].str()) from None


def _config_error(message: str) -> ToolError:
    return ToolError(f"org.apache.kafka.common.config.ConfigException: {message}")


def _is_final(code: int) -> bool:
    """Whether an error of a consumer is one that Java's raises to its caller."""
    from confluent_kafka import KafkaError

    return code in (KafkaError._AUTO_OFFSET_RESET, KafkaError._AUTHENTICATION)  # noqa: SLF001 - their public names


def _tell_partitions(name: str, partitions: Iterable[TopicPartition]) -> None:
    places = sorted((each.topic, each.partition) for each in partitions)
    print_event(name, partitions=[{"topic": topic, "partition": partition} for topic, partition in places])


def _tell_records(messages: Iterable[Message]) -> None:
    for each in messages:
        topic, partition = _place(each)
        print_event(
            "record_data",
            key=_text(each.key()),
            value=_text(each.value()),
            topic=topic,
            partition=partition,
            offset=_offset(each),
        )


def _place(message: Message) -> tuple[str, int]:
    topic, partition = message.topic(), message.partition()
    assert topic is not None, "records that were read have a topic"
    assert partition is not None, "records that were read have a partition"
    return topic, partition


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None, "records that were read have an offset"
    return offset


def _text(data: bytes | str | None) -> str | None:
    return data.decode(errors="replace") if isinstance(data, bytes) else data
