"""The cluster that a tool is pointed at: by its flags, and by a file of properties for clients."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from barnabas.cli.kafka.tool import ToolError, ToolUsageError
from barnabas.client.client_settings import ClientSettings, SettingsError
from barnabas.client.cluster import Cluster
from barnabas.config.properties import PropertiesError, parse_properties
from barnabas.protocol.error_messages import message_of
from barnabas.protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LOCAL_NODE: Final = "localhost:9092"
"""Where a tool looks that is told about a ZooKeeper: there is none, and the node of this machine is meant."""


def read_properties_file(path: str) -> dict[str, str]:
    """The properties in a file; ToolError with what Java says of a file that cannot be read: its name."""
    try:
        with open(path, encoding="iso-8859-1") as file:
            return parse_properties(file.read())
    except FileNotFoundError:
        raise ToolError(path, hint="there is no such file") from None
    except OSError as error:
        raise ToolError(path, hint=f"it cannot be read: {error.strerror}") from None
    except PropertiesError as error:
        raise ToolError(f"{path}: {error}") from None


def parse_pairs(texts: list[str], *, allows_empty: bool = True) -> dict[str, str]:
    """`key=value` as `--property` and its relatives take it; a key alone has an empty value."""
    pairs = {}
    for text in texts:
        key, _, value = text.partition("=")
        if not value and not allows_empty:
            raise ToolUsageError(f"Missing value for key {key}}}")
        pairs[key] = value
    return pairs


@contextlib.contextmanager
def cluster_at(
    bootstrap: str, properties: Mapping[str, str] | None = None, *, at_controllers: bool = False
) -> Iterator[Cluster]:
    """A cluster for the time of the block. Nothing is connected before the first question."""
    cluster = Cluster(client_settings(bootstrap, properties, at_controllers=at_controllers))
    try:
        yield cluster
    finally:
        cluster.close()


def check_servers(bootstrap: str) -> None:
    """ToolUsageError, in the words of those tools that look at them first, for what are no addresses of servers."""
    if not bootstrap.strip():
        raise ToolUsageError("Error while validating the bootstrap address")
    try:
        client_settings(bootstrap)
    except ToolUsageError:
        raise ToolUsageError("Please provide valid host:port like host1:9091,host2:9092") from None


def client_settings(
    bootstrap: str, properties: Mapping[str, str] | None = None, *, at_controllers: bool = False
) -> ClientSettings:
    from dataclasses import replace

    options = {"client.id": "adminclient-1", **(properties or {}), "bootstrap.servers": bootstrap}
    try:
        return replace(ClientSettings.from_options(options), at_controllers=at_controllers)
    except SettingsError as error:
        raise ToolUsageError(_kafka_words(bootstrap, error)) from None


def _kafka_words(bootstrap: str, error: SettingsError) -> str:
    if error.option == "bootstrap.servers" and bootstrap:
        return f"Invalid url in bootstrap.servers: {bootstrap}"
    return str(error)


def is_unreachable(failure: KafkaError) -> bool:
    """Whether nobody answered until the time was over, or the one that was to answer was not there."""
    return failure.error in (Error.NETWORK_EXCEPTION, Error.BROKER_NOT_AVAILABLE)


def words_of(code: int, message: str | None = None) -> str:
    """What a tool says about an error: the broker's message, or Kafka's words for the code."""
    return message or message_of(Error(code))
