"""A topic that is made again under its name does not inherit where the log of the one before started."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from barnabas.protocol.uuids import Uuid
from barnabas.testing.clock import ManualClock
from tests.unit.broker.api.stand_ins import a_topic
from tests.unit.log.logs import batch, read_records
from tests.unit.replication.hosting import Hosting

if TYPE_CHECKING:
    from pathlib import Path

AGAIN = Uuid(b"the second topic")


def test_a_crash_after_a_topic_was_made_again_keeps_its_records(tmp_path: Path) -> None:
    async def scenario() -> None:
        before = Hosting(tmp_path, ManualClock())
        before.open()
        await before.follow(a_topic("t"))
        (first,) = before.replicas
        for _ in range(5):
            first.append(batch(b"old"), -1)
        first.log.advance_log_start(5)
        await before.store.checkpoint_log_starts()

        await before.follow()
        await before.follow(a_topic("t")._replace(topic_id=AGAIN))
        (second,) = before.replicas
        second.append(batch(b"acknowledged"), -1)
        before.crash()

        after = Hosting(tmp_path, ManualClock())
        after.open()
        log = after.store.claim("t", AGAIN, 0)
        assert log is not None
        assert log.log_start_offset == 0
        assert [record.value for record in read_records(log)] == [b"acknowledged"]
        after.stop()

    asyncio.run(scenario())
