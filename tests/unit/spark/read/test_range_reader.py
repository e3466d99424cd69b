"""What a task makes of a partition that has offsets and does not give them: as a broker with slow remote storage."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import pytest

from barnabas.client.offset_queries import EARLIEST_LOCAL, LATEST
from barnabas.client.pool import close_idle
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.batch import build_batch
from barnabas.protocol.record import Record
from barnabas.spark.read.data_loss import DataLossError
from barnabas.spark.read.fetch_settings import FetchSettings
from barnabas.spark.read.offset_ranges import OffsetRange
from barnabas.spark.read.range_reader import read_range
from tests.unit.client.brokers import FakeBroker, broker, knows, list_offsets_response, settings_for

if TYPE_CHECKING:
    from collections.abc import Iterator

IMPATIENT: Final = FetchSettings(timeout_ms=100)
WHOLE: Final = OffsetRange("t", 0, 0, 100)
LOCAL_START, END = 60, 100
LOCAL: Final = build_batch([Record(b"local")] * (END - LOCAL_START), base_offset=LOCAL_START)


def offsets(request: m.ListOffsetsRequest) -> m.ListOffsetsResponse:
    asked = request.topics[0].partitions[0].timestamp
    return list_offsets_response(request, {EARLIEST_LOCAL: LOCAL_START, LATEST: END}.get(asked, 0))


def records(request: m.FetchRequest) -> m.FetchResponse:
    """Nothing of what is in remote storage, and no error either."""
    topic = request.topics[0]
    data = m.FetchResponse.PartitionData(
        partition_index=0,
        high_watermark=END,
        last_stable_offset=END,
        records=memoryview(LOCAL if topic.partitions[0].fetch_offset >= LOCAL_START else b""),
    )
    answered = m.FetchResponse.FetchableTopicResponse(topic_id=topic.topic_id, partitions=[data])
    return m.FetchResponse(responses=[answered])


@pytest.fixture
def tiered() -> Iterator[FakeBroker]:
    with broker({ApiKey.FETCH: records, ApiKey.LIST_OFFSETS: offsets}) as node:
        node.answers[ApiKey.METADATA] = knows({1: node}, {"t": {0: 1}})
        yield node
        close_idle()


def test_offsets_that_do_not_come_are_data_loss(tiered: FakeBroker) -> None:
    with pytest.raises(
        DataLossError, match="t-0: offsets 0 to 59 were to be read and are in the log, but do not arrive"
    ):
        list(read_range(settings_for(tiered), WHOLE, fetch_settings=IMPATIENT))


def test_offsets_that_do_not_come_are_skipped_with_a_warning_if_the_user_says_so(
    tiered: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        batches = list(
            read_range(settings_for(tiered), WHOLE, fetch_settings=IMPATIENT, fail_on_data_loss=False),
        )
    assert [offset for batch in batches for offset in batch["offset"].to_pylist()] == list(range(LOCAL_START, END))
    assert "t-0: offsets 0 to 59 were to be read and are in the log, but do not arrive" in caplog.text
    within = OffsetRange("t", 0, 10, 20)
    assert not list(read_range(settings_for(tiered), within, fetch_settings=IMPATIENT, fail_on_data_loss=False))
    assert "t-0: offsets 10 to 19 were to be read and are in the log, but do not arrive" in caplog.text
