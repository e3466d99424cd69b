"""A controller with its log: started, asked, killed, torn, full, and started again."""

from __future__ import annotations

import asyncio
import copy
import errno
import os
import time
from typing import TYPE_CHECKING

import pytest

from barnabas.controller import quorum_controller
from barnabas.controller.controller_node import ForeignQuorumError
from barnabas.controller.decisions.context import Decision
from barnabas.metadata.image import RECOVERED, RECOVERING
from barnabas.metadata.replay import ReplayError
from barnabas.metadata.versions import UnsupportedMetadataVersionError, VersionedRecord
from barnabas.ports import SystemDisk
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.protocol.uuids import Uuid
from barnabas.raft.consensus.messages import HardState
from barnabas.raft.consensus.voter_sets import VoterEndpoint, VoterNode
from barnabas.raft.folder.format import format_metadata
from barnabas.raft.folder.metadata_batches import data_batch
from barnabas.raft.folder.metadata_log import MetadataLogLimits, read_folder
from barnabas.raft.folder.quorum_state import write_quorum_state
from barnabas.testing.clock import ManualClock
from barnabas.testing.disk import SimulatedDisk
from tests.unit.controller.cluster import creation
from tests.unit.controller.nodes import (
    CONTROLLER,
    DIRECTORY,
    QUIET,
    Node,
    format_folder,
    in_event_loop,
    join,
    running,
    with_broker,
)

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.raft.folder.metadata_batches import DecodedBatch

METADATA = "/data/__cluster_metadata-0"


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk(ManualClock())
    disk.make_folder("/data")
    disk.sync_dir("/")
    format_folder(disk, "/data")
    return disk


def names(batches: tuple[DecodedBatch, ...]) -> list[list[str]]:
    return [[type(record).__name__ for record in batch.records] for batch in batches]


def content(disk: SimulatedDisk) -> tuple[DecodedBatch, ...]:
    return read_folder(disk, METADATA).batches


@in_event_loop
async def test_a_fresh_log_looks_like_kafkas(disk: SimulatedDisk) -> None:
    async with running(disk, "/data") as node:
        await join(node.lifecycle())
    assert names(content(disk)) == [
        ["LeaderChangeMessage", "KRaftVersionRecord", "VotersRecord"],
        ["BeginTransactionRecord", *["FeatureLevelRecord"] * 6, "ConfigRecord", "EndTransactionRecord"],
        ["RegisterControllerRecord"],
        ["RegisterBrokerRecord"],
        ["BrokerRegistrationChangeRecord", "BrokerRegistrationChangeRecord"],
    ]
    assert [(batch.base_offset, batch.epoch) for batch in content(disk)] == [(0, 1), (3, 1), (12, 1), (13, 1), (14, 1)]


@in_event_loop
async def test_every_start_is_a_new_epoch_a_new_incarnation_and_a_fenced_registration(disk: SimulatedDisk) -> None:
    incarnations = set()
    for epoch in (1, 2, 3):
        async with running(disk, "/data") as node:
            lifecycle = node.lifecycle()
            assert node.image.controller_id == 1
            await lifecycle.register()
            broker = node.image.brokers[1]
            assert broker.fenced
            assert node.image.epoch == epoch
            incarnations.add(broker.incarnation_id)
            await lifecycle.unfence()
            assert not node.image.brokers[1].fenced
            await lifecycle.stop()
    assert len(incarnations) == 3


@in_event_loop
async def test_a_lost_quorum_state_does_not_take_the_epoch_back(
    disk: SimulatedDisk, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        async with running(disk, "/data"):
            pass
    disk.unlink(f"{METADATA}/quorum-state")
    async with running(disk, "/data") as node:
        assert node.image.epoch == 4
        assert [batch.epoch for batch in content(disk)] == sorted(batch.epoch for batch in content(disk))
    assert f"{METADATA}/quorum-state has epoch 0, but the log has records of epoch 3" in caplog.text


@in_event_loop
async def test_a_topic_is_in_the_brokers_image_when_its_creation_is_answered(disk: SimulatedDisk) -> None:
    async with with_broker(disk, "/data") as node:
        result = await node.create_topic("t", 3)
        topic = node.image.topics.get("t")
        assert topic is not None
        assert (topic.topic_id, len(topic.partitions)) == (result.topic_id, 3)


@in_event_loop
async def test_what_was_answered_survives_the_loss_of_power(disk: SimulatedDisk) -> None:
    async with with_broker(disk, "/data") as node:
        for number in range(5):
            await node.create_topic(f"t{number}")
            survivor = copy.deepcopy(disk)
            survivor.crash()
            async with running(survivor, "/data") as restarted:
                assert {topic.name for topic in restarted.image.topics} == {f"t{n}" for n in range(number + 1)}


@in_event_loop
async def test_after_a_kill_the_node_is_unfenced_at_once_and_its_partitions_have_leaders(disk: SimulatedDisk) -> None:
    async with with_broker(disk, "/data") as node:
        await node.create_topic("t")
    async with with_broker(disk, "/data") as node:
        topic = node.image.topics.get("t")
        assert topic is not None
        assert (topic.partitions[0].leader, topic.partitions[0].leader_recovery_state) == (1, RECOVERING)


@in_event_loop
async def test_after_a_clean_stop_leaders_are_elected_from_the_eligible_replicas(disk: SimulatedDisk) -> None:
    async with running(disk, "/data") as node:
        lifecycle = node.lifecycle()
        await join(lifecycle)
        await node.create_topic("t")
        await lifecycle.stop()
        assert node.image.brokers[1].fenced
    async with running(disk, "/data") as node:
        await join(node.lifecycle(previous_epoch=lifecycle.epoch))
        topic = node.image.topics.get("t")
        assert topic is not None
        partition = topic.partitions[0]
        assert (partition.leader, partition.leader_epoch, partition.leader_recovery_state) == (1, 2, RECOVERED)


@in_event_loop
async def test_another_broker_with_the_same_id_must_wait_for_the_session_unless_it_is_our_own(
    disk: SimulatedDisk,
) -> None:
    async with with_broker(disk, "/data", sole_broker_id=None) as node:
        request = node.lifecycle()._registration()
        response = await node.channel.send(request)
        assert response.error_code == Error.DUPLICATE_BROKER_REGISTRATION


@in_event_loop
async def test_a_silent_broker_is_fenced_and_a_heartbeat_unfences_it_again(disk: SimulatedDisk) -> None:
    async with running(disk, "/data", session_timeout_ms=80) as node:
        lifecycle = node.lifecycle(heartbeat_interval_ms=60_000)
        fenced = asyncio.Event()
        node.publisher.add_listener(lambda image, _delta: fenced.set() if image.brokers[1].fenced else None)
        await join(lifecycle)
        fenced.clear()
        await asyncio.wait_for(fenced.wait(), 10)
        await lifecycle.unfence()
        assert not node.image.brokers[1].fenced
        await lifecycle.abandon()


@in_event_loop
async def test_no_ops_are_written_while_nothing_happens(disk: SimulatedDisk) -> None:
    async with running(disk, "/data", limits=QUIET._replace(idle_interval_ms=5)) as node:
        await node.publisher.wait_for_offset(20)
    assert names(content(disk))[-1] == ["NoOpRecord"]


@in_event_loop
async def test_requests_in_flight_share_syncs(disk: SimulatedDisk) -> None:
    async with with_broker(disk, "/data") as node:
        before = disk.calls["fsync"]
        results = await asyncio.gather(*(node.create_topic(f"t{number}") for number in range(200)))
        assert all(result.error_code == 0 for result in results)
        assert disk.calls["fsync"] - before < 100
    assert len(content(disk)) > 200


@in_event_loop
async def test_requests_in_flight_see_what_those_before_them_appended(disk: SimulatedDisk) -> None:
    async with with_broker(disk, "/data") as node:
        results = await asyncio.gather(*(node.create_topic("t") for _ in range(10)))
        assert sorted(result.error_code for result in results) == [0, *[Error.TOPIC_ALREADY_EXISTS] * 9]


@in_event_loop
async def test_a_node_that_moved_to_other_ports_names_itself_anew_and_one_that_did_not_does_not(
    disk: SimulatedDisk,
) -> None:
    for port in (9093, 9093, 19_093):
        async with running(disk, "/data", endpoint=CONTROLLER._replace(port=port)):
            pass
    firsts = [batch for batch in content(disk) if isinstance(batch.records[0], m.LeaderChangeMessage)]
    assert [len(batch.records) for batch in firsts] == [3, 1, 3]
    voters = read_folder(disk, METADATA).voters
    assert voters == (VoterNode(1, DIRECTORY, (VoterEndpoint("CONTROLLER", "127.0.0.1", 19_093),)),)


@in_event_loop
async def test_a_snapshot_stands_for_the_log_before_it(disk: SimulatedDisk) -> None:
    limits = QUIET._replace(snapshot_bytes=2000)
    async with with_broker(disk, "/data", limits=limits) as node:
        for number in range(40):
            await node.create_topic(f"t{number}")
        image = node.image
    read = read_folder(disk, METADATA)
    assert read.snapshot is not None
    assert read.snapshot.id.end_offset > 0
    assert read.snapshot.voters == read.voters
    async with running(disk, "/data", limits=limits) as node:
        assert node.image.topics == image.topics
        assert node.image.configs == image.configs


@in_event_loop
async def test_the_log_is_trimmed_to_the_end_of_a_snapshot_and_no_further(disk: SimulatedDisk) -> None:
    limits = QUIET._replace(snapshot_bytes=2000, retention_bytes=1)
    async with with_broker(disk, "/data", limits=limits) as node:
        for number in range(60):
            await node.create_topic(f"t{number}")
    files = sorted(disk.list_folder(METADATA))
    snapshots = [int(name[:20]) for name in files if name.endswith(".checkpoint")]
    segments = [int(name[:20]) for name in files if name.endswith(".log")]
    assert len(snapshots) == 1
    assert 0 < segments[0] <= snapshots[0]
    async with running(disk, "/data") as node:
        assert len(node.image.topics) == 60


@in_event_loop
async def test_a_snapshot_that_is_broken_is_passed_over_for_the_log(disk: SimulatedDisk) -> None:
    async with with_broker(disk, "/data", limits=QUIET._replace(snapshot_bytes=2000)) as node:
        for number in range(20):
            await node.create_topic(f"t{number}")
    snapshots = sorted(name for name in disk.list_folder(METADATA) if name.endswith(".checkpoint"))
    for name in snapshots[1:]:
        cut(disk, f"{METADATA}/{name}", 100)
    async with running(disk, "/data") as node:
        assert len(node.image.topics) == 20


@in_event_loop
async def test_a_transaction_that_nobody_ended_is_aborted_by_the_next_leader(disk: SimulatedDisk) -> None:
    async with running(disk, "/data"):
        pass
    end = read_folder(disk, METADATA)
    records = [m.BeginTransactionRecord(name="broken"), m.TopicRecord(name="half", topic_id=Uuid(b"h" * 16))]
    batch = data_batch(
        [VersionedRecord(record, 0) for record in records], base_offset=end.end_offset, epoch=end.epoch, timestamp_ms=1
    )
    extend(disk, f"{METADATA}/00000000000000000000.log", batch)
    async with running(disk, "/data") as node:
        assert "half" not in node.image.topics
    assert ["AbortTransactionRecord"] in names(content(disk))
    async with with_broker(disk, "/data") as node:
        assert (await node.create_topic("half")).error_code == 0


@pytest.mark.parametrize("level", [31, 99])
@in_event_loop
async def test_a_folder_of_newer_software_is_refused_and_nothing_is_changed(disk: SimulatedDisk, level: int) -> None:
    async with running(disk, "/data"):
        pass
    end = read_folder(disk, METADATA)
    newer = VersionedRecord(m.FeatureLevelRecord(name="metadata.version", feature_level=level), 0)
    batch = data_batch([newer], base_offset=end.end_offset, epoch=end.epoch, timestamp_ms=1)
    extend(disk, f"{METADATA}/00000000000000000000.log", batch)
    before = everything(disk)
    with pytest.raises(
        UnsupportedMetadataVersionError, match=f"^{METADATA} has metadata.version {level}.*Nothing was changed"
    ):
        Node(disk, "/data", QUIET, None).controller.open()
    assert everything(disk) == before


@in_event_loop
async def test_a_folder_whose_records_contradict_each_other_is_refused_by_name(disk: SimulatedDisk) -> None:
    async with running(disk, "/data"):
        pass
    end = read_folder(disk, METADATA)
    stray = VersionedRecord(m.RemoveTopicRecord(topic_id=Uuid(b"n" * 16)), 0)
    batch = data_batch([stray], base_offset=end.end_offset, epoch=end.epoch, timestamp_ms=1)
    extend(disk, f"{METADATA}/00000000000000000000.log", batch)
    with pytest.raises(ReplayError, match=f"{METADATA} cannot be read: no topic has the id"):
        Node(disk, "/data", QUIET, None).controller.open()


@pytest.mark.parametrize(
    ("node_id", "directory_id", "message"),
    [(2, DIRECTORY, "quorum of the voters 2, but this is node 1"), (1, Uuid(b"x" * 16), "directory.id")],
)
@in_event_loop
async def test_a_folder_of_another_quorum_is_refused(node_id: int, directory_id: Uuid, message: str) -> None:
    disk = SimulatedDisk(ManualClock())
    disk.make_folder("/data")
    format_metadata(disk, "/data", VoterNode(node_id, directory_id, ()), now_ms=1)
    with pytest.raises(ForeignQuorumError, match=message):
        Node(disk, "/data", QUIET, None).controller.open()


@in_event_loop
async def test_a_quorum_that_is_configured_by_hand_stays_so_and_must_be_of_this_node_alone() -> None:
    disk = SimulatedDisk(ManualClock())
    disk.make_folder("/data")
    async with with_broker(disk, "/data") as node:
        await node.create_topic("t")
    async with running(disk, "/data", endpoint=CONTROLLER._replace(port=19_093)) as node:
        assert "t" in node.image.topics
    assert {type(record).__name__ for batch in content(disk) for record in batch.records if batch.is_control} == {
        "LeaderChangeMessage"
    }
    write_quorum_state(disk, METADATA, HardState(5, leader_id=1), static_voters=[1, 2, 3])
    with pytest.raises(ForeignQuorumError, match="quorum of the voters 1, 2, 3, but this is node 1,"):
        Node(disk, "/data", QUIET, None).controller.open()


@in_event_loop
async def test_a_decision_that_fails_is_answered_and_logged_and_harms_nobody(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a mistake in a decision")

    async with with_broker(disk, "/data") as node:
        with monkeypatch.context() as patched:
            patched.setattr(quorum_controller, "decide", fail)
            assert (await node.create_topic("t")).error_code == Error.UNKNOWN_SERVER_ERROR
        assert "a mistake in a decision" in caplog.text
        assert (await node.create_topic("t")).error_code == 0


@in_event_loop
async def test_a_record_that_does_not_fit_never_gets_into_the_log(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decide_nonsense(*_: object) -> Decision:
        nonsense = VersionedRecord(m.RemoveTopicRecord(topic_id=Uuid(b"nothing has this")), 0)
        return Decision(m.CreateTopicsResponse(), [nonsense])

    async with with_broker(disk, "/data") as node:
        await node.create_topic("before")
        with monkeypatch.context() as patched:
            patched.setattr(quorum_controller, "decide", decide_nonsense)
            assert (await node.create_topic("t")).error_code == Error.UNKNOWN_SERVER_ERROR
        deadline = time.monotonic() + 20
        while (await node.create_topic("after")).error_code == Error.NOT_CONTROLLER:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        assert {topic.name for topic in node.image.topics} == {"before", "after"}
    assert ["RemoveTopicRecord"] not in names(content(disk))


@in_event_loop
async def test_a_full_disk_costs_the_leadership_and_it_comes_back_with_the_space(disk: SimulatedDisk) -> None:
    async with with_broker(disk, "/data") as node:
        await node.create_topic("before")
        disk.capacity_bytes = 0
        refused = await node.create_topic("during")
        assert refused.error_code == Error.NOT_CONTROLLER
        assert (await node.create_topic("still")).error_code == Error.NOT_CONTROLLER
        disk.heal()
        deadline = time.monotonic() + 20
        while (await node.create_topic("after")).error_code == Error.NOT_CONTROLLER:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        assert {topic.name for topic in node.image.topics} == {"before", "after"}
        assert node.failures == []
        assert node.image.epoch > 1
    async with running(disk, "/data") as node:
        assert {topic.name for topic in node.image.topics} == {"before", "after"}


@in_event_loop
async def test_a_sync_that_fails_ends_the_controller_and_says_so(disk: SimulatedDisk) -> None:
    async with with_broker(disk, "/data") as node:
        disk.fail("fsync", errno.EIO)
        assert (await node.create_topic("t")).error_code == Error.NOT_CONTROLLER
        assert len(node.failures) == 1
        assert (await node.create_topic("t")).error_code == Error.NOT_CONTROLLER
        disk.heal()


@in_event_loop
async def test_a_stopped_controller_refuses_requests(disk: SimulatedDisk) -> None:
    async with running(disk, "/data") as node:
        pass
    response = (await node.controller.ask(creation("t"))).response
    assert isinstance(response, m.CreateTopicsResponse)
    assert response.topics[0].error_code == Error.NOT_CONTROLLER


@in_event_loop
async def test_an_abandoned_request_does_not_disturb_the_others(disk: SimulatedDisk) -> None:
    async with with_broker(disk, "/data") as node:
        tasks = [asyncio.create_task(node.create_topic(f"t{number}")) for number in range(20)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert all(task.result().error_code == 0 for task in tasks[1::2])
        assert (await node.create_topic("last")).error_code == 0


@in_event_loop
async def test_an_empty_folder_is_ready_within_tens_of_milliseconds(tmp_path: Path) -> None:
    disk = SystemDisk()
    took_ms = []
    for attempt in range(5):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        begun = time.perf_counter()
        format_folder(disk, str(folder))
        async with with_broker(disk, str(folder), limits=MetadataLogLimits()):
            took_ms.append((time.perf_counter() - begun) * 1000)
    assert min(took_ms) < 200, took_ms


def cut(disk: SimulatedDisk, path: str, length: int) -> None:
    fd = disk.open(path, os.O_RDWR)
    disk.truncate(fd, length)
    disk.close(fd)


def extend(disk: SimulatedDisk, path: str, data: bytes) -> None:
    fd = disk.open(path, os.O_RDWR)
    disk.pwrite(fd, data, disk.size(path))
    disk.close(fd)


def everything(disk: SimulatedDisk) -> dict[str, bytes]:
    found = {}
    for name in disk.list_folder(METADATA):
        fd = disk.open(f"{METADATA}/{name}", os.O_RDONLY)
        found[name] = disk.pread(fd, disk.size(f"{METADATA}/{name}"), 0)
        disk.close(fd)
    return found


@in_event_loop
async def test_topics_of_thousands_of_partitions_are_created_one_after_the_other(disk: SimulatedDisk) -> None:
    """Each takes many turns of the controller's event loop, and the next is decided after it."""
    async with with_broker(disk, "/data") as node:
        await asyncio.gather(*(node.create_topic(name, 1000) for name in "abc"), node.create_topic("small"))
        assert {topic.name: len(topic.partitions) for topic in node.image.topics} == {
            "a": 1000,
            "b": 1000,
            "c": 1000,
            "small": 1,
        }


@in_event_loop
async def test_a_request_that_is_given_up_while_its_records_are_applied_leaves_nothing_half_done(
    disk: SimulatedDisk,
) -> None:
    async with with_broker(disk, "/data") as node:
        asking = [asyncio.ensure_future(node.create_topic(name, 2000)) for name in "abc"]
        # Two turns of this loop, while the controller's takes many for each topic.
        for _ in range(2):
            await asyncio.sleep(0)
        for each in asking:
            each.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        epoch = node.image.epoch
        await node.create_topic("last")
        counts = {topic.name: len(topic.partitions) for topic in node.image.topics}
        assert counts.pop("last") == 1
        assert set(counts.values()) <= {2000}
        assert node.image.epoch == epoch, "the leadership was given up"
