"""What the example pipelines share: their command line, filling and reading topics, streams from and to topics.

An example is told where the cluster is, creates its topics, generates events from a seed, runs its queries on Spark and
prints the result:

    python -m examples.word_count --bootstrap localhost:9092 --once

Events are dataclasses. In a topic they are JSON objects with times in ISO 8601.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import tempfile
import threading
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from barnabas.cli.command_line import DEFAULT_BOOTSTRAP_SERVER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from confluent_kafka import Message
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

DEADLINE_S = 30
CONNECT_S = 10
QUIET = 2
"""The log level at which librdkafka does not report attempts to connect."""
POLL_S = 1


class Record(NamedTuple):
    """One record of a topic. By default its timestamp is the time at which it is produced."""

    key: str | None
    value: str | None
    timestamp_ms: int | None = None


@dataclass(frozen=True)
class Arguments:
    """The arguments of every example. `extra` has the options of a single one."""

    bootstrap: str
    events: int
    seed: int
    checkpoint: str
    once: bool
    master: str | None
    extra: argparse.Namespace


def parse_arguments(
    name: str, about: str, *, events: int, folders: Mapping[str, str] | None = None, argv: Sequence[str] | None = None
) -> Arguments:
    """The command line of an example. `folders` are required options for its Parquet files, with their help texts."""
    parser = argparse.ArgumentParser(prog=f"python -m examples.{name}", description=about, allow_abbrev=False)
    parser.add_argument("--bootstrap", default=DEFAULT_BOOTSTRAP_SERVER, help="the cluster (default %(default)s)")
    parser.add_argument("--events", type=int, default=events, help="how many to generate (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same events (default %(default)s)")
    parser.add_argument("--checkpoint", help="folder for the checkpoints of the queries (default: a new one)")
    parser.add_argument("--once", action="store_true", help="stop when everything that is there has been processed")
    parser.add_argument("--master", help="Spark's master, as in spark://host:7077 (default: all cores of this machine)")
    for folder, purpose in (folders or {}).items():
        parser.add_argument(f"--{folder}", required=True, help=purpose)
    given = parser.parse_args(argv)
    checkpoint = given.checkpoint or tempfile.mkdtemp(prefix=f"{name}-")
    return Arguments(given.bootstrap, given.events, given.seed, in_full(checkpoint), given.once, given.master, given)


def in_full(folder: str) -> str:
    """A checkpoint is identified by its location, so a relative path is made absolute. URIs such as hdfs://host/folder
    are left unchanged."""
    return folder if urlsplit(folder).scheme else os.path.abspath(folder)


def create_topics(bootstrap: str, topics: Iterable[str], *, partitions: int = 2, **settings: str) -> None:
    """Creates the topics that do not exist yet, with topic settings such as `cleanup_policy="compact"`."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": QUIET})
    try:
        admin.list_topics(timeout=CONNECT_S)
    except KafkaException:
        raise SystemExit(
            f"no broker answers at {bootstrap}: start a node with `barnabas start`, or name another with --bootstrap"
        ) from None
    config = {name.replace("_", "."): value for name, value in settings.items()}
    made = admin.create_topics([NewTopic(topic, partitions, config=config) for topic in topics])
    for done in made.values():
        try:
            done.result(DEADLINE_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def as_json(event: Any) -> str:
    """A dataclass as a JSON object."""
    return json.dumps(asdict(event), default=datetime.isoformat)


def produce(bootstrap: str, topic: str, records: Iterable[tuple[str | None, str | None, int | None]]) -> int:
    """Writes (key, value, timestamp in ms) in this order, partitioned as by the Java client; returns how many."""
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        del message
        if error is not None:
            failures.append(error)

    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "partitioner": "murmur2_random", "linger.ms": 5}
    )
    count = 0
    for key, value, timestamp_ms in records:
        while True:
            try:
                producer.produce(topic, value, key, on_delivery=delivered, timestamp=timestamp_ms or 0)
                break
            except BufferError:
                producer.poll(1)
        producer.poll(0)
        count += 1
    if producer.flush(DEADLINE_S) or failures:
        raise KafkaException(failures[0] if failures else KafkaError(KafkaError._MSG_TIMED_OUT))  # noqa: SLF001
    return count


def read_topic(bootstrap: str, topic: str) -> list[Record]:
    """All committed records of a topic, in order within each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "examples",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        return [
            Record(text(message.key()), text(message.value()), message.timestamp()[1])
            for message in messages(consumer, topic)
        ]
    finally:
        consumer.close()


def messages(consumer: Consumer, topic: str) -> Iterator[Message]:
    """From the first record of each partition until every partition has been read to its end."""
    partitions = consumer.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions
    unfinished = set(partitions)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    while unfinished:
        message = consumer.poll(DEADLINE_S)
        if message is None:
            raise KafkaException(KafkaError(KafkaError._MSG_TIMED_OUT, f"{topic} was not read to its end in time"))  # noqa: SLF001
        error = message.error()
        if error is None:
            yield message
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
            unfinished.discard(message.partition())
        else:
            raise KafkaException(error)


def text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def read_json(bootstrap: str, topic: str) -> list[tuple[str | None, dict[str, Any]]]:
    """Keys and values of a topic of JSON objects.

    A pipeline that was started over has written its results again: of several with the same key, the last one counts.
    """
    return [(key, json.loads(value)) for key, value, _ in read_topic(bootstrap, topic) if value is not None]


def read_stream(spark: SparkSession, bootstrap: str, *topics: str, **options: object) -> DataFrame:
    """Topics from their first record on, without the records of aborted transactions."""
    source = spark.readStream.format("barnabas").option("kafka.bootstrap.servers", bootstrap)
    source = source.option("subscribe", ",".join(topics)).option("startingOffsets", "earliest")
    source = source.option("kafka.isolation.level", "read_committed")
    for name, value in options.items():
        source = source.option(name, str(value))
    return source.load()


def write_stream(
    frame: DataFrame, bootstrap: str, topic: str, checkpoint: str, *, mode: str = "append"
) -> DataStreamWriter:
    """Writes the rows of `to_topic` exactly once. No two queries may share a checkpoint, which identifies a query."""
    sink = frame.writeStream.format("barnabas").option("kafka.bootstrap.servers", bootstrap).option("topic", topic)
    return sink.option("checkpointLocation", checkpoint).outputMode(mode)


def run(writers: Sequence[DataStreamWriter], *, once: bool) -> list[StreamingQuery]:
    """Runs queries until Ctrl-C or, with `once`, until each has processed everything that is there when its turn comes.

    `once` runs them one after the other, so a query that reads what another one writes must come after it. Besides,
    many queries that start at the same moment take long on a small machine, and Spark does not wait long for their
    Python workers.
    """
    return [run_to_end(writer) for writer in writers] if once else run_side_by_side(writers)


def run_to_end(writer: DataStreamWriter) -> StreamingQuery:
    query = writer.trigger(availableNow=True).start()
    try:
        while not query.awaitTermination(POLL_S):
            pass
    finally:
        query.stop()
    return query


def run_side_by_side(writers: Sequence[DataStreamWriter]) -> list[StreamingQuery]:
    """If one of the queries fails, all are stopped and its error is raised."""
    queries: list[StreamingQuery] = []
    with ctrl_c_noted() as is_asked_to_end:
        try:
            for writer in writers:
                queries.append(writer.start())  # noqa: PERF401 (so that it is stopped if the next one fails to start)
            while still_active(queries) and not is_asked_to_end.wait(POLL_S):
                pass
        finally:
            for query in queries:
                query.stop()
    return queries


@contextlib.contextmanager
def ctrl_c_noted() -> Iterator[threading.Event]:
    """Turns Ctrl-C into an event: a KeyboardInterrupt in the middle of a call to Java would print pages of traces."""
    pressed = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: pressed.set())
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


def still_active(queries: Sequence[StreamingQuery]) -> list[StreamingQuery]:
    active = [query for query in queries if query.isActive]
    for query in queries:
        if (failure := query.exception()) is not None:
            raise failure
    return active
