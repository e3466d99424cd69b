"""What becomes of a batch that is opened: refused with Kafka's words, kept with its true timestamp, or made anew."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.config.topic_config import TopicConfig
from barnabas.log.batch_opening import (
    RECORD_ERRORS_MAX,
    BatchToOpen,
    OpenedBatch,
    OpeningRules,
    RefusedBatch,
    open_batch,
    open_batches,
    opening_rules,
)
from barnabas.log.batch_validation import check_batch_to_open
from barnabas.protocol.batch import (
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    assemble_batch,
    build_batch,
    crc_is_valid,
    decode_records,
    read_header,
)
from barnabas.protocol.compression import DECOMPRESSED_BYTES_MAX, LEVELS, Codec, compress, decompress
from barnabas.protocol.errors import Error
from barnabas.protocol.record import NO_OFFSET, Record, encode_records

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def rules(**config: object) -> OpeningRules:
    found = opening_rules(TopicConfig(**config))  # type: ignore[arg-type]
    assert found is not None
    return found


VALIDATING = rules(barnabas_validate_records=True)
COMPACTED = rules(cleanup_policy=frozenset({"compact", "delete"}))
TO_ZSTD = rules(compression_type="zstd")


def a_batch(*records: Record, codec: Codec = Codec.NONE, offsets: list[int] | None = None, **header: int) -> bytearray:
    """A batch whose header may say something else than its records."""
    plain = read_header(build_batch(records, codec=codec))
    deltas = range(len(records)) if offsets is None else offsets
    section = encode_records(records, deltas, header.get("base_timestamp", plain.base_timestamp))
    return bytearray(assemble_batch(plain._replace(**header), compress(codec, section)))


def opened(batch: bytearray, by: OpeningRules) -> OpenedBatch | RefusedBatch:
    (outcome,) = open_batches([BatchToOpen(batch, by, NOW_MS, "t-0")])
    return outcome


def good(batch: bytearray, by: OpeningRules) -> OpenedBatch:
    outcome = opened(batch, by)
    assert isinstance(outcome, OpenedBatch), outcome
    return outcome


def refused(batch: bytearray, by: OpeningRules) -> RefusedBatch:
    outcome = opened(batch, by)
    assert isinstance(outcome, RefusedBatch)
    return outcome


def remade(batch: bytearray, by: OpeningRules) -> tuple[BatchHeader, bytearray]:
    data = good(batch, by).remade
    assert data is not None
    assert crc_is_valid(data, 0, len(data))
    assert bytes(check_batch_to_open(memoryview(data), TopicConfig(), "t-0")) == bytes(data)
    return read_header(data), data


FIRST, SECOND = Record(b"first", b"k", NOW_MS), Record(b"second", b"k", NOW_MS + 5)


# ── which topics ─────────────────────────────────────────────────────────────────────────────────────────────


def test_batches_of_ordinary_topics_are_not_opened() -> None:
    assert opening_rules(TopicConfig()) is None


@pytest.mark.parametrize(
    ("settings", "codec", "level"),
    [
        ({"barnabas_validate_records": True}, None, None),
        ({"cleanup_policy": frozenset({"compact"})}, None, None),
        ({"compression_type": "uncompressed"}, Codec.NONE, None),
        ({"compression_type": "snappy"}, Codec.SNAPPY, None),
        ({"compression_type": "gzip"}, Codec.GZIP, LEVELS[Codec.GZIP][2]),
        ({"compression_type": "gzip", "compression_gzip_level": 1}, Codec.GZIP, 1),
        ({"compression_type": "lz4", "compression_lz4_level": 12}, Codec.LZ4, 12),
        ({"compression_type": "zstd", "compression_zstd_level": -5}, Codec.ZSTD, -5),
    ],
)
def test_a_topic_says_what_its_batches_become(
    settings: dict[str, object], codec: Codec | None, level: int | None
) -> None:
    assert rules(**settings)[:2] == (codec, level)


def test_a_level_changes_the_size() -> None:
    text = bytes(number * number % 251 for number in range(20_000)) * 3
    sizes = [
        len(
            remade(a_batch(Record(text, b"k", NOW_MS)), rules(compression_type="zstd", compression_zstd_level=level))[1]
        )
        for level in (-50, 19)
    ]
    assert sizes[0] > sizes[1]


# ── refused ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("by", [VALIDATING, COMPACTED, TO_ZSTD])
def test_bytes_that_are_not_records_are_refused(codec: Codec, by: OpeningRules) -> None:
    header = read_header(build_batch([FIRST, SECOND], codec=codec))
    section = encode_records([FIRST, SECOND], [0, 1], NOW_MS)
    for damaged in (b"\xff garbage", section[:-1], section + b"\0", b""):
        batch = bytearray(assemble_batch(header, compress(codec, damaged)))
        assert refused(batch, by).error is Error.INVALID_RECORD


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_what_the_codec_cannot_read_is_refused(codec: Codec) -> None:
    whole = a_batch(FIRST, SECOND, codec=codec)
    body = bytes(whole[HEADER_SIZE:])
    for damaged in (body[: len(body) // 2], b"garbage bytes here", body[:-3]):
        batch = bytearray(assemble_batch(read_header(whole), damaged))
        assert refused(batch, TO_ZSTD if codec is not Codec.ZSTD else VALIDATING).error is Error.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_batch_that_expands_without_end_is_refused(codec: Codec) -> None:
    header = read_header(build_batch([FIRST]))._replace(attributes=codec)
    bomb = bytearray(assemble_batch(header, compress(codec, bytes(DECOMPRESSED_BYTES_MAX + 1))))
    assert len(bomb) < 3_000_000
    assert refused(bomb, VALIDATING).error is Error.MESSAGE_TOO_LARGE


def test_a_record_without_a_key_is_refused_by_a_compacted_topic() -> None:
    batch = a_batch(FIRST, Record(b"x", None, NOW_MS))
    reason = "Compacted topic cannot accept message without key in topic partition t-0"
    assert refused(batch, COMPACTED) == RefusedBatch(
        Error.INVALID_RECORD,
        "One or more records have been rejected due to 1 record errors in total, and only showing the first three"
        f" errors at most: [RecordError(batchIndex=1, message='{reason}')]",
        [(1, reason)],
    )
    assert good(batch, VALIDATING)
    assert good(a_batch(Record(b"x", b"", NOW_MS)), COMPACTED), "an empty key is one"


def test_a_refusal_names_three_records_in_its_message_and_a_bounded_number_beside_it() -> None:
    count = RECORD_ERRORS_MAX + 5
    found = refused(a_batch(*[Record(b"x", None, NOW_MS)] * count), COMPACTED)
    assert f"due to {count} record errors in total" in found.message
    assert found.message.count("RecordError(") == 3
    assert [number for number, _ in found.record_errors] == list(range(RECORD_ERRORS_MAX))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("by", [VALIDATING, TO_ZSTD])
def test_timestamps_out_of_range_are_refused_wherever_they_stand(codec: Codec, by: OpeningRules) -> None:
    late = NOW_MS + 2 * DAY_MS
    batch = a_batch(FIRST, Record(b"x", None, late), SECOND, codec=codec, max_timestamp=NOW_MS)
    found = refused(batch, by)
    assert found.error is Error.INVALID_TIMESTAMP
    assert found.message == "One or more records have been rejected due to invalid timestamp"
    earliest, latest = NOW_MS - (2**63 - 1), NOW_MS + HOUR_MS
    ((number, reason),) = found.record_errors
    assert number == 1
    assert reason == (
        f"Timestamp {late} of message with offset 1 is out of range. The timestamp should be within [{earliest},"
        f" {latest}]"
    )


def test_a_timestamp_is_refused_before_a_key() -> None:
    batch = a_batch(
        Record(b"x", None, NOW_MS), Record(b"x", b"k", NOW_MS + DAY_MS), Record(b"x", None, NOW_MS + DAY_MS)
    )
    found = refused(batch, COMPACTED)
    assert found.error is Error.INVALID_TIMESTAMP
    assert [number for number, _ in found.record_errors] == [0, 1, 2]
    assert ["without key" in reason for _, reason in found.record_errors] == [True, False, True]


def test_old_records_are_refused_where_the_topic_says_how_old_they_may_be() -> None:
    by = rules(barnabas_validate_records=True, message_timestamp_before_max_ms=HOUR_MS)
    assert refused(a_batch(FIRST, Record(b"x", None, NOW_MS - DAY_MS)), by).error is Error.INVALID_TIMESTAMP
    assert good(a_batch(FIRST, Record(b"x", None, -1)), by), "no timestamp is none that is out of range"
    stamped = rules(compression_type="zstd", message_timestamp_type="LogAppendTime")
    assert good(a_batch(FIRST, Record(b"x", None, NOW_MS + DAY_MS)), stamped)


@pytest.mark.parametrize(
    ("by", "kind"),
    [
        (rules(barnabas_validate_records=True, message_timestamp_type="LogAppendTime"), "PartialDefaultRecord"),
        (rules(compression_type="lz4", message_timestamp_type="LogAppendTime"), "DefaultRecord"),
    ],
)
def test_a_producer_does_not_say_that_the_log_has_stamped_its_batch(by: OpeningRules, kind: str) -> None:
    batch = a_batch(FIRST, codec=Codec.GZIP, attributes=Codec.GZIP | LOG_APPEND_TIME_FLAG)
    found = refused(batch, by)
    assert found.error is Error.INVALID_TIMESTAMP
    ((number, reason),) = found.record_errors
    assert number == 0
    assert reason == (
        f"Invalid timestamp type in message {kind}(offset=0, timestamp={NOW_MS}, key=1 bytes, value=5 bytes)."
        " Producer should not set timestamp type to LogAppendTime."
    )


def test_a_batch_that_becomes_too_large_is_refused() -> None:
    batch = a_batch(Record(b"x" * 5_000, b"k", NOW_MS), codec=Codec.GZIP)
    assert refused(batch, rules(compression_type="uncompressed", max_message_bytes=2_000)) == RefusedBatch(
        Error.MESSAGE_TOO_LARGE,
        "Message batch size is 5071 bytes in append to partition t-0 which exceeds the maximum configured size of 2000"
        " (max.message.bytes) after recompression to the topic's compression.type.",
        [],
    )


def test_offsets_that_are_not_sequential_are_refused_only_in_a_compressed_batch_that_keeps_its_codec() -> None:
    for offsets in ([0, 2, 2], [1, 2, 3], [-3, 1, 2]):
        records = [Record(b"x", b"k", NOW_MS)] * 3
        compressed = a_batch(*records, codec=Codec.GZIP, offsets=offsets)
        assert refused(compressed, VALIDATING).error is Error.UNKNOWN_SERVER_ERROR
        assert good(a_batch(*records, offsets=offsets), VALIDATING).remade is None
        _, data = remade(compressed, TO_ZSTD)
        assert [record.offset for record in decode_records(data)] == [0, 1, 2]


# ── kept ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("claimed", [5, -1, NOW_MS + 1, NOW_MS + 100 * DAY_MS])
def test_the_largest_timestamp_is_that_of_the_records(codec: Codec, claimed: int) -> None:
    batch = a_batch(SECOND, FIRST, codec=codec, max_timestamp=claimed)
    assert good(batch, VALIDATING) == OpenedBatch(None, NOW_MS + 5)


def test_the_timestamp_that_a_producer_takes_for_that_of_the_log_is_that_of_all_records() -> None:
    batch = a_batch(FIRST, SECOND, attributes=LOG_APPEND_TIME_FLAG, max_timestamp=NOW_MS + 77)
    assert good(batch, VALIDATING) == OpenedBatch(None, NOW_MS + 77)
    header, data = remade(batch, TO_ZSTD)
    assert (header.attributes, header.base_timestamp, header.max_timestamp) == (Codec.ZSTD, NOW_MS + 77, NOW_MS + 77)
    assert {record.timestamp for record in decode_records(data)} == {NOW_MS + 77}


def test_timestamps_wrap_around_as_in_java() -> None:
    by = rules(compression_type="zstd", message_timestamp_after_max_ms=2**63 - 1)
    header = read_header(build_batch([FIRST, SECOND]))._replace(base_timestamp=2**63 - 2, max_timestamp=0)
    section = encode_records([Record(b"a", None, 0), Record(b"b", None, 3)], [0, 1], 0)
    remade_header, data = remade(bytearray(assemble_batch(header, section)), by)
    assert remade_header.base_timestamp == remade_header.max_timestamp == 2**63 - 2
    deltas = decode_records(data)[1].timestamp - remade_header.base_timestamp
    assert deltas == 3


# ── made anew ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_batch_that_has_the_topics_codec_stays_as_it_is() -> None:
    assert good(a_batch(FIRST, SECOND, codec=Codec.ZSTD), TO_ZSTD).remade is None


def test_only_the_transactional_bit_outlives_a_new_codec() -> None:
    every = TRANSACTIONAL_FLAG | DELETE_HORIZON_FLAG | 0x80 | 0x4000
    batch = a_batch(
        FIRST, SECOND, attributes=every, producer_id=7, producer_epoch=2, base_sequence=9, base_timestamp=NOW_MS
    )
    header, _ = remade(batch, TO_ZSTD)
    assert header.attributes == TRANSACTIONAL_FLAG | Codec.ZSTD
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 9)
    assert (header.base_offset, header.last_offset_delta, header.record_count) == (0, 1, 2)


def test_the_base_timestamp_becomes_that_of_the_first_record() -> None:
    batch = a_batch(SECOND, FIRST, base_timestamp=NOW_MS - 100)
    header, data = remade(batch, TO_ZSTD)
    assert (header.base_timestamp, header.max_timestamp) == (NOW_MS + 5, NOW_MS + 5)
    assert [record.timestamp for record in decode_records(data)] == [NOW_MS + 5, NOW_MS]


RECORDS = st.lists(
    st.builds(
        Record,
        value=st.one_of(st.none(), st.binary(max_size=100)),
        key=st.one_of(st.none(), st.binary(max_size=10)),
        timestamp=st.integers(NOW_MS - DAY_MS, NOW_MS + HOUR_MS),
        headers=st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=5))), max_size=2).map(
            tuple
        ),
        offset=st.just(NO_OFFSET),
    ),
    min_size=1,
    max_size=12,
)


@given(
    records=RECORDS,
    source=st.sampled_from(Codec),
    target=st.sampled_from(["uncompressed", "gzip", "snappy", "lz4", "zstd"]),
    base_shift=st.integers(-5, 5),
)
def test_readers_of_a_batch_that_was_made_anew_see_what_the_producer_wrote(
    records: list[Record], source: Codec, target: str, base_shift: int
) -> None:
    by = rules(compression_type=target)
    batch = a_batch(*records, codec=source, base_timestamp=records[0].timestamp + base_shift)
    sent = bytes(batch)
    outcome = good(batch, by)
    assert bytes(batch) == sent
    assert outcome.max_timestamp == max(record.timestamp for record in records)
    assert (outcome.remade is None) == (by.codec is source)
    if outcome.remade is not None:
        header, data = remade(batch, by)
        assert header.codec is by.codec
        assert decode_records(data) == decode_records(sent)
        if not base_shift:
            assert decompress(header.codec, data[HEADER_SIZE:]) == decompress(source, sent[HEADER_SIZE:])


@given(
    records=RECORDS,
    source=st.sampled_from(Codec),
    by=st.sampled_from([VALIDATING, COMPACTED, TO_ZSTD]),
    damage=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_whatever_a_batch_holds_there_is_a_verdict(
    records: list[Record], source: Codec, by: OpeningRules, damage: list[tuple[int, int]]
) -> None:
    batch = bytearray(build_batch(records, codec=source))
    for position, byte in damage:
        batch[HEADER_SIZE + position % (len(batch) - HEADER_SIZE)] = byte
    outcome = open_batch(batch, by, NOW_MS, "t-0")
    if isinstance(outcome, OpenedBatch):
        decode_records(batch if outcome.remade is None else outcome.remade)
