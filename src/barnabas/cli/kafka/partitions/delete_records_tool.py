"""kafka-delete-records: delete the oldest records of partitions, up to the offsets in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.cli.command_line import EXIT_OK
from barnabas.cli.kafka.admin_access import admin_at, properties_at, said_of
from barnabas.cli.kafka.flags import HELP, VERSION, Flag, Flags
from barnabas.cli.kafka.java import java_json
from barnabas.cli.kafka.java.java_order import in_hash_order, partition_hash
from barnabas.cli.kafka.older_flags import BROKER_LIST, todays_words
from barnabas.cli.kafka.tool import ToolError, print_help, print_version
from barnabas.protocol.errors import KafkaError

if TYPE_CHECKING:
    from barnabas.client.cluster import Cluster, TopicPartition

SUMMARY: Final = "This tool helps to delete records of the given partitions down to the specified offset."
_VERSION: Final = 1
"""Of the format of the file."""

FLAGS: Final = Flags(
    Flag(
        ("bootstrap-server",),
        "The brokers to connect to, as host:port. Required.",
        "server(s) to use for bootstrapping",
    ),
    Flag(
        ("offset-json-file",),
        "A file that says where each partition is to begin, the offset -1 being its end. Required. "
        '{"partitions": [{"topic": "orders", "partition": 1, "offset": 10}], "version": 1}',
        "Offset json file path",
    ),
    Flag(("command-config",), "A file with properties for the admin client.", "command config property file path"),
    HELP,
    VERSION,
)


def run(words: list[str]) -> int:
    given = FLAGS.read(todays_words(words, BROKER_LIST))
    if not words or given.has("help"):
        return print_help(SUMMARY, FLAGS.help_text())
    if given.has("version"):
        return print_version()
    FLAGS.check_required(given, "bootstrap-server", "offset-json-file")
    properties = properties_at(given.text("command-config"))
    with admin_at(given.required("bootstrap-server"), properties) as cluster:
        delete(cluster, read_offsets(_text_at(given.required("offset-json-file"))))
    return EXIT_OK


def read_offsets(text: str) -> dict[TopicPartition, int]:
    content = java_json.as_object(java_json.parse(text))
    version = java_json.as_int(content["version"]) if "version" in content else _VERSION
    if version != _VERSION:
        raise ToolError(f"Not supported version field value {version}")
    if "partitions" not in content:
        raise ToolError("Missing partitions field")
    offsets: dict[TopicPartition, list[int]] = {}
    for each in java_json.as_array(content["partitions"]):
        part = java_json.as_object(each)
        place = (
            java_json.as_string(java_json.field(part, "topic")),
            java_json.as_int(java_json.field(part, "partition")),
        )
        offsets.setdefault(place, []).append(java_json.as_long(java_json.field(part, "offset")))
    repeated = [place for place in in_hash_order(offsets, partition_hash) if len(offsets[place]) > 1]
    if repeated:
        names = ",".join(f"{topic}-{partition}" for topic, partition in repeated)
        raise ToolError(f"Offset json file contains duplicate topic partitions: {names}")
    return {place: offset for place, (offset,) in offsets.items()}


def delete(cluster: Cluster, offsets: dict[TopicPartition, int]) -> None:
    from barnabas.client.admin.records import delete_records

    print("Executing records delete operation", flush=True)
    starts = delete_records(cluster, offsets)
    print("Records delete operation completed:")
    for (topic, partition), start in starts.items():
        if isinstance(start, KafkaError):
            print(f"partition: {topic}-{partition}\terror: {said_of(start, 'deleteRecords(api=METADATA)').with_name}")
        else:
            print(f"partition: {topic}-{partition}\tlow_watermark: {start}")


def _text_at(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError as error:
        raise ToolError(f"Unable to read file {path}", hint=error.strerror or "") from None
