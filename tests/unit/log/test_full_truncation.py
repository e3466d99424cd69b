"""A full truncation whose new segment cannot be made."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.log.data_dir import log_start_offsets_of
from barnabas.protocol.errors import KafkaError
from barnabas.testing.clock import ManualClock
from tests.unit.log.logs import batch, create, read_records
from tests.unit.replication.hosting import FaultyDisk

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("offset", [0, 50])
def test_a_log_whose_full_truncation_failed_answers_with_errors_until_it_succeeds(tmp_path: Path, offset: int) -> None:
    disk = FaultyDisk()
    clock = ManualClock(1_700_000_000_000)
    log = create(tmp_path, clock, disk=disk)
    log.append_as_leader(batch(b"a"), 0)
    disk.fail("open", f"{offset:020d}.log")
    with pytest.raises(KafkaError):
        log.truncate_fully(offset)
    with pytest.raises(KafkaError):
        log.append_as_leader(batch(b"b"), 0)
    assert log.offset_by_timestamp(5) is None
    assert log.max_timestamp_offset() is None
    assert log.apply_retention(1) == 0
    log_start_offsets_of([log])
    disk.heal()
    log.truncate_fully(offset)
    log.append_as_leader(batch(b"c"), 0)
    assert [(record.offset, record.value) for record in read_records(log)] == [(offset, b"c")]
    log.close()
