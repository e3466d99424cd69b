"""Batches in worker processes, real ones that are killed meanwhile: who is appended first, and what becomes of whom."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from barnabas.broker.api.produce.batch_opener import BatchOpener
from barnabas.broker.api.produce.produce_appending import Appending
from barnabas.broker.api.produce.produce_wire import ProduceRequest
from barnabas.config.topic_config import TopicConfig
from barnabas.ports.processes import SystemProcesses, WorkerLimits
from barnabas.protocol.errors import Error
from barnabas.testing.clock import ManualClock
from tests.unit.broker.api.stand_ins import a_topic
from tests.unit.log.logs import batch
from tests.unit.replication.hosting import Hosting

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import pytest

    from barnabas.broker.api.produce.produce_wire import PartitionAnswer
    from barnabas.replication.hosted import HostedPartition

VERSION = 12
DEADLINE_S = 60.0
THOROUGH = TopicConfig(compression_type="zstd", compression_zstd_level=19, max_message_bytes=1 << 24)


def slow_batch(bytes_count: int = 1_500_000) -> memoryview:
    """One that takes a second to be compressed thoroughly."""
    words = [random.Random(number).randbytes(6).hex().encode() for number in range(3_000)]
    chosen = random.Random(1).choices(words, k=bytes_count // 12)
    return batch(b"".join(chosen))


SLOW = slow_batch()


class Broker:
    """What a broker has of its own for Produce requests, over real files and processes."""

    def __init__(self, hosting: Hosting, processes: SystemProcesses) -> None:
        self.hosting = hosting
        self.processes = processes
        self.environment: Any = SimpleNamespace(replicas=hosting.replicas, opener=BatchOpener(processes, hosting.clock))

    def partition(self, topic: str = "t") -> HostedPartition:
        return self.hosting.replicas.find_by_name(topic.encode(), 0)

    async def append(self, *batches: memoryview, topics: tuple[str, ...] = ("t",)) -> list[PartitionAnswer]:
        """What a request is answered that has one batch for each topic, or several for one."""
        named = [(topic.encode(), [(0, each)]) for topic, each in zip(topics * len(batches), batches, strict=False)]
        request = ProduceRequest(1, 1_000, None, named)
        appending = Appending(self.environment, VERSION, request, may_write_internal=False)
        if not appending.must_open_batches():
            answers = appending.append_all(None)
        else:
            async with appending.opened() as verdicts:
                answers = appending.append_all(None, verdicts)
        return [answer for _, partitions in answers for answer in partitions]

    def begin(self, *batches: memoryview, topics: tuple[str, ...] = ("t",)) -> asyncio.Task[list[PartitionAnswer]]:
        return asyncio.ensure_future(self.append(*batches, topics=topics))

    async def busy_worker(self, *, other_than: int = 0) -> int:
        """The worker that has been at work for a while."""
        while True:
            for pid in self.processes.pids:
                if pid != other_than and cpu_seconds(pid) > 0.3:
                    return pid
            await asyncio.sleep(0.01)


def cpu_seconds(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def a_broker(
    tmp_path: Path, config: TopicConfig = THOROUGH, topics: tuple[str, ...] = ("t",)
) -> AsyncIterator[Broker]:
    hosting = Hosting(tmp_path, ManualClock())
    hosting.open()
    await hosting.follow(*map(a_topic, topics))
    for hosted in hosting.replicas:
        hosted.reconfigure(config)
    processes = SystemProcesses(WorkerLimits(workers_max=2))
    try:
        async with asyncio.timeout(DEADLINE_S):
            yield Broker(hosting, processes)
    finally:
        await processes.close()
        hosting.crash()


async def turn() -> None:
    """Lets tasks that were begun come as far as they can without waiting."""
    for _ in range(3):
        await asyncio.sleep(0)


def offsets(answers: list[PartitionAnswer]) -> list[int]:
    assert [answer.error for answer in answers] == [Error.NONE] * len(answers)
    return [answer.base_offset for answer in answers]


def test_batches_are_appended_in_the_order_in_which_they_came_whichever_is_opened_first(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_broker(tmp_path) as broker:
            requests = [broker.begin(each) for each in (SLOW, *(batch(b"%d" % n) for n in range(5)))]
            answers = [offsets(answer) for answer in await asyncio.gather(*requests)]
            assert answers == [[0], [1], [2], [3], [4], [5]]

    asyncio.run(scenario())


def test_who_waits_in_several_lines_waits_for_all_before_it_and_holds_up_no_others(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_broker(tmp_path, topics=("t", "u")) as broker:
            first = broker.begin(SLOW)
            both = broker.begin(batch(b"b"), batch(b"b"), topics=("u", "t"))
            behind = broker.begin(batch(b"c"), topics=("u",))
            await turn()
            assert offsets(await behind) == [1], "it came after the one for both"
            assert first.done()
            assert offsets(await first) == [0]
            assert offsets(await both) == [0, 1]

    asyncio.run(scenario())


def test_a_request_that_is_given_up_holds_up_nobody_and_lets_nobody_pass(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_broker(tmp_path) as broker:
            first, given_up, last = broker.begin(SLOW), broker.begin(batch(b"b")), broker.begin(batch(b"c"))
            await broker.busy_worker()
            given_up.cancel()
            assert offsets(await last) == [1]
            assert first.done()
            assert broker.partition().openings == {}

    asyncio.run(scenario())


def test_batches_that_need_not_be_opened_any_more_wait_for_those_that_were(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_broker(tmp_path) as broker:
            first = broker.begin(SLOW)
            await turn()
            broker.partition().reconfigure(TopicConfig())
            assert not broker.partition().is_plain, "or requests would take the short way, past the first one"
            assert offsets(await broker.append(batch(b"later"))) == [1]
            assert offsets(await first) == [0]
            assert broker.partition().is_plain

    asyncio.run(scenario())


def test_a_batch_whose_partition_is_deleted_meanwhile_is_not_put_into_the_next_one_of_that_name(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_broker(tmp_path) as broker:
            request = broker.begin(SLOW)
            await broker.busy_worker()
            await broker.hosting.follow()
            again = a_topic("u")._replace(name="t")
            await broker.hosting.follow(again)
            (answer,) = await request
            assert answer.error == Error.UNKNOWN_TOPIC_OR_PARTITION
            assert broker.partition().log.log_end_offset == 0

    asyncio.run(scenario())


def test_a_batch_for_a_partition_that_was_not_here_is_not_appended_unopened_once_it_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_broker(tmp_path) as broker:
            request = broker.begin(SLOW, batch(b"has no key"), topics=("t", "compacted"))
            await turn()
            await broker.hosting.follow(*map(a_topic, ("t", "compacted")))
            compacted = broker.partition("compacted")
            compacted.reconfigure(TopicConfig(cleanup_policy=frozenset({"compact"})))
            first, second = await request
            assert (first.error, first.base_offset) == (Error.NONE, 0)
            assert second.error == Error.NOT_LEADER_OR_FOLLOWER, "the producer sends it again"
            assert compacted.log.log_end_offset == 0
            (again,) = await broker.append(batch(b"has no key"), topics=("compacted",))
            assert again.error == Error.INVALID_RECORD

    asyncio.run(scenario())


def test_a_leader_that_has_resigned_meanwhile_appends_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_broker(tmp_path) as broker:
            request = broker.begin(SLOW)
            await broker.busy_worker()
            broker.partition().go_offline("the folder has failed")
            (answer,) = await request
            assert answer.error == Error.KAFKA_STORAGE_ERROR
            assert broker.partition().log.log_end_offset == 0

    asyncio.run(scenario())


def test_a_worker_that_is_killed_fails_no_request(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with a_broker(tmp_path) as broker:
            first, second = broker.begin(SLOW), broker.begin(batch(b"later"))
            os.kill(await broker.busy_worker(), signal.SIGKILL)
            assert offsets(await first) == [0]
            assert offsets(await second) == [1]

    asyncio.run(scenario())
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "retrying the batches for t-0 one at a time" in line
    assert "was ended by SIGKILL" in line


def test_a_batch_that_ends_its_worker_twice_is_refused_and_the_others_of_its_request_are_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with a_broker(tmp_path, topics=("t", "u")) as broker:
            request = broker.begin(SLOW, batch(b"harmless"), topics=("t", "u"))
            first_pid = await broker.busy_worker()
            os.kill(first_pid, signal.SIGKILL)
            os.kill(await broker.busy_worker(other_than=first_pid), signal.SIGKILL)
            refused, harmless = await request
            assert (refused.error, refused.base_offset) == (Error.UNKNOWN_SERVER_ERROR, -1)
            assert "WorkerDiedError" in refused.reason
            assert (harmless.error, harmless.base_offset) == (Error.NONE, 0)
            assert broker.partition("t").log.log_end_offset == 0
            assert offsets(await broker.append(batch(b"next"))) == [0]

    asyncio.run(scenario())
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]


def test_a_worker_that_runs_out_of_memory_refuses_only_what_it_cannot_hold(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_broker(tmp_path) as broker:
            limits = WorkerLimits(workers_max=1, memory_bytes_max=120 << 20)
            processes = SystemProcesses(limits)
            broker.environment.opener = BatchOpener(processes, broker.hosting.clock)
            try:
                (refused,) = await broker.append(batch(bytes(100 << 20), codec=4))
                assert refused.error == Error.UNKNOWN_SERVER_ERROR
                assert offsets(await broker.append(batch(b"next"))) == [0]
            finally:
                await processes.close()

    asyncio.run(scenario())


def test_a_batch_that_no_worker_can_be_sent_is_too_large(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_broker(tmp_path) as broker:
            processes = SystemProcesses(WorkerLimits(workers_max=1, task_bytes_max=1 << 20))
            broker.environment.opener = BatchOpener(processes, broker.hosting.clock)
            try:
                (refused,) = await broker.append(batch(random.Random(1).randbytes(2 << 20)))
                assert refused.error == Error.MESSAGE_TOO_LARGE
            finally:
                await processes.close()

    asyncio.run(scenario())
