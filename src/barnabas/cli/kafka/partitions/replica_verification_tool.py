"""kafka-replica-verification: compare the replicas of partitions, batch by batch, until somebody ends it."""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import TYPE_CHECKING, Final

from barnabas.cli.kafka.admin_access import admin_at, asking_by_name
from barnabas.cli.kafka.cluster_access import check_servers
from barnabas.cli.kafka.flags import HELP, VERSION, Flag, Flags, Given
from barnabas.cli.kafka.partitions.replica_comparison import ComparisonError, compare_replicas
from barnabas.cli.kafka.tool import EXIT_FAILED, ToolError, print_help, print_version, warn
from barnabas.cli.kafka.topics.include_list import EVERY_TOPIC, IncludeList
from barnabas.client.admin.records import find_offsets
from barnabas.client.admin.replica_batches import FetchSize, ReplicaBatches, fetch_headers
from barnabas.client.admin.topics import TopicState, describe_topics, list_topics
from barnabas.client.offset_queries import LATEST
from barnabas.protocol.errors import KafkaError

if TYPE_CHECKING:
    from barnabas.client.cluster import Cluster, TopicPartition

SUMMARY: Final = "Validate that all replicas for a set of topics have the same data."
DEPRECATED: Final = "This tool is deprecated and may be removed in a future major release."
NO_TOPICS: Final = (
    "No topics found. [topics-include] if specified, is either filtering out all topics or there is no topic."
)
_NO_OFFSET: Final = -1

FLAGS: Final = Flags(
    Flag(("broker-list",), "The brokers to connect to, as host:port. Required.", "hostname:port,...,hostname:port"),
    Flag(("fetch-size",), "How many bytes of a partition to fetch at a time.", "bytes", default="1048576"),
    Flag(("max-wait-ms",), "How long a broker may wait for records.", "ms", default="1000"),
    Flag(("topics-include",), "The topics, as a regular expression.", "Java regex (String)", default=EVERY_TOPIC),
    Flag(("topic-white-list",), "What --topics-include was called once.", "Java regex (String)", is_hidden=True),
    Flag(
        ("time",),
        "Where to begin: at a time in milliseconds since 1970, at the end (-1, the default) or at the beginning (-2).",
        "timestamp/-1(latest)/-2(earliest)",
        default=str(LATEST),
    ),
    Flag(("report-interval-ms",), "How often to say how far it has come.", "ms", default="30000"),
    HELP,
    VERSION,
)


def run(words: list[str]) -> int:
    warn(DEPRECATED)
    given = FLAGS.read(words)
    if not words or given.has("help"):
        return print_help(SUMMARY, FLAGS.help_text())
    if given.has("version"):
        return print_version()
    FLAGS.check_required(given, "broker-list")
    servers = given.required("broker-list")
    check_servers(servers)
    with admin_at(servers) as cluster:
        return verify(cluster, given)


def verify(cluster: Cluster, given: Given) -> int:
    """Runs until somebody ends it, or replicas have different offsets."""
    topics = topics_meant(cluster, given.text("topic-white-list") or given.required("topics-include"))
    verification = Verification(cluster, topics, start_of(cluster, topics, given), _size(given))
    interval_ms = given.long("report-interval-ms") or 0
    print(f"{_now()}: verification process is started", flush=True)
    reported = time.monotonic()
    while True:
        try:
            for line in verification.go_on():
                print(f"{_now()}: {line}", flush=True)
        except ComparisonError as error:
            print(f"{_now()}: {error}", flush=True)
            return EXIT_FAILED
        if (time.monotonic() - reported) * 1000 > interval_ms:
            print(f"{_now()}: {verification.progress}", flush=True)
            reported = time.monotonic()


def topics_meant(cluster: Cluster, pattern: str) -> list[TopicState]:
    with asking_by_name("listTopics"):
        names = [topic.name for topic in list_topics(cluster)]
        described = describe_topics(cluster, names)
        for outcome in described.values():
            if isinstance(outcome, KafkaError):
                raise outcome
    try:
        re.compile(pattern)
    except re.error:
        raise ToolError(f"{pattern} is an invalid regex") from None
    wanted = IncludeList(pattern)
    found = [each for each in described.values() if isinstance(each, TopicState) and wanted.allows(each.name)]
    if not found:
        raise ToolError(NO_TOPICS)
    return found


def start_of(cluster: Cluster, topics: list[TopicState], given: Given) -> dict[TopicPartition, int]:
    """Where to begin in each partition: at its end where it has no record of that time."""
    places = [(topic.name, each.partition) for topic in topics for each in topic.partitions]
    time_ms = given.long("time")
    assert time_ms is not None, "it has a default"
    offsets: dict[TopicPartition, int] = {}
    with asking_by_name("listOffsets"):
        for which in (time_ms, LATEST):
            rest = [place for place in places if offsets.get(place, _NO_OFFSET) == _NO_OFFSET]
            for place, offset in find_offsets(cluster, rest, which).items():
                if isinstance(offset, KafkaError):
                    raise offset
                offsets[place] = offset
    return offsets


class Verification:
    """Where the replicas have been compared up to."""

    def __init__(
        self, cluster: Cluster, topics: list[TopicState], offsets: dict[TopicPartition, int], size: FetchSize
    ) -> None:
        self._cluster = cluster
        self._offsets = offsets
        self._size = size
        self._topic_ids = {topic.name: topic.topic_id for topic in topics}
        self._hosted: dict[int, list[TopicPartition]] = {}
        """The partitions of each broker."""
        for topic in topics:
            for each in topic.partitions:
                for broker_id in each.replicas:
                    self._hosted.setdefault(broker_id, []).append((topic.name, each.partition))
        self.progress = ""

    def go_on(self) -> list[str]:
        """Compare what comes next of all partitions: what is wrong with them."""
        fetched: dict[TopicPartition, dict[int, ReplicaBatches]] = {place: {} for place in self._offsets}
        for broker_id, places in self._hosted.items():
            wanted = {place: self._offsets[place] for place in places}
            with asking_by_name("fetch"):
                answers = fetch_headers(self._cluster, broker_id, wanted, self._topic_ids, self._size)
            for place, batches in answers.items():
                if isinstance(batches, ReplicaBatches):
                    fetched[place][broker_id] = batches
        problems: list[str] = []
        lags: list[tuple[int, TopicPartition]] = []
        for place, replicas in fetched.items():
            end, found = compare_replicas(place, self._offsets[place], replicas)
            problems += found
            self._offsets[place] = end
            lags.append((max((each.high_watermark for each in replicas.values()), default=end) - end, place))
        lag, (topic, partition) = max(lags)
        self.progress = (
            f"max lag is {lag} for partition {topic}-{partition} at offset {self._offsets[topic, partition]} "
            f"among {len(self._offsets)} partitions"
        )
        return problems


def _size(given: Given) -> FetchSize:
    partition_bytes, wait_ms = given.integer("fetch-size"), given.integer("max-wait-ms")
    assert partition_bytes is not None, "it has a default"
    assert wait_ms is not None, "it has a default"
    return FetchSize(partition_bytes, wait_ms)


def _now() -> str:
    return datetime.now().isoformat(sep=" ", timespec="milliseconds").replace(".", ",")  # noqa: DTZ005 - local, as Kafka's
