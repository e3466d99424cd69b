"""Fetch requests for one partition, the next one in flight while the previous response is decoded.

A broker answers the requests of a connection in order, so it is enough to send early: the response collects in the
socket's buffer meanwhile. A request is for one partition and uses no fetch session, because a task reads one range. A
leader that moves or a broker that restarts causes only a delay, as in `client.cluster`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.client.broker_connection import TRANSIENT, Connection, WireError
from barnabas.client.offset_queries import READ_COMMITTED, local_start
from barnabas.client.retries import LEADERSHIP_ERRORS, Attempts, RetriableError, failure_of, retrying
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error, KafkaError
from barnabas.protocol.uuids import ZERO_UUID
from barnabas.spark.columnar.fetched_batches import Batches, Wanted, survey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.client.cluster import Cluster
    from barnabas.spark.read.fetch_settings import FetchSettings

    PartitionData = m.FetchResponse.PartitionData
    AbortedTransaction = m.FetchResponse.AbortedTransaction

FETCH_BYTES_MIN: Final = 64 * 1024
RECORD_BYTES_GUESS: Final = 1_024
ALLOWANCE: Final = 1.25
"""Near the end of a range a request asks for as many bytes as the rest should take, judging by the records so far, and
a bit more. What comes after the range belongs to another task and would be fetched in vain."""

EMPTY_ANSWERS_BELIEVED: Final = 3
"""After this many empty responses before the end of the range, compaction is taken to have left no more records in it.

This holds only for offsets on the leader's own disk. Records in remote storage may be late, and responses are empty
until they arrive. There are no gaps in remote storage: compacted topics are not tiered.
"""

_NAMES_VERSION_MAX: Final = 12
"""The last version of Fetch with topic names; later ones have topic ids."""


class Answer(NamedTuple):
    """Whole batches of a partition, of which the first contains the requested offset or follows it."""

    batches: Batches
    next_offset: int
    aborted: Sequence[AbortedTransaction]


class _Sent(NamedTuple):
    """A request whose response is outstanding."""

    connection: Connection
    offset: int


class Fetcher:
    """Fetches a partition piece by piece: `take` a response, `send` for the next, decode the first, and so on."""

    def __init__(self, cluster: Cluster, wanted: Wanted, settings: FetchSettings, isolation_level: int) -> None:
        self._cluster = cluster
        self._wanted = wanted
        self._settings = settings
        self._isolation_level = isolation_level
        self._sent: _Sent | None = None
        self._bytes_per_offset = float(RECORD_BYTES_GUESS)

    def send(self, offset: int) -> None:
        """Requests what follows this offset. If that fails, `take` tries again."""
        try:
            self._send(offset, self._settings.timeout_ms)
        except (KafkaError, *TRANSIENT):
            self.abandon()

    def take(self, offset: int) -> Answer | None:
        """The batches from this offset on; None if there are none before the end of the range.

        KafkaError if the offset is not in the partition, or if nothing arrives in the time allowed.
        """
        empty_answers = 0

        def attempt(attempts: Attempts) -> Answer | None:
            nonlocal empty_answers
            data, is_throttled = self._receive(offset, attempts)
            batches = survey(memoryview(data.records or b""), self._wanted._replace(start=offset))
            next_offset = batches.next_offset
            if next_offset is not None and next_offset > offset:
                self._bytes_per_offset = len(batches.data) / (next_offset - offset)
                return Answer(batches, next_offset, data.aborted_transactions or ())
            self._check_size(data, offset)
            self._check_end(data)
            empty_answers += not is_throttled and self._is_local(offset)
            if empty_answers == EMPTY_ANSWERS_BELIEVED:
                return None
            raise RetriableError(Error.OFFSET_NOT_AVAILABLE, f"{self._name}: no records arrive from offset {offset} on")

        return retrying(self._cluster.settings, attempt, self._settings.timeout_ms)

    def abandon(self) -> None:
        """Gives up the outstanding response, if there is one, by closing its connection."""
        if self._sent is not None:
            self._sent.connection.close()
            self._sent = None

    @property
    def _name(self) -> str:
        return f"{self._wanted.topic}-{self._wanted.partition}"

    def _send(self, offset: int, timeout_ms: int) -> _Sent:
        topic, partition = self._wanted.topic, self._wanted.partition
        connection = self._cluster.leader(topic, partition, timeout_ms=timeout_ms)
        topic_id = self._cluster.topic_id(topic)
        request = m.FetchRequest(
            max_wait_ms=self._settings.max_wait_ms,
            min_bytes=1,
            max_bytes=self._settings.max_bytes,
            isolation_level=self._isolation_level,
            topics=[
                m.FetchRequest.FetchTopic(
                    topic=topic,
                    topic_id=topic_id,
                    partitions=[
                        m.FetchRequest.FetchPartition(
                            partition=partition,
                            current_leader_epoch=self._cluster.leader_epoch(topic, partition),
                            fetch_offset=offset,
                            partition_max_bytes=self._worth_fetching(offset),
                        )
                    ],
                )
            ],
        )
        version_max = _NAMES_VERSION_MAX if topic_id == ZERO_UUID else None
        connection.send_nowait(request, connection.newest_version(ApiKey.FETCH, version_max))
        self._sent = _Sent(connection, offset)
        return self._sent

    def _worth_fetching(self, offset: int) -> int:
        expected = (self._wanted.end - offset) * self._bytes_per_offset * ALLOWANCE
        return min(self._settings.max_bytes, max(FETCH_BYTES_MIN, int(expected)))

    def _receive(self, offset: int, attempts: Attempts) -> tuple[PartitionData, bool]:
        """The response for the partition, and whether the broker is throttling this client."""
        sent = self._sent
        if sent is None or sent.offset != offset:
            self.abandon()
            sent = self._send(offset, int(attempts.remaining_s * 1000))
        self._sent = None
        try:
            response: m.FetchResponse = sent.connection.receive(attempts.request_timeout_s)
        except WireError:
            self._cluster.forget_topic(self._wanted.topic)
            raise
        subject = f"{self._name}: Fetch from offset {offset} at {sent.connection.address}"
        partitions = [partition for topic in response.responses for partition in topic.partitions]
        error = Error(response.error_code or (partitions[0].error_code if partitions else Error.NONE))
        if error in LEADERSHIP_ERRORS:
            self._cluster.forget_topic(self._wanted.topic)
        if error is not Error.NONE:
            raise failure_of(error, subject)
        if not partitions:
            raise RetriableError(Error.UNKNOWN_SERVER_ERROR, f"{subject}: the response has no partition")
        return partitions[0], response.throttle_time_ms > 0

    def _is_local(self, offset: int) -> bool:
        return offset >= local_start(self._cluster, (self._wanted.topic, self._wanted.partition))

    def _check_size(self, data: PartitionData, offset: int) -> None:
        if data.records:
            raise KafkaError(
                Error.RECORD_LIST_TOO_LARGE,
                f"{self._name}: the batch at offset {offset} is larger than a fetch response may be "
                f"({self._settings.max_bytes} bytes): raise kafka.max.partition.fetch.bytes or kafka.fetch.max.bytes",
            )

    def _check_end(self, data: PartitionData) -> None:
        """A new leader may need a moment to learn the high watermark."""
        wanted, end = self._wanted.end, data.high_watermark
        if end < wanted:
            raise RetriableError(
                Error.OFFSET_NOT_AVAILABLE, f"{self._name} ends at offset {end}, but was to be read up to {wanted}"
            )
        stable_end = data.last_stable_offset
        if self._isolation_level == READ_COMMITTED and stable_end < wanted:
            raise RetriableError(
                Error.UNSTABLE_OFFSET_COMMIT,
                f"{self._name} was to be read up to offset {wanted}, but a transaction is open from {stable_end} on: "
                "end it, wait until it times out, or set kafka.isolation.level to read_uncommitted",
            )
