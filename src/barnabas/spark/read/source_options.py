"""The options of the source, under the names that Spark's own Kafka connector gives them.

    options = parse_source({"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}, Query.STREAMING)

Options are read once and checked as a whole before anything is connected. An unknown name is an error that suggests
the nearest known one: an option that is silently ignored is worse than none. Names may be in any case, as everywhere in
Spark. Options that begin with `kafka.` are client settings (`client_options`) and are passed on without that prefix.

Beyond Spark's options there is `startingOffsets=group`, which starts at the committed offsets of the consumer group
`kafka.group.id`.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from barnabas.spark.raw_options import CLIENT_PREFIX, INT_MAX, OptionError, RawOptions, check_client, duration_ms
from barnabas.spark.read.topic_positions import (
    EARLIEST,
    LATEST,
    AtTimestamp,
    Earliest,
    GroupOffsets,
    Latest,
    MalformedJsonError,
    Offsets,
    Position,
    SpecificOffsets,
    SpecificTimestamps,
    TopicPartition,
    describe,
    parse_offsets,
    parse_partitions,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

GROUP_ID: Final = "group.id"
ISOLATION_LEVEL: Final = "isolation.level"

SELECTIONS: Final = ("subscribe", "subscribePattern", "assign")
ENDINGS: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
RATES: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
SOURCE_OPTIONS: Final = (
    *SELECTIONS,
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingOffsets",
    *ENDINGS,
    *RATES,
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)

FORBIDDEN: Final = {
    "auto.offset.reset": "startingOffsets says where to start, and failOnDataLoss what to do if records are gone",
    "key.deserializer": "keys are read as bytes; convert them in the query",
    "value.deserializer": "values are read as bytes; convert them in the query",
    "enable.auto.commit": "with kafka.group.id set, offsets are committed after each finished batch",
    "interceptor.classes": "records reach the query as they are in the topic",
}


class Query(enum.Enum):
    BATCH = "batch"
    STREAMING = "streaming"


@dataclass(frozen=True)
class Subscribe:
    """All partitions of these topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True)
class SubscribePattern:
    """All partitions of the topics whose full name matches."""

    pattern: str


@dataclass(frozen=True)
class Assign:
    """These partitions and no others."""

    partitions: tuple[TopicPartition, ...]


Selection: TypeAlias = Subscribe | SubscribePattern | Assign


@dataclass(frozen=True)
class SourceOptions:
    selection: Selection
    starting: Position
    ending: Position
    latest_where_no_record_is_that_late: bool
    """Whether a starting timestamp later than all records means the end of the partition, rather than an error."""
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    min_partitions: int | None
    max_records_per_partition: int | None
    fail_on_data_loss: bool
    include_headers: bool
    group_id: str | None
    read_committed: bool
    poll_timeout_ms: int
    offset_retries: int
    offset_retry_interval_ms: int
    client: dict[str, str]
    """Client settings, without `kafka.`."""
    warnings: tuple[str, ...]
    """About options that have no effect."""


def parse_source(options: Mapping[str, str], query: Query | None) -> SourceOptions:
    """The options of a read, checked; OptionError if one is wrong. Without `query`, only what holds for both kinds."""
    raw = RawOptions(options, known=SOURCE_OPTIONS, of="the source")
    client = _client_options(raw)
    streaming = query is Query.STREAMING
    parsed = SourceOptions(
        selection=_selection(raw),
        starting=_starting(raw, Latest() if streaming else Earliest()),
        ending=_ending(raw),
        latest_where_no_record_is_that_late=raw.one_of(
            "startingOffsetsByTimestampStrategy", {"error": False, "latest": True}, default="error"
        ),
        max_offsets_per_trigger=raw.number("maxOffsetsPerTrigger"),
        min_offsets_per_trigger=raw.number("minOffsetsPerTrigger"),
        max_trigger_delay_ms=raw.read("maxTriggerDelay", duration_ms, default="15m"),
        min_partitions=raw.number("minPartitions", maximum=INT_MAX),
        max_records_per_partition=raw.number("maxRecordsPerPartition"),
        fail_on_data_loss=raw.flag("failOnDataLoss", default="true"),
        include_headers=raw.flag("includeHeaders", default="false"),
        group_id=client.get(GROUP_ID),
        read_committed=_read_committed(client),
        poll_timeout_ms=raw.number("kafkaConsumer.pollTimeoutMs") or 120_000,
        offset_retries=raw.count("fetchOffset.numRetries", default=3),
        offset_retry_interval_ms=raw.count("fetchOffset.retryIntervalMs", default=10),
        client=client | _client_id(raw, client),
        warnings=tuple(_without_effect(raw, client, query)),
    )
    _check_together(parsed)
    if query is Query.BATCH:
        _check_batch(parsed)
    elif streaming:
        _check_streaming(raw)
    return parsed


def _client_options(raw: RawOptions) -> dict[str, str]:
    client = raw.client
    check_client(client, FORBIDDEN)
    if client.get(GROUP_ID) == "":
        raise OptionError(CLIENT_PREFIX + GROUP_ID, "is empty")
    return client


def _client_id(raw: RawOptions, client: Mapping[str, str]) -> dict[str, str]:
    """A query without a group id gets no group, but its prefix still tells a broker's operator whose requests these
    are."""
    prefix = raw.text("groupIdPrefix")
    return {} if prefix is None or GROUP_ID in client or "client.id" in client else {"client.id": prefix}


def _read_committed(client: Mapping[str, str]) -> bool:
    level = client.get(ISOLATION_LEVEL, "read_uncommitted").strip().lower()
    if level not in ("read_committed", "read_uncommitted"):
        raise OptionError(CLIENT_PREFIX + ISOLATION_LEVEL, f"is {level!r}: it takes read_committed or read_uncommitted")
    return level == "read_committed"


def _selection(raw: RawOptions) -> Selection:
    chosen = [name for name in SELECTIONS if name in raw]
    if not chosen:
        raise OptionError("subscribe", "is missing: one of subscribe, subscribePattern and assign says what to read")
    if len(chosen) > 1:
        raise OptionError(chosen[0], f"and option {chosen[1]} are both given: only one of them may say what to read")
    name = chosen[0]
    text = raw.text(name) or ""
    if name == "assign":
        return Assign(tuple(_json(name, text, parse_partitions)))
    if name == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(name, f"is {text!r}, which is not a regular expression: {error}") from error
        return SubscribePattern(text)
    topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
    if not topics:
        raise OptionError(name, f"is {text!r}, which names no topic")
    return Subscribe(topics)


def _starting(raw: RawOptions, default: Position) -> Position:
    text = raw.text("startingOffsets")
    words: dict[str, Position] = {"earliest": Earliest(), "latest": Latest(), "group": GroupOffsets()}
    return _position(raw, "starting", text, words, default)


def _ending(raw: RawOptions) -> Position:
    return _position(raw, "ending", raw.text("endingOffsets"), {"latest": Latest()}, Latest())


def _position(
    raw: RawOptions, side: str, offsets: str | None, words: Mapping[str, Position], default: Position
) -> Position:
    """A start or an end. One timestamp for all wins over timestamps per partition, and those win over offsets."""
    if (timestamp := raw.time_ms(f"{side}Timestamp")) is not None:
        return AtTimestamp(timestamp)
    if (timestamps := raw.text(f"{side}OffsetsByTimestamp")) is not None:
        name = f"{side}OffsetsByTimestamp"
        found = _json(name, timestamps, parse_offsets)
        if negative := [place for place, time_ms in found.items() if time_ms < 0]:
            raise OptionError(name, f"has a time before 1970 for {describe(negative)}")
        return SpecificTimestamps(found)
    if offsets is None:
        return default
    if offsets.lower() in words:
        return words[offsets.lower()]
    name = f"{side}Offsets"
    if not offsets.startswith("{"):
        raise OptionError(name, f"is {offsets!r}: it takes {', '.join(words)} or offsets as JSON")
    return SpecificOffsets(_json(name, offsets, parse_offsets))


def _json(name: str, text: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(text)
    except MalformedJsonError as error:
        raise OptionError(name, f"is malformed: {error}") from error


def _without_effect(raw: RawOptions, client: Mapping[str, str], query: Query | None) -> list[str]:
    found = []
    if query is Query.BATCH:
        found += [f"option {name} has no effect on a batch query" for name in RATES if name in raw]
    elif "maxTriggerDelay" in raw and "minOffsetsPerTrigger" not in raw:
        found.append("option maxTriggerDelay has no effect without minOffsetsPerTrigger")
    if "groupIdPrefix" in raw and GROUP_ID in client:
        found.append("option groupIdPrefix has no effect where kafka.group.id is given")
    return found


def _check_together(parsed: SourceOptions) -> None:
    if isinstance(parsed.starting, GroupOffsets) and parsed.group_id is None:
        raise OptionError("startingOffsets", "is group, but option kafka.group.id does not say which group")
    least, most = parsed.min_offsets_per_trigger, parsed.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        raise OptionError("minOffsetsPerTrigger", f"is {least}, more than option maxOffsetsPerTrigger, which is {most}")


def _check_streaming(raw: RawOptions) -> None:
    for name in ENDINGS:
        if name in raw:
            raise OptionError(
                name, "cannot be used in a streaming query, which has no end; maxOffsetsPerTrigger limits a batch"
            )


def _check_batch(parsed: SourceOptions) -> None:
    start, end = parsed.starting, parsed.ending
    if isinstance(start, Latest):
        raise OptionError(
            "startingOffsets", "is latest: a batch query would read nothing; it takes earliest, group or JSON"
        )
    if isinstance(start, SpecificOffsets):
        _check_never(start.offsets, LATEST, "startingOffsets", "a batch query would read nothing from the end on")
    if isinstance(end, SpecificOffsets):
        _check_never(end.offsets, EARLIEST, "endingOffsets", "a batch query would read nothing up to the beginning")
    if isinstance(start, SpecificOffsets) and isinstance(end, SpecificOffsets):
        _check_order(start.offsets, end.offsets, "startingOffsets", "endingOffsets")
    if isinstance(start, SpecificTimestamps) and isinstance(end, SpecificTimestamps):
        names = "startingOffsetsByTimestamp", "endingOffsetsByTimestamp"
        _check_order(start.timestamps_ms, end.timestamps_ms, *names)
    if isinstance(start, AtTimestamp) and isinstance(end, AtTimestamp) and start.timestamp_ms > end.timestamp_ms:
        raise OptionError(
            "startingTimestamp", f"is {start.timestamp_ms}, after option endingTimestamp, which is {end.timestamp_ms}"
        )


def _check_never(offsets: Offsets, symbol: int, name: str, why: str) -> None:
    if wrong := [place for place, offset in offsets.items() if offset == symbol]:
        raise OptionError(name, f"has {symbol} for {describe(wrong)}: {why}")


def _check_order(start: Offsets, end: Offsets, start_name: str, end_name: str) -> None:
    if start.keys() != end.keys():
        raise OptionError(
            start_name,
            f"and option {end_name} name different partitions: only one of them has "
            f"{describe(start.keys() ^ end.keys())}",
        )
    for place, first in sorted(start.items()):
        if first > end[place] >= 0:
            raise OptionError(start_name, f"has {first} for {describe([place])}, after {end[place]} in {end_name}")
