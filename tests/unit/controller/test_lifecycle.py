"""A broker's way into the cluster and out of it, seen by a controller that answers as it is told."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker.image_subscriber import ImageSubscriber
from barnabas.broker.lifecycle import BrokerIdentity, BrokerLifecycle
from barnabas.metadata.image import MetadataImage
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error, KafkaError
from barnabas.protocol.uuids import Uuid
from barnabas.raft.folder.metadata_batches import DecodedBatch
from barnabas.raft.image_publisher import ImagePublisher
from tests.unit.controller.nodes import PLAINTEXT, at_once, in_event_loop

if TYPE_CHECKING:
    from barnabas.metadata.image import MetadataDelta
    from barnabas.protocol.compiler.structs import Message

IDENTITY = BrokerIdentity(7, "cluster", Uuid(b"i" * 16), (PLAINTEXT,), (Uuid(b"d" * 16),), "rack", previous_epoch=3)


class Controller:
    """Answers requests from a list, the last answer for ever."""

    def __init__(self, *answers: Message) -> None:
        self.answers = list(answers)
        self.requests: list[Any] = []
        self.arrived = asyncio.Event()

    async def send(self, request: Message) -> Any:
        self.requests.append(request)
        self.arrived.set()
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def heartbeat(**fields: Any) -> m.BrokerHeartbeatResponse:
    return m.BrokerHeartbeatResponse(**{"is_caught_up": True, "is_fenced": False, **fields})


def lifecycle_with(
    controller: Controller, interval_ms: int = 60_000, metadata: ImageSubscriber | None = None, **options: Any
) -> tuple[BrokerLifecycle, ImagePublisher]:
    loader = ImagePublisher("cluster")
    loader.attach(asyncio.get_running_loop())
    metadata = metadata or at_once()
    return BrokerLifecycle(IDENTITY, controller, loader, metadata, heartbeat_interval_ms=interval_ms, **options), loader


async def joined(controller: Controller, interval_ms: int = 60_000, **options: Any) -> BrokerLifecycle:
    """A broker that has registered, has seen that in its image, and is unfenced by the controller's next answer."""
    lifecycle, loader = lifecycle_with(controller, interval_ms, **options)
    await lifecycle.register_first()
    registration = m.RegisterBrokerRecord(broker_id=IDENTITY.broker_id, broker_epoch=lifecycle.epoch)
    loader.apply([DecodedBatch(0, 0, 1, 0, False, 72, (registration,))])
    await lifecycle.seen()
    await lifecycle.unfence()
    return lifecycle


@in_event_loop
async def test_a_registration_says_who_the_broker_is() -> None:
    controller = Controller(m.BrokerRegistrationResponse(broker_epoch=11))
    lifecycle, _ = lifecycle_with(controller)
    assert await lifecycle.register() == lifecycle.epoch == 11
    (request,) = controller.requests
    assert (request.broker_id, request.cluster_id, request.rack) == (7, "cluster", "rack")
    assert (request.incarnation_id, request.log_dirs) == (IDENTITY.incarnation_id, list(IDENTITY.directories))
    assert request.previous_broker_epoch == 3
    assert [(one.name, one.host, one.port) for one in request.listeners] == [("PLAINTEXT", "127.0.0.1", 9092)]


@in_event_loop
async def test_a_broker_asks_again_when_its_image_has_moved_until_it_is_unfenced() -> None:
    controller = Controller(heartbeat(is_caught_up=False, is_fenced=True), heartbeat())
    lifecycle, loader = lifecycle_with(controller)
    unfencing = asyncio.create_task(lifecycle.unfence())
    await controller.arrived.wait()
    loader.apply([DecodedBatch(0, 4, 1, 0, False, 72, (m.NoOpRecord(),) * 5)])
    await unfencing
    assert [request.current_metadata_offset for request in controller.requests] == [-1, 4]
    await lifecycle.abandon()


class Subscriber:
    """Puts an image into effect when it is told to."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.applying = asyncio.Event()
        self.metadata = ImageSubscriber(MetadataImage("cluster"), self._apply)

    async def _apply(self, _image: MetadataImage, _delta: MetadataDelta) -> None:
        self.applying.set()
        await self.gate.wait()


def topic_at(offset: int) -> DecodedBatch:
    record = m.TopicRecord(name=f"t{offset}", topic_id=Uuid(offset.to_bytes(16, "big")))
    return DecodedBatch(offset, offset, 1, 0, False, 72, (record,))


@in_event_loop
async def test_heartbeats_report_metadata_when_it_is_in_effect() -> None:
    subscriber, controller = Subscriber(), Controller(heartbeat())
    lifecycle, loader = lifecycle_with(controller, metadata=subscriber.metadata)
    loader.add_listener(subscriber.metadata.image_published)
    following = asyncio.create_task(subscriber.metadata.run())
    await lifecycle.unfence()

    async def reported() -> int:
        controller.arrived.clear()
        lifecycle.beat_now()
        await asyncio.wait_for(controller.arrived.wait(), 5)
        offset: int = controller.requests[-1].current_metadata_offset
        return offset

    loader.apply([DecodedBatch(0, 4, 1, 0, False, 72, (m.NoOpRecord(),) * 5)])
    await loader.wait_for_offset(4)
    assert await reported() == 4, "with nothing to do, it is in effect at once"
    loader.apply([topic_at(5)])
    await asyncio.wait_for(subscriber.applying.wait(), 5)
    assert await reported() == 4, "the topic has come, but its logs are still being created"
    loader.apply([topic_at(6)])
    await loader.wait_for_offset(6)
    subscriber.gate.set()
    await subscriber.metadata.settled()
    assert await reported() == 6
    following.cancel()
    await lifecycle.abandon()


@in_event_loop
async def test_a_broker_asks_to_be_unfenced_when_it_is_prepared_and_is_heard_all_the_while() -> None:
    controller = Controller(heartbeat(is_fenced=True))
    lifecycle, _ = lifecycle_with(controller, interval_ms=1)
    prepared = asyncio.Event()

    async def preparation() -> None:
        await prepared.wait()

    preparing = asyncio.create_task(lifecycle.prepare(preparation()))
    while len(controller.requests) < 3:
        controller.arrived.clear()
        await asyncio.wait_for(controller.arrived.wait(), 5)
    prepared.set()
    await asyncio.wait_for(preparing, 5)
    assert all(request.want_fence for request in controller.requests)
    controller.answers = [heartbeat()]
    controller.requests.clear()
    await lifecycle.unfence()
    assert not any(request.want_fence for request in controller.requests)
    await lifecycle.abandon()


@in_event_loop
async def test_a_broker_that_is_still_fenced_asks_again_when_more_is_in_effect() -> None:
    subscriber, controller = Subscriber(), Controller(heartbeat(is_caught_up=False, is_fenced=True), heartbeat())
    lifecycle, loader = lifecycle_with(controller, metadata=subscriber.metadata)
    loader.add_listener(subscriber.metadata.image_published)
    following = asyncio.create_task(subscriber.metadata.run())
    unfencing = asyncio.create_task(lifecycle.unfence())
    await controller.arrived.wait()
    loader.apply([topic_at(0)])
    await asyncio.wait_for(subscriber.applying.wait(), 5)
    assert len(controller.requests) == 1
    subscriber.gate.set()
    await asyncio.wait_for(unfencing, 5)
    assert [request.current_metadata_offset for request in controller.requests] == [-1, 0]
    following.cancel()
    await lifecycle.abandon()


@in_event_loop
async def test_there_may_be_no_controller_for_a_while() -> None:
    refused = m.BrokerRegistrationResponse(error_code=Error.NOT_CONTROLLER)
    controller = Controller(refused, refused, m.BrokerRegistrationResponse(broker_epoch=5))
    lifecycle, _ = lifecycle_with(controller)
    assert await lifecycle.register() == 5


@in_event_loop
async def test_a_refusal_that_no_waiting_helps_is_raised() -> None:
    lifecycle, _ = lifecycle_with(Controller(m.BrokerRegistrationResponse(error_code=Error.INCONSISTENT_CLUSTER_ID)))
    with pytest.raises(KafkaError, match="INCONSISTENT_CLUSTER_ID: the controller refused broker 7"):
        await lifecycle.register()


@in_event_loop
async def test_heartbeats_go_on_whatever_the_controller_answers() -> None:
    controller = Controller(heartbeat(), heartbeat(error_code=Error.NOT_CONTROLLER), heartbeat())
    lifecycle, _ = lifecycle_with(controller, interval_ms=1)
    await lifecycle.unfence()
    while len(controller.requests) < 5:
        controller.arrived.clear()
        await asyncio.wait_for(controller.arrived.wait(), 10)
    await lifecycle.abandon()
    assert not any(request.want_shut_down for request in controller.requests)


@in_event_loop
async def test_a_broker_that_the_controller_has_forgotten_registers_again_and_asks_to_be_unfenced() -> None:
    stale = heartbeat(error_code=Error.STALE_BROKER_EPOCH)
    registered = m.BrokerRegistrationResponse(broker_epoch=9)
    controller = Controller(
        m.BrokerRegistrationResponse(broker_epoch=5),
        heartbeat(),
        stale,
        heartbeat(),
        stale,
        stale,
        stale,
        registered,
        heartbeat(),
    )
    lifecycle = await joined(controller, interval_ms=1)
    while len(controller.requests) < 9:
        controller.arrived.clear()
        await asyncio.wait_for(controller.arrived.wait(), 10)
    await lifecycle.abandon()
    kinds = [type(request) for request in controller.requests[:9]]
    assert [number for number, kind in enumerate(kinds) if kind is m.BrokerRegistrationRequest] == [0, 7]
    assert (controller.requests[6].broker_epoch, controller.requests[8].broker_epoch) == (5, 9)
    assert lifecycle.epoch == 9


@in_event_loop
async def test_whoever_owns_the_broker_hears_that_its_heartbeats_have_ended() -> None:
    controller = Controller(m.BrokerRegistrationResponse(broker_epoch=5), heartbeat())
    failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
    lifecycle = await joined(controller, interval_ms=1, on_failure=failed.set_result)
    controller.answers.clear()
    assert isinstance(await asyncio.wait_for(failed, 10), IndexError)
    await lifecycle.abandon()


@in_event_loop
async def test_a_broker_asks_to_stop_until_it_may() -> None:
    controller = Controller(
        m.BrokerRegistrationResponse(broker_epoch=5), heartbeat(), heartbeat(), heartbeat(should_shut_down=True)
    )
    lifecycle = await joined(controller)
    await lifecycle.stop()
    assert [request.want_shut_down for request in controller.requests[2:]] == [True, True]


@in_event_loop
async def test_a_broker_stops_in_the_end_also_without_a_controller(caplog: pytest.LogCaptureFixture) -> None:
    refused = heartbeat(error_code=Error.NOT_CONTROLLER)
    controller = Controller(m.BrokerRegistrationResponse(broker_epoch=5), heartbeat(), refused)
    lifecycle = await joined(controller, stop_timeout_ms=250)
    await lifecycle.stop()
    assert "stops without the controller's consent" in caplog.text


@in_event_loop
async def test_a_broker_waits_to_stop_as_long_as_the_controller_answers_that_it_is_under_way(
    caplog: pytest.LogCaptureFixture,
) -> None:
    under_way = [heartbeat()] * 8
    controller = Controller(
        m.BrokerRegistrationResponse(broker_epoch=5), heartbeat(), *under_way, heartbeat(should_shut_down=True)
    )
    lifecycle = await joined(controller, stop_timeout_ms=250)
    begun = asyncio.get_running_loop().time()
    await lifecycle.stop()
    assert asyncio.get_running_loop().time() - begun > 0.25
    assert [request.want_shut_down for request in controller.requests[2:]] == [True] * 9
    assert "consent" not in caplog.text


@pytest.mark.parametrize(("last", "limit_ms"), [(Error.NOT_CONTROLLER, 60_000), (Error.NONE, 700)])
def test_a_broker_waits_to_stop_no_longer_than_that(
    caplog: pytest.LogCaptureFixture, last: Error, limit_ms: int
) -> None:
    async def scenario() -> float:
        controller = Controller(
            m.BrokerRegistrationResponse(broker_epoch=5), *[heartbeat()] * 4, heartbeat(error_code=last)
        )
        lifecycle = await joined(controller, stop_timeout_ms=250, stop_limit_ms=limit_ms)
        begun = asyncio.get_running_loop().time()
        await asyncio.wait_for(lifecycle.stop(), 10)
        return asyncio.get_running_loop().time() - begun

    assert asyncio.run(scenario()) > 0.5
    assert "stops without the controller's consent" in caplog.text


@in_event_loop
async def test_a_broker_that_never_registered_stops_without_a_word() -> None:
    controller = Controller(heartbeat())
    lifecycle, _ = lifecycle_with(controller)
    await lifecycle.stop()
    assert controller.requests == []


@in_event_loop
async def test_a_failed_folder_is_told_at_once_and_with_every_heartbeat_and_no_longer_registered() -> None:
    controller = Controller(m.BrokerRegistrationResponse(broker_epoch=11), heartbeat())
    lifecycle = await joined(controller)
    controller.arrived.clear()
    (directory,) = IDENTITY.directories
    lifecycle.directory_failed(directory)
    await asyncio.wait_for(controller.arrived.wait(), 5)
    assert controller.requests[-1].offline_log_dirs == [directory]
    await lifecycle.abandon()
    controller.answers = [m.BrokerRegistrationResponse(broker_epoch=12)]
    await lifecycle.register()
    assert controller.requests[-1].log_dirs == []


@pytest.mark.parametrize("error", [Error.NOT_CONTROLLER, Error.NONE])
def test_a_broker_ends_that_cannot_tell_of_a_failed_folder_in_time(error: Error) -> None:
    async def scenario() -> None:
        controller = Controller(m.BrokerRegistrationResponse(broker_epoch=11), heartbeat(), heartbeat(error_code=error))
        failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        lifecycle = await joined(controller, folder_failure_timeout_ms=300, on_failure=failed.set_result)
        lifecycle.directory_failed(IDENTITY.directories[0])
        if error is Error.NONE:
            done, _ = await asyncio.wait([failed], timeout=1)
            assert not done, "it was told"
        else:
            assert "log.dir.failure.timeout.ms" in str(await asyncio.wait_for(failed, 10))
        await lifecycle.abandon()

    asyncio.run(scenario())
