"""What stays for as long as the node is not looked through for garbage again, and what goes needs no such search."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING

import pytest

from barnabas.log.partition_log import PartitionLog
from barnabas.node.process import PARTITIONS_TO_SETTLE, SettledPartitions
from barnabas.testing.clock import ManualClock
from tests.unit.broker.api.stand_ins import a_topic
from tests.unit.log.logs import batch
from tests.unit.replication.hosting import Hosting

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def _without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.unfreeze()
    gc.enable()


def settled_after(settled: SettledPartitions, partitions: list[int], count: int) -> bool:
    partitions[:] = range(count)
    before = gc.get_freeze_count()
    new = [[count]]
    settled.look()
    return gc.get_freeze_count() > before and bool(new)


@pytest.mark.usefixtures("_without_collector")
def test_partitions_that_come_are_settled_by_the_thousand() -> None:
    partitions = [*range(7)]
    settled = SettledPartitions(partitions)
    assert not settled_after(settled, partitions, 6 + PARTITIONS_TO_SETTLE)
    assert settled_after(settled, partitions, 7 + PARTITIONS_TO_SETTLE)
    assert not settled_after(settled, partitions, 8 + PARTITIONS_TO_SETTLE)
    assert not settled_after(settled, partitions, 3)
    assert settled_after(settled, partitions, 3 + PARTITIONS_TO_SETTLE), "those that have gone do not count"


@pytest.mark.usefixtures("_without_collector")
def test_logs_of_a_deleted_topic_are_gone_without_a_search_for_garbage(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosting = Hosting(tmp_path, ManualClock())
        hosting.open()
        await hosting.follow(a_topic("t", partitions=3))
        for index in range(3):
            hosting.replicas.find_by_name(b"t", index).append(batch(b"x"), acks=1)
        await hosting.follow()
        hosting.stop()

    before = sum(isinstance(each, PartitionLog) for each in gc.get_objects())
    asyncio.run(scenario())
    assert sum(isinstance(each, PartitionLog) for each in gc.get_objects()) == before
