"""A coordinator's batches end up in the log as a client's would, whichever way they take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.config.topic_config import TopicConfig
from barnabas.log.producers.producer_state import BY_COORDINATOR
from barnabas.protocol.batch import build_plain_batch
from barnabas.protocol.errors import Error, KafkaError

from .logs import copy_of, create, read_bytes, read_records

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from barnabas.testing.clock import ManualClock

PAIRS = [(b"key", b"value"), (b"gone", None)]


@pytest.mark.parametrize(
    ("config", "fields"),
    [
        pytest.param({}, {"base_sequence": 0}, id="plain"),
        pytest.param({"message_timestamp_type": "LogAppendTime"}, {"base_sequence": 0}, id="stamped by the log"),
        pytest.param(
            {},
            {"producer_id": 7, "producer_epoch": 1, "base_sequence": 0, "is_transactional": True},
            id="of a transaction",
        ),
        pytest.param({"segment_bytes": 200}, {"base_sequence": 0}, id="in small segments"),
    ],
)
def test_what_is_written_is_what_a_client_would_have_written(
    tmp_path: Path, clock: ManualClock, config: dict[str, Any], fields: dict[str, Any]
) -> None:
    folders = [tmp_path / name for name in ("ours", "theirs")]
    for folder in folders:
        folder.mkdir()
    ours, theirs = (create(folder, clock, TopicConfig(**config)) for folder in folders)
    batches = [build_plain_batch(PAIRS, clock.now_ms(), **{**fields, "base_sequence": at}) for at in (0, 2, 4)]
    for batch in batches:
        expected = theirs.append_as_leader(copy_of(batch), 5, BY_COORDINATOR)
        assert ours.append_as_coordinator(batch, 5) == expected.last_offset
    assert ours.end_position == theirs.end_position
    for offset in (0, 2, 4):
        assert read_bytes(ours, offset) == read_bytes(theirs, offset)
    assert [record.offset for record in read_records(ours)] == list(range(6))


def test_one_that_is_too_large_is_refused_with_nothing_written(tmp_path: Path, clock: ManualClock) -> None:
    log = create(tmp_path, clock, TopicConfig(max_message_bytes=100))
    with pytest.raises(KafkaError) as refused:
        log.append_as_coordinator(build_plain_batch([(b"key", bytes(100))], clock.now_ms(), base_sequence=0), 0)
    assert refused.value.error is Error.MESSAGE_TOO_LARGE
    assert log.log_end_offset == 0
