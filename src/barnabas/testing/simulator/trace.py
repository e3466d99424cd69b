"""What happened in a run, line by line, in simulated seconds. Equal seeds give equal traces, byte for byte.

A run is traced only when the trace will be read: a seed that fails is run again, does the same again, and is looked at
after every single event. What is noted: faults, lives of nodes, roles in the metadata quorum, every change of a
partition's leader, ISR and ELR, fencing, what nodes log, and what clients say of themselves.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from barnabas.metadata.image import BrokerImage, MetadataImage, PartitionImage
    from barnabas.testing.event_loop import Scheduler
    from barnabas.testing.simulator.cluster import SimulatedCluster

LINES_MAX: Final = 1_000_000
NOBODY: Final = -1


class Trace:
    """`note` costs nothing worth mentioning unless the trace is on."""

    def __init__(self, scheduler: Scheduler, *, is_on: bool) -> None:
        self.is_on = is_on
        self.lines: list[str] = []
        self._scheduler = scheduler

    def note(self, who: str, what: str) -> None:
        if self.is_on and len(self.lines) < LINES_MAX:
            self.lines.append(f"{self._scheduler.now:10.4f}  {who:<12}  {what}")


class LogLines(logging.Handler):
    """Puts what nodes log into a trace, each line under the name of the machine whose loop is running."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(logging.INFO)
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        loop = asyncio._get_running_loop()  # noqa: SLF001
        who = str(getattr(loop, "name", "outside")).partition("/")[0]
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += f" ({record.exc_info[1]!r})"
        self._trace.note(who, f"{record.levelname.lower()}: {text}")


class Watcher:
    """Looks at all nodes after every event, and notes what has changed. Changes nothing itself."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._image: MetadataImage | None = None
        self._roles: dict[int, str] = {}

    def look(self) -> None:
        for node in self._cluster.live_nodes:
            image = node.image
            if image is not None and image is not self._image and self._is_news(image):
                before, self._image = self._image, image
                for line in changes(before, image):
                    self._cluster.trace.note("METADATA", line)
            if (quorum := node.quorum) is not None:
                core = quorum.driver.core
                role = f"{core.role.name.lower()} in epoch {core.epoch}"
                if self._roles.get(node.id) != role:
                    self._roles[node.id] = role
                    self._cluster.trace.note(node.name, f"quorum: {role}")

    def _is_news(self, image: MetadataImage) -> bool:
        return self._image is None or image.offset > self._image.offset


def changes(before: MetadataImage | None, after: MetadataImage) -> Iterator[str]:
    """One line for each broker and partition that changed, in the order of their names."""
    brokers = before.brokers if before is not None else {}
    for node_id in sorted({*brokers, *after.brokers}):
        old, new = brokers.get(node_id), after.brokers.get(node_id)
        if old != new:
            yield f"broker {node_id}: {_broker(old)} → {_broker(new)}"
    for topic in sorted(after.topics, key=lambda topic: topic.name):
        old_topic = before.topics.get(topic.name) if before is not None else None
        if topic is old_topic:
            continue
        former = dict(enumerate(old_topic.partitions if old_topic is not None else ()))
        for index, partition in enumerate(topic.partitions):
            if former.get(index) != partition:
                yield f"{topic.name}-{index}: {_partition(former.get(index))} → {_partition(partition)}"


def _broker(broker: BrokerImage | None) -> str:
    if broker is None:
        return "unknown"
    state = "fenced" if broker.fenced else "shutting down" if broker.in_controlled_shutdown else "active"
    return f"{state} in epoch {broker.epoch}"


def _partition(partition: PartitionImage | None) -> str:
    if partition is None:
        return "nothing"
    leader = "no leader" if partition.leader == NOBODY else f"leader {partition.leader}"
    elr = f" ELR {_ids(partition.elr)}" if partition.elr else ""
    return f"{leader} epoch {partition.leader_epoch} ISR {_ids(partition.isr)}{elr}"


def _ids(node_ids: Iterable[int]) -> str:
    return ",".join(map(str, node_ids)) or "∅"
