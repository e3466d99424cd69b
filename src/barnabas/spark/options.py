"""The options of the source, under the names that Spark's own Kafka connector gives them.

    options = parse_source({"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}, Query.STREAMING)

Options are read once and checked as a whole before anything is connected. A name that is not known is an error that
says which one is nearest: an option that is silently ignored is worse than none. Names are known in any case, as
everywhere in Spark. What begins with `kafka.` is for the client and is passed on without that; what is known there is
for `settings` to say.

Beyond what Spark has there is `startingOffsets=group`, which starts where the consumer group `kafka.group.id` has come
to.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from barnabas.spark.given import CLIENT_PREFIX, INT_MAX, Given, OptionError, check_client, duration_ms
from barnabas.spark.offsets import (
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
    "auto.offset.reset": "startingOffsets says where to start, and failOnDataLoss what to do when records are gone",
    "key.deserializer": "keys are bytes; turn them into something else in the query",
    "value.deserializer": "values are bytes; turn them into something else in the query",
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
    """All partitions of the topics whose whole name matches."""

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
    """Whether a start by time that no record has reached is the end of the partition, rather than an error."""
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
    """What is for the client, without `kafka.`."""
    warnings: tuple[str, ...]
    """What was given and has no effect."""


def parse_source(options: Mapping[str, str], query: Query | None) -> SourceOptions:
    """What the options of a read say. Without a kind of query, only what holds for both kinds is checked."""
    given = Given(options, known=SOURCE_OPTIONS, of="the source")
    client = _client_options(given)
    streaming = query is Query.STREAMING
    parsed = SourceOptions(
        selection=_selection(given),
        starting=_starting(given, Latest() if streaming else Earliest()),
        ending=_ending(given),
        latest_where_no_record_is_that_late=given.one_of(
            "startingOffsetsByTimestampStrategy", {"error": False, "latest": True}, default="error"
        ),
        max_offsets_per_trigger=given.number("maxOffsetsPerTrigger"),
        min_offsets_per_trigger=given.number("minOffsetsPerTrigger"),
        max_trigger_delay_ms=given.read("maxTriggerDelay", duration_ms, default="15m"),
        min_partitions=given.number("minPartitions", maximum=INT_MAX),
        max_records_per_partition=given.number("maxRecordsPerPartition"),
        fail_on_data_loss=given.flag("failOnDataLoss", default="true"),
        include_headers=given.flag("includeHeaders", default="false"),
        group_id=client.get(GROUP_ID),
        read_committed=_read_committed(client),
        poll_timeout_ms=given.number("kafkaConsumer.pollTimeoutMs") or 120_000,
        offset_retries=given.count("fetchOffset.numRetries", default=3),
        offset_retry_interval_ms=given.count("fetchOffset.retryIntervalMs", default=10),
        client=client | _client_id(given, client),
        warnings=tuple(_without_effect(given, client, query)),
    )
    _check_together(parsed)
    if query is Query.BATCH:
        _check_batch(parsed)
    elif streaming:
        _check_streaming(given)
    return parsed


def _client_options(given: Given) -> dict[str, str]:
    client = given.client
    check_client(client, FORBIDDEN)
    if client.get(GROUP_ID) == "":
        raise OptionError(CLIENT_PREFIX + GROUP_ID, "is empty")
    return client


def _client_id(given: Given, client: Mapping[str, str]) -> dict[str, str]:
    """No group is made for a query without one; its prefix still tells a broker's operator whose requests these are."""
    prefix = given.text("groupIdPrefix")
    return {} if prefix is None or GROUP_ID in client or "client.id" in client else {"client.id": prefix}


def _read_committed(client: Mapping[str, str]) -> bool:
    level = client.get(ISOLATION_LEVEL, "read_uncommitted").strip().lower()
    if level not in ("read_committed", "read_uncommitted"):
        raise OptionError(CLIENT_PREFIX + ISOLATION_LEVEL, f"is {level!r}: it takes read_committed or read_uncommitted")
    return level == "read_committed"


def _selection(given: Given) -> Selection:
    chosen = [name for name in SELECTIONS if name in given]
    if not chosen:
        raise OptionError("subscribe", "is missing: one of subscribe, subscribePattern and assign says what to read")
    if len(chosen) > 1:
        raise OptionError(chosen[0], f"and option {chosen[1]} are both given: one of them says what to read")
    name = chosen[0]
    text = given.text(name) or ""
    if name == "assign":
        return Assign(tuple(_json(name, text, parse_partitions)))
    if name == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(name, f"is {text!r}, which is no regular expression: {error}") from error
        return SubscribePattern(text)
    topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
    if not topics:
        raise OptionError(name, f"is {text!r}, which names no topic")
    return Subscribe(topics)


def _starting(given: Given, default: Position) -> Position:
    text = given.text("startingOffsets")
    words: dict[str, Position] = {"earliest": Earliest(), "latest": Latest(), "group": GroupOffsets()}
    return _position(given, "starting", text, words, default)


def _ending(given: Given) -> Position:
    return _position(given, "ending", given.text("endingOffsets"), {"latest": Latest()}, Latest())


def _position(
    given: Given, side: str, offsets: str | None, words: Mapping[str, Position], default: Position
) -> Position:
    """A start or an end: one time for all goes before a time for each partition, and that before offsets."""
    if (timestamp := given.time_ms(f"{side}Timestamp")) is not None:
        return AtTimestamp(timestamp)
    if (timestamps := given.text(f"{side}OffsetsByTimestamp")) is not None:
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


def _without_effect(given: Given, client: Mapping[str, str], query: Query | None) -> list[str]:
    found = []
    if query is Query.BATCH:
        found += [f"option {name} has no effect on a batch query" for name in RATES if name in given]
    elif "maxTriggerDelay" in given and "minOffsetsPerTrigger" not in given:
        found.append("option maxTriggerDelay has no effect without minOffsetsPerTrigger")
    if "groupIdPrefix" in given and GROUP_ID in client:
        found.append("option groupIdPrefix has no effect where kafka.group.id is given")
    return found


def _check_together(parsed: SourceOptions) -> None:
    if isinstance(parsed.starting, GroupOffsets) and parsed.group_id is None:
        raise OptionError("startingOffsets", "is group, and option kafka.group.id does not say which one")
    least, most = parsed.min_offsets_per_trigger, parsed.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        raise OptionError("minOffsetsPerTrigger", f"is {least}, more than option maxOffsetsPerTrigger, which is {most}")


def _check_streaming(given: Given) -> None:
    for name in ENDINGS:
        if name in given:
            raise OptionError(
                name, "is not for a streaming query, which has no end; maxOffsetsPerTrigger limits a batch"
            )


def _check_batch(parsed: SourceOptions) -> None:
    start, end = parsed.starting, parsed.ending
    if isinstance(start, Latest):
        raise OptionError(
            "startingOffsets", "is latest: a batch query would read nothing; it takes earliest, group or JSON"
        )
    if isinstance(start, SpecificOffsets):
        _check_never(start.offsets, LATEST, "startingOffsets", "a batch query would read nothing from the latest on")
    if isinstance(end, SpecificOffsets):
        _check_never(end.offsets, EARLIEST, "endingOffsets", "a batch query would read nothing up to the earliest")
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
