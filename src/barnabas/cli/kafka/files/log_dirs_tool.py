"""kafka-log-dirs: the folders in which brokers keep partitions, and how large each partition is there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.command_line import EXIT_OK
from barnabas.cli.kafka.admin_access import admin_at, asking_by_name, properties_at
from barnabas.cli.kafka.flags import HELP, VERSION, Flag, Flags, read_int
from barnabas.cli.kafka.java.java_exceptions import exception_name
from barnabas.cli.kafka.java.java_order import in_hash_order, int_hash, partition_hash, string_hash
from barnabas.cli.kafka.older_flags import todays_words
from barnabas.cli.kafka.tool import ToolError, print_help, print_version

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from barnabas.client.admin.replica_folders import Folder
    from barnabas.client.cluster import Cluster

SUMMARY: Final = "This tool helps to query log directory usage on the specified brokers."
CLIENT_ID: Final = "log-dirs-tool"

FLAGS: Final = Flags(
    Flag(
        ("bootstrap-server",),
        "The brokers to connect to, as host:port. Required.",
        "The server(s) to use for bootstrapping",
    ),
    Flag(("command-config",), "A file with properties for the admin client.", "Admin client property file"),
    Flag(("describe",), "Show the folders. Required."),
    Flag(("topic-list",), "The topics to show, between commas; all without this.", "Topic list", default=""),
    Flag(("broker-list",), "The numbers of the brokers to ask; all without this.", "Broker list", default=""),
    HELP,
    VERSION,
)


def run(words: list[str]) -> int:
    given = FLAGS.read(todays_words(words))
    if not words or given.has("help"):
        return print_help(SUMMARY, FLAGS.help_text())
    if given.has("version"):
        return print_version()
    FLAGS.check_required(given, "bootstrap-server", "describe")
    properties = {"client.id": CLIENT_ID} | properties_at(given.text("command-config"))
    with admin_at(given.required("bootstrap-server"), properties) as cluster:
        topics = {part for part in given.required("topic-list").split(",") if part}
        describe(cluster, topics, given.required("broker-list"))
    return EXIT_OK


def describe(cluster: Cluster, topics: Collection[str], broker_list: str) -> None:
    from barnabas.client.admin.cluster_state import describe_cluster
    from barnabas.client.admin.replica_folders import describe_folders

    with asking_by_name("listNodes"):
        alive = _in_order(each.node_id for each in describe_cluster(cluster).endpoints)
    asked = _in_order(_broker_ids(broker_list))
    absent = [each for each in asked if each not in alive]
    if absent:
        raise ToolError(
            f"ERROR: The given brokers do not exist from --broker-list: {_joined(absent)}. "
            f"Current existent brokers: {_joined(alive)}"
        )
    brokers = asked or alive
    print("Querying brokers for log directories information", flush=True)
    with asking_by_name("describeLogDirs"):
        folders = {broker: describe_folders(cluster, broker) for broker in brokers}
    print(f"Received log directory information from brokers {_joined(brokers)}")
    shown = {"brokers": [_shown_broker(each, folders[each], topics) for each in brokers], "version": 1}
    print(json.dumps(shown, ensure_ascii=False, separators=(",", ":")))


def _broker_ids(text: str) -> list[int]:
    numbers = []
    for part in filter(None, text.split(",")):
        try:
            numbers.append(read_int(part))
        except ValueError:
            raise ToolError(f'For input string: "{part}"') from None
    return numbers


def _in_order(brokers: Iterable[int]) -> list[int]:
    return in_hash_order(brokers, int_hash)


def _joined(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))


def _shown_broker(broker: int, folders: list[Folder], topics: Collection[str]) -> dict[str, Any]:
    by_path = {folder.path: folder for folder in folders}
    paths = in_hash_order(by_path, string_hash, room_for=len(folders))
    return {"broker": broker, "logDirs": [_shown_folder(by_path[path], topics) for path in paths]}


def _shown_folder(folder: Folder, topics: Collection[str]) -> dict[str, Any]:
    replicas = {(each.topic, each.partition): each for each in folder.replicas}
    chosen = [place for place in in_hash_order(replicas, partition_hash) if not topics or place[0] in topics]
    return {
        "partitions": [
            {
                "partition": f"{each.topic}-{each.partition}",
                "size": each.size_bytes,
                "offsetLag": each.offset_lag,
                "isFuture": each.is_future,
            }
            for each in map(replicas.__getitem__, in_hash_order(chosen, partition_hash))
        ],
        "error": None if folder.failure is None else exception_name(folder.failure.error),
        "logDir": folder.path,
    }
