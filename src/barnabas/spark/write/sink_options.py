"""The options of the sink, read once and checked as a whole before anything is connected.

    options = parse_sink({"kafka.bootstrap.servers": "localhost:9092", "topic": "orders"})

topic               the topic of all rows; without it, a column `topic` names the topic of each
delivery            exactly_once (default) or at_least_once
includeHeaders      true (default) writes the column `headers` if there is one; false leaves it out
markerTopic         exactly once: the topic that markers are committed for, if not `topic` (see exactly_once.py)
onLostCheckpoint    fail (default) or restart: what to do if another query has written with the same identity
onMissingMarker     fail (default) or write: what to do if it is not certain whether a batch has been written

Of the settings of Kafka's producer, given as `kafka.*`, these have an effect: acks, batch.size, compression.type with
compression.<codec>.level, delivery.timeout.ms, enable.idempotence, max.in.flight.requests.per.connection,
max.request.size, transaction.timeout.ms and transactional.id.
"""

from __future__ import annotations

import enum
import os.path
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from barnabas.protocol.compression import LEVELS, Codec
from barnabas.spark.raw_options import CLIENT_PREFIX, INT_MAX, OptionError, RawOptions, check_client

if TYPE_CHECKING:
    from collections.abc import Mapping

_Choice = TypeVar("_Choice", bound=enum.Enum)

SINK_OPTIONS: Final = ("topic", "delivery", "includeHeaders", "markerTopic", "onLostCheckpoint", "onMissingMarker")
ENGINE_OPTIONS: Final = (
    "checkpointLocation",
    "path",
    "queryName",
    "asyncProgressTrackingEnabled",
    "asyncProgressTrackingCheckpointIntervalMs",
)
"""Options of a write that are for Spark itself. Spark passes them to the sink with the others."""

FORBIDDEN: Final = {
    "key.serializer": "keys are written as they are; cast the column key to string or binary",
    "value.serializer": "values are written as they are; cast the column value to string or binary",
    "partitioner.class": "rows are partitioned by key; a column partition overrides that",
    "interceptor.classes": "rows are written as they are",
}

ACKS_ALL: Final = -1
ACKS_LEADER: Final = 1
_ACKS: Final = {"all": ACKS_ALL, "-1": ACKS_ALL, "1": ACKS_LEADER}

BATCH_BYTES: Final = 512 * 1024
"""Larger than Kafka's default: rows arrive by the thousand, and nobody waits for a single one."""
BATCH_BYTES_MIN: Final = 1_024
REQUEST_BYTES_MAX: Final = 1024 * 1024
IN_FLIGHT_MAX: Final = 5
"""A broker remembers this many batches of a producer, to recognise one that is sent again."""
DELIVERY_TIMEOUT_MS: Final = 120_000
TRANSACTION_TIMEOUT_MS: Final = 15 * 60_000
"""The most that brokers allow by default. A transaction is open while its task computes its rows."""
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_IDENTITY: Final = re.compile(r"\S{1,200}")
_LOCAL_SCHEME: Final = "file:"
_SCHEME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")


class Delivery(enum.Enum):
    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"


class OnLostCheckpoint(enum.Enum):
    FAIL = "fail"
    RESTART = "restart"


class OnMissingMarker(enum.Enum):
    FAIL = "fail"
    WRITE = "write"


@dataclass(frozen=True)
class ProducerOptions:
    """The settings that Kafka's own producer would be given."""

    acks: int
    is_idempotent: bool
    batch_bytes: int
    request_bytes_max: int
    in_flight_max: int
    codec: Codec
    level: int | None
    delivery_timeout_ms: int
    transaction_timeout_ms: int
    transactional_id: str | None
    """What transactional ids and markers are named after, instead of the checkpoint."""


@dataclass(frozen=True)
class SinkOptions:
    topic: str | None
    delivery: Delivery
    include_headers: bool
    marker_topic: str | None
    on_lost_checkpoint: OnLostCheckpoint
    on_missing_marker: OnMissingMarker
    checkpoint_location: str | None
    """Absolute, because it is sent to tasks, which run in other folders."""
    producer: ProducerOptions
    client: dict[str, str]
    """Client settings, without `kafka.`."""


def parse_sink(options: Mapping[str, str]) -> SinkOptions:
    """The options of a write, checked; OptionError if one is wrong."""
    raw = RawOptions(options, known=(*SINK_OPTIONS, *ENGINE_OPTIONS), of="the sink")
    check_client(raw.client, FORBIDDEN, servers=("bootstrap.servers", "metadata.broker.list"))
    parsed = SinkOptions(
        topic=_topic(raw, "topic"),
        delivery=raw.one_of("delivery", _words(Delivery), default="exactly_once"),
        include_headers=raw.flag("includeHeaders", default="true"),
        marker_topic=_topic(raw, "markerTopic"),
        on_lost_checkpoint=raw.one_of("onLostCheckpoint", _words(OnLostCheckpoint), default="fail"),
        on_missing_marker=raw.one_of("onMissingMarker", _words(OnMissingMarker), default="fail"),
        checkpoint_location=_checkpoint(raw),
        producer=_parse_producer(raw.client),
        client=raw.client,
    )
    if "path" in raw:
        raise OptionError("path", f"is {raw.text('path')!r}, but rows go to topics, not to paths: use option topic")
    if parsed.delivery is Delivery.EXACTLY_ONCE:
        _check_exactly_once(raw, parsed)
    else:
        _check_at_least_once(raw, parsed)
    return parsed


def _parse_producer(client: Mapping[str, str]) -> ProducerOptions:
    raw = RawOptions(client, known=client, of="the sink")
    try:
        acks = raw.one_of("acks", _ACKS, default="all")
        codec = raw.one_of("compression.type", {each.name.lower(): each for each in Codec}, default="none")
        return ProducerOptions(
            acks=acks,
            is_idempotent=raw.flag("enable.idempotence", default="true") and acks == ACKS_ALL,
            batch_bytes=_number(raw, "batch.size", BATCH_BYTES, minimum=BATCH_BYTES_MIN),
            request_bytes_max=_number(raw, "max.request.size", REQUEST_BYTES_MAX, minimum=BATCH_BYTES_MIN),
            in_flight_max=_number(raw, "max.in.flight.requests.per.connection", IN_FLIGHT_MAX),
            codec=codec,
            level=_level(raw, codec),
            delivery_timeout_ms=_number(raw, "delivery.timeout.ms", DELIVERY_TIMEOUT_MS),
            transaction_timeout_ms=_number(raw, "transaction.timeout.ms", TRANSACTION_TIMEOUT_MS),
            transactional_id=_identity(raw),
        )
    except OptionError as error:
        raise OptionError(CLIENT_PREFIX + error.option, error.problem) from error


def absolute_location(location: str) -> str:
    """A location that means the same in every folder and has one spelling. URIs other than file: are left unchanged."""
    if location.startswith(_LOCAL_SCHEME):
        location = "/" + location.removeprefix(_LOCAL_SCHEME)
    elif _SCHEME.match(location):
        return location
    return "/" + os.path.abspath(location).lstrip("/")


def is_relative(location: str) -> bool:
    return not location.startswith("/") and _SCHEME.match(location) is None


def _checkpoint(raw: RawOptions) -> str | None:
    location = raw.text("checkpointLocation")
    return None if location is None else absolute_location(location)


def _check_exactly_once(raw: RawOptions, parsed: SinkOptions) -> None:
    producer = parsed.producer
    if raw.flag("asyncProgressTrackingEnabled", default="false"):
        raise OptionError(
            "asyncProgressTrackingEnabled",
            "is true: a batch that is run again may then have other rows, which rules out writing them exactly once; "
            "remove it, or use option delivery=at_least_once",
        )
    if producer.acks != ACKS_ALL:
        raise OptionError("kafka.acks", "must be all with option delivery=exactly_once")
    if not producer.is_idempotent:
        raise OptionError("kafka.enable.idempotence", "must be true with option delivery=exactly_once")
    if producer.in_flight_max > IN_FLIGHT_MAX:
        raise OptionError(
            "kafka.max.in.flight.requests.per.connection",
            f"is {producer.in_flight_max}: at most {IN_FLIGHT_MAX} are allowed, because brokers recognise a repeated "
            f"batch only among the last {IN_FLIGHT_MAX}",
        )


def _check_at_least_once(raw: RawOptions, parsed: SinkOptions) -> None:
    for name in ("markerTopic", "onLostCheckpoint", "onMissingMarker"):
        if name in raw:
            raise OptionError(name, "is about markers, which option delivery=at_least_once does not use")
    if parsed.producer.transactional_id is not None:
        raise OptionError("kafka.transactional.id", "is set, but option delivery=at_least_once uses no transactions")
    if parsed.producer.is_idempotent and parsed.producer.in_flight_max > IN_FLIGHT_MAX:
        raise OptionError(
            "kafka.max.in.flight.requests.per.connection",
            f"is {parsed.producer.in_flight_max}: more than {IN_FLIGHT_MAX} require kafka.enable.idempotence=false",
        )


def _words(choices: type[_Choice]) -> dict[str, _Choice]:
    return {str(each.value): each for each in choices}


def _topic(raw: RawOptions, name: str) -> str | None:
    topic = raw.text(name)
    if topic is not None and (_TOPIC.fullmatch(topic) is None or topic in (".", "..")):
        raise OptionError(name, f"is {topic!r}, which is not a topic name: up to 249 letters, digits, '.', '_' and '-'")
    return topic


def _identity(raw: RawOptions) -> str | None:
    identity = raw.text("transactional.id")
    if identity is not None and _IDENTITY.fullmatch(identity) is None:
        raise OptionError("transactional.id", f"is {identity!r}: it takes up to 200 characters without spaces")
    return identity


def _number(raw: RawOptions, name: str, default: int, *, minimum: int = 1) -> int:
    number = raw.number(name, minimum=minimum, maximum=INT_MAX)
    return default if number is None else number


def _level(raw: RawOptions, codec: Codec) -> int | None:
    name = f"compression.{codec.name.lower()}.level"
    if name not in raw or codec not in LEVELS:
        return None
    lowest, highest, _ = LEVELS[codec]

    def parse(text: str) -> int:
        level = int(text)
        if not lowest <= level <= highest:
            raise ValueError
        return level

    try:
        return raw.read(name, parse, default="")
    except OptionError as error:
        raise OptionError(name, f"is {raw.text(name)!r}: it takes {lowest} to {highest}") from error
