"""`barnabas topic list | create | describe | alter | delete`, by our own client."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.actions import Action, add_no_arguments, run_action
from barnabas.cli.cluster_connection import connect, error_text, fetch_topics, topic_error_text
from barnabas.cli.command_line import (
    EXIT_FAILED,
    EXIT_OK,
    CommandError,
    Parser,
    UsageError,
    add_bootstrap_server,
    parse_pair,
    positive_int,
)
from barnabas.cli.output import Column, comma_list, number, print_json, print_table
from barnabas.net.frames import WireError
from barnabas.protocol import messages as m
from barnabas.protocol import uuids
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from barnabas.cli.cluster_connection import Topic
    from barnabas.client.broker_connection import Connection

BROKER_DEFAULT = -1
REQUEST_TIMEOUT_MS = 30_000
RESOURCE_TYPE_TOPIC = 2
OPERATION_SET = 0
OPERATION_DELETE = 1
CONFIG_SOURCE_DEFAULT = 5

PARTITION_COLUMNS = (
    number("partition"),
    number("leader"),
    number("leader epoch"),
    Column("replicas"),
    Column("in sync"),
    Column("offline"),
)


class Failure(NamedTuple):
    """What could not be done to a topic, as one line."""

    topic: str
    text: str


def run(arguments: Sequence[str]) -> int:
    return run_action("topic", ACTIONS, arguments)


def action(
    summary: str, add_own_arguments: Callable[[Parser], None], do: Callable[[Connection, argparse.Namespace], int]
) -> Action:
    """An action that asks and tells one broker."""

    def add_arguments(parser: Parser) -> None:
        add_own_arguments(parser)
        add_bootstrap_server(parser)
        parser.add_argument("--json", action="store_true", help="print JSON")

    def act(options: argparse.Namespace) -> int:
        try:
            with connect(options.bootstrap_server) as connection:
                return do(connection, options)
        except WireError as error:
            raise CommandError(str(error)) from error

    return Action(summary, add_arguments, act)


def list_topics(connection: Connection, options: argparse.Namespace) -> int:
    topics = fetch_topics(connection, None)
    if options.json:
        print_json([topic_facts(topic) for topic in topics])
    else:
        columns = (Column("topic"), number("partitions"), number("replication"), Column("id"))
        print_table(columns, [(t.name, len(t.partitions), replication_factor(t), id_text(t)) for t in topics])
    return EXIT_OK


def add_create_arguments(parser: Parser) -> None:
    parser.add_argument("topics", metavar="TOPIC", nargs="+")
    parser.add_argument("--partitions", type=positive_int, default=BROKER_DEFAULT, metavar="N")
    parser.add_argument("--replication-factor", type=positive_int, default=BROKER_DEFAULT, metavar="N")
    parser.add_argument(
        "--config", type=parse_pair, action="append", default=[], metavar="KEY=VALUE", help="a setting of the topic"
    )
    parser.add_argument("--if-not-exists", action="store_true", help="do not fail if the topic exists already")


def create_topics(connection: Connection, options: argparse.Namespace) -> int:
    request = m.CreateTopicsRequest
    configs = [request.CreatableTopicConfig(name=key, value=value) for key, value in options.config]
    topics = [
        request.CreatableTopic(
            name=name,
            num_partitions=options.partitions,
            replication_factor=options.replication_factor,
            configs=configs,
        )
        for name in options.topics
    ]
    response: m.CreateTopicsResponse = connection.send(request(topics=topics, timeout_ms=REQUEST_TIMEOUT_MS))
    tolerated = {Error.NONE, Error.TOPIC_ALREADY_EXISTS} if options.if_not_exists else {Error.NONE}
    failures = [
        f"topic {topic.name!r}: {error_text(topic.error_code, topic.error_message)}"
        for topic in response.topics
        if topic.error_code not in tolerated
    ]
    made = [topic for topic in response.topics if topic.error_code == Error.NONE]
    if options.json:
        print_json(
            [
                {
                    "name": topic.name,
                    "id": uuids.to_text(topic.topic_id),
                    "partition_count": topic.num_partitions,
                    "replication_factor": topic.replication_factor,
                }
                for topic in made
            ]
        )
    else:
        for topic in made:
            print(f"created {topic.name}: partitions {topic.num_partitions}, replication {topic.replication_factor}")
    return report(failures)


def add_describe_arguments(parser: Parser) -> None:
    parser.add_argument("topics", metavar="TOPIC", nargs="*", help="(default: all)")


def describe_topics(connection: Connection, options: argparse.Namespace) -> int:
    found = fetch_topics(connection, options.topics or None)
    failures = [topic_error_text(topic) for topic in found if topic.error_code != Error.NONE]
    topics = [topic for topic in found if topic.error_code == Error.NONE]
    configs = fetch_configs(connection, [str(topic.name) for topic in topics])
    if options.json:
        print_json([describe_facts(topic, configs[str(topic.name)]) for topic in topics])
    else:
        for topic in topics:
            print_table(PARTITION_COLUMNS, partition_rows(topic), title=heading(topic, configs[str(topic.name)]))
    return report(failures)


def add_alter_arguments(parser: Parser) -> None:
    parser.add_argument("topics", metavar="TOPIC", nargs="+")
    parser.add_argument(
        "--partitions",
        type=positive_int,
        metavar="N",
        help="the new number of partitions, more than there are; keys may then go to other partitions than before",
    )
    parser.add_argument(
        "--config",
        type=parse_pair,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of the topic; may be given several times",
    )
    parser.add_argument(
        "--delete-config",
        action="append",
        default=[],
        metavar="KEY",
        help="reset a setting to the cluster's default; may be given several times",
    )


def alter_topics(connection: Connection, options: argparse.Namespace) -> int:
    """Partitions and settings are two requests: both are validated first, so that one is not done without the other."""
    if options.partitions is None and not (options.config or options.delete_config):
        raise UsageError("`barnabas topic alter` needs --partitions, --config or --delete-config")
    failures = absent_topics(connection, options) or send_alterations(connection, options, validate_only=True)
    altered = []
    if not failures:
        failures = send_alterations(connection, options, validate_only=False)
        altered = [name for name in options.topics if name not in {topic for topic, _ in failures}]
    if options.json:
        print_json(altered)
    else:
        for name in altered:
            print(f"altered {name}: {alterations(options)}")
    return report([text for _, text in failures])


def absent_topics(connection: Connection, options: argparse.Namespace) -> list[Failure]:
    found = fetch_topics(connection, options.topics)
    return [Failure(str(topic.name), topic_error_text(topic)) for topic in found if topic.error_code != Error.NONE]


def send_alterations(connection: Connection, options: argparse.Namespace, *, validate_only: bool) -> list[Failure]:
    failures: list[Failure] = []
    if options.partitions is not None:
        failures += add_partitions(connection, options, validate_only=validate_only)
    if options.config or options.delete_config:
        failures += alter_configs(connection, options, validate_only=validate_only)
    return failures


def add_partitions(connection: Connection, options: argparse.Namespace, *, validate_only: bool) -> list[Failure]:
    request = m.CreatePartitionsRequest
    count = options.partitions
    topics = [request.CreatePartitionsTopic(name=name, count=count, assignments=None) for name in options.topics]
    response: m.CreatePartitionsResponse = connection.send(
        request(topics=topics, timeout_ms=REQUEST_TIMEOUT_MS, validate_only=validate_only)
    )
    return [
        failure(result.name, result.error_code, result.error_message)
        for result in response.results
        if result.error_code != Error.NONE
    ]


def alter_configs(connection: Connection, options: argparse.Namespace, *, validate_only: bool) -> list[Failure]:
    request = m.IncrementalAlterConfigsRequest
    config = request.AlterableConfig
    configs = [config(name=key, config_operation=OPERATION_SET, value=value) for key, value in options.config]
    configs += [config(name=key, config_operation=OPERATION_DELETE, value=None) for key in options.delete_config]
    resources = [
        request.AlterConfigsResource(resource_type=RESOURCE_TYPE_TOPIC, resource_name=name, configs=configs)
        for name in options.topics
    ]
    response: m.IncrementalAlterConfigsResponse = connection.send(
        request(resources=resources, validate_only=validate_only)
    )
    return [
        failure(result.resource_name, result.error_code, result.error_message)
        for result in response.responses
        if result.error_code != Error.NONE
    ]


def failure(topic: str, code: int, message: str | None) -> Failure:
    return Failure(topic, f"topic {topic!r}: {error_text(code, message)}")


def alterations(options: argparse.Namespace) -> str:
    return ", ".join(
        [
            *([f"partitions {options.partitions}"] if options.partitions is not None else []),
            *(f"{key}={value}" for key, value in options.config),
            *(f"{key} reset to the cluster's default" for key in options.delete_config),
        ]
    )


def add_delete_arguments(parser: Parser) -> None:
    parser.add_argument("topics", metavar="TOPIC", nargs="+")
    parser.add_argument("--if-exists", action="store_true", help="do not fail if the topic does not exist")


def delete_topics(connection: Connection, options: argparse.Namespace) -> int:
    request = m.DeleteTopicsRequest
    topics = [request.DeleteTopicState(name=name) for name in options.topics]
    response: m.DeleteTopicsResponse = connection.send(request(topics=topics, timeout_ms=REQUEST_TIMEOUT_MS))
    tolerated = {Error.NONE, Error.UNKNOWN_TOPIC_OR_PARTITION} if options.if_exists else {Error.NONE}
    failures = [
        f"topic {topic.name!r}: {error_text(topic.error_code, topic.error_message)}"
        for topic in response.responses
        if topic.error_code not in tolerated
    ]
    gone = [topic.name for topic in response.responses if topic.error_code == Error.NONE]
    if options.json:
        print_json(gone)
    else:
        for name in gone:
            print(f"deleted {name}")
    return report(failures)


def fetch_configs(connection: Connection, names: Sequence[str]) -> dict[str, dict[str, str | None]]:
    """By topic, the settings that are not Kafka's defaults, wherever they were set."""
    if not names:
        return {}
    request = m.DescribeConfigsRequest
    resources = [
        request.DescribeConfigsResource(resource_type=RESOURCE_TYPE_TOPIC, resource_name=name, configuration_keys=None)
        for name in names
    ]
    response: m.DescribeConfigsResponse = connection.send(request(resources=resources))
    found: dict[str, dict[str, str | None]] = {}
    for result in response.results:
        if result.error_code != Error.NONE:
            text = error_text(result.error_code, result.error_message)
            raise CommandError(f"configuration of topic {result.resource_name!r}: {text}")
        found[result.resource_name] = {
            entry.name: entry.value for entry in result.configs if entry.config_source != CONFIG_SOURCE_DEFAULT
        }
    return found


def heading(topic: Topic, configs: dict[str, str | None]) -> str:
    settings = comma_list(f"{key}={value}" for key, value in sorted(configs.items())) or "none"
    return (
        f"{topic.name}  id {id_text(topic)}  partitions {len(topic.partitions)}  "
        f"replication {replication_factor(topic)}  configs {settings}"
    )


def partition_rows(topic: Topic) -> list[tuple[object, ...]]:
    return [
        (
            partition.partition_index,
            "none" if partition.leader_id < 0 else partition.leader_id,
            partition.leader_epoch,
            comma_list(partition.replica_nodes),
            comma_list(partition.isr_nodes),
            comma_list(partition.offline_replicas) or "-",
        )
        for partition in by_index(topic)
    ]


def topic_facts(topic: Topic) -> dict[str, object]:
    return {
        "name": topic.name,
        "id": id_text(topic),
        "internal": topic.is_internal,
        "partition_count": len(topic.partitions),
        "replication_factor": replication_factor(topic),
    }


def describe_facts(topic: Topic, configs: dict[str, str | None]) -> dict[str, object]:
    partitions = [
        {
            "partition": partition.partition_index,
            "leader": partition.leader_id,
            "leader_epoch": partition.leader_epoch,
            "replicas": partition.replica_nodes,
            "in_sync": partition.isr_nodes,
            "offline": partition.offline_replicas,
        }
        for partition in by_index(topic)
    ]
    return topic_facts(topic) | {"partitions": partitions, "configs": configs}


def by_index(topic: Topic) -> list[m.MetadataResponse.MetadataResponsePartition]:
    return sorted(topic.partitions, key=lambda partition: partition.partition_index)


def replication_factor(topic: Topic) -> int:
    return max((len(partition.replica_nodes) for partition in topic.partitions), default=0)


def id_text(topic: Topic) -> str:
    return uuids.to_text(topic.topic_id)


def report(failures: list[str]) -> int:
    for failure in failures:
        print(f"barnabas: {failure}", file=sys.stderr)
    return EXIT_FAILED if failures else EXIT_OK


ACTIONS = {
    "list": action("list all topics", add_no_arguments, list_topics),
    "create": action("create topics", add_create_arguments, create_topics),
    "describe": action("show partitions, replicas and settings of topics", add_describe_arguments, describe_topics),
    "alter": action("add partitions to topics, change their settings", add_alter_arguments, alter_topics),
    "delete": action("delete topics with all their records", add_delete_arguments, delete_topics),
}
