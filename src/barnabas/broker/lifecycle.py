"""A broker's life in the cluster: registration, catching up, unfencing, heartbeats, and controlled shutdown.

It talks to the controller in Kafka's messages. The broker registers with a new incarnation id, waits until its own
image contains the registration, puts that image into effect, and asks to be unfenced. Heartbeats keep its session alive
all the while. They report up to where the metadata is in effect: a broker that leaves is let go when all others act on
what was decided then. They also report which data folders have failed, so that other brokers, if any, lead their
partitions. At the end the broker asks for a controlled shutdown, and stops when the controller allows it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.metadata.conversions import addresses_as, features_as
from barnabas.metadata.versions import SUPPORTED_FEATURES, supports_directories
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error, KafkaError
from barnabas.protocol.uuids import to_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from barnabas.broker.controller_channel import ControllerChannel
    from barnabas.broker.image_subscriber import ImageSubscriber
    from barnabas.metadata.image import Endpoint, MetadataImage
    from barnabas.protocol.uuids import Uuid
    from barnabas.raft.image_publisher import ImagePublisher

logger = logging.getLogger("barnabas.broker")

NO_EPOCH = -1
_RETRY_MS = 100
STALE_HEARTBEATS_MAX = 3
"""After this many STALE_BROKER_EPOCH in a row, the controller has lost the registration, and a new one is due."""
_RETRIABLE = (Error.NOT_CONTROLLER, Error.DUPLICATE_BROKER_REGISTRATION, Error.REQUEST_TIMED_OUT)
"""A controller may be between two leaderships, or still wait for the session of this broker's last incarnation."""


_HINTS = {
    Error.INCONSISTENT_CLUSTER_ID: ": the folders of this node belong to another cluster",
    Error.INVALID_REGISTRATION: ": one of its folders belongs to another broker; was it copied from there?",
    Error.UNSUPPORTED_VERSION: ": it does not support the cluster's feature levels",
}
COMPLAINT_S = 5.0
"""How often the same refusal is logged."""


class RegistrationError(Exception):
    """The broker cannot become a part of the cluster; the message says why."""


class UnreportedFolderError(Exception):
    """The controller could not be told that a data folder has failed: others would wait for its partitions for ever."""


class BrokerIdentity(NamedTuple):
    """What a broker registers with."""

    broker_id: int
    cluster_id: str
    incarnation_id: Uuid
    """New at every start."""
    endpoints: tuple[Endpoint, ...]
    """The advertised listeners."""
    directories: tuple[Uuid, ...]
    """The directory.id of each data folder."""
    rack: str | None = None
    previous_epoch: int = NO_EPOCH
    """The broker epoch of the last run, if that ended with a clean shutdown."""


class BrokerLifecycle:
    """To be used on the broker's event loop: `register_first`, `seen`, `prepare`, `unfence`; in the end `stop`."""

    def __init__(
        self,
        identity: BrokerIdentity,
        channel: ControllerChannel,
        publisher: ImagePublisher,
        metadata: ImageSubscriber,
        *,
        heartbeat_interval_ms: int = 2000,
        registration_timeout_ms: int = 60_000,
        stop_timeout_ms: int = 10_000,
        stop_limit_ms: int = 300_000,
        folder_failure_timeout_ms: int = 30_000,
        cordoned_directories: Callable[[], list[Uuid]] = list,
        on_failure: Callable[[BaseException], None] | None = None,
    ) -> None:
        """`metadata` puts into effect what `publisher` publishes. `on_failure` is called on this loop with the error
        that has ended the heartbeats: the controller will fence the broker; or if the controller has not learned of a
        failed folder in time."""
        self._identity = identity
        self._channel = channel
        self._publisher = publisher
        self._metadata = metadata
        self._interval_s = heartbeat_interval_ms / 1000
        self._registration_timeout_s = registration_timeout_ms / 1000
        self._stop_timeout_s = stop_timeout_ms / 1000
        self._stop_limit_s = stop_limit_ms / 1000
        self._folder_failure_timeout_s = folder_failure_timeout_ms / 1000
        self._cordoned_directories = cordoned_directories
        self._on_failure = on_failure
        self._epoch = NO_EPOCH
        self._is_prepared = False
        """Whether the broker may be unfenced."""
        self._heartbeats: asyncio.Task[None] | None = None
        self._last_refusal: Error | None = None
        self._next_complaint = 0.0
        self._complained_of = Error.NONE
        self._failed_directories: list[Uuid] = []
        self._unreported: dict[Uuid, asyncio.TimerHandle] = {}
        """Failed directories that no answered heartbeat has named yet, and what happens when their time is up."""
        self._has_news = asyncio.Event()
        """Set if the next heartbeat should be sent at once."""
        self._has_moved = False
        """Whether the registration has other endpoints than the broker."""

    @property
    def epoch(self) -> int:
        """The broker epoch of this registration; -1 before it."""
        return self._epoch

    async def register(self) -> int:
        """Registers the broker, fenced. Returns its epoch."""
        response = await self._until_answered(self._registration())
        self._epoch = response.broker_epoch
        return self._epoch

    async def seen(self) -> None:
        """Returns when the broker's image has this registration, and so what the controller decided on its account."""
        while not self._is_registered_in(image := self._publisher.image):
            await self._publisher.wait_for_offset(image.offset + 1)

    def _is_registered_in(self, image: MetadataImage) -> bool:
        registered = image.brokers.get(self._identity.broker_id)
        return registered is not None and registered.epoch >= self._epoch

    def _lacks_directories_in(self, image: MetadataImage) -> bool:
        """Whether the metadata knows of directories, but not of those of this broker: it registered before the
        cluster's metadata.version was raised. The same incarnation may register again, and keeps its epoch."""
        registered = image.brokers.get(self._identity.broker_id)
        return (
            supports_directories(image.features.metadata_version)
            and registered is not None
            and registered.epoch == self._epoch
            and not registered.directories
        )

    async def register_first(self) -> None:
        """Registers the broker, or raises RegistrationError with the reason when its time is up."""
        try:
            async with asyncio.timeout(self._registration_timeout_s):
                await self.register()
        except TimeoutError:
            raise RegistrationError(
                f"broker {self._identity.broker_id} could not register within {self._registration_timeout_s:g} s "
                f"(initial.broker.registration.timeout.ms): {self._refusal_text()}"
            ) from None
        except KafkaError as error:
            raise RegistrationError(
                f"the controller refused broker {self._identity.broker_id}: {error.error.name}"
                f"{_HINTS.get(error.error, '')}"
            ) from error

    def _refusal_text(self) -> str:
        """Why the last attempt to register failed, and who has this broker's id if somebody has."""
        if self._last_refusal is not Error.DUPLICATE_BROKER_REGISTRATION:
            return "no controller answered" if self._last_refusal is None else self._last_refusal.name
        holder = self._publisher.image.brokers.get(self._identity.broker_id)
        where = ", ".join(f"{each.host}:{each.port}" for each in holder.endpoints) if holder is not None else "unknown"
        return (
            f"{self._last_refusal.name}: another broker with the id {self._identity.broker_id} is alive at {where}: "
            "give this node another node.id and other folders, or stop that one"
        )

    def directory_failed(self, directory: Uuid) -> None:
        """A data folder has failed. The controller is told at once, and again with every heartbeat. If it does not
        answer for `log.dir.failure.timeout.ms`, the broker ends."""
        self._failed_directories.append(directory)
        self._unreported[directory] = asyncio.get_running_loop().call_later(
            self._folder_failure_timeout_s, self._not_reported, directory
        )
        self._has_news.set()

    def _not_reported(self, directory: Uuid) -> None:
        error = UnreportedFolderError(
            f"broker {self._identity.broker_id} is shutting down because it could not tell a controller within "
            f"{self._folder_failure_timeout_s:g} s (log.dir.failure.timeout.ms) that the folder with directory.id "
            f"{to_text(directory)} has failed"
        )
        logger.error("%s", error)
        if self._on_failure is not None:
            self._on_failure(error)

    def _reported(self, request: m.BrokerHeartbeatRequest) -> None:
        for directory in request.offline_log_dirs:
            if (timer := self._unreported.pop(directory, None)) is not None:
                timer.cancel()

    def beat_now(self) -> None:
        """The next heartbeat is sent at once: the way to the controller is another, or there is something to tell."""
        self._has_news.set()

    def advertise(self, endpoints: tuple[Endpoint, ...]) -> None:
        """The broker is reached at these from now on. It registers again, as the same incarnation."""
        if endpoints != self._identity.endpoints:
            self._identity = self._identity._replace(endpoints=endpoints)
            self._has_moved = True
            self._has_news.set()

    async def prepare(self, preparation: Awaitable[None]) -> None:
        """Waits for what has to be done before the broker is unfenced. That may take longer than a session, so
        heartbeats go on meanwhile."""
        self._is_prepared = False
        self._begin_heartbeats()
        try:
            await preparation
        finally:
            await self._end_heartbeats()

    async def unfence(self) -> None:
        """Returns when the broker is unfenced in its own image: it may lead, and its topics have leaders."""
        self._is_prepared = True
        while True:
            request = self._heartbeat()
            response = await self._until_answered(request)
            if not response.is_fenced:
                break
            # Only metadata that is not in effect up to the registration keeps a broker fenced.
            await self._in_effect_after(request.current_metadata_offset)
        logger.info("broker %d is unfenced with epoch %d", self._identity.broker_id, self._epoch)
        self._begin_heartbeats()

    async def _in_effect_after(self, offset: int) -> None:
        """Returns when metadata beyond this offset is in effect."""
        await self._publisher.wait_for_offset(offset + 1)
        await self._metadata.settled()

    def _begin_heartbeats(self) -> None:
        self._heartbeats = asyncio.create_task(self._beat(), name="broker heartbeats")
        self._heartbeats.add_done_callback(self._heartbeats_ended)

    async def _end_heartbeats(self) -> None:
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            await asyncio.gather(self._heartbeats, return_exceptions=True)
            self._heartbeats = None

    async def stop(self) -> None:
        """Leaves the cluster by a controlled shutdown: leadership is given up first, then the broker is fenced.

        That takes as long as others need to take over, and so as long as a controller answers that it is under way, up
        to `stop_limit_ms`, which are Kafka's five minutes. Without an answer the wait is shorter, `stop_timeout_ms`: a
        controller whose disk is full, for example, cannot write its decision.
        """
        await self.abandon()
        if self._epoch == NO_EPOCH:
            return
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            async with asyncio.timeout_at(begun + self._stop_timeout_s) as patience:
                while not await self._may_shut_down():
                    patience.reschedule(min(loop.time() + self._stop_timeout_s, begun + self._stop_limit_s))
        except TimeoutError:
            logger.warning(
                "broker %d stops without the controller's consent, which did not come within %.0f s",
                self._identity.broker_id,
                loop.time() - begun,
            )

    async def _may_shut_down(self) -> bool:
        """What the controller answers; if it is no, when it is worth asking again."""
        request = self._heartbeat()
        request.want_shut_down = True
        response = await self._until_answered(request)
        if not response.should_shut_down:
            # What the controller waits for comes with the log, so it is worth asking again after the next image.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RETRY_MS / 1000):
                    await self._in_effect_after(request.current_metadata_offset)
        return bool(response.should_shut_down)

    async def abandon(self) -> None:
        """Stops the heartbeats without a word to the controller."""
        for timer in self._unreported.values():
            timer.cancel()
        self._unreported.clear()
        await self._end_heartbeats()

    async def _beat(self) -> None:
        stale_count = 0
        while True:
            await self._until_due()
            if self._has_moved or self._lacks_directories_in(self._publisher.image):
                self._has_moved = False
                await self.register()
            request = self._heartbeat()
            response = await self._channel.send(request)
            error = Error(response.error_code)
            if error is Error.NONE:
                self._reported(request)
            if error is Error.NOT_CONTROLLER:
                # The session goes on meanwhile, so the next controller is told as soon as there is one.
                self._has_news.set()
                await asyncio.sleep(_RETRY_MS / 1000)
            if error is not Error.NONE:
                self._complain("a heartbeat of broker %d was refused: %s", error)
            stale_count = stale_count + 1 if error is Error.STALE_BROKER_EPOCH else 0
            if stale_count >= STALE_HEARTBEATS_MAX:
                # The new registration is fenced; the next heartbeat asks to be unfenced, as every one does.
                await self.register()
                logger.warning("broker %d has registered again, with epoch %d", self._identity.broker_id, self._epoch)
                stale_count = 0

    async def _until_due(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._interval_s):
                await self._has_news.wait()
        self._has_news.clear()

    def _heartbeats_ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        logger.error("the heartbeats of broker %d have ended: %s", self._identity.broker_id, error, exc_info=error)
        if self._on_failure is not None:
            self._on_failure(error)

    async def _until_answered(self, request: m.BrokerRegistrationRequest | m.BrokerHeartbeatRequest) -> Any:
        """Repeats a request while there is no controller to answer it."""
        while True:
            response = await self._channel.send(request)
            error = Error(response.error_code)
            if error is Error.NONE:
                return response
            if error not in _RETRIABLE:
                raise KafkaError(error, f"the controller refused broker {self._identity.broker_id}")
            self._last_refusal = error
            self._complain("the controller refused broker %d for now, will retry: %s", error)
            await asyncio.sleep(_RETRY_MS / 1000)

    def _complain(self, text: str, error: Error) -> None:
        """Now and then, as long as the reason is the same."""
        now = asyncio.get_running_loop().time()
        is_due = now >= self._next_complaint or error is not self._complained_of
        if is_due:
            self._next_complaint, self._complained_of = now + COMPLAINT_S, error
        logger.log(logging.WARNING if is_due else logging.DEBUG, text, self._identity.broker_id, error.name)

    def _registration(self) -> m.BrokerRegistrationRequest:
        request, identity = m.BrokerRegistrationRequest, self._identity
        return request(
            broker_id=identity.broker_id,
            cluster_id=identity.cluster_id,
            incarnation_id=identity.incarnation_id,
            listeners=addresses_as(request.Listener, identity.endpoints),
            features=features_as(request.Feature, SUPPORTED_FEATURES),
            rack=identity.rack,
            log_dirs=[each for each in identity.directories if each not in self._failed_directories],
            previous_broker_epoch=identity.previous_epoch,
        )

    def _heartbeat(self) -> m.BrokerHeartbeatRequest:
        return m.BrokerHeartbeatRequest(
            broker_id=self._identity.broker_id,
            broker_epoch=self._epoch,
            current_metadata_offset=self._metadata.offset_in_effect(self._publisher.image.offset),
            want_fence=not self._is_prepared,
            offline_log_dirs=list(self._failed_directories),
            cordoned_log_dirs=self._cordoned_directories(),
        )
