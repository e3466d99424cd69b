"""What a reader makes of answers that a healthy broker seldom gives: here a broker gives them by a script."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.client.broker_connection import ConnectionLostError, VersionRange
from barnabas.client.client_settings import ClientSettings
from barnabas.client.offset_queries import EARLIEST_LOCAL, READ_COMMITTED, READ_UNCOMMITTED
from barnabas.client.option_reader import SettingsError
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.batch import build_batch
from barnabas.protocol.errors import Error, KafkaError
from barnabas.protocol.record import Record
from barnabas.protocol.uuids import ZERO_UUID, Uuid
from barnabas.spark.columnar.fetched_batches import Wanted
from barnabas.spark.columnar.record_decoding import BATCH_ROWS, COLUMNS
from barnabas.spark.read.fetch_settings import FETCH_BYTES, FetchSettings
from barnabas.spark.read.fetcher import EMPTY_ANSWERS_BELIEVED, FETCH_BYTES_MIN, Fetcher
from tests.unit.client.brokers import list_offsets_response

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.client.retries import Attempts

WANTED = Wanted("clicks", 3, 0, 100, COLUMNS, BATCH_ROWS)
PATIENT = FetchSettings(timeout_ms=10_000)
IMPATIENT = FetchSettings(timeout_ms=50)
TOPIC_ID = Uuid(bytes(range(16)))


class Script:
    """A cluster of one broker, and the connection to it. Answers are taken from the script in order."""

    address = "broker:9092"

    def __init__(self, *answers: m.FetchResponse | Exception, topic_id: Uuid = TOPIC_ID, local_start: int = 0) -> None:
        self.answers = deque(answers)
        self.local_start = local_start
        self.requests: list[m.FetchRequest] = []
        self.fetch_versions: list[int] = []
        self.due: deque[m.FetchRequest | m.ListOffsetsRequest] = deque()
        self.forgotten = 0
        self.closed = 0
        self._topic_id = topic_id
        self.settings = ClientSettings.from_options({"bootstrap.servers": self.address, "retry.backoff.ms": "1"})

    def leader(self, topic: str, partition: int, *, timeout_ms: int | None) -> Script:
        assert (topic, partition) == ("clicks", 3)
        assert timeout_ms is None or timeout_ms >= 0
        return self

    def leaders(self, partitions: Iterable[tuple[str, int]], attempts: Attempts) -> dict[Script, list[tuple[str, int]]]:
        return {self: list(partitions)}

    def topic_id(self, topic: str) -> Uuid:
        return self._topic_id

    def leader_epoch(self, topic: str, partition: int) -> int:
        return 5

    def forget_topic(self, topic: str) -> None:
        self.forgotten += 1

    def newest_version(self, api_key: int, at_most: int | None) -> int:
        return 17 if at_most is None else at_most

    def versions(self) -> dict[int, VersionRange]:
        return {ApiKey.LIST_OFFSETS: VersionRange(1, 11)}

    @property
    def in_flight(self) -> int:
        return len(self.due)

    def send_nowait(self, request: m.FetchRequest | m.ListOffsetsRequest, version: int | None = None) -> None:
        self.due.append(request)
        if isinstance(request, m.FetchRequest):
            assert version is not None
            self.requests.append(request)
            self.fetch_versions.append(version)

    def receive(self, timeout_s: float) -> m.FetchResponse | m.ListOffsetsResponse:
        request = self.due.popleft()
        if isinstance(request, m.ListOffsetsRequest):
            assert request.topics[0].partitions[0].timestamp == EARLIEST_LOCAL
            return list_offsets_response(request, self.local_start)
        answer = self.answers.popleft() if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.closed += 1

    @property
    def offsets(self) -> list[int]:
        return [request.topics[0].partitions[0].fetch_offset for request in self.requests]

    @property
    def sizes(self) -> list[int]:
        return [request.topics[0].partitions[0].partition_max_bytes for request in self.requests]


def answer(
    records: bytes | None = None,
    error: Error = Error.NONE,
    throttle_ms: int = 0,
    high_watermark: int = 100,
    last_stable_offset: int = 100,
) -> m.FetchResponse:
    partition = m.FetchResponse.PartitionData(
        partition_index=3,
        error_code=error,
        records=None if records is None else memoryview(records),
        high_watermark=high_watermark,
        last_stable_offset=last_stable_offset,
    )
    topic = m.FetchResponse.FetchableTopicResponse(topic="clicks", partitions=[partition])
    return m.FetchResponse(throttle_time_ms=throttle_ms, responses=[topic])


def fetcher(
    script: Any, settings: FetchSettings = PATIENT, isolation_level: int = READ_UNCOMMITTED, wanted: Wanted = WANTED
) -> Fetcher:
    return Fetcher(script, wanted, settings, isolation_level)


TEN = build_batch([Record(bytes(90))] * 10, base_offset=0)


def test_the_answer_to_a_request_that_was_sent_early_is_taken_without_another() -> None:
    script = Script(answer(TEN))
    fetching = fetcher(script)
    fetching.send(0)
    taken = fetching.take(0)
    assert taken is not None
    assert taken.next_offset == 10
    assert script.offsets == [0]
    fetching.send(10)
    fetching.abandon()
    assert script.closed == 1


def test_an_answer_for_another_offset_than_wanted_is_not_waited_for() -> None:
    script = Script(answer(TEN))
    fetching = fetcher(script)
    fetching.send(50)
    assert fetching.take(0) is not None
    assert script.offsets == [50, 0]
    assert script.closed == 1


@pytest.mark.parametrize(
    "hindrance",
    [
        answer(error=Error.NOT_LEADER_OR_FOLLOWER),
        answer(error=Error.FENCED_LEADER_EPOCH),
        answer(error=Error.UNKNOWN_TOPIC_ID),
        ConnectionLostError("gone"),
    ],
    ids=["leader moved", "newer leader", "made again", "connection lost"],
)
def test_a_leader_that_is_not_there_any_more_is_looked_for_again(hindrance: m.FetchResponse | Exception) -> None:
    script = Script(hindrance, answer(TEN))
    assert fetcher(script).take(0) is not None
    assert script.forgotten == 1
    assert script.offsets == [0, 0]


def test_a_lost_offset_is_an_error_at_once() -> None:
    script = Script(answer(error=Error.OFFSET_OUT_OF_RANGE))
    with pytest.raises(KafkaError, match="clicks-3: Fetch from offset 7 at broker:9092") as failure:
        fetcher(script).take(7)
    assert failure.value.error is Error.OFFSET_OUT_OF_RANGE
    assert script.offsets == [7]


def test_a_partition_without_records_up_to_the_end_is_believed_after_some_tries() -> None:
    """Compaction may have removed the last ones, which leaves the end where it was."""
    script = Script(answer())
    assert fetcher(script).take(90) is None
    assert script.offsets == [90] * EMPTY_ANSWERS_BELIEVED


def test_records_that_come_late_from_remote_storage_are_waited_for() -> None:
    script = Script(*[answer()] * (EMPTY_ANSWERS_BELIEVED + 2), answer(TEN), local_start=50)
    taken = fetcher(script).take(0)
    assert taken is not None
    assert taken.next_offset == 10


def test_records_that_never_come_from_remote_storage_are_an_error() -> None:
    script = Script(answer(), local_start=50)
    with pytest.raises(KafkaError, match=r"clicks-3: no records arrive from offset 0 on \(given up") as failure:
        fetcher(script, IMPATIENT).take(0)
    assert failure.value.error is Error.OFFSET_NOT_AVAILABLE
    assert fetcher(script).take(50) is None


def test_empty_answers_of_a_broker_that_holds_back_prove_nothing() -> None:
    script = Script(*[answer(throttle_ms=10)] * (EMPTY_ANSWERS_BELIEVED + 1), answer(TEN))
    assert fetcher(script).take(0) is not None


def test_a_new_leader_that_does_not_know_the_end_yet_is_waited_for() -> None:
    script = Script(*[answer(high_watermark=0)] * 5, answer(TEN))
    assert fetcher(script).take(0) is not None


def test_an_end_that_never_comes_is_an_error() -> None:
    script = Script(answer(high_watermark=90))
    with pytest.raises(KafkaError, match="clicks-3 ends at offset 90, but was to be read up to 100") as failure:
        fetcher(script, IMPATIENT).take(90)
    assert failure.value.error is Error.OFFSET_NOT_AVAILABLE


def test_only_readers_of_committed_records_wait_for_open_transactions() -> None:
    script = Script(answer(last_stable_offset=90))
    assert fetcher(script).take(90) is None
    with pytest.raises(KafkaError, match="a transaction is open from 90 on"):
        fetcher(script, IMPATIENT, READ_COMMITTED).take(90)
    assert script.requests[-1].isolation_level == READ_COMMITTED


def test_a_batch_that_does_not_come_whole_is_an_error_that_names_the_option() -> None:
    with pytest.raises(KafkaError, match=r"the batch at offset 0 is larger .* kafka.max.partition.fetch.bytes"):
        fetcher(Script(answer(TEN[:-1]))).take(0)


def test_topics_are_named_where_the_cluster_has_no_ids_for_them() -> None:
    with_ids, without_ids = Script(answer(TEN)), Script(answer(TEN), topic_id=ZERO_UUID)
    fetcher(with_ids).take(0)
    fetcher(without_ids).take(0)
    assert with_ids.requests[0].topics[0].topic_id == TOPIC_ID
    assert with_ids.fetch_versions == [17]
    assert without_ids.fetch_versions == [12]


def test_no_more_is_asked_for_than_the_rest_of_the_range_should_take() -> None:
    script = Script(answer(TEN))
    large = fetcher(script, wanted=WANTED._replace(end=1_000_000))
    large.take(0)
    large.send(999_990)
    assert script.sizes == [FETCH_BYTES, FETCH_BYTES_MIN]


def test_the_options_of_kafkas_consumers_are_understood() -> None:
    options = {"max.partition.fetch.bytes": "1000", "fetch.max.bytes": "2000", "fetch.max.wait.ms": "7"}
    assert FetchSettings.from_options(options, timeout_ms=9) == FetchSettings(1_000, 7, 9)
    assert FetchSettings.from_options({"fetch.max.bytes": "2000"}).max_bytes == 2_000
    assert FetchSettings.from_options({"fetch.max.bytes": "999999999"}) == FetchSettings()
    with pytest.raises(SettingsError, match=r"fetch.max.wait.ms is 'soon'"):
        FetchSettings.from_options({"fetch.max.wait.ms": "soon"})
