"""A worker process that dies costs no request that waits for it."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from barnabas.broker.api.fetch.timestamp_search import OPENED_HERE_BYTES_MAX, TimestampSearch
from barnabas.broker.telemetry.client_instances import ClientAttributes
from barnabas.broker.telemetry.metrics_folder import SMALL_BYTES_MAX, MetricsFolder
from barnabas.broker.worker_tasks import run_in_worker
from barnabas.ports import SystemDisk
from barnabas.ports.processes import SystemProcesses, WorkerDiedError
from tests.unit.broker.api.partitions import Partitions, append
from tests.unit.ports import tasks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path


T = TypeVar("T")
GZIP = 1
METRICS_OF_A_CLIENT = b"\x0a\x02\x12\x00" * SMALL_BYTES_MAX
"""Resources without metrics, as OpenTelemetry encodes them: more than is decoded in the node itself."""


@asynccontextmanager
async def workers() -> AsyncIterator[SystemProcesses]:
    processes = SystemProcesses()
    try:
        async with asyncio.timeout(30):
            yield processes
    finally:
        await processes.close()


async def with_first_worker_killed(processes: SystemProcesses, request: Coroutine[Any, Any, T]) -> T:
    """The worker dies before it has begun."""
    asked = asyncio.ensure_future(request)
    while not processes.pids and not asked.done():  # noqa: ASYNC110 (a process that begins has no event)
        await asyncio.sleep(0)
    (pid,) = processes.pids
    os.kill(pid, signal.SIGKILL)
    return await asked


def in_thread(function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
    return asyncio.get_running_loop().run_in_executor(None, function, *arguments)


def test_a_task_whose_worker_is_killed_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with workers() as processes:
            assert await with_first_worker_killed(processes, run_in_worker(processes, tasks.total, 1, 2)) == 3

    asyncio.run(scenario())
    (warning,) = caplog.messages
    assert warning.startswith("trying once more: worker process ")
    assert "was ended by SIGKILL" in warning


def test_a_task_that_kills_its_workers_is_given_up() -> None:
    async def scenario() -> None:
        async with workers() as processes:
            with pytest.raises(WorkerDiedError):
                await run_in_worker(processes, tasks.kill_oneself)

    asyncio.run(scenario())


def test_an_offset_is_found_by_its_timestamp_though_the_worker_was_killed(tmp_path: Path) -> None:
    async def scenario() -> None:
        partitions = Partitions(tmp_path)
        hosted = partitions.add("t")
        append(hosted, list(range(1000, 1000 + OPENED_HERE_BYTES_MAX)))
        async with workers() as processes:
            search = TimestampSearch(SystemDisk(), in_thread, processes)
            found = await with_first_worker_killed(processes, search.first_since(hosted.log, 5000))
        assert found is not None
        assert (found.offset, found.timestamp) == (4000, 5000)
        partitions.close()

    asyncio.run(scenario())


def test_the_metrics_of_a_client_are_kept_though_the_worker_was_killed(tmp_path: Path) -> None:
    async def scenario() -> None:
        client = ClientAttributes("an-instance", "app", "a library", "1", "127.0.0.1", "1234")
        async with workers() as processes:
            receiver = MetricsFolder(str(tmp_path), SystemDisk(), in_thread, processes)
            await with_first_worker_killed(processes, receiver.keep(client, GZIP, gzip.compress(METRICS_OF_A_CLIENT)))
        kept = json.loads((tmp_path / "an-instance.json").read_text())
        assert len(kept["resourceMetrics"]) == SMALL_BYTES_MAX

    asyncio.run(scenario())
