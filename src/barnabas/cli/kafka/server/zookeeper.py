"""zookeeper-server-start and -stop: there is no ZooKeeper any more, and whoever follows a tutorial can go on."""

from __future__ import annotations

from barnabas.cli.command_line import EXIT_OK
from barnabas.cli.kafka.tool import ToolUsageError


def start(words: list[str]) -> int:
    if not words:
        raise ToolUsageError("USAGE: zookeeper-server-start [-daemon] zookeeper.properties", is_error_output=False)
    print("There is no ZooKeeper to start: the nodes do among themselves what it did.")
    print("Go on with the next step: kafka-server-start takes files with zookeeper.connect as they are.")
    return EXIT_OK


def stop(_: list[str]) -> int:
    print("There is no ZooKeeper to stop. kafka-server-stop stops the nodes.")
    return EXIT_OK
