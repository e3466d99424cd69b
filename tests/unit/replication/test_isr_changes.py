"""Proposals of who is in sync: together in one request, one request at a time, until there is an answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.replication.isr_changes import IsrChanges
from barnabas.replication.partition import BrokerId, ClusterView, LeaderEpoch, Pulse
from barnabas.testing.event_loop import Scheduler
from tests.unit.broker.api.partitions import Partitions
from tests.unit.log.logs import batch
from tests.unit.replication.hosting import Waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.replication.hosted import HostedPartition


ME, OTHER = BrokerId(1), BrokerId(2)
REPLICAS = (ME, OTHER)
LAG_MS = 1000
OWN_EPOCH = 31


class Controller:
    """Answers when it is told to, with what it is told to."""

    def __init__(self) -> None:
        self.requests: list[m.AlterPartitionRequest] = []
        self.answer: Callable[[m.AlterPartitionRequest.PartitionData], int] = lambda _wanted: Error.NONE
        self.error_code = int(Error.NONE)
        self.failures = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def send(self, request: Any) -> m.AlterPartitionResponse:
        self.requests.append(request)
        await self.gate.wait()
        if self.failures:
            self.failures -= 1
            raise ConnectionError("nobody is there")
        if self.error_code:
            error_code, self.error_code = self.error_code, int(Error.NONE)
            return m.AlterPartitionResponse(error_code=error_code)
        topics = []
        for topic in request.topics:
            partitions = []
            for wanted in topic.partitions:
                result = m.AlterPartitionResponse.PartitionData(partition_index=wanted.partition_index)
                result.error_code = self.answer(wanted)
                result.leader_id, result.leader_epoch = ME, wanted.leader_epoch
                result.isr = [each.broker_id for each in wanted.new_isr_with_epochs]
                result.partition_epoch = wanted.partition_epoch + 1
                partitions.append(result)
            topics.append(m.AlterPartitionResponse.TopicData(topic_id=topic.topic_id, partitions=partitions))
        return m.AlterPartitionResponse(topics=topics)

    def named(self) -> list[list[int]]:
        return [
            [each.partition_index for topic in request.topics for each in topic.partitions] for request in self.requests
        ]


class WaitingForCommit(Waiting):
    """As a producer with acks=all does."""

    def __init__(self, hosted: HostedPartition, end_offset: int) -> None:
        super().__init__()
        self._hosted = hosted
        self._end_offset = end_offset

    def is_ready(self) -> bool:
        return self._hosted.outcome(self._end_offset, 1) is not None


class House:
    """Partitions that are led here, with a follower that is in sync or not."""

    def __init__(self, folder: Any, count: int, *isr: BrokerId) -> None:
        self.scheduler = Scheduler()
        self.loop = self.scheduler.new_loop("node")
        self.view = ClusterView(LAG_MS)
        self.view.active_brokers = {ME: OWN_EPOCH, OTHER: 32}
        self.now_s = 0.0
        self.loop.run(self._make(folder, count, isr), limit_s=1)

    async def _make(self, folder: Any, count: int, isr: tuple[BrokerId, ...]) -> None:
        self.controller = Controller()
        self.changes = IsrChanges(ME, self.controller, lambda: OWN_EPOCH, self.view, self.loop)
        made = Partitions(folder)
        self.partitions: list[HostedPartition] = []
        for index in range(count):
            hosted = made.add("t", index)
            hosted.state.view = self.view
            hosted.log.clock = self
            hosted.state.follow_metadata(ME, LeaderEpoch(1), 1, REPLICAS, isr or (ME,), 0)
            hosted.isr_changes = self.changes
            self.partitions.append(hosted)

    def now_ms(self) -> int:
        return int(self.scheduler.now * 1000) + 1_700_000_000_000

    def monotonic(self) -> float:
        return self.scheduler.now

    def fetch(self, *indexes: int, broker_epoch: int = 32) -> None:
        async def fetch_all() -> None:
            for index in indexes:
                hosted = self.partitions[index]
                hosted.follower_fetched(
                    OTHER,
                    hosted.log.log_end_offset,
                    log_start_offset=0,
                    broker_epoch=broker_epoch,
                    pulse=Pulse(hosted.monotonic_ms()),
                )

        self.loop.run(fetch_all(), limit_s=1)

    def call(self, function: Callable[[], object]) -> None:
        async def call() -> None:
            function()

        self.loop.run(call(), limit_s=1)

    def run_until(self, is_reached: Callable[[], bool]) -> None:
        self.scheduler.run_until(is_reached, limit_s=10)

    def isr(self, index: int = 0) -> set[BrokerId]:
        return set(self.partitions[index].state.isr)


def test_a_follower_that_has_caught_up_is_admitted_with_its_epoch(tmp_path: Any) -> None:
    house = House(tmp_path, 1)
    house.fetch(0)
    house.run_until(lambda: house.isr() == {ME, OTHER})
    (request,) = house.controller.requests
    assert (request.broker_id, request.broker_epoch) == (ME, OWN_EPOCH)
    wanted = request.topics[0].partitions[0]
    assert (wanted.leader_epoch, wanted.partition_epoch) == (1, 1)
    assert [(each.broker_id, each.broker_epoch) for each in wanted.new_isr_with_epochs] == [
        (ME, OWN_EPOCH),
        (OTHER, 32),
    ]


def test_what_comes_while_a_request_is_under_way_goes_together_in_the_next(tmp_path: Any) -> None:
    house = House(tmp_path, 5)
    house.controller.gate.clear()
    house.fetch(0)
    house.run_until(lambda: len(house.controller.requests) == 1)
    house.fetch(1, 2, 3, 4)
    house.call(house.controller.gate.set)
    house.run_until(lambda: all(house.isr(index) == {ME, OTHER} for index in range(5)))
    assert house.controller.named() == [[0], [1, 2, 3, 4]]


@pytest.mark.parametrize("trouble", ["no answer", "stale broker epoch", "an error that may pass"])
def test_a_proposal_is_repeated_until_it_is_answered(tmp_path: Any, trouble: str) -> None:
    house = House(tmp_path, 1)
    if trouble == "no answer":
        house.controller.failures = 3
    elif trouble == "stale broker epoch":
        house.controller.error_code = Error.STALE_BROKER_EPOCH
    else:
        answers = iter([Error.UNKNOWN_SERVER_ERROR])
        house.controller.answer = lambda _wanted: next(answers, Error.NONE)
    house.fetch(0)
    house.run_until(lambda: house.isr() == {ME, OTHER})
    assert len(house.controller.requests) == (4 if trouble == "no answer" else 2)


def test_what_the_metadata_has_to_settle_is_not_asked_again(tmp_path: Any) -> None:
    house = House(tmp_path, 1)
    house.controller.answer = lambda _wanted: Error.INVALID_UPDATE_VERSION
    house.fetch(0)
    house.scheduler.run_for(5)
    assert len(house.controller.requests) == 1
    assert house.isr() == {ME}


def test_an_ineligible_follower_is_proposed_again_later(tmp_path: Any) -> None:
    house = House(tmp_path, 1)
    answers = iter([Error.INELIGIBLE_REPLICA] * 2)
    house.controller.answer = lambda _wanted: next(answers, Error.NONE)
    house.fetch(0)
    house.run_until(lambda: house.isr() == {ME, OTHER})
    assert len(house.controller.requests) == 3


def test_a_follower_that_was_fenced_is_proposed_when_it_is_not_any_more(tmp_path: Any) -> None:
    house = House(tmp_path, 1)
    house.view.active_brokers = {ME: OWN_EPOCH}
    house.fetch(0)
    house.scheduler.run_for(5)
    assert house.controller.requests == []
    house.view.active_brokers = {ME: OWN_EPOCH, OTHER: 32}
    house.call(house.changes.brokers_changed)
    house.run_until(lambda: house.isr() == {ME, OTHER})


def test_only_partitions_that_were_written_to_are_looked_at_for_followers_that_lag(tmp_path: Any) -> None:
    house = House(tmp_path, 3, ME, OTHER)
    house.fetch(0, 1, 2)
    house.call(lambda: house.partitions[1].append(batch(b"v"), 1))
    house.run_until(lambda: house.isr(1) == {ME})
    assert house.controller.named() == [[1]]
    assert 1.0 <= house.scheduler.now <= 2.1
    assert house.partitions[1].state.high_watermark.offset == 1
    assert house.isr(0) == house.isr(2) == {ME, OTHER}


def test_a_partition_that_is_no_longer_led_here_is_forgotten(tmp_path: Any) -> None:
    house = House(tmp_path, 1)
    house.controller.failures = 1000
    house.fetch(0)
    house.run_until(lambda: len(house.controller.requests) > 2)
    house.call(lambda: house.changes.forget(house.partitions[0]))
    house.scheduler.run_for(3)
    count = len(house.controller.requests)
    house.scheduler.run_for(5)
    assert len(house.controller.requests) == count
    house.loop.run(house.changes.close(), limit_s=1)


def test_a_follower_that_catches_up_while_it_is_expelled_is_admitted_again(tmp_path: Any) -> None:
    """It has everything, so nothing is sent to it any more, and its fetches do not name the partition again."""
    house = House(tmp_path, 1, ME, OTHER)
    house.fetch(0)
    house.call(lambda: house.partitions[0].append(batch(b"v"), 1))
    house.controller.gate.clear()
    house.run_until(lambda: len(house.controller.requests) == 1)
    house.fetch(0)
    house.call(house.controller.gate.set)
    house.run_until(lambda: len(house.controller.requests) == 2)
    house.run_until(lambda: house.isr() == {ME, OTHER})


def acknowledged(house: House) -> Waiting:
    """A request that waits until what is in the log is committed."""
    hosted = house.partitions[0]
    waiting = WaitingForCommit(hosted, hosted.log.log_end_offset)
    house.call(lambda: hosted.purgatory.park(waiting, 60_000, [hosted.watchers]))
    return waiting


@pytest.mark.parametrize("error", [Error.INELIGIBLE_REPLICA, Error.OPERATION_NOT_ATTEMPTED])
def test_nobody_waits_for_a_follower_whose_admission_is_refused(tmp_path: Any, error: Error) -> None:
    house = House(tmp_path, 1)
    house.controller.answer = lambda _wanted: error
    house.controller.gate.clear()
    house.fetch(0)
    house.run_until(lambda: len(house.controller.requests) == 1)
    house.call(lambda: house.partitions[0].append(batch(b"v"), -1))
    waiting = acknowledged(house)
    house.view.active_brokers = {ME: OWN_EPOCH}
    house.call(house.changes.brokers_changed)
    assert house.partitions[0].state.high_watermark.offset == 0, "it may be in sync by now"
    house.call(house.controller.gate.set)
    house.scheduler.run_for(0.1)
    assert house.partitions[0].state.high_watermark.offset == 1
    assert waiting.answered.is_set()


def test_nobody_waits_for_a_follower_that_nearly_joined_and_was_fenced(tmp_path: Any) -> None:
    house = House(tmp_path, 1)
    house.controller.answer = lambda _wanted: Error.OPERATION_NOT_ATTEMPTED
    house.fetch(0)
    house.scheduler.run_for(0.1)
    house.call(lambda: house.partitions[0].append(batch(b"v"), -1))
    waiting = acknowledged(house)
    house.scheduler.run_for(0.1)
    assert house.partitions[0].state.high_watermark.offset == 0, "it may join soon"
    house.view.active_brokers = {ME: OWN_EPOCH}
    house.call(house.changes.brokers_changed)
    assert house.partitions[0].state.high_watermark.offset == 1
    house.scheduler.run_for(0.1)
    assert waiting.answered.is_set()


def test_nobody_waits_for_a_follower_that_nearly_joined_and_stopped_to_fetch(tmp_path: Any) -> None:
    house = House(tmp_path, 1)
    house.controller.answer = lambda _wanted: Error.OPERATION_NOT_ATTEMPTED
    house.fetch(0)
    house.scheduler.run_for(0.1)
    house.call(lambda: house.partitions[0].append(batch(b"v"), -1))
    waiting = acknowledged(house)
    house.run_until(waiting.answered.is_set)
    assert LAG_MS / 1000 <= house.scheduler.now <= 2 * LAG_MS / 1000
    assert house.partitions[0].state.high_watermark.offset == 1
