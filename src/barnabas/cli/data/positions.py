"""Where reading begins and ends in each partition: by a word, an offset, a number of records, or a time."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END

from barnabas.cli.cluster_session import failing_in_one_line
from barnabas.cli.times import EXAMPLES, TimeError, parse_time_ms
from barnabas.client.client_settings import ClientSettings
from barnabas.client.cluster import Cluster
from barnabas.client.offset_queries import EARLIEST, LATEST, READ_COMMITTED, list_offsets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

OFFSET_TAIL_BASE = -2000  # this number minus N is librdkafka's offset for "N records before the end"


class Position(NamedTuple):
    """A place in every partition: an offset as librdkafka understands it, or a time."""

    offset: int = OFFSET_BEGINNING
    timestamp_ms: int | None = None


class Span(NamedTuple):
    """What is read of a partition."""

    start: int
    """As librdkafka understands it."""
    first: int
    """The offset that this was when reading began."""
    end: int | None
    """The offset before which reading stops; None where it goes on."""

    @property
    def is_empty(self) -> bool:
        return self.end is not None and (self.first == self.end or (self.start < 0 and self.first >= self.end))


def parse_position(text: str) -> Position:
    if text == "beginning":
        return Position(OFFSET_BEGINNING)
    if text == "end":
        return Position(OFFSET_END)
    if text.startswith("@") and text[1:].isdecimal():
        return Position(timestamp_ms=int(text[1:]))
    try:
        offset = int(text)
    except ValueError:
        pass
    else:
        return Position(offset if offset >= 0 else OFFSET_TAIL_BASE + offset)
    try:
        return Position(timestamp_ms=parse_time_ms(text))
    except TimeError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not valid: expected beginning, end, an offset, -N for the last N records, or {EXAMPLES}"
        ) from None


def spans(
    bootstrap_server: str, topic: str, partitions: Iterable[int], start: Position, end: Position | None
) -> dict[int, Span]:
    """What to read of each partition. What is written after this was asked is not part of what has an end."""
    places = [(topic, each) for each in partitions]
    settings = ClientSettings.from_options({"bootstrap.servers": bootstrap_server, "client.id": "barnabas-cli"})
    with failing_in_one_line(), Cluster.connect(settings) as cluster:
        firsts, lasts = _at_end(cluster, places, EARLIEST), _at_end(cluster, places, LATEST)
        starts = _offsets(cluster, places, start, firsts, lasts)
        ends = None if end is None else _offsets(cluster, places, end, firsts, lasts)
    # The end is where it is now, and not where it will be when librdkafka looks.
    is_known = start.timestamp_ms is not None or start.offset == OFFSET_END
    result = {}
    for _, each in places:
        stop = None if ends is None else min(ends[each], lasts[each])
        result[each] = Span(starts[each] if is_known else start.offset, starts[each], stop)
    return result


def _at_end(cluster: Cluster, places: list[tuple[str, int]], which: int) -> dict[int, int]:
    found = list_offsets(cluster, dict.fromkeys(places, which), READ_COMMITTED)
    return {partition: at.offset for (_, partition), at in found.items() if at is not None}


def _offsets(
    cluster: Cluster,
    places: list[tuple[str, int]],
    position: Position,
    firsts: Mapping[int, int],
    lasts: Mapping[int, int],
) -> dict[int, int]:
    """The offset in each partition that a position is."""
    if position.timestamp_ms is not None:
        found = list_offsets(cluster, dict.fromkeys(places, position.timestamp_ms), READ_COMMITTED)
        return {partition: lasts[partition] if at is None else at.offset for (_, partition), at in found.items()}
    if position.offset == OFFSET_BEGINNING:
        return dict(firsts)
    if position.offset == OFFSET_END:
        return dict(lasts)
    if position.offset <= OFFSET_TAIL_BASE:
        count = OFFSET_TAIL_BASE - position.offset
        return {partition: max(firsts[partition], last - count) for partition, last in lasts.items()}
    return dict.fromkeys(lasts, position.offset)
