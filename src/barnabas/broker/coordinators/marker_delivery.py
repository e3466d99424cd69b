"""Bringing the end of a transaction to all of its partitions, wherever their leaders are.

An order (`MarkerOrder`) is the end of one transaction, and it shrinks as partitions get their markers. Where a
partition is led, by the metadata in effect here, decides the way of its marker:

- Here: it is written at once (`transaction_markers`).
- By another broker: it goes with the next WriteTxnMarkers request to that broker. There is one request at a time for
  each broker, with everything that has come together meanwhile, and it is answered when all in-sync replicas have what
  was written.
- By no broker now, or by one that cannot be reached: it waits for metadata that says otherwise.
- The cluster has no such partition: it needs no marker.

What was refused is tried again a little later, and later each time, or as soon as the metadata of its topic changes. A
request that got no answer is repeated to the current leader; how often a broker that does not answer is tried is
decided by its peer. So a partition may get the same marker twice, which does no harm.

Memory. All that is kept belongs to orders, of which there is one for each transaction that is being ended. An order
that is no longer wanted, because its coordinator has lost the partition of its transactional id, is dropped.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.net.frames import UnsupportedVersionError, WireError
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from typing import TypeAlias

    from barnabas.broker.broker_peers import BrokerPeers
    from barnabas.broker.coordinators.coordinator_spec import CoordinatorEnvironment
    from barnabas.broker.coordinators.transaction_markers import MarkerWriter
    from barnabas.log.append_batches import EndMarker
    from barnabas.metadata.image import MetadataDelta, MetadataImage
    from barnabas.transactions.transaction import TopicPartition

    WritableTxnMarker: TypeAlias = m.WriteTxnMarkersRequest.WritableTxnMarker

logger = logging.getLogger("barnabas.transactions")

RETRY_SECONDS = 0.1
"""How long to wait after a partition has refused a marker; twice as long after each further time."""
RETRY_SECONDS_MAX = 5.0

PARTITIONS_PER_REQUEST_MAX: Final = 10_000
MARKERS_PER_REQUEST_MAX: Final = 1_000

PURPOSE: Final = "txn-marker-sender"
"""What connections are for: markers wait for replicas, and must not hold up others."""

WRITTEN_OR_NOT_NEEDED = frozenset(
    {Error.NONE, Error.INVALID_PRODUCER_EPOCH, Error.UNSUPPORTED_FOR_MESSAGE_FORMAT, Error.UNSUPPORTED_VERSION}
)
"""A partition that has seen a newer epoch of the producer needs no marker: anything open there is of that epoch, and
the marker would be refused for ever, which would block the transactional id. Nor does one that can hold no
transaction."""


class MarkerOrder:
    """The end of one transaction, on its way to partitions. `on_written` is called once, when none is left; never if
    the order is no longer wanted, or if one of the partitions has heard from a newer coordinator."""

    __slots__ = (
        "_is_wanted",
        "attempts",
        "is_fenced",
        "left",
        "marker",
        "on_written",
        "partitions",
        "transactional_id",
    )

    def __init__(
        self,
        transactional_id: str,
        marker: EndMarker,
        partitions: tuple[TopicPartition, ...],
        is_wanted: Callable[[], bool],
        on_written: Callable[[], None],
    ) -> None:
        self.transactional_id = transactional_id
        self.marker = marker
        self.partitions = partitions
        self.left = set(partitions)
        """Those without a marker."""
        self.on_written = on_written
        self.attempts = 0
        """How often a partition has refused the marker."""
        self.is_fenced = False
        self._is_wanted = is_wanted

    def is_wanted(self) -> bool:
        return not self.is_fenced and self._is_wanted()


class Consignment(NamedTuple):
    """What some partitions are to get of an order."""

    order: MarkerOrder
    partitions: tuple[TopicPartition, ...]


class MarkerDelivery:
    def __init__(
        self,
        node_id: int,
        environment: CoordinatorEnvironment,
        writer: MarkerWriter,
        peers: BrokerPeers,
    ) -> None:
        self.peers = peers
        self._node_id = node_id
        self._environment = environment
        self._writer = writer
        self._senders: dict[int, MarkerSender] = {}
        """Those that have something to send, by broker."""
        self._leaderless: list[Consignment] = []
        self._refused: list[tuple[float, int, Consignment]] = []
        """A heap, by when they are due; the number decides between equals."""
        self._number = count()
        self._timer: asyncio.TimerHandle | None = None

    def start(self, order: MarkerOrder) -> None:
        self.route(Consignment(order, order.partitions))

    def start_later(self, order: MarkerOrder) -> None:
        """For an order that was given before, and may have to be given again soon."""
        self.try_later(Consignment(order, order.partitions))

    def route(self, consignment: Consignment) -> None:
        """Sends each partition's marker on its way. What is no longer wanted ends here."""
        order, partitions = consignment
        if not order.is_wanted():
            return
        image = self._environment.image()
        by_leader: dict[int | None, list[TopicPartition]] = {}
        for partition in partitions:
            by_leader.setdefault(leader_of(image, partition), []).append(partition)
        for leader, led in by_leader.items():
            if leader == self._node_id:
                self._write(order, led)
            elif leader is None:
                self.tried(order, dict.fromkeys(led, Error.NONE))
            elif leader < 0 or self.peers.peer(leader, PURPOSE) is None:
                self._leaderless.append(Consignment(order, tuple(led)))
            else:
                self._sender(leader).add(Consignment(order, tuple(led)))

    def tried(self, order: MarkerOrder, errors: Mapping[TopicPartition, Error]) -> None:
        """Some partitions have got the marker, or have refused it."""
        if not order.is_wanted():
            return
        if not any(errors.values()):
            order.left.difference_update(errors)
            if not order.left:
                order.on_written()
            return
        if Error.TRANSACTION_COORDINATOR_FENCED in errors.values():
            # A newer coordinator has written there: the transaction is its responsibility now.
            order.is_fenced = True
            logger.error("giving up on the transaction markers for %s: %s", order.transactional_id, dict(errors))
            return
        refused = {partition: error for partition, error in errors.items() if error not in WRITTEN_OR_NOT_NEEDED}
        order.left.difference_update(partition for partition in errors if partition not in refused)
        for partition, error in errors.items():
            if error is Error.INVALID_PRODUCER_EPOCH:
                logger.warning(
                    "%s-%d has seen a newer epoch of producer %d than %d and needs no transaction marker for %s",
                    *partition,
                    order.marker.producer_id,
                    order.marker.producer_epoch,
                    order.transactional_id,
                )
        if refused:
            logger.debug("the transaction markers for %s were refused, will retry: %s", order.transactional_id, refused)
            self.try_later(Consignment(order, tuple(refused)))
        elif not order.left:
            order.on_written()

    def image_changed(self, _image: MetadataImage, delta: MetadataDelta) -> None:
        """Partitions may have other leaders now, or enough replicas, or be gone. Called when the image is in effect."""
        if not self._leaderless and not self._refused:
            return
        topics = {topic.name for topic in delta.deleted_topics} | {change.new.name for change in delta.changed_topics}
        if not topics and not delta.changed_brokers:
            return
        waiting, self._leaderless = self._leaderless, []
        for consignment in waiting:
            self.route(consignment)
        if topics:
            self._route_refused(topics)

    def forget_unwanted(self) -> None:
        """A coordinator has lost some of its transactional ids."""
        self._leaderless = [each for each in self._leaderless if each.order.is_wanted()]
        self._refused = [each for each in self._refused if each[2].order.is_wanted()]
        heapq.heapify(self._refused)
        for sender in self._senders.values():
            sender.forget_unwanted()

    @property
    def leaderless_count(self) -> int:
        """Markers that wait until somebody leads their partitions."""
        return len(self._leaderless)

    def close(self) -> None:
        """What is under way is left to itself, and nothing more is tried."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._leaderless.clear()
        self._refused.clear()
        for sender in list(self._senders.values()):
            sender.close()
        self._senders.clear()

    # ── here ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _write(self, order: MarkerOrder, partitions: Collection[TopicPartition]) -> None:
        def on_done(errors: Mapping[TopicPartition, Error]) -> None:
            if any(errors.values()):
                gone = Error.UNKNOWN_TOPIC_OR_PARTITION  # deleted meanwhile
                errors = {each: Error.NONE if error is gone else error for each, error in errors.items()}
            self.tried(order, errors)

        self._writer.write(order.marker, partitions, self._environment.config().request_timeout_ms, on_done)

    # ── elsewhere ────────────────────────────────────────────────────────────────────────────────────────────

    def _sender(self, broker_id: int) -> MarkerSender:
        sender = self._senders.get(broker_id)
        if sender is None:
            self._senders[broker_id] = sender = MarkerSender(self, broker_id)
        return sender

    def sender_is_idle(self, sender: MarkerSender) -> None:
        if self._senders.get(sender.broker_id) is sender:
            del self._senders[sender.broker_id]

    # ── later ────────────────────────────────────────────────────────────────────────────────────────────────

    def try_later(self, consignment: Consignment) -> None:
        order = consignment.order
        delay_s = min(RETRY_SECONDS * 2 ** min(order.attempts, 30), RETRY_SECONDS_MAX)
        order.attempts += 1
        due_s = self._environment.loop.time() + delay_s
        heapq.heappush(self._refused, (due_s, next(self._number), consignment))
        self._set_timer()

    def _set_timer(self) -> None:
        """For the earliest of the refused."""
        if not self._refused:
            return
        due_s = self._refused[0][0]
        if self._timer is not None:
            if self._timer.when() <= due_s:
                return
            self._timer.cancel()
        self._timer = self._environment.loop.call_at(due_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now_s = self._environment.loop.time()
        due = []
        while self._refused and self._refused[0][0] <= now_s:
            due.append(heapq.heappop(self._refused)[2])
        for consignment in due:
            self.route(consignment)
        self._set_timer()

    def _route_refused(self, topics: Collection[str]) -> None:
        """Tries again now what has partitions of these topics."""
        waiting, self._refused = self._refused, []
        for each in waiting:
            if any(topic in topics for topic, _ in each[2].partitions):
                self.route(each[2])
            else:
                self._refused.append(each)
        heapq.heapify(self._refused)
        self._set_timer()


class MarkerSender:
    """What is to be sent to one broker, and the request that is under way."""

    def __init__(self, delivery: MarkerDelivery, broker_id: int) -> None:
        self.broker_id = broker_id
        self._delivery = delivery
        self._queue: deque[Consignment] = deque()
        self._sending: asyncio.Task[None] | None = None

    def add(self, consignment: Consignment) -> None:
        self._queue.append(consignment)
        if self._sending is None:
            self._start()

    def forget_unwanted(self) -> None:
        self._queue = deque(each for each in self._queue if each.order.is_wanted())

    def close(self) -> None:
        self._queue.clear()
        if self._sending is not None:
            self._sending.cancel()

    def _start(self) -> None:
        self._sending = asyncio.ensure_future(self._send())
        self._sending.add_done_callback(self._sending_ended)

    async def _send(self) -> None:
        while batch := self._next_batch():
            peer = self._delivery.peers.peer(self.broker_id, PURPOSE)
            if peer is None:
                self._route_again(batch)
                continue
            request = as_request(batch)
            try:
                response: m.WriteTxnMarkersResponse = await peer.send(request)
            except UnsupportedVersionError as error:
                logger.error("transaction markers for %d transactions cannot be sent: %s", len(batch), error)
                for consignment in batch:
                    self._delivery.try_later(consignment)
            except WireError as error:
                logger.info("transaction markers for %d transactions were not sent: %s", len(batch), error)
                self._route_again(batch)
            except Exception:
                logger.exception("transaction markers for broker %d cannot be encoded", self.broker_id)
                for consignment in batch:
                    self._delivery.try_later(consignment)
            else:
                self._answered(batch, response)

    def _next_batch(self) -> list[Consignment]:
        batch: list[Consignment] = []
        partitions = 0
        while self._queue and len(batch) < MARKERS_PER_REQUEST_MAX:
            partitions += len(self._queue[0].partitions)
            if batch and partitions > PARTITIONS_PER_REQUEST_MAX:
                break
            consignment = self._queue.popleft()
            if consignment.order.is_wanted():
                batch.append(consignment)
        return batch

    def _route_again(self, batch: list[Consignment]) -> None:
        """What is still for this broker joins the queue; how soon the broker is tried again is up to its peer."""
        for consignment in batch:
            self._delivery.route(consignment)

    def _answered(self, batch: list[Consignment], response: m.WriteTxnMarkersResponse) -> None:
        errors = errors_by_producer(response)
        for order, partitions in batch:
            answered = errors.get(order.marker.producer_id, {})
            self._delivery.tried(order, {each: answered.get(each, Error.UNKNOWN_SERVER_ERROR) for each in partitions})

    def _sending_ended(self, sending: asyncio.Task[None]) -> None:
        if not sending.cancelled() and (error := sending.exception()) is not None:
            logger.critical("sending transaction markers to broker %d failed", self.broker_id, exc_info=error)
        self._sending = None
        if self._queue:  # Something has come since the last look.
            self._start()
        else:
            self._delivery.sender_is_idle(self)


def leader_of(image: MetadataImage, partition: TopicPartition) -> int | None:
    """The leader's broker id, -1 if there is none now, None if there is no such partition."""
    name, index = partition
    topic = image.topics.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        return None
    return topic.partitions[index].leader


def as_request(batch: Iterable[Consignment]) -> m.WriteTxnMarkersRequest:
    return m.WriteTxnMarkersRequest(markers=[as_wire_marker(*consignment) for consignment in batch])


def as_wire_marker(order: MarkerOrder, partitions: Iterable[TopicPartition]) -> WritableTxnMarker:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    request, marker = m.WriteTxnMarkersRequest, order.marker
    return request.WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transaction_result=marker.is_commit,
        topics=[
            request.WritableTxnMarkerTopic(name=topic, partition_indexes=indexes) for topic, indexes in topics.items()
        ],
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
    )


def errors_by_producer(response: m.WriteTxnMarkersResponse) -> dict[int, dict[TopicPartition, Error]]:
    found: dict[int, dict[TopicPartition, Error]] = {}
    for result in response.markers:
        errors = found.setdefault(result.producer_id, {})
        for topic in result.topics:
            for partition in topic.partitions:
                errors[topic.name, partition.partition_index] = Error(partition.error_code)
    return found
