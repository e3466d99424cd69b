"""What can be seen of a pipeline from outside: what it has written, and how far behind its group is."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import Consumer, TopicPartition

DEADLINE_S: Final = 10
MESSAGES_AT_A_TIME: Final = 10_000
HASHTAG: Final = re.compile(r"#(\w+)")


@dataclass(frozen=True)
class Sample:
    """One look at the pipeline."""

    seconds: float
    produced: int
    written: int
    lag: int


@dataclass
class Output:
    """The popular tweets that a `read_committed` consumer has seen."""

    ids: Counter[int] = field(default_factory=Counter)
    hashtags: Counter[str] = field(default_factory=Counter)

    def add(self, tweet: dict[str, object]) -> None:
        self.ids[int(str(tweet["id"]))] += 1
        self.hashtags.update(set(HASHTAG.findall(str(tweet["text"]).lower())))

    @property
    def twice(self) -> int:
        return sum(count - 1 for count in self.ids.values())


class Watch:
    """Reads what the pipeline writes and looks up its group's offsets, again and again."""

    def __init__(self, bootstrap: str, source: str, group: str, output: str) -> None:
        self.output = Output()
        self.samples: list[Sample] = []
        self._started = time.monotonic()
        self._group = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
        self._reader = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "demo-watch",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self._source = self._places(source)
        self._reader.assign(self._places(output))

    def _places(self, topic: str) -> list[TopicPartition]:
        found = self._group.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions
        return [TopicPartition(topic, partition, 0) for partition in found]

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def look(self, wait_s: float) -> Sample:
        """Reads for this long, then takes a sample."""
        until = time.monotonic() + wait_s
        while (left := until - time.monotonic()) > 0:
            for message in self._reader.consume(MESSAGES_AT_A_TIME, timeout=left):
                value = message.value()
                if message.error() is None and value is not None:
                    self.output.add(json.loads(value))
        produced = sum(
            self._group.get_watermark_offsets(place, timeout=DEADLINE_S, cached=False)[1] for place in self._source
        )
        done = sum(max(place.offset, 0) for place in self._group.committed(self._source, timeout=DEADLINE_S))
        sample = Sample(self.seconds, produced, self.output.ids.total(), produced - done)
        self.samples.append(sample)
        return sample

    def close(self) -> None:
        self._group.close()
        self._reader.close()
