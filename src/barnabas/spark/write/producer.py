"""Sends batches to the leaders of their partitions: several requests in flight, nothing lost, nothing duplicated.

Batches for one leader are collected until a request is full, and sent without waiting for earlier responses, up to a
limit; then the producer waits for the oldest response, which is what slows a fast task down. Each batch carries its
producer id and a sequence number per partition, so that a leader refuses a gap and recognises a duplicate.

After a failure that may be temporary (a leader moved, a broker restarted, a connection broke), all outstanding
responses are received first, so that it is known which batches are not in the log. These are sent again one by one, in
order, until they are in the log or the delivery timeout is over.

A batch is collected for a connection to its leader and is sent there even if leadership has moved since. Before the
cluster is asked for the new leader, everything collected is sent and all responses are received: the batches of a
partition are never in flight to two brokers at once, where later ones might arrive first.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.client.cluster import Call
from barnabas.client.retries import LEADERSHIP_ERRORS, RETRIED, failure_of
from barnabas.net.frames import TRANSIENT
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.batch import NO_SEQUENCE
from barnabas.protocol.errors import Error, KafkaError
from barnabas.spark.columnar.record_encoding import seal
from barnabas.spark.write.partitioner import Partitions
from barnabas.spark.write.sink_transactions import Protocol, add_partitions, explained

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from barnabas.client.broker_connection import Connection
    from barnabas.client.cluster import Cluster, TopicPartition
    from barnabas.spark.columnar.record_encoding import Author, Batch
    from barnabas.spark.write.sink_options import ProducerOptions

SEQUENCE_COUNT: Final = 1 << 31
"""Sequence numbers wrap around to 0 here."""

_RETRIED: Final = frozenset(
    {
        Error.CONCURRENT_TRANSACTIONS,
        Error.NOT_ENOUGH_REPLICAS,
        Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
)
_TAKEN: Final = frozenset({Error.NONE, Error.DUPLICATE_SEQUENCE_NUMBER})
"""The batch is in the log, since now or since earlier."""
_REMEDIES: Final = {
    Error.MESSAGE_TOO_LARGE: "lower option kafka.batch.size, or raise max.message.bytes of the topic",
    Error.RECORD_LIST_TOO_LARGE: "lower option kafka.batch.size, or raise segment.bytes of the topic",
    Error.INVALID_TIMESTAMP: "column timestamp is further from the broker's clock than the topic allows",
    Error.INVALID_RECORD: "the topic does not accept such rows: in a compacted topic each needs a key",
}


class Sealed(NamedTuple):
    """A batch that is ready to be sent, and to be sent again."""

    topic: str
    partition: int
    content: bytes

    @property
    def place(self) -> TopicPartition:
        return self.topic, self.partition


class _Request:
    """Batches for one leader, at most one per partition."""

    __slots__ = ("batches", "size_bytes")

    def __init__(self) -> None:
        self.batches: dict[TopicPartition, Sealed] = {}
        self.size_bytes = 0

    def add(self, batch: Sealed) -> None:
        self.batches[batch.place] = batch
        self.size_bytes += len(batch.content)


class Producer:
    """Writes batches of one author. After `flush`, everything that was written is in the log."""

    def __init__(
        self,
        cluster: Cluster,
        author: Author,
        options: ProducerOptions,
        *,
        protocol: Protocol = Protocol.V1,
        sequences: dict[TopicPartition, int] | None = None,
    ) -> None:
        self.author = author
        self.sequences = {} if sequences is None else sequences
        """The next sequence number, for each partition that has been written to."""
        self._cluster = cluster
        self._options = options
        self._protocol = protocol
        self._topics: dict[str, Partitions] = {}
        self._joined: set[TopicPartition] = set()
        """Partitions that are in the transaction."""
        self._collected: dict[Connection, _Request] = {}
        """What is to be sent next to each leader."""
        self._in_flight: dict[Connection, deque[_Request]] = {}
        self._first: set[TopicPartition] = set()
        """Partitions whose first batch is not known to be in the log."""
        self._failed: dict[TopicPartition, list[Sealed]] = {}
        """What is to be sent again, in order."""

    def partitions_of(self, topic: str) -> Partitions:
        """The partitions of a topic as they were when first looked up: within a task, they do not change."""
        if topic not in self._topics:
            self.flush()
            partitions = self._cluster.metadata([topic])[topic].partitions
            available = [number for number, each in partitions.items() if each.leader_id >= 0]
            self._topics[topic] = Partitions(topic, len(partitions), available)
        return self._topics[topic]

    def write(self, topic: str, batches: Iterable[Batch]) -> None:
        """Sends batches of one topic, or collects them to be sent."""
        for batch in self._joining(topic, batches):
            place = (topic, batch.partition)
            if place in self._first:
                self.flush()
            is_first = self.author.is_idempotent and place not in self.sequences
            self._append(Sealed(topic, batch.partition, seal(batch, self.author, self._number(place, batch))))
            if is_first:
                # A leader accepts whichever batch of a producer it sees first. If the first one failed and the second
                # did not, the first would come too late: so the second one waits.
                self._first.add(place)

    def flush(self) -> None:
        """Waits until everything that was written is in the log."""
        while self._collected:
            self._send(next(iter(self._collected)))
        self._take_all()

    def _joining(self, topic: str, batches: Iterable[Batch]) -> Iterable[Batch]:
        """The same batches, once the partitions that are new among them have been added to the transaction."""
        if self.author.transactional_id is None or self._protocol is not Protocol.V1:
            return batches
        batches = list(batches)
        new = {(topic, batch.partition) for batch in batches} - self._joined
        if new:
            self.flush()
            add_partitions(self._cluster, self.author, sorted(new))
            self._joined |= new
        return batches

    def _number(self, place: TopicPartition, batch: Batch) -> int:
        if not self.author.is_idempotent:
            return NO_SEQUENCE
        sequence = self.sequences.get(place, 0)
        self.sequences[place] = (sequence + batch.record_count) % SEQUENCE_COUNT
        return sequence

    def _append(self, batch: Sealed) -> None:
        connection = self._leader_of(batch.place)
        request = self._collected.get(connection)
        if request is not None and (
            batch.place in request.batches or request.size_bytes + len(batch.content) > self._options.request_bytes_max
        ):
            self._send(connection)
            # The response may have been a failure, after which another broker may be the leader.
            connection = self._leader_of(batch.place)
        self._collected.setdefault(connection, _Request()).add(batch)

    def _leader_of(self, place: TopicPartition) -> Connection:
        connection = self._cluster.leader_at_hand(*place)
        if connection is None:
            self.flush()
            connection = self._cluster.leader(*place, timeout_ms=self._options.delivery_timeout_ms)
        return connection

    def _send(self, connection: Connection) -> None:
        """Sends what was collected for a leader; if enough is in flight, waits for its oldest response."""
        request = self._collected.pop(connection)
        sent = self._in_flight.setdefault(connection, deque())
        sent.append(request)
        try:
            version = connection.newest_version(ApiKey.PRODUCE, self._protocol.value.produce)
            connection.send_nowait(self._message(request.batches.values()), version)
        except TRANSIENT:
            self._lose(connection)
        else:
            if len(sent) >= self._options.in_flight_max:
                self._take(connection)
        if self._failed:
            self._take_all()

    def _message(self, batches: Iterable[Sealed]) -> m.ProduceRequest:
        structs = m.ProduceRequest
        by_topic: dict[str, list[m.ProduceRequest.PartitionProduceData]] = {}
        for batch in batches:
            data = structs.PartitionProduceData(index=batch.partition, records=batch.content)
            by_topic.setdefault(batch.topic, []).append(data)
        return structs(
            transactional_id=self.author.transactional_id,
            acks=self._options.acks,
            timeout_ms=self._cluster.settings.request_timeout_ms,
            topic_data=[structs.TopicProduceData(name=name, partition_data=data) for name, data in by_topic.items()],
        )

    def _take_all(self) -> None:
        """Receives all outstanding responses. If something failed, nothing is in flight or collected afterwards."""
        for connection, sent in list(self._in_flight.items()):
            while sent:
                self._take(connection)
        self._in_flight.clear()
        if self._failed:
            for request in self._collected.values():
                self._fail(request)
            self._collected.clear()
            self._send_again()
        self._first.intersection_update(place for request in self._collected.values() for place in request.batches)

    def _take(self, connection: Connection) -> None:
        """Receives the oldest outstanding response of a leader."""
        try:
            response: m.ProduceResponse = connection.receive(self._cluster.settings.request_timeout_ms / 1000)
        except TRANSIENT:
            self._lose(connection)
            return
        request = self._in_flight[connection].popleft()
        for place, error, detail in _outcomes(response):
            batch = request.batches[place]
            if error in _TAKEN:
                continue
            if error in LEADERSHIP_ERRORS:
                self._cluster.forget_topic(batch.topic)
            if not self._may_pass(place, error):
                where = f"{batch.topic}-{batch.partition}: Produce at {connection.address}{detail}"
                raise self._explained(failure_of(error, where))
            self._failed.setdefault(place, []).append(batch)

    def _may_pass(self, place: TopicPartition, error: Error) -> bool:
        """Whether it makes sense to send a batch again. Until a failed batch is sent again, those after it are out of
        order."""
        return (
            error in RETRIED
            or error in _RETRIED
            or (error is Error.OUT_OF_ORDER_SEQUENCE_NUMBER and place in self._failed)
        )

    def _lose(self, connection: Connection) -> None:
        """A connection broke: it is not known whether the requests on it arrived."""
        connection.close()
        sent = self._in_flight[connection]
        while sent:
            self._fail(sent.popleft())

    def _fail(self, request: _Request) -> None:
        for place, batch in request.batches.items():
            self._cluster.forget_topic(batch.topic)
            self._failed.setdefault(place, []).append(batch)

    def _send_again(self) -> None:
        for batches in list(self._failed.values()):
            out_of_order: KafkaError | None = None
            for batch in batches:
                try:
                    self._send_alone(batch)
                except KafkaError as failure:
                    if failure.error is not Error.OUT_OF_ORDER_SEQUENCE_NUMBER:
                        raise
                    # A leader that has recovered its log remembers only the last batch of a producer. An earlier one
                    # is then out of order although it is in the log, which a later one proves by being accepted or
                    # recognised as a duplicate.
                    out_of_order = failure
                else:
                    out_of_order = None
            if out_of_order is not None:
                raise out_of_order
        self._failed.clear()

    def _send_alone(self, batch: Sealed) -> None:
        def fault(response: m.ProduceResponse) -> int:
            ((_, error, _),) = _outcomes(response)
            return int(Error.NONE if error in _TAKEN else error)

        request = self._message([batch])
        call = Call(ApiKey.PRODUCE, lambda _: request, fault, self._protocol.value.produce, _RETRIED)
        try:
            self._cluster.ask_leader(batch.topic, batch.partition, call, timeout_ms=self._options.delivery_timeout_ms)
        except KafkaError as failure:
            raise self._explained(failure) from failure

    def _explained(self, failure: KafkaError) -> KafkaError:
        """A final failure, with what to do about it."""
        remedy = f": {_REMEDIES[failure.error]}" if failure.error in _REMEDIES else ""
        final = KafkaError(failure.error, failure.message + remedy)
        return explained(final, self.author.transactional_id) if self.author.transactional_id else final


def _outcomes(response: m.ProduceResponse) -> Iterator[tuple[TopicPartition, Error, str]]:
    for topic in response.responses:
        for each in topic.partition_responses:
            detail = f" ({each.error_message})" if each.error_message else ""
            yield (topic.name, each.index), Error(each.error_code), detail
