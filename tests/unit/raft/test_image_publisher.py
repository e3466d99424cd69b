"""Images come to the broker's loop, in order, and wake who waits for them."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

import pytest

from barnabas.broker.image_subscriber import ImageSubscriber
from barnabas.protocol import messages as m
from barnabas.protocol.uuids import Uuid
from barnabas.raft.consensus.log_history import SnapshotId
from barnabas.raft.folder.metadata_batches import DecodedBatch
from barnabas.raft.folder.snapshots import Snapshot
from barnabas.raft.image_publisher import ImagePublisher
from tests.unit.controller.nodes import in_event_loop

if TYPE_CHECKING:
    from barnabas.metadata.image import MetadataDelta, MetadataImage
    from barnabas.protocol.compiler.structs import Message


def batch(offset: int, *names: str) -> DecodedBatch:
    records = tuple(m.TopicRecord(name=name, topic_id=Uuid(name.encode().ljust(16, b"-"))) for name in names)
    return DecodedBatch(offset, offset + len(records) - 1, 1, 0, False, 100, records)


def attached() -> ImagePublisher:
    loader = ImagePublisher("cluster")
    loader.attach(asyncio.get_running_loop())
    return loader


@in_event_loop
async def test_images_of_another_thread_arrive_in_order_on_the_brokers_loop() -> None:
    loader = attached()
    seen: list[tuple[int, str]] = []

    def listen(image: MetadataImage, delta: MetadataDelta) -> None:
        assert threading.current_thread() is threading.main_thread()
        seen.extend((image.offset, topic.name) for topic in delta.created_topics)

    loader.add_listener(listen)
    names = [f"t{number}" for number in range(50)]

    def commit() -> None:
        for offset, name in enumerate(names):
            loader.apply([batch(offset, name)])

    thread = threading.Thread(target=commit)
    thread.start()
    image = await loader.wait_for_offset(49)
    thread.join()
    assert seen == list(enumerate(names))
    assert image is loader.image is loader.committed


@in_event_loop
async def test_waiters_wake_when_their_offset_is_reached_and_not_before() -> None:
    loader = attached()
    waiters = {offset: asyncio.create_task(loader.wait_for_offset(offset)) for offset in (5, 0, 3)}
    loader.apply([batch(0, "a", "b")])
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert {offset: waiter.done() for offset, waiter in waiters.items()} == {5: False, 0: True, 3: False}
    loader.apply([batch(2, "c", "d", "e", "f")])
    assert (await waiters[5]).offset == 5
    assert (await waiters[3]).offset == 5
    assert (await loader.wait_for_offset(1)).offset == 5


@pytest.mark.parametrize(
    ("record", "section"),
    [
        (m.FeatureLevelRecord(name="transaction.version", feature_level=2), "features"),
        (m.RegisterControllerRecord(controller_id=1, incarnation_id=Uuid(b"i" * 16)), "controllers"),
        (
            m.ClientQuotaRecord(
                entity=[m.ClientQuotaRecord.EntityData(entity_type="user", entity_name="u")],
                key="producer_byte_rate",
                value=1.0,
            ),
            "client_quotas",
        ),
        (m.AccessControlEntryRecord(id=Uuid(b"a" * 16), principal="User:u"), "acls"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@in_event_loop
async def test_a_change_that_concerns_no_topic_broker_or_setting_takes_effect_too(
    record: Message, section: str
) -> None:
    loader = attached()
    applied: list[MetadataDelta] = []

    async def apply(_image: MetadataImage, delta: MetadataDelta) -> None:
        applied.append(delta)

    follower = ImageSubscriber(loader.image, apply)
    loader.add_listener(follower.image_published)
    following = asyncio.create_task(follower.run())
    loader.apply([DecodedBatch(0, 0, 1, 0, False, 72, (record,))])
    image = await loader.wait_for_offset(0)
    await asyncio.wait_for(follower.settled(), 5)
    assert follower.image is image
    assert [delta.changed_sections for delta in applied] == [{section}]
    following.cancel()


@in_event_loop
async def test_a_new_leader_of_the_quorum_takes_effect() -> None:
    loader = attached()
    seen: list[frozenset[str]] = []
    loader.add_listener(lambda _image, delta: seen.append(delta.changed_sections))
    loader.apply([DecodedBatch(0, 0, 1, 0, True, 72, (m.LeaderChangeMessage(leader_id=1),))])
    assert (await loader.wait_for_offset(0)).controller_id == 1
    assert seen == [{"controller_id"}]


@in_event_loop
async def test_a_batch_that_changes_nothing_moves_the_offset_but_calls_nobody() -> None:
    loader = attached()
    loader.add_listener(lambda *_: pytest.fail("nothing changed"))
    loader.apply([DecodedBatch(0, 0, 1, 0, False, 72, (m.NoOpRecord(),))])
    assert (await loader.wait_for_offset(0)).offset == 0


@in_event_loop
async def test_an_image_begins_with_a_snapshot_and_goes_on_with_the_log() -> None:
    loader = ImagePublisher("cluster")
    (kept,) = batch(0, "kept").records
    loader.restore("/data", Snapshot(SnapshotId(10, 3), 77, 1, (), (kept,)), [batch(10, "later")])
    assert [topic.name for topic in loader.image.topics] == ["kept", "later"]
    assert loader.image.offset == 10


@in_event_loop
async def test_who_leads_the_quorum_is_in_the_image() -> None:
    loader = attached()
    change = m.LeaderChangeMessage(leader_id=4)
    loader.apply([DecodedBatch(0, 0, 1, 0, True, 100, (change,))])
    assert (await loader.wait_for_offset(0)).controller_id == 4


@in_event_loop
async def test_the_level_of_the_quorum_is_the_one_that_the_log_finalized_last() -> None:
    loader = attached()
    assert loader.kraft_version == 0
    loader.restore("/data", Snapshot(SnapshotId(10, 3), 77, 1, (), ()), [])
    assert loader.kraft_version == 1
    loader.apply([DecodedBatch(10, 10, 3, 0, True, 100, (m.KRaftVersionRecord(kraft_version=2),))])
    assert loader.kraft_version == 2


@in_event_loop
async def test_who_gives_up_waiting_is_forgotten() -> None:
    loader = attached()
    patient = asyncio.create_task(loader.wait_for_offset(0))
    for offset in (1, 2, 3):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(loader.wait_for_offset(offset), 0.001)
    assert len(loader._waiters) == 1
    loader.apply([batch(0, "a")])
    assert (await patient).offset == 0


@in_event_loop
async def test_detaching_frees_those_who_wait() -> None:
    loader = attached()
    waiter = asyncio.create_task(loader.wait_for_offset(10))
    await asyncio.sleep(0)
    loader.detach()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    loader.apply([batch(0, "a")])
    assert loader.committed.offset == 0


def test_one_more_topic_at_ten_thousand_costs_less_than_two_milliseconds() -> None:
    loader = ImagePublisher("cluster")
    loader.apply([batch(offset, f"t{offset}") for offset in range(10_000)])
    took_ms = []
    for offset in range(10_000, 10_020):
        more = batch(offset, f"t{offset}")
        begun = time.perf_counter()
        loader.apply([more])
        took_ms.append((time.perf_counter() - begun) * 1000)
    assert min(took_ms) < 2
