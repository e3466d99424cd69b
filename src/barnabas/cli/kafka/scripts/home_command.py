"""`barnabas kafka home`: a folder as Apache Kafka's archive unpacks to, so that what tutorials print works as printed.

bin/kafka-topics.sh …                      all tools, as in `barnabas kafka install`
config/server.properties                   a node for itself, with every common setting explained
config/kraft/server.properties             the same, as `kafka-storage format` without --standalone wants it
config/producer.properties …               what else tutorials pass to tools
logs/                                      where `kafka-server-start.sh -daemon` leaves what the node says
"""

from __future__ import annotations

import os
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from barnabas.cli.command_line import EXIT_OK, CommandError, Parser
from barnabas.cli.kafka.catalogue import SCRIPT_SUFFIX
from barnabas.cli.kafka.scripts.script_files import is_ours, script_text, tool_names, write_script

if TYPE_CHECKING:
    from collections.abc import Sequence

EPILOG = """example:
  barnabas kafka home ~/kafka && cd ~/kafka
  bin/kafka-server-start.sh config/server.properties

Files under config/ that are there already are left as they are.
"""
_FOR_VOTERS_IN_THE_LOG: Final = "controller.quorum.bootstrap.servers=localhost:9093\n"
_FOR_VOTERS_IN_THE_FILE: Final = "controller.quorum.voters=1@localhost:9093\n"
_ROLES: Final = "process.roles=broker,controller\n"


def run(arguments: Sequence[str]) -> int:
    parser = Parser("barnabas kafka home", "Write a folder like that of Apache Kafka's archive.", EPILOG)
    parser.add_argument("folder", metavar="DIR", help="a new folder, or one that this command has written before")
    folder = os.path.abspath(os.path.expanduser(parser.parse(arguments).folder))
    try:
        write_tools(folder)
        kept = write_configs(folder)
    except OSError as error:
        raise CommandError(f"{error.filename or folder}: {error.strerror}") from None
    for path in kept:
        print(f"{path} is there already, and stays as it is")
    print(f"cd {folder}")
    print("bin/kafka-server-start.sh config/server.properties")
    return EXIT_OK


def write_tools(folder: str) -> None:
    os.makedirs(f"{folder}/bin", exist_ok=True)
    for name in tool_names():
        path = f"{folder}/bin/{name}{SCRIPT_SUFFIX}"
        if os.path.lexists(path) and not is_ours(path):
            raise CommandError(f"{path} is not from here: {folder} seems to be Apache Kafka's own, so give another one")
        write_script(path, script_text(name, {"LOG_DIR": f"{folder}/logs"}))


def write_configs(folder: str) -> list[str]:
    """Write the files of settings; those that were there already."""
    os.makedirs(f"{folder}/config/kraft", exist_ok=True)
    kept = []
    for name, text in configs().items():
        path = f"{folder}/config/{name}"
        try:
            with open(path, "x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            kept.append(path)
    return kept


def configs() -> dict[str, str]:
    """The files below `config`, by their names."""
    node = packaged("server.properties")
    for needed in (_FOR_VOTERS_IN_THE_LOG, _ROLES):
        assert node.count(needed) == 1, f"server.properties lacks {needed!r}"
    return {
        "server.properties": node,
        "kraft/server.properties": node.replace(_FOR_VOTERS_IN_THE_LOG, _FOR_VOTERS_IN_THE_FILE),
        "producer.properties": packaged("producer.properties"),
        "consumer.properties": packaged("consumer.properties"),
        "zookeeper.properties": packaged("zookeeper.properties"),
    }


def packaged(name: str) -> str:
    return files("barnabas.cli.kafka.scripts").joinpath(name).read_text(encoding="utf-8")
