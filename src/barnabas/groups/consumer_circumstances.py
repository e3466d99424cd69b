"""What a step of a consumer group depends on, besides the group and the request: settings, the cluster, the time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.groups.classic_state import GroupSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.groups.subscriptions import TopicHashes
    from barnabas.metadata.image import MetadataImage, TopicsImage

NO_CHANGE_SEEN: Final = 0


class ConsumerGroupSettings(NamedTuple):
    """The `group.consumer.*` settings of the broker. Kafka's defaults."""

    assignors: tuple[str, ...] = ("uniform", "range")
    """The first one is for groups whose members name none."""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    """At least so long is between two target assignments of a group, so that many joins cost one."""
    gathering_ms: int = 0
    """So long nobody has to have come or gone before a group is assigned, where there is an interval at all."""
    max_size: int = 2**31 - 1
    regex_refresh_interval_ms: int = 600_000
    migration_policy: str = "bidirectional"

    def of_group(self, configs: Mapping[str, str]) -> ConsumerGroupSettings:
        """The settings of a group that has configurations of its own."""
        if not configs:
            return self
        return self._replace(
            session_timeout_ms=int(configs.get("consumer.session.timeout.ms", self.session_timeout_ms)),
            heartbeat_interval_ms=int(configs.get("consumer.heartbeat.interval.ms", self.heartbeat_interval_ms)),
            assignment_interval_ms=int(configs.get("consumer.assignment.interval.ms", self.assignment_interval_ms)),
        )


class TopicsWatch:
    """Tells groups whether topics have changed since they last looked, without each keeping what they were then."""

    __slots__ = ("_changes", "_grown_at", "_grown_from", "_last")

    def __init__(self) -> None:
        self._last: TopicsImage | None = None
        self._changes = NO_CHANGE_SEEN
        self._grown_from: TopicsImage | None = None
        self._grown_at = -1

    def changes(self, topics: TopicsImage) -> int:
        """A number that is higher when topics are not as they were at the last call."""
        if topics is not self._last:
            self._last = topics
            self._changes += 1
        return self._changes

    def grown_at(self, image: MetadataImage) -> int:
        """An offset of the metadata log at which all topics of today were there already."""
        topics = image.topics
        if topics is not self._grown_from:
            if self._grown_from is None or not topics.ids.keys() <= self._grown_from.ids.keys():
                self._grown_at = image.offset
            self._grown_from = topics
        return self._grown_at


class Circumstances(NamedTuple):
    image: MetadataImage
    settings: ConsumerGroupSettings
    """Of the group in question."""
    hashes: TopicHashes
    watch: TopicsWatch
    now_ms: int
    classic: GroupSettings = GroupSettings()
    """Of the classic group that the group may become."""

    @property
    def topic_changes(self) -> int:
        return self.watch.changes(self.image.topics)
