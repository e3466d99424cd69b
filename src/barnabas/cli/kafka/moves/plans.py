"""Plans of which partitions go where: the JSON that `kafka-reassign-partitions` reads and prints."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from barnabas.cli.kafka.java import java_json
from barnabas.cli.kafka.java.java_order import in_hash_order, int_hash, partition_hash, string_hash
from barnabas.cli.kafka.moves.failures import failed
from barnabas.cli.kafka.tool import ToolError
from barnabas.client.admin.replica_folders import Replica

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from barnabas.client.cluster import TopicPartition

K = TypeVar("K")

ANY_FOLDER: Final = "any"
VERSION: Final = 1

_NO_JSON: Final = "(JSON String, Number, Array, Object or token 'null', 'true' or 'false')"
_SOURCE: Final = "[Source: REDACTED (`StreamReadFeature.INCLUDE_SOURCE_IN_LOCATION` disabled); line: 1, column: 1]"


class Plan(NamedTuple):
    """Where partitions are to be."""

    replicas: list[tuple[TopicPartition, list[int]]]
    """As the file has them: a partition may be there twice, which is a mistake where it is to be moved."""
    folders: dict[Replica, str]
    """The folders of those replicas for which the plan names one."""

    @property
    def partitions(self) -> list[TopicPartition]:
        return [place for place, _ in self.replicas]

    @property
    def topics(self) -> list[str]:
        """In the order in which Kafka's tool names them."""
        return in_hash_order((topic for topic, _ in self.partitions), string_hash)


def read_plan(text: str) -> Plan:
    try:
        content = java_json.parse(text)
    except ToolError:
        raise failed(_fault(text)) from None
    fields = _read(lambda: java_json.as_object(content))
    return _read(lambda: _plan(fields))


def read_plan_to_execute(text: str) -> Plan:
    """The same; ToolError for a plan that cannot be carried out, whatever the cluster."""
    plan = read_plan(text)
    if not plan.replicas:
        raise failed("Partition reassignment list cannot be empty")
    if not all(replicas for _, replicas in plan.replicas):
        raise failed("Partition replica list cannot be empty")
    repeated = _repeated(plan.partitions, partition_hash)
    if repeated:
        raise failed(f"Partition reassignment contains duplicate topic partitions: {','.join(map(name_of, repeated))}")
    doubled = [
        f"{name_of(place)} contains multiple entries for {','.join(map(str, numbers))}"
        for place, replicas in plan.replicas
        if (numbers := _repeated(replicas, int_hash))
    ]
    if doubled:
        raise failed(f"Partition replica lists may not contain duplicate entries: {'. '.join(doubled)}")
    return plan


def read_topics(text: str) -> list[str]:
    """The topics of a file for `--topics-to-move-json-file`."""
    content = _read(lambda: java_json.parse(text))
    fields = _read(lambda: java_json.as_object(content))
    topics = _read(lambda: _topics(fields))
    repeated = _repeated(topics, string_hash)
    if repeated:
        raise failed(f"List of topics to reassign contains duplicate entries: [{', '.join(repeated)}]")
    return topics


def read_brokers(text: str) -> list[int]:
    """The ids of `--broker-list`."""
    brokers = [_broker_id(each) for each in re.sub(",+$", "", text).split(",")]
    repeated = _repeated(brokers, int_hash)
    if repeated:
        raise failed(f"Broker list contains duplicate entries: [{', '.join(map(str, repeated))}]")
    return brokers


def plan_json(replicas: Mapping[TopicPartition, Sequence[int]], folders: Mapping[Replica, str] | None = None) -> str:
    """A plan as it is printed, to be saved and read again."""
    partitions = [
        {
            "topic": topic,
            "partition": partition,
            "replicas": list(brokers),
            "log_dirs": [(folders or {}).get(Replica(topic, partition, broker), ANY_FOLDER) for broker in brokers],
        }
        for (topic, partition), brokers in sorted(replicas.items())
    ]
    content = {"version": VERSION, "partitions": partitions}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def name_of(place: TopicPartition) -> str:
    return f"{place[0]}-{place[1]}"


def _plan(fields: dict[str, Any]) -> Plan:
    _check_version(fields)
    plan = Plan([], {})
    for each in java_json.as_array(fields.get("partitions", [])):
        wanted = java_json.as_object(each)
        topic = java_json.as_string(java_json.field(wanted, "topic"))
        partition = java_json.as_int(java_json.field(wanted, "partition"))
        replicas = [java_json.as_int(number) for number in _list(java_json.field(wanted, "replicas"))]
        folders = [ANY_FOLDER] * len(replicas)
        if "log_dirs" in wanted:
            folders = [java_json.as_string(folder) for folder in _list(wanted["log_dirs"])]
        if len(folders) != len(replicas):
            raise ToolError(
                f"Size of replicas list [{', '.join(map(str, replicas))}] is different from size of log dirs list "
                f"[{', '.join(folders)}] for partition {topic}-{partition}"
            )
        plan.replicas.append(((topic, partition), replicas))
        for broker, folder in zip(replicas, folders, strict=True):
            if folder != ANY_FOLDER:
                plan.folders[Replica(topic, partition, broker)] = folder
    return plan


def _topics(fields: dict[str, Any]) -> list[str]:
    _check_version(fields)
    return [
        java_json.as_string(java_json.field(java_json.as_object(each), "topic"))
        for each in java_json.as_array(fields.get("topics", []))
    ]


def _check_version(fields: dict[str, Any]) -> None:
    version = java_json.as_int(fields.get("version", VERSION))
    if version != VERSION:
        raise ToolError(f"Not supported version field value {version}")


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ToolError(f"Expected `JSON array` value, received {java_json.shown(value)}")
    return value


def _read(read: Callable[[], K]) -> K:
    try:
        return read()
    except ToolError as failure:
        raise failed(failure.message) from None


def _repeated(values: Iterable[K], hash_of: Callable[[K], int]) -> list[K]:
    listed = list(values)
    return in_hash_order((each for each in listed if listed.count(each) > 1), hash_of)


def _broker_id(text: str) -> int:
    from barnabas.cli.kafka.flags import read_int

    try:
        return read_int(text)
    except ValueError:
        raise failed(f'For input string: "{text}"') from None


def _fault(text: str) -> str:
    """What is wrong with a text that is no JSON, in the words that Kafka's tool passes on where there are few faults to
    make."""
    text = text.strip()
    word = re.match(r"[A-Za-z_$][\w$]*", text)
    if word and word[0] not in ("null", "true", "false"):
        return f"Unrecognized token '{word[0]}': was expecting {_NO_JSON}"
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        if error.pos >= len(text):
            kind = "Array" if text.startswith("[") else "Object"
            return f"Unexpected end-of-input: expected close marker for {kind} (start marker at {_SOURCE})"
        return f"{error.msg} (line {error.lineno}, column {error.colno})"
    except RecursionError:
        return "Document nesting depth exceeds the maximum allowed"
    return "The input string is not a valid JSON"
