"""Which threads wait for whom: what is slow to write keeps no reader from its pages."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, cast

from barnabas.broker.broker import Broker, BrokerEnvironment
from barnabas.net.parts import FilePart
from barnabas.ports import SystemClock, SystemDisk, SystemNetwork, SystemProcesses, SystemRandom, SystemThreads
from barnabas.raft.image_publisher import ImagePublisher
from tests.unit.broker.api.stand_ins import CLUSTER_ID, ScriptedChannel, a_config, no_controller

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from pathlib import Path

    from barnabas.net.parts import SendableFile

DEADLINE_S = 20.0


class OpenedFile:
    """A file that a part holds while it is warmed."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDONLY)

    def acquire(self) -> OpenedFile:
        return self


def a_whole_broker(folder: Path) -> Broker:
    return Broker(
        a_config(folder),
        BrokerEnvironment(
            CLUSTER_ID,
            (),
            (),
            str(folder),
            ImagePublisher(CLUSTER_ID),
            ScriptedChannel(no_controller),
            SystemClock(),
            SystemDisk(),
            SystemNetwork(),
            SystemRandom(),
            SystemThreads(),
            SystemProcesses(),
            lambda _: None,
            lambda _: None,
            lambda _: None,
        ),
    )


def test_cold_pages_are_read_while_every_writing_thread_waits_for_a_slow_disk(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = a_whole_broker(tmp_path)

        async def take_step(step: Awaitable[None]) -> None:
            await step

        is_synced = threading.Event()
        syncs = [
            broker.run_in_thread(is_synced.wait, DEADLINE_S) for _ in range(10 * a_config(tmp_path).background_threads)
        ]
        path = tmp_path / "segment"
        path.write_bytes(b"x" * 100_000)
        file = OpenedFile(path)
        warmed = asyncio.Event()
        part = FilePart(cast("SendableFile", file), 0, 100_000, is_cold=True)
        try:
            broker.warm([part], lambda _: warmed.set())
            async with asyncio.timeout(DEADLINE_S / 2):
                await warmed.wait()
        finally:
            is_synced.set()
            await asyncio.gather(*syncs)
            await broker.leave(take_step)
            broker.release()
            os.close(file.fd)

    asyncio.run(scenario())
