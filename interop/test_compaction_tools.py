"""Compaction through Kafka's own tools, as the books show it: typed line by line, and waited for as a reader would."""

from __future__ import annotations

import re
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.clients.with_confluent import ConfluentClient
from tests.peers import wait_until
from tools import apache_kafka

from interop.kafka_tools import MAIN_CLASSES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.peers import Peer

    from interop.kafka_tools import KafkaTools

SALARIES = "employee-salary"
SEGMENT_S = 5.0
CLEANED_S_MAX = 90.0
"""A cleaner looks every 15 s."""
SHOW_KEYS = ("--formatter-property", "print.key=true", "--formatter-property", "key.separator=,")


def send(tools: KafkaTools, *lines: str) -> None:
    keyed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=,")
    tools.run("kafka-console-producer", "--topic", SALARIES, *keyed, input="".join(f"{line}\n" for line in lines))


@contextmanager
def console_consumer(tools: KafkaTools, printed: Path) -> Iterator[None]:
    """One that stays, and prints to a file."""
    consume = ("--bootstrap-server", tools.bootstrap, "--topic", SALARIES, "--from-beginning")
    command = [*apache_kafka.java_command(), MAIN_CLASSES["kafka-console-consumer"], *consume, *SHOW_KEYS]
    with printed.open("w") as out, subprocess.Popen(command, stdout=out) as process:
        try:
            yield
        finally:
            process.terminate()


@pytest.mark.timeout(300)
def test_a_consumer_that_stays_sees_every_salary_and_a_later_one_the_newest(
    tools: KafkaTools, peer: Peer, tmp_path: Path
) -> None:
    config = ("cleanup.policy=compact", "min.cleanable.dirty.ratio=0.001", f"segment.ms={int(SEGMENT_S * 1000)}")
    created = ("--topic", SALARIES, "--partitions", "1", "--replication-factor", "1")
    tools.run("kafka-topics", "--create", *created, *(word for each in config for word in ("--config", each)))
    stayed = tmp_path / "stayed.txt"
    with console_consumer(tools, stayed):
        send(tools, "A,1000", "B,1000", "C,1000")
        begun = time.monotonic()
        send(tools, "A,2000", "B,2000", "b,3000")
        wait_until(lambda: len(stayed.read_text().splitlines()) >= 6, "the consumer has seen six")
    assert stayed.read_text().splitlines() == ["A,1000", "B,1000", "C,1000", "A,2000", "B,2000", "b,3000"]

    wait_until(lambda: time.monotonic() - begun > SEGMENT_S, "the segment is old enough")
    send(tools, "D,4000")
    folder = peer.data_dir / f"{SALARIES}-0"
    assert len(list(folder.glob("*.log"))) == 2, "the message has rolled the segment"
    first = folder / f"{0:020}.log"
    size = first.stat().st_size
    wait_until(lambda: first.stat().st_size < size, "the log is compacted", CLEANED_S_MAX)
    reading = ("--topic", SALARIES, "--from-beginning", "--max-messages", "5")
    offsets = ("--formatter-property", "print.offset=true")
    assert tools.run("kafka-console-consumer", *reading, *SHOW_KEYS, *offsets).splitlines() == [
        "Offset:2,C,1000",
        "Offset:3,A,2000",
        "Offset:4,B,2000",
        "Offset:5,b,3000",
        "Offset:6,D,4000",
    ]
    dumped = apache_kafka.dump_log(first)
    assert "isvalid: false" not in dumped
    assert re.findall(r"\| offset: (\d+) ", dumped) == ["2", "3", "4", "5"]
    assert re.findall(r"baseOffset: (\d+) lastOffset: (\d+) ", dumped)[-1][1] == "5"


def test_kafka_topics_describes_the_topic_of_committed_offsets(tools: KafkaTools, topic: str, group: str) -> None:
    ConfluentClient(tools.bootstrap).create_topic(topic)
    tools.run("kafka-console-producer", "--topic", topic, input="a line\n")
    tools.run("kafka-console-consumer", "--topic", topic, "--group", group, "--from-beginning", "--max-messages", "1")
    described = tools.run("kafka-topics", "--describe", "--topic", "__consumer_offsets")
    first, *partitions = described.splitlines()
    assert "\tPartitionCount: 50\t" in first
    assert len(partitions) == 50
    settings = set(first.rpartition("Configs: ")[2].split(","))
    assert settings >= {"compression.type=producer", "cleanup.policy=compact", "segment.bytes=104857600"}
