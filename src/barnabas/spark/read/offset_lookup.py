"""What the driver of a read asks the cluster: which partitions exist, where they start and end, and where to begin.

A connection is opened when it is first needed, and kept until the read is planned or the query ends; it survives
restarts of brokers. Partitions are looked up again at most once a second: a query with no data to process asks for the
latest offsets a hundred times a second, and new partitions are not that urgent.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final, TypeVar

from barnabas.client import offset_queries as client
from barnabas.client.cluster import Cluster
from barnabas.protocol.errors import Error, KafkaError
from barnabas.spark.client_options import similar_topics
from barnabas.spark.raw_options import OptionError
from barnabas.spark.read.source_options import Assign, SourceOptions, Subscribe, SubscribePattern
from barnabas.spark.read.topic_positions import (
    EARLIEST,
    LATEST,
    AtTimestamp,
    Earliest,
    GroupOffsets,
    Latest,
    Offsets,
    Position,
    SpecificOffsets,
    SpecificTimestamps,
    TopicPartition,
    describe,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from barnabas.client.client_settings import ClientSettings
    from barnabas.client.cluster import TopicMetadata
    from barnabas.protocol.uuids import Uuid

T = TypeVar("T")

DISCOVERY_INTERVAL_S: Final = 1.0


class OffsetLookup:
    """Asks the cluster of one read. Not thread-safe."""

    def __init__(self, settings: ClientSettings, options: SourceOptions) -> None:
        self._settings = settings
        self._options = options
        self._cluster: Cluster | None = None
        self._present: dict[TopicPartition, Uuid] = {}
        self._discovered_at: float | None = None
        self._some_topic_missing = False
        self._isolation_level = client.READ_COMMITTED if options.read_committed else client.READ_UNCOMMITTED

    @property
    def cluster(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster.connect(self._settings)
        return self._cluster

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def required(self) -> list[TopicPartition]:
        """The partitions to be read, all of which must exist when a read begins."""
        present = self._discover()
        selection = self._options.selection
        if isinstance(selection, Subscribe):
            missing = sorted(set(selection.topics) - {topic for topic, _ in present})
            if missing:
                named = ", ".join(map(repr, missing))
                near = similar_topics(self.cluster, missing)
                raise OptionError("subscribe", f"names {named}, which the cluster does not have{near}")
        elif isinstance(selection, Assign) and (absent := set(selection.partitions) - present.keys()):
            raise OptionError("assign", f"names {describe(absent)}, which the cluster does not have")
        return sorted(present)

    def present(self) -> dict[TopicPartition, Uuid]:
        """Those of the partitions to be read that exist, with their topic ids. This may be up to a second old."""
        now = time.monotonic()
        if self._discovered_at is None or now - self._discovered_at >= DISCOVERY_INTERVAL_S:
            self._discover()
        return self._present

    def earliest(self, places: Iterable[TopicPartition]) -> Offsets:
        """Where partitions begin; those that turn out to be gone are left out."""
        wanted = dict.fromkeys(places, client.EARLIEST)
        try:
            return self._offsets(wanted)
        except KafkaError as failure:
            if failure.error is not Error.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            present = self._discover()
            return self._offsets({place: symbol for place, symbol in wanted.items() if place in present})

    def latest(self, known: Mapping[TopicPartition, int]) -> Offsets:
        """Where the partitions that exist end.

        A partition that seems to end before a `known` offset is looked up again: a broker that has just become its
        leader may not know the end at first.
        """
        ends = self._ends()
        for _ in range(self._options.offset_retries):
            if all(ends[place] >= offset for place, offset in known.items() if place in ends):
                break
            time.sleep(self._options.offset_retry_interval_ms / 1000)
            ends = self._ends()
        return ends

    def at_or_after(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset with this timestamp or a later one in each partition; None if there is none."""
        found = self._retrying(lambda cluster: client.list_offsets(cluster, timestamps_ms, self._isolation_level))
        return {place: None if at is None else at.offset for place, at in found.items()}

    def start_of_read(self, places: Collection[TopicPartition], latest: Callable[[], Offsets]) -> Offsets:
        """Where a read begins in each partition according to the options; partitions that are gone are left out."""
        position = self._options.starting
        if isinstance(position, GroupOffsets):
            return self._group_offsets(places)
        return self._resolve(position, places, latest, "starting")

    def end_of_read(self, places: Collection[TopicPartition], latest: Callable[[], Offsets]) -> Offsets:
        """Where a batch read ends in each partition according to the options; partitions that are gone are left out."""
        return self._resolve(self._options.ending, places, latest, "ending")

    def _resolve(
        self, position: Position, places: Collection[TopicPartition], latest: Callable[[], Offsets], side: str
    ) -> Offsets:
        if isinstance(position, Earliest):
            return self.earliest(places)
        if isinstance(position, Latest):
            return latest()
        if isinstance(position, AtTimestamp):
            return self._by_time(dict.fromkeys(places, position.timestamp_ms), latest, side, f"{side}Timestamp")
        if isinstance(position, SpecificTimestamps):
            name = f"{side}OffsetsByTimestamp"
            _check_complete(position.timestamps_ms, places, name, "a timestamp")
            return self._by_time(position.timestamps_ms, latest, side, name)
        assert isinstance(position, SpecificOffsets)
        known = {"starting": "an offset or -2 (earliest)", "ending": "an offset or -1 (latest)"}
        _check_complete(position.offsets, places, f"{side}Offsets", known[side])
        offsets = dict(position.offsets)
        if symbolic := [place for place, offset in offsets.items() if offset == EARLIEST]:
            offsets |= self.earliest(symbolic)
        if symbolic := [place for place, offset in offsets.items() if offset == LATEST]:
            ends = latest()
            offsets |= {place: ends[place] for place in symbolic if place in ends}
        # Where the symbol is still there, the partition is gone.
        return {place: offset for place, offset in offsets.items() if offset >= 0}

    def _by_time(
        self, timestamps_ms: Mapping[TopicPartition, int], latest: Callable[[], Offsets], side: str, option: str
    ) -> Offsets:
        found = self.at_or_after(timestamps_ms)
        too_late = [place for place, offset in found.items() if offset is None]
        if too_late and side == "starting" and not self._options.latest_where_no_record_is_that_late:
            raise OptionError(
                option,
                f"is later than all records of {describe(too_late)}; to begin at their end, set "
                "startingOffsetsByTimestampStrategy to latest",
            )
        ends = latest() if too_late else {}
        return {place: offset for place, offset in found.items() if offset is not None} | {
            place: ends[place] for place in too_late if place in ends
        }

    def _group_offsets(self, places: Collection[TopicPartition]) -> Offsets:
        group = self._options.group_id
        assert group is not None  # checked with the options
        committed = self._retrying(lambda cluster: client.committed_offsets(cluster, group, places))
        unknown = [place for place in places if place not in committed]
        return {place: at.offset for place, at in committed.items()} | self.earliest(unknown)

    def _offsets(self, places: dict[TopicPartition, int]) -> Offsets:
        """Earliest or latest offsets, which every partition has."""
        if not places:
            return {}
        found = self._retrying(lambda cluster: client.list_offsets(cluster, places, self._isolation_level))
        return {place: at.offset for place, at in found.items() if at is not None}

    def _ends(self) -> Offsets:
        """Where existing partitions end. If one turns out to be gone, partitions are looked up again."""
        try:
            return self._offsets(dict.fromkeys(self.present(), client.LATEST))
        except KafkaError as failure:
            if failure.error is not Error.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            self._discover()
            return self._offsets(dict.fromkeys(self._present, client.LATEST))

    def _discover(self) -> dict[TopicPartition, Uuid]:
        selection = self._options.selection
        topics: Iterable[TopicMetadata]
        if isinstance(selection, SubscribePattern):
            pattern = re.compile(selection.pattern)
            everything = self._retrying(lambda cluster: cluster.metadata(None)).values()
            topics = [each for each in everything if not each.is_internal and pattern.fullmatch(each.name)]
        elif isinstance(selection, Subscribe):
            topics = self._named(set(selection.topics))
        else:
            topics = self._named({topic for topic, _ in selection.partitions})
        found = {(each.name, number): each.topic_id for each in topics for number in each.partitions}
        if isinstance(selection, Assign):
            found = {place: found[place] for place in selection.partitions if place in found}
        self._present = found
        self._discovered_at = time.monotonic()
        return found

    def _named(self, names: set[str]) -> list[TopicMetadata]:
        """Topics by name, as far as they exist. All topics are requested only if one is missing."""
        if not self._some_topic_missing:
            try:
                return list(self._retrying(lambda cluster: cluster.metadata(names)).values())
            except KafkaError as failure:
                if failure.error is not Error.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
        found = [each for each in self._retrying(lambda cluster: cluster.metadata(None)).values() if each.name in names]
        self._some_topic_missing = len(found) < len(names)
        return found

    def _retrying(self, ask: Callable[[Cluster], T]) -> T:
        """Asks as often as `fetchOffset.numRetries` allows; each time the client itself retries for a while.

        The first connection is not retried here: the address may be wrong.
        """
        cluster = self.cluster
        for _ in range(self._options.offset_retries):
            try:
                return ask(cluster)
            except KafkaError as failure:
                if failure.error is not Error.NETWORK_EXCEPTION:
                    raise
            time.sleep(self._options.offset_retry_interval_ms / 1000)
        return ask(cluster)


def _check_complete(
    named: Collection[TopicPartition], places: Collection[TopicPartition], option: str, remedy: str
) -> None:
    """Refuses offsets for only some of the partitions: it would be unclear what happens to the others."""
    too_many = set(named) - set(places)
    if too_few := set(places) - set(named):
        unread = f" and names {describe(too_many)}, which would not be read" if too_many else ""
        raise OptionError(option, f"has nothing for {describe(too_few)}{unread}: give {remedy} for each partition")
    if too_many:
        raise OptionError(option, f"names {describe(too_many)}, which are not among the partitions to be read")
