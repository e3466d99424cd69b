"""The options of the sink, read once and checked as a whole before anything is connected.

    options = parse_sink({"kafka.bootstrap.servers": "localhost:9092", "topic": "orders"})

topic               where all rows go; without it a column `topic` says it for each
delivery            exactly_once (default) or at_least_once
includeHeaders      false leaves a column `headers` out; else it is written where there is one
markerTopic         exactly once: the topic that markers are committed for, if not `topic` (markers.py says what for)
onLostCheckpoint    fail (default) or restart: what to do when another query has written with this one's identity
onMissingMarker     fail (default) or write: what to do when it cannot be known whether a batch has been written

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
from barnabas.spark.given import CLIENT_PREFIX, INT_MAX, Given, OptionError, check_client

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
"""What Spark itself takes from the options of a write, and hands to the sink together with the rest."""

FORBIDDEN: Final = {
    "key.serializer": "keys are bytes already; cast the column to what is to be written",
    "value.serializer": "values are bytes already; cast the column to what is to be written",
    "partitioner.class": "rows go by their keys; a column partition says otherwise",
    "interceptor.classes": "records are written as the rows are",
}

ACKS_ALL: Final = -1
ACKS_LEADER: Final = 1
_ACKS: Final = {"all": ACKS_ALL, "-1": ACKS_ALL, "1": ACKS_LEADER}

BATCH_BYTES: Final = 512 * 1024
"""Larger than a producer's own default: rows are at hand in thousands, and nobody waits for a single one."""
BATCH_BYTES_MIN: Final = 1_024
REQUEST_BYTES_MAX: Final = 1024 * 1024
IN_FLIGHT_MAX: Final = 5
"""A broker remembers as many batches of a producer as this, to know one that it is sent again."""
DELIVERY_TIMEOUT_MS: Final = 120_000
TRANSACTION_TIMEOUT_MS: Final = 15 * 60_000
"""The longest that brokers allow unless told otherwise. A transaction is open while its task computes its rows."""
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
    """What Kafka's own producer would be told."""

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
    """What transactional ids and markers are named after, if not after the checkpoint."""


@dataclass(frozen=True)
class SinkOptions:
    topic: str | None
    delivery: Delivery
    include_headers: bool
    marker_topic: str | None
    on_lost_checkpoint: OnLostCheckpoint
    on_missing_marker: OnMissingMarker
    checkpoint_location: str | None
    """Absolute: the tasks, to which it travels, run in other folders."""
    producer: ProducerOptions
    client: dict[str, str]
    """What is for the client, without `kafka.`."""


def parse_sink(options: Mapping[str, str]) -> SinkOptions:
    """What the options of a write say; OptionError for what they cannot."""
    given = Given(options, known=(*SINK_OPTIONS, *ENGINE_OPTIONS), of="the sink")
    check_client(given.client, FORBIDDEN, servers=("bootstrap.servers", "metadata.broker.list"))
    parsed = SinkOptions(
        topic=_topic(given, "topic"),
        delivery=given.one_of("delivery", _words(Delivery), default="exactly_once"),
        include_headers=given.flag("includeHeaders", default="true"),
        marker_topic=_topic(given, "markerTopic"),
        on_lost_checkpoint=given.one_of("onLostCheckpoint", _words(OnLostCheckpoint), default="fail"),
        on_missing_marker=given.one_of("onMissingMarker", _words(OnMissingMarker), default="fail"),
        checkpoint_location=_checkpoint(given),
        producer=_parse_producer(given.client),
        client=given.client,
    )
    if "path" in given:
        raise OptionError("path", f"is {given.text('path')!r}, and rows go to topics, not to paths; use option topic")
    if parsed.delivery is Delivery.EXACTLY_ONCE:
        _check_exactly_once(given, parsed)
    else:
        _check_at_least_once(given, parsed)
    return parsed


def _parse_producer(client: Mapping[str, str]) -> ProducerOptions:
    given = Given(client, known=client, of="the sink")
    try:
        acks = given.one_of("acks", _ACKS, default="all")
        codec = given.one_of("compression.type", {each.name.lower(): each for each in Codec}, default="none")
        return ProducerOptions(
            acks=acks,
            is_idempotent=given.flag("enable.idempotence", default="true") and acks == ACKS_ALL,
            batch_bytes=_number(given, "batch.size", BATCH_BYTES, minimum=BATCH_BYTES_MIN),
            request_bytes_max=_number(given, "max.request.size", REQUEST_BYTES_MAX, minimum=BATCH_BYTES_MIN),
            in_flight_max=_number(given, "max.in.flight.requests.per.connection", IN_FLIGHT_MAX),
            codec=codec,
            level=_level(given, codec),
            delivery_timeout_ms=_number(given, "delivery.timeout.ms", DELIVERY_TIMEOUT_MS),
            transaction_timeout_ms=_number(given, "transaction.timeout.ms", TRANSACTION_TIMEOUT_MS),
            transactional_id=_identity(given),
        )
    except OptionError as error:
        raise OptionError(CLIENT_PREFIX + error.option, error.problem) from error


def absolute_location(location: str) -> str:
    """A location that means the same in every folder, and is spelt in one way. What has a scheme is left as it is."""
    if location.startswith(_LOCAL_SCHEME):
        location = "/" + location.removeprefix(_LOCAL_SCHEME)
    elif _SCHEME.match(location):
        return location
    return "/" + os.path.abspath(location).lstrip("/")


def is_relative(location: str) -> bool:
    return not location.startswith("/") and _SCHEME.match(location) is None


def _checkpoint(given: Given) -> str | None:
    location = given.text("checkpointLocation")
    return None if location is None else absolute_location(location)


def _check_exactly_once(given: Given, parsed: SinkOptions) -> None:
    producer = parsed.producer
    if given.flag("asyncProgressTrackingEnabled", default="false"):
        raise OptionError(
            "asyncProgressTrackingEnabled",
            "is true: a batch that is run again may then have other rows, so that they cannot be written exactly once; "
            "leave it out, or use option delivery=at_least_once",
        )
    if producer.acks != ACKS_ALL:
        raise OptionError("kafka.acks", "is not all, and with option delivery=exactly_once it must be")
    if not producer.is_idempotent:
        raise OptionError("kafka.enable.idempotence", "is false, and with option delivery=exactly_once it must be true")
    if producer.in_flight_max > IN_FLIGHT_MAX:
        raise OptionError(
            "kafka.max.in.flight.requests.per.connection",
            f"is {producer.in_flight_max}: brokers recognise what is sent again among the last {IN_FLIGHT_MAX}",
        )


def _check_at_least_once(given: Given, parsed: SinkOptions) -> None:
    for name in ("markerTopic", "onLostCheckpoint", "onMissingMarker"):
        if name in given:
            raise OptionError(name, "is about markers, which option delivery=at_least_once does without")
    if parsed.producer.transactional_id is not None:
        raise OptionError("kafka.transactional.id", "is given, and option delivery=at_least_once has no transactions")
    if parsed.producer.is_idempotent and parsed.producer.in_flight_max > IN_FLIGHT_MAX:
        raise OptionError(
            "kafka.max.in.flight.requests.per.connection",
            f"is {parsed.producer.in_flight_max}: more than {IN_FLIGHT_MAX} need kafka.enable.idempotence=false",
        )


def _words(choices: type[_Choice]) -> dict[str, _Choice]:
    return {str(each.value): each for each in choices}


def _topic(given: Given, name: str) -> str | None:
    topic = given.text(name)
    if topic is not None and (_TOPIC.fullmatch(topic) is None or topic in (".", "..")):
        raise OptionError(name, f"is {topic!r}, which no topic is called: letters, digits, '.', '_' and '-', up to 249")
    return topic


def _identity(given: Given) -> str | None:
    identity = given.text("transactional.id")
    if identity is not None and _IDENTITY.fullmatch(identity) is None:
        raise OptionError("transactional.id", f"is {identity!r}: it takes up to 200 characters without spaces")
    return identity


def _number(given: Given, name: str, default: int, *, minimum: int = 1) -> int:
    number = given.number(name, minimum=minimum, maximum=INT_MAX)
    return default if number is None else number


def _level(given: Given, codec: Codec) -> int | None:
    name = f"compression.{codec.name.lower()}.level"
    if name not in given or codec not in LEVELS:
        return None
    lowest, highest, _ = LEVELS[codec]

    def parse(text: str) -> int:
        level = int(text)
        if not lowest <= level <= highest:
            raise ValueError
        return level

    try:
        return given.read(name, parse, default="")
    except OptionError as error:
        raise OptionError(name, f"is {given.text(name)!r}: it takes {lowest} to {highest}") from error
