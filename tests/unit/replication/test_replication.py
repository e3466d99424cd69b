"""Replicas of a partition on several nodes, in simulation: they become equal, whatever happens in between."""

from __future__ import annotations

import errno
import random
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.log.folder.data_dir import DataDir, recovery_points_of
from barnabas.log.segments.segment_list import LogPosition
from barnabas.protocol.errors import Error, KafkaError
from barnabas.replication.fetcher import COMPLAINT_S
from barnabas.replication.hosted import HostedPartition
from barnabas.testing.network import Delay
from tests.unit.log.logs import batch
from tests.unit.replication.simulated_cluster import Cluster, Node, Writer, values_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from barnabas.log.folder.checkpoints import TopicPartition
    from barnabas.log.partition_log import PartitionLog


@pytest.fixture
def make_cluster() -> Iterator[Callable[..., Cluster]]:
    made = []

    def make(seed: int = 1, **options: Any) -> Cluster:
        cluster = Cluster(seed, **options)
        made.append(cluster)
        for index in range(len(cluster.controller.partitions)):
            cluster.wait_until_led(index)
        return cluster

    yield make
    for cluster in made:
        cluster.stop()


@pytest.fixture
def cluster(make_cluster: Callable[..., Cluster]) -> Cluster:
    return make_cluster()


@pytest.fixture
def writer(cluster: Cluster) -> Writer:
    return Writer(cluster, 0, 1000)


def drop_all(log: PartitionLog) -> None:
    """Retention has removed everything that there is."""
    log.roll(log.log_end_offset)
    log.advance_log_start(log.log_end_offset)


def committed(cluster: Cluster) -> list[bytes]:
    """What a consumer can read from the leader."""
    leader = cluster.leader()
    hosted = leader.partition()
    return values_of(leader.batches(end=hosted.state.high_watermark.offset))


def test_what_is_acknowledged_is_on_every_in_sync_replica(cluster: Cluster, writer: Writer) -> None:
    writer.write(20)
    for node in cluster.nodes.values():
        assert values_of(node.batches()) == writer.acknowledged
    cluster.wait_until_equal()
    assert writer.errors == []


def test_a_high_watermark_that_moved_reaches_followers_without_further_records(
    cluster: Cluster, writer: Writer
) -> None:
    writer.write()
    end = cluster.leader().partition().state.log_end.offset
    cluster.run_until(
        lambda: all(node.partition().state.high_watermark.offset == end for node in cluster.nodes.values()), 0.1
    )


def test_followers_have_the_leader_epochs_and_producers_of_the_leader(cluster: Cluster, writer: Writer) -> None:
    writer.write(3)
    cluster.controller.lead(0, 2)
    cluster.wait_until_led()
    writer.write(3)
    cluster.wait_until_equal()
    logs = [node.partition().log for node in cluster.nodes.values()]
    assert len({tuple(log.epochs.entries) for log in logs}) == 1
    assert [entry.epoch for entry in logs[0].epochs.entries] == [0, 1]
    assert len({tuple(log.active_producers[1000].batches) for log in logs}) == 1


def test_a_follower_that_stops_leaves_the_in_sync_replicas_and_comes_back_when_it_has_caught_up(
    cluster: Cluster, writer: Writer
) -> None:
    writer.write(2)
    cluster.network.cut("node-1", "node-3")
    writing = writer.start(count=20, pause_s=0)
    cluster.run_until(lambda: cluster.in_sync() == {1, 2}, 20)
    cluster.run_until(writing.done, 20)
    assert writer.acknowledged == committed(cluster)
    cluster.heal()
    cluster.wait_until_equal()
    assert cluster.in_sync() == {1, 2, 3}


def test_below_the_minimum_nothing_is_acknowledged_and_nothing_is_shown(cluster: Cluster, writer: Writer) -> None:
    writer.write(2)
    shown = committed(cluster)
    cluster.cut_off(2)
    cluster.cut_off(3)
    cluster.heal_controller()
    writing = writer.start(count=1)
    cluster.run_until(lambda: cluster.in_sync() == {1}, 30)
    cluster.run_for(10)
    assert not writing.done()
    assert committed(cluster) == shown
    assert Error.NOT_ENOUGH_REPLICAS.name in writer.errors
    cluster.heal()
    cluster.run_until(writing.done, 60)
    cluster.wait_until_equal()
    assert committed(cluster) == writer.acknowledged


def test_a_new_leader_has_what_was_acknowledged_and_the_old_one_drops_what_was_not(
    cluster: Cluster, writer: Writer
) -> None:
    writer.write(5)
    cluster.cut_off(1)
    lost = Writer(cluster, 0, 2000)
    lost.start(count=1)
    cluster.run_until(lambda: 2000 in cluster.nodes[1].partition().log.active_producers, 5)
    lost.is_stopped = True
    cluster.controller.fence(1)
    cluster.wait_until_led()
    assert cluster.leader().id == 2
    writer.write(5)
    cluster.heal()
    cluster.controller.register(cluster.nodes[1])
    cluster.wait_until_equal()
    assert committed(cluster) == writer.acknowledged
    assert 2000 not in cluster.nodes[1].partition().log.active_producers


def test_a_log_is_cut_where_it_parts_from_the_leaders_and_not_where_its_high_watermark_is(
    cluster: Cluster, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.write(5)
    end = cluster.leader().partition().log.log_end_offset
    cluster.cut_off(1)
    lost = Writer(cluster, 0, 2000)
    lost.start(count=1)
    old_leader = cluster.nodes[1].partition()
    cluster.run_until(lambda: 2000 in old_leader.log.active_producers, 5)
    lost.is_stopped = True
    cuts: list[int] = []

    def note_cut(hosted: HostedPartition, offset: int) -> None:
        cuts.append(offset)
        truncate(hosted, offset)

    truncate = HostedPartition.truncate
    monkeypatch.setattr(HostedPartition, "truncate", note_cut)
    # The high watermark is what a replica last heard of it, and may be far behind.
    old_leader.state.high_watermark = LogPosition.unresolved(1)
    cluster.controller.fence(1)
    cluster.wait_until_led()
    writer.write(2)
    cluster.heal()
    cluster.controller.register(cluster.nodes[1])
    cluster.wait_until_equal()
    assert cuts == [end]
    assert committed(cluster) == writer.acknowledged


def test_what_was_cut_off_does_not_come_back_when_power_fails(cluster: Cluster, writer: Writer) -> None:
    writer.write(5)
    cluster.cut_off(1)
    old_leader = cluster.nodes[1]

    def append(node: Node, value: bytes) -> None:
        cluster.in_loop(node.id, lambda: node.partition().append(batch(value), 1))

    def sync() -> None:
        log = old_leader.partition().log
        log.flush()
        old_leader.data_dir.write_recovery_points(recovery_points_of([log]))

    append(old_leader, b"lost")
    cluster.in_loop(1, sync)
    cluster.controller.fence(1)
    leader = cluster.wait_until_led()
    for value in (b"new1", b"new2", b"new3"):
        append(leader, value)
    cluster.heal()
    cluster.controller.register(old_leader)
    cluster.wait_until_equal()
    # What was written since the sync fits behind what was synced.
    cluster.lose_power(1, keep=10_000)
    cluster.controller.fence(1)
    cluster.start(1)
    cluster.wait_until_equal()
    assert values_of(cluster.nodes[1].batches()) == [*writer.acknowledged, b"new1", b"new2", b"new3"]


def cut_slowly(cluster: Cluster) -> None:
    """Node 1 is in sync, has led, and has just cut what its successor, node 2, did not have. Its device takes a second
    for each sync, so that the cut is not settled yet."""
    node = cluster.nodes[1]
    end = node.partition().log.log_end_offset
    cluster.network.cut("node-1", "node-2")
    cluster.network.cut("node-1", "node-3")

    def append_and_sync() -> None:
        node.partition().append(batch(b"lost"), 1)
        log = node.partition().log
        log.flush()
        node.data_dir.write_recovery_points(recovery_points_of([log]))

    cluster.in_loop(1, append_and_sync)
    cluster.controller.lead(0, 2)
    cluster.wait_until_led()
    node.threads.takes_s = lambda _pool: 1.0
    cluster.heal()
    cluster.run_until(lambda: node.partition().log.log_end_offset == end)


@pytest.mark.parametrize("next_leader", [1, 3])
def test_what_was_cut_off_does_not_come_back_if_the_leader_changes_before_the_cut_is_settled(
    cluster: Cluster, writer: Writer, next_leader: int
) -> None:
    writer.write(5)
    cut_slowly(cluster)
    cluster.controller.lead(0, next_leader)
    leader = cluster.wait_until_led()
    new = [b"new1", b"new2", b"new3"]
    for value in new:
        cluster.in_loop(leader.id, partial(leader.partition().append, batch(value), 1))
    cluster.run_until(lambda: all(values_of(node.batches())[-3:] == new for node in cluster.nodes.values()))
    # What was written since the sync fits behind what was synced.
    cluster.lose_power(1, keep=10_000)
    cluster.controller.fence(1)
    cluster.start(1)
    cluster.wait_until_equal()
    assert values_of(cluster.nodes[1].batches()) == [*writer.acknowledged, *new]


def test_a_partition_whose_cut_cannot_be_settled_is_offline_until_it_can(cluster: Cluster, writer: Writer) -> None:
    writer.write(5)
    cut_slowly(cluster)
    node, hosted = cluster.nodes[1], cluster.nodes[1].partition()
    cluster.disks[1].fail("fsync", errno.EMFILE)
    cluster.controller.lead(0, 1)
    cluster.run_until(lambda: hosted.offline_reason is not None)
    cluster.run_for(3)
    with pytest.raises(KafkaError, match="t-0 is offline") as refused:
        hosted.append(batch(b"refused"), 1)
    assert refused.value.error is Error.KAFKA_STORAGE_ERROR
    cluster.disks[1].heal()
    node.loop.run(node.replicas.retry_offline(node.config), limit_s=5)
    assert node.partition() is hosted
    assert hosted.state.is_leader
    writer.write(2)
    cluster.wait_until_equal()


def test_a_sync_that_fails_late_costs_nothing_in_the_next_leader_epoch(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(partitions=2)  # The other one keeps the session alive.
    writer = Writer(cluster, 0, 1000)
    writer.write(5)
    cut_slowly(cluster)
    cluster.disks[1].fail("fsync", errno.EMFILE)
    failed = cluster.disks[1].calls["fsync"]
    epoch = cluster.controller.partitions[0].leader_epoch + 1
    cluster.controller.lead(0, 2)
    cluster.run_until(lambda: cluster.nodes[1].partition().state.leader_epoch == epoch)
    assert cluster.disks[1].calls["fsync"] == failed, "the sync is still under way"
    cluster.run_until(lambda: cluster.disks[1].calls["fsync"] > failed)
    cluster.disks[1].heal()
    writer.write(2)
    cluster.wait_until_equal(limit_s=20)


def test_logs_that_are_cut_together_are_settled_together(
    make_cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make_cluster(partitions=12)
    led = range(0, 12, 3)
    cluster.cut_off(1)
    old_leader = cluster.nodes[1]

    def append_and_sync() -> None:
        for index in led:
            old_leader.partition(index).append(batch(b"lost"), 1)
            old_leader.partition(index).log.flush()
        old_leader.data_dir.write_recovery_points(recovery_points_of(each.log for each in old_leader.replicas))

    cluster.in_loop(1, append_and_sync)
    written: list[Mapping[TopicPartition, int]] = []

    def note_written(data_dir: DataDir, offsets: Mapping[TopicPartition, int]) -> None:
        written.append(offsets)
        write_recovery_points(data_dir, offsets)

    write_recovery_points = DataDir.write_recovery_points
    monkeypatch.setattr(DataDir, "write_recovery_points", note_written)
    old_leader.threads.takes_s = lambda _pool: 0.5
    cluster.controller.fence(1)
    for index in led:
        cluster.wait_until_led(index)
    cluster.heal()
    cluster.controller.register(old_leader)
    begun = cluster.scheduler.now
    for index in led:
        cluster.wait_until_equal(index)
    assert len(written) == 1
    assert cluster.scheduler.now - begun < 2, "one after the other takes two seconds for the logs alone"


def test_a_follower_whose_disk_is_full_says_so_now_and_then_until_there_is_space(
    make_cluster: Callable[..., Cluster], caplog: pytest.LogCaptureFixture
) -> None:
    cluster = make_cluster(partitions=4)
    writers = [Writer(cluster, index, 1000 + index) for index in (0, 3)]  # Both have the same leader.
    for writer in writers:
        writer.write(2)
    disk = cluster.disks[3]
    disk.capacity_bytes = disk.used_bytes
    for writer in writers:
        writer.write(2)
    cluster.run_for(4 * COMPLAINT_S)
    said = [record for record in caplog.records if record.getMessage().startswith("not replicating")]
    assert {record.levelname for record in said} == {"WARNING"}
    assert 4 <= len(said) <= 6
    assert all("No space left on device" in record.getMessage() for record in said)
    assert any("and 1 other partition for now" in record.getMessage() for record in said)
    disk.heal()
    for index in (0, 3):
        cluster.wait_until_equal(index)


def test_a_leader_that_has_not_heard_of_its_election_is_no_reason_for_a_warning(
    cluster: Cluster, writer: Writer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    writer.write(2)
    cluster.controller.delay_s = (0.001, 0.5)
    for leader in (2, 3, 1):
        cluster.controller.lead(0, leader)
        cluster.wait_until_led()
        cluster.run_for(1)
    said = [record for record in caplog.records if record.getMessage().startswith("not replicating t-0 for now")]
    assert {record.levelname for record in said} == {"INFO"}


def test_what_comes_late_from_an_old_leader_is_not_written_by_the_new_one(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster(partitions=4)  # The last has the same leader, so that its fetchers go on.
    Writer(cluster, 0, 1000).write(2)
    cluster.run_for(0.1)
    end = cluster.leader().partition().log.log_end_offset
    cluster.network.delay = Delay(0.5, 0.5)
    cluster.in_loop(1, lambda: cluster.nodes[1].partition().append(batch(b"late"), 1))
    cluster.run_for(0.1)
    cluster.controller.lead(0, 2)
    assert cluster.wait_until_led().id == 2
    cluster.run_for(3)
    assert cluster.nodes[2].partition().log.log_end_offset == end
    cluster.network.delay = Delay()
    cluster.wait_until_equal()


def test_a_leader_killed_and_started_again_comes_back_as_a_follower(cluster: Cluster, writer: Writer) -> None:
    writing = writer.start(count=60)
    cluster.run_for(0.5)
    cluster.kill(1)
    cluster.run_for(0.2)
    cluster.controller.fence(1)
    cluster.run_for(1)
    cluster.start(1)
    cluster.run_until(writing.done, 60)
    cluster.wait_until_equal()
    assert committed(cluster) == writer.acknowledged


def test_a_replica_that_lost_what_it_had_not_synced_gets_it_again(cluster: Cluster, writer: Writer) -> None:
    writer.write(10)
    cluster.lose_power(3, keep=50)
    cluster.controller.fence(3)
    writer.write(5)
    cluster.start(3)
    cluster.wait_until_equal()
    assert values_of(cluster.nodes[3].batches()) == writer.acknowledged


def test_a_follower_starts_anew_where_the_leaders_log_begins_if_it_is_too_far_behind(
    cluster: Cluster, writer: Writer
) -> None:
    writer.write(2)
    cluster.kill(3)
    cluster.controller.fence(3)
    writer.write(10)
    for node_id in (1, 2):
        cluster.in_loop(node_id, partial(drop_all, cluster.nodes[node_id].partition().log))
    start = cluster.leader().partition().log.log_start_offset
    assert start > 5
    writer.write(3)
    cluster.start(3)
    cluster.wait_until_equal()
    log = cluster.nodes[3].partition().log
    assert log.log_start_offset == start
    assert log.segments.all[0].base_offset == start


def test_where_the_topic_asks_for_it_a_follower_has_only_what_is_on_its_device(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster(settings={"log_flush_interval_messages": "1"})
    writer = Writer(cluster, 0, 1000)
    writer.write(5)
    assert all(node.partition().log.recovery_point > 4 for node in cluster.nodes.values())
    for node_id in cluster.ids:
        cluster.lose_power(node_id)
        cluster.controller.fence(node_id)
    for node_id in cluster.ids:
        cluster.start(node_id)
    cluster.wait_until_equal()
    assert committed(cluster) == writer.acknowledged


def test_the_log_start_of_followers_follows_the_leaders(cluster: Cluster, writer: Writer) -> None:
    writer.write(5)
    cluster.in_loop(1, lambda: cluster.nodes[1].partition().log.advance_log_start(3))
    writer.write(1)
    cluster.wait_until_equal()
    assert {node.partition().log.log_start_offset for node in cluster.nodes.values()} == {3}


@pytest.mark.parametrize("fetch_bytes_at_once", [None, 200])
def test_many_partitions_share_a_session(make_cluster: Callable[..., Cluster], fetch_bytes_at_once: int | None) -> None:
    cluster = make_cluster(partitions=30, fetch_bytes_at_once=fetch_bytes_at_once)
    writers = [Writer(cluster, index, 1000 + index) for index in range(30)]
    writing = [writer.start(count=5) for writer in writers]
    cluster.run_until(lambda: all(task.done() for task in writing))
    for index in range(30):
        cluster.wait_until_equal(index)
    assert [len(node.sessions) for node in cluster.nodes.values()] == [2, 2, 2]
    assert all(writer.errors == [] for writer in writers)


def test_a_partition_that_is_new_does_not_wait_until_others_have_news(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(
        partitions=2, settings={"replica_fetch_wait_max_ms": "4000", "replica_lag_time_max_ms": "8000"}
    )
    Writer(cluster, 1, 1001).write()
    cluster.run_for(1)
    cluster.controller.lead(0, 2)
    cluster.wait_until_led(0)
    begun = cluster.scheduler.now
    writer = Writer(cluster, 0, 1000)
    writer.write()
    assert cluster.scheduler.now - begun < 0.2, "the followers had a request at their new leader that waited"
    assert writer.errors == []


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_throttled_follower_that_is_not_in_sync_catches_up_slowly_and_others_do_not(
    make_cluster: Callable[..., Cluster], side: str
) -> None:
    cluster = make_cluster(partitions=2, settings={"replica_fetch_max_bytes": "200"})
    cluster.kill(3)
    cluster.controller.fence(3)
    writers = [Writer(cluster, index, 1000 + index) for index in range(2)]
    for writer in writers:
        writer.write(60)
    cluster.controller.mark_throttled(f"{side}.replication.throttled.replicas", "0:3" if side == "follower" else "0:1")
    cluster.start(3)
    cluster.run_until(lambda: len(cluster.nodes[3].replicas) > 0)
    throttle = (
        cluster.nodes[3].replicas.follower_throttle if side == "follower" else cluster.nodes[1].replicas.leader_throttle
    )
    throttle.limit_bytes = 100
    cluster.wait_until_equal(1, 5)
    cluster.run_for(10)
    assert 3 not in cluster.in_sync(0)
    assert 0 < cluster.nodes[3].partition(0).log.log_end_offset < cluster.leader(0).partition(0).log.log_end_offset
    throttle.limit_bytes = None
    cluster.wait_until_equal(0, 20)


def test_several_fetchers_share_the_partitions_of_a_leader(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(partitions=12, settings={"num_replica_fetchers": "2"})
    writers = [Writer(cluster, index, 1000 + index) for index in range(12)]
    writing = [writer.start(count=2) for writer in writers]
    cluster.run_until(lambda: all(task.done() for task in writing))
    for index in range(12):
        cluster.wait_until_equal(index)
    assert [len(node.sessions) for node in cluster.nodes.values()] == [4, 4, 4]


@pytest.mark.parametrize("seed", range(8))
def test_nothing_acknowledged_is_lost_or_doubled_whatever_happens(
    make_cluster: Callable[..., Cluster], seed: int
) -> None:
    """Cuts, kills, lost power, changes of leaders, while producers write; fewer than the minimum of in-sync replicas
    lose what they had not synced at a time."""
    cluster = make_cluster(seed, partitions=2)
    chance = random.Random(seed)
    writers = [Writer(cluster, index, 1000 + index) for index in range(2)]
    writing = [writer.start() for writer in writers]
    for _ in range(15):
        cluster.run_for(chance.uniform(0.2, 2.5))
        everybody = all(node.is_alive for node in cluster.nodes.values())
        is_safe = everybody and all(cluster.in_sync(index) == {1, 2, 3} for index in range(2))
        victim = chance.randint(1, 3)
        match chance.choice(["lead", "cut", "cut off", "kill", "power", "reset", "heal", "heal", "return"]):
            case "lead":
                index = chance.randint(0, 1)
                if victim in cluster.in_sync(index) and cluster.nodes[victim].is_alive:
                    cluster.controller.lead(index, victim)
            case "cut":
                cluster.network.cut(f"node-{victim}", f"node-{victim % 3 + 1}")
            case "cut off" if everybody:
                cluster.cut_off(victim)
                cluster.run_for(chance.uniform(0, 3))
                cluster.controller.fence(victim)
                cluster.run_for(chance.uniform(0, 3))
                cluster.heal()
                cluster.controller.register(cluster.nodes[victim])
            case "kill" if everybody:
                cluster.kill(victim)
                cluster.controller.fence(victim)
            case "power" if is_safe:
                cluster.lose_power(victim, keep=chance.randint(0, 2000))
                cluster.controller.fence(victim)
            case "reset":
                cluster.network.reset(f"node-{victim}", f"node-{victim % 3 + 1}")
            case "heal":
                cluster.heal()
            case "return":
                for node_id, node in list(cluster.nodes.items()):
                    if not node.is_alive:
                        cluster.start(node_id)
    cluster.heal()
    for node_id, node in list(cluster.nodes.items()):
        if not node.is_alive:
            cluster.start(node_id)
    cluster.run_for(5)
    for writer in writers:
        writer.is_stopped = True
    cluster.run_until(lambda: all(task.done() for task in writing), 60)
    for index, writer in enumerate(writers):
        cluster.wait_until_equal(index, 120)
        written = values_of(cluster.leader(index).batches(index))
        assert len(set(written)) == len(written), "nothing is doubled"
        assert [value for value in written if value in set(writer.acknowledged)] == writer.acknowledged
        assert len(writer.acknowledged) > 20
