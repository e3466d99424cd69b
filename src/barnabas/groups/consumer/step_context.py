"""What a step of a consumer group depends on besides the group and the request: settings, metadata, the time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.groups.classic.classic_group import ClassicGroupSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.groups.consumer.metadata_hash import TopicHashes
    from barnabas.metadata.image import MetadataImage, TopicsImage

NO_CHANGE_SEEN: Final = 0


class ConsumerGroupSettings(NamedTuple):
    """The broker's `group.consumer.*` settings. Kafka's defaults."""

    assignors: tuple[str, ...] = ("uniform", "range")
    """The first one is the default."""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    """The least time between two target assignments of a group, so that many joins cost one."""
    gathering_ms: int = 0
    """For how long no member must have joined or left before a group is assigned. Counts only with an interval."""
    max_size: int = 2**31 - 1
    regex_refresh_interval_ms: int = 600_000
    migration_policy: str = "bidirectional"

    def of_group(self, configs: Mapping[str, str]) -> ConsumerGroupSettings:
        """These settings, overridden by the configuration of a group."""
        if not configs:
            return self
        return self._replace(
            session_timeout_ms=int(configs.get("consumer.session.timeout.ms", self.session_timeout_ms)),
            heartbeat_interval_ms=int(configs.get("consumer.heartbeat.interval.ms", self.heartbeat_interval_ms)),
            assignment_interval_ms=int(configs.get("consumer.assignment.interval.ms", self.assignment_interval_ms)),
        )


class TopicsWatch:
    """Tells groups whether topics have changed since they last checked, without a copy of the topics for each group."""

    __slots__ = ("_changes", "_grown_at", "_grown_from", "_last")

    def __init__(self) -> None:
        self._last: TopicsImage | None = None
        self._changes = NO_CHANGE_SEEN
        self._grown_from: TopicsImage | None = None
        self._grown_at = -1

    def changes(self, topics: TopicsImage) -> int:
        """A number that increases when topics have changed since the last call."""
        if topics is not self._last:
            self._last = topics
            self._changes += 1
        return self._changes

    def grown_at(self, image: MetadataImage) -> int:
        """An offset of the metadata log at which all current topics existed already."""
        topics = image.topics
        if topics is not self._grown_from:
            if self._grown_from is None or not topics.ids.keys() <= self._grown_from.ids.keys():
                self._grown_at = image.offset
            self._grown_from = topics
        return self._grown_at


class StepContext(NamedTuple):
    image: MetadataImage
    settings: ConsumerGroupSettings
    """Those of the group."""
    hashes: TopicHashes
    watch: TopicsWatch
    now_ms: int
    classic: ClassicGroupSettings = ClassicGroupSettings()
    """For the classic group that it may be downgraded to."""

    @property
    def topic_changes(self) -> int:
        return self.watch.changes(self.image.topics)
