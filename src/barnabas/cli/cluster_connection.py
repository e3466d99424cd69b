"""What commands that use our own client share: finding a broker that answers, and errors as readable text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.command_line import DEFAULT_BOOTSTRAP_SERVER, CommandError, parse_addresses
from barnabas.client.broker_connection import Connection
from barnabas.net.frames import ConnectError, WireError
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Topic = m.MetadataResponse.MetadataResponseTopic

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")


class UnknownTopicError(CommandError):
    """The cluster has no topic with this name."""


def connect(bootstrap_server: str) -> Connection:
    """A connection to the first of the given addresses that accepts one."""
    failures = []
    for host, port in parse_addresses(bootstrap_server):
        try:
            return Connection(host, port, client_id="barnabas-cli")
        except ConnectError as error:
            failures.append(str(error))
    raise CommandError(f"{'; '.join(failures)} ({how_to_start(bootstrap_server)})")


def how_to_start(bootstrap_server: str) -> str:
    """What to do if nothing answers: the command that starts a node there, if it is on this machine."""
    if bootstrap_server == DEFAULT_BOOTSTRAP_SERVER:
        return "`barnabas start` starts a node"
    (host, _), *others = parse_addresses(bootstrap_server)
    if host in LOOPBACK_HOSTS and not others:
        return f"`barnabas start --listen {bootstrap_server}` starts a node there"
    return "is a node running there? use --bootstrap-server to connect to another one"


def fetch_topics(connection: Connection, names: Sequence[str] | None) -> list[Topic]:
    """Metadata of the named topics, or of all; never creates a topic."""
    request = m.MetadataRequest
    wanted = None if names is None else [request.MetadataRequestTopic(name=name) for name in names]
    response: m.MetadataResponse = connection.send(request(topics=wanted, allow_auto_topic_creation=False))
    return sorted(response.topics, key=lambda topic: topic.name or "")


def partition_count(bootstrap_server: str, name: str) -> int:
    """How many partitions a topic has."""
    try:
        with connect(bootstrap_server) as connection:
            (topic,) = fetch_topics(connection, [name])
    except WireError as error:
        raise CommandError(str(error)) from error
    if topic.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION:
        raise UnknownTopicError(topic_error_text(topic))
    if topic.error_code != Error.NONE:
        raise CommandError(topic_error_text(topic))
    return len(topic.partitions)


def require_partitions(topic: str, count: int, wanted: Iterable[int]) -> None:
    """CommandError for the lowest of these numbers that is not a partition of the topic."""
    absent = [partition for partition in sorted(wanted) if partition >= count]
    if absent:
        there = "1 partition (0)" if count == 1 else f"{count} partitions (0 … {count - 1})"
        raise CommandError(f"topic {topic!r} has {there}, but no partition {absent[0]}")


def topic_error_text(topic: Topic) -> str:
    """What is wrong with a topic that was requested by name, and what to do about it."""
    if topic.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION:
        return f"topic {topic.name!r} does not exist (`barnabas topic list` lists topics, `create` creates one)"
    if topic.error_code == Error.INVALID_TOPIC_EXCEPTION:
        return f"{topic.name!r} is not a valid topic name: up to 249 letters, digits, '.', '_' and '-' are allowed"
    return f"topic {topic.name!r}: {error_text(topic.error_code, None)}"


def error_text(code: int, message: str | None) -> str:
    """The name of one of Kafka's error codes, with the broker's message."""
    error = Error(code)
    name = error.name if error == code else f"error code {code}"
    return f"{name}: {message}" if message else name
