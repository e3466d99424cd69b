"""The partitions that this node hosts, kept in step with the cluster's metadata.

Each published image is compared with the one before: logs are made in threads for partitions that are new here,
partitions of deleted topics go, leaders and configurations change in place. Readers and writers look partitions up
by topic name or id. What they find stays theirs until it `is_removed`; `generation` moves whenever a look-up that
failed may succeed, `removals` whenever partitions are removed, and `listeners` are called after every change.

What the metadata says of a partition decides what this node does with it: it leads it from where its log ends, in the
epoch that begins there; or it copies it from another broker (`replica_fetchers`), after that broker has said how much
of the log is right; or, while the partition has no leader, it waits. A node that is one of several needs a
`ReplicationEnvironment` for that; without one it serves the partitions that it leads.

If a disk fails while a log is created or claimed, only that partition is affected: it is offline, and `retry_offline`
tries it again later. So it is if a partition is to be led here whose log was cut and that cannot be brought to the
device. A data folder that fails takes all its partitions with it (`take_offline`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple

from barnabas.config.topic_config import LONG_MAX, TopicConfig, resolve_topic_config
from barnabas.log.folder.checkpoints import TopicPartition
from barnabas.metadata import versions
from barnabas.metadata.image import NO_LEADER, ConfigResource, MetadataDelta, MetadataImage, ResourceType, TopicImage
from barnabas.net.large_requests import Breather
from barnabas.protocol.errors import Error, KafkaError
from barnabas.protocol.uuids import Uuid
from barnabas.replication.fetch_wire import FetchLimits
from barnabas.replication.fetcher import FetcherEnvironment, FetcherSettings
from barnabas.replication.hosted import HostedPartition
from barnabas.replication.isr_changes import IsrChanges
from barnabas.replication.log_store import OfflineLogError, OpenDir
from barnabas.replication.partition import NO_EPOCH, BrokerId, ClusterView, LeaderEpoch, PartitionState
from barnabas.replication.replica_fetchers import ReplicaFetchers
from barnabas.replication.throttle import DEFAULT_QUOTA_WINDOWS, QuotaWindows, ReplicationThrottle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping

    from barnabas.config.broker_config import BrokerConfig
    from barnabas.log.folder.data_dir import DataDir
    from barnabas.log.partition_log import PartitionLog
    from barnabas.metadata.image import BrokerImage, PartitionImage
    from barnabas.net.peer import Peer
    from barnabas.net.purgatory import Purgatory, Watchers
    from barnabas.ports import Clock
    from barnabas.replication.isr_changes import Controller
    from barnabas.replication.log_store import LogStore
    from barnabas.replication.replica_moves import ReplicaMoves

logger = logging.getLogger("barnabas.replicas")

CREATED_PER_STEP = 64
NEVER_MS = LONG_MAX
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
NAME_SHOWN_MAX = 249
"""The longest legal topic name: what is longer is cut in messages."""


class CreatedLog(NamedTuple):
    partition: int
    data_dir: DataDir
    log: PartitionLog | Exception


class ReplicationEnvironment(NamedTuple):
    """What a node needs to replicate partitions with others."""

    loop: asyncio.AbstractEventLoop
    connect: Callable[[int, str], Peer | None]
    """A new connection to a broker's inter-broker listener, under a name; None while its address is not known. Whoever
    asks for it closes it: a fetch that waits at the leader would hold up everything else on the same connection."""
    controller: Controller
    """Takes AlterPartition to the active controller."""
    broker_epoch: Callable[[], int]
    """That of this broker's registration."""
    flush: Callable[[PartitionLog], Awaitable[None]]
    """Syncs a log, in a thread."""


class ReplicaManager:
    def __init__(
        self,
        node_id: int,
        store: LogStore,
        purgatory: Purgatory,
        clock: Clock,
        run_in_thread: Callable[..., Awaitable[list[CreatedLog]]],
        moves: ReplicaMoves,
        environment: ReplicationEnvironment | None = None,
        quota_windows: QuotaWindows = DEFAULT_QUOTA_WINDOWS,
    ) -> None:
        self.generation = 0
        self.removals = 0
        self.broker_watchers: Watchers = {}
        """Requests that wait for other replicas, and so want to know which brokers live."""
        self.listeners: list[Callable[[], None]] = []
        self._node_id = BrokerId(node_id)
        self._store = store
        self._purgatory = purgatory
        self.clock = clock
        self._run_in_thread = run_in_thread
        self.flushed_by_time: dict[HostedPartition, None] = {}
        """Those whose topic asks for regular syncs (`flush.ms`)."""
        self._by_name: dict[bytes, dict[int, HostedPartition]] = {}
        self._by_id: dict[bytes, dict[int, HostedPartition]] = {}
        self._image: MetadataImage | None = None
        self._view = ClusterView()
        self._config: BrokerConfig | None = None
        self.selects_by_rack = False
        """Whether consumers are sent to replicas in their rack (`replica.selector.class`)."""
        self.leader_throttle = ReplicationThrottle(quota_windows)
        self.follower_throttle = ReplicationThrottle(quota_windows)
        self._isr_changes: IsrChanges | None = None
        self._fetchers: ReplicaFetchers | None = None
        if environment is not None:
            self._isr_changes = IsrChanges(
                node_id, environment.controller, environment.broker_epoch, self._view, environment.loop
            )
            self._fetchers = ReplicaFetchers(
                FetcherEnvironment(
                    node_id,
                    environment.loop,
                    clock,
                    self._fetcher_settings,
                    environment.broker_epoch,
                    environment.connect,
                    self.follower_throttle,
                    self._flush,
                    self._settle_cuts,
                )
            )
        self._environment = environment
        self._offline: dict[tuple[Uuid, int], str] = {}
        self.misplaced: dict[tuple[Uuid, int], Uuid] = {}
        """Partitions that are in another data folder than the metadata says, by topic id and index, with its id."""
        self.on_misplaced: Callable[[], None] | None = None
        """Called when there are some, other than by metadata."""
        self.moves = moves
        """Replicas on their way to other data folders."""
        moves.on_place_changed = self._place_changed
        self._changing = asyncio.Lock()

    def __iter__(self) -> Iterator[HostedPartition]:
        return (hosted for partitions in self._by_id.values() for hosted in partitions.values())

    def __len__(self) -> int:
        return sum(map(len, self._by_id.values()))

    @property
    def isr_shrinks(self) -> int:
        return 0 if self._isr_changes is None else self._isr_changes.shrunk

    @property
    def isr_expands(self) -> int:
        return 0 if self._isr_changes is None else self._isr_changes.expanded

    @property
    def failed_copies(self) -> int:
        """Partitions that cannot be copied, for reasons that lie here. Another thread may ask."""
        return 0 if self._fetchers is None else self._fetchers.failed_count

    def high_watermarks(self) -> dict[PartitionLog, int]:
        """Of all logs that are in use, and of those that are copied to other data folders."""
        offsets = {hosted.log: hosted.state.high_watermark.offset for hosted in self}
        for hosted, future in self.moves.futures():
            offsets[future] = min(hosted.state.high_watermark.offset, future.log_end_offset)
        return offsets

    # ── look-ups ─────────────────────────────────────────────────────────────────────────────────────────────

    def find_by_name(self, topic: bytes, index: int) -> HostedPartition:
        try:
            return self._by_name[topic][index]
        except KeyError:
            name = topic.decode(errors="replace")
            known = self._image.topics.get(name) if self._image is not None else None
            raise self._not_here(known, Error.UNKNOWN_TOPIC_OR_PARTITION, name, index) from None

    def find_by_id(self, topic_id: bytes, index: int) -> HostedPartition:
        try:
            return self._by_id[topic_id][index]
        except KeyError:
            known = self._image.topics.by_id(Uuid(topic_id)) if self._image is not None else None
            raise self._not_here(known, Error.UNKNOWN_TOPIC_ID, "with this id", index) from None

    def hosted_by_name(self, topic: bytes) -> Mapping[int, HostedPartition]:
        """The partitions of a topic that are hosted here, by index."""
        return self._by_name.get(topic, {})

    def hosted_by_id(self, topic_id: bytes) -> Mapping[int, HostedPartition]:
        return self._by_id.get(topic_id, {})

    def partitions_of(self, topic: str) -> Mapping[int, HostedPartition]:
        """The partitions of a topic that are hosted here, by index."""
        return self.hosted_by_name(topic.encode())

    def leader_of(self, topic: bytes, index: int, *, is_by_id: bool) -> tuple[int, int]:
        """Who leads a partition, and in which epoch, as far as is known here; -1 for what is not."""
        hosted = (self._by_id if is_by_id else self._by_name).get(topic, {}).get(index)
        if hosted is not None:
            return hosted.state.leader_id, hosted.state.leader_epoch
        topics = self._image.topics if self._image is not None else None
        if topics is None:
            return NO_LEADER, NO_EPOCH
        known = topics.by_id(Uuid(topic)) if is_by_id else topics.get(topic.decode(errors="replace"))
        if known is None or not 0 <= index < len(known.partitions):
            return NO_LEADER, NO_EPOCH
        return known.partitions[index].leader, known.partitions[index].leader_epoch

    def broker(self, broker_id: int) -> BrokerImage | None:
        """The registration of a broker that is not fenced."""
        found = self._image.brokers.get(broker_id) if self._image is not None else None
        return None if found is None or found.fenced else found

    def _not_here(self, known: TopicImage | None, unknown: Error, name: str, index: int) -> KafkaError:
        if known is None:
            return KafkaError(unknown, f"there is no topic {name[:NAME_SHOWN_MAX]}")
        if not 0 <= index < len(known.partitions):
            return KafkaError(
                Error.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {known.name} has {len(known.partitions)} partitions, so there is no partition {index}",
            )
        reason = self._offline.get((known.topic_id, index))
        if reason is not None:
            return KafkaError(Error.KAFKA_STORAGE_ERROR, f"{known.name}-{index} is offline: {reason}")
        return KafkaError(Error.NOT_LEADER_OR_FOLLOWER, f"{known.name}-{index} is not on this broker at the moment")

    # ── following the metadata ───────────────────────────────────────────────────────────────────────────────

    async def apply(self, image: MetadataImage, delta: MetadataDelta, config: BrokerConfig) -> None:
        """Brings the hosted partitions from the previous image to this one."""
        async with self._changing:
            self._image = image
            self.moves.is_announcing = versions.supports_directories(image.features.metadata_version)
            await self._configure(config)
            self._follow_brokers(image, delta.changed_brokers)
            for topic in delta.deleted_topics:
                await self._remove(topic)
            for topic in delta.created_topics:
                await self._host(topic, image, config)
            for change in delta.changed_topics:
                await self._host(change.new, image, config)
            await self._apply_configs(image, delta.changed_configs, config)
            if self._fetchers is not None:
                self._fetchers.close_idle()
            self._changed()

    async def _configure(self, config: BrokerConfig) -> None:
        if config is self._config:
            return
        self._config = config
        self._view.replica_lag_time_max_ms = config.replica_lag_time_max_ms
        selector = config.replica_selector_class
        self.selects_by_rack = selector == RACK_AWARE_SELECTOR
        if selector not in (None, "", RACK_AWARE_SELECTOR, LEADER_SELECTOR):
            logger.error("replica.selector.class %s is not supported; consumers will read from leaders", selector)
        self.leader_throttle.limit_bytes = config.leader_replication_throttled_rate
        self.follower_throttle.limit_bytes = config.follower_replication_throttled_rate
        self.moves.throttle.limit_bytes = config.replica_alter_log_dirs_io_max_bytes_per_second
        self.moves.copies_at_once = config.num_replica_alter_log_dirs_threads or len(config.log_dirs)
        if self._fetchers is not None and self._fetchers.fetchers_per_leader != config.num_replica_fetchers:
            self._fetchers.fetchers_per_leader = config.num_replica_fetchers
            breather = Breather()
            for hosted in list(self):
                if not hosted.is_removed and hosted.offline_reason is None:
                    self._copy_from_leader(hosted)
                await breather.pause_if_due()

    def _fetcher_settings(self) -> FetcherSettings:
        config = self._config
        assert config is not None, "nothing is copied before there is any metadata"
        limits = FetchLimits(
            config.replica_fetch_wait_max_ms,
            config.replica_fetch_min_bytes,
            config.replica_fetch_response_max_bytes,
            config.replica_fetch_max_bytes,
        )
        return FetcherSettings(limits, config.replica_fetch_backoff_ms, config.replica_socket_timeout_ms / 1000)

    def _follow_brokers(self, image: MetadataImage, changed: frozenset[int]) -> None:
        if not changed:
            return
        brokers = image.brokers.values()
        self._view.active_brokers = {each.id: each.epoch for each in brokers if each.is_active}
        self._view.live_brokers = frozenset(each.id for each in brokers if not each.fenced)
        if self.broker_watchers:
            self._purgatory.wake(self.broker_watchers)
        self._view.racks = {each.id: each.rack for each in brokers if each.rack and not each.fenced}
        if self._fetchers is not None:
            self._fetchers.addresses_changed(changed)
        if self._isr_changes is not None:
            self._isr_changes.brokers_changed()

    async def stop_replicating(self) -> None:
        """Copies nothing more and proposes nothing more."""
        if self._fetchers is not None:
            await self._fetchers.close()
        if self._isr_changes is not None:
            await self._isr_changes.close()
        await self.moves.close()

    async def retry_offline(self, config: BrokerConfig) -> None:
        """Tries again to host the partitions whose logs could not be created or claimed."""
        async with self._changing:
            image = self._image
            topic_ids = {topic_id for topic_id, _ in self._offline}
            if image is None or not topic_ids:
                return
            for topic in filter(None, map(image.topics.by_id, topic_ids)):
                await self._host(topic, image, config)
            self._changed()

    def take_offline(self, data_dir: DataDir, error: OSError) -> int:
        """A data folder has failed: nobody is served from it any more. Returns how many partitions are affected."""
        lost = set(self._store.take_offline(data_dir))
        directory = self._store.id_of(data_dir)
        for topic_id, partitions in self._by_id.items():
            for index, hosted in list(partitions.items()):
                if hosted.log in lost:
                    del partitions[index]
                    reason = f"its folder {data_dir.path} has failed: {error}"
                    self._offline[Uuid(topic_id), index] = reason
                    if self.moves.was_announced(hosted):
                        # The controller may believe that it is elsewhere.
                        self.misplaced[Uuid(topic_id), index] = directory
                    self._let_go(hosted)
                    hosted.go_offline(reason)
        self.moves.folder_failed(data_dir)
        self._changed()
        return sum(not log.is_future for log in lost)

    def _changed(self) -> None:
        self.generation += 1
        for listener in self.listeners:
            listener()

    async def _host(self, topic: TopicImage, image: MetadataImage, config: BrokerConfig) -> None:
        """Follows the metadata of one topic's partitions, making the logs that are not there yet."""
        hosted = self._by_id.get(topic.topic_id, {})
        topic_config: TopicConfig | None = None
        breather = Breather()
        for first in range(0, len(topic.partitions), CREATED_PER_STEP):
            step = range(first, min(first + CREATED_PER_STEP, len(topic.partitions)))
            missing = [i for i in step if i not in hosted and self._node_id in topic.partitions[i].replicas]
            if missing:
                topic_config = topic_config or resolve_topic_config(image.configs.of_topic(topic.name), config)
                for index, log in (await self._open_logs(topic, missing, topic_config)).items():
                    try:
                        hosted[index] = taken = self._take_up(topic, index, log)
                        self._follow_config(taken, log.config)
                        self._resume_move(taken)
                    except KafkaError as error:
                        self._store.give_back(log)
                        self._note_offline(topic, index, error)
                    else:
                        self._note_online(topic, index)
            to_settle = [
                hosted[index]
                for index in step
                if index in hosted
                and topic.partitions[index].leader == self._node_id
                and hosted[index].has_unsettled_cut
            ]
            unfit = await self._settle_before_leading(topic, to_settle) if to_settle else ()
            for index in step:
                if index in hosted and self._node_id not in topic.partitions[index].replicas:
                    self._drop(hosted.pop(index))
                elif index in hosted:
                    if hosted[index] not in unfit:
                        if hosted[index].offline_reason is not None:
                            hosted[index].is_back()
                            self._note_online(topic, index)
                        self._follow(hosted[index], topic.partitions[index])
                    self._note_place(hosted[index], topic.partitions[index])
            await breather.pause_if_due()
        if hosted and topic.topic_id not in self._by_id:
            self._by_id[topic.topic_id] = hosted
            self._by_name[topic.name.encode()] = hosted

    async def _open_logs(self, topic: TopicImage, indexes: list[int], config: TopicConfig) -> dict[int, PartitionLog]:
        """The logs of these partitions: those found on disk at start, the others made now in a thread."""
        logs: dict[int, PartitionLog] = {}
        missing: dict[int, Uuid] = {}
        for index in indexes:
            try:
                directory = topic.partitions[index].directory_of(self._node_id)
                assert directory is not None, "only partitions with a replica here are made here"
                log = self._store.claim(topic.name, topic.topic_id, index, directory)
            except KafkaError as error:
                self._note_offline(topic, index, error)
                continue
            if log is not None:
                log.config = config
                logs[index] = log
                continue
            try:
                self._store.require_online(topic.name, topic.topic_id, index, directory)
            except OfflineLogError as error:
                self._note_offline(topic, index, error)
                continue
            missing[index] = self._store.take_preference(TopicPartition(topic.name, index), directory)
        if missing:
            to_create = list(zip(missing, self._store.choose(missing.values()), strict=True))
            try:
                await self._store.forget_predecessors(
                    (TopicPartition(topic.name, index), data_dir) for index, data_dir in to_create
                )
            except OSError as error:
                for index, _ in to_create:
                    self._note_offline(topic, index, error)
                return logs
            for created in await self._run_in_thread(self._create_logs, topic, to_create, config):
                if isinstance(created.log, Exception):
                    self._note_offline(topic, created.partition, created.log)
                    continue
                self._store.adopt(created.log, created.data_dir)
                if created.log.failure is None:
                    logs[created.partition] = created.log
                else:
                    self._store.take_offline(created.data_dir)
                    self._note_offline(topic, created.partition, created.log.failure)
        return logs

    def _create_logs(
        self, topic: TopicImage, places: list[tuple[int, DataDir]], config: TopicConfig
    ) -> list[CreatedLog]:
        created = []
        for index, data_dir in places:
            log: PartitionLog | Exception
            try:
                log = self._store.create(data_dir, topic.name, topic.topic_id, index, config)
            except (OSError, KafkaError) as error:
                log = error
            created.append(CreatedLog(index, data_dir, log))
        return created

    def _note_place(self, hosted: HostedPartition, partition: PartitionImage) -> None:
        known = partition.directory_of(self._node_id)
        self.moves.metadata_says(hosted, known)
        place = self.moves.place_of(hosted)
        if place == known:
            self.misplaced.pop((hosted.topic_id, hosted.index), None)
        else:
            self.misplaced[hosted.topic_id, hosted.index] = place

    def _place_changed(self, hosted: HostedPartition) -> None:
        """A replica has moved, or is about to, or does not after all."""
        topic = self._image.topics.by_id(hosted.topic_id) if self._image is not None else None
        if topic is not None and hosted.offline_reason is None:
            self._note_place(hosted, topic.partitions[hosted.index])
            if self.on_misplaced is not None:
                self.on_misplaced()

    def _resume_move(self, hosted: HostedPartition) -> None:
        """Goes on with a copy that was found at start."""
        future = self._store.take_future(hosted.topic, hosted.topic_id, hosted.index)
        target = None if future is None else self._store.folder_of(future)
        if future is not None and target is not None:
            self.moves.resume(hosted, future, OpenDir(self._store.id_of(target), target))

    def _note_offline(self, topic: TopicImage, index: int, error: Exception) -> None:
        if (topic.topic_id, index) not in self._offline:
            logger.error("%s-%d is offline: %s", topic.name, index, error)
        self._offline[topic.topic_id, index] = str(error)

    def _note_online(self, topic: TopicImage, index: int) -> None:
        if self._offline.pop((topic.topic_id, index), None) is not None:
            logger.info("%s-%d is no longer offline", topic.name, index)

    def _take_up(self, topic: TopicImage, index: int, log: PartitionLog) -> HostedPartition:
        """Raises KafkaError if the log cannot be read at its high watermark."""
        high_watermark = log.position_of(self._store.high_watermark_of(log))
        state = PartitionState(self._node_id, log.end_position, high_watermark, self._view)
        return HostedPartition(topic.name, topic.topic_id, index, state, log, self._purgatory)

    def _follow(self, hosted: HostedPartition, partition: PartitionImage) -> None:
        state = hosted.state
        known = state.partition_epoch
        if partition.partition_epoch < known or (
            # What an answer to AlterPartition has told already, but for the end of a reassignment.
            partition.partition_epoch == known and partition.replicas == state.replicas
        ):
            return
        is_new_epoch = partition.leader_epoch > state.leader_epoch
        is_led_here = partition.leader == self._node_id
        if is_led_here and not state.is_leader and self._fetchers is not None:
            self._fetchers.stop(hosted)
        has_moved = state.follow_metadata(
            BrokerId(partition.leader),
            LeaderEpoch(partition.leader_epoch),
            partition.partition_epoch,
            map(BrokerId, partition.replicas),
            map(BrokerId, partition.isr),
            hosted.monotonic_ms(),
        )
        if is_led_here:
            self._lead(hosted, partition.leader_epoch, is_new_epoch=is_new_epoch)
        else:
            self._stop_leading(hosted)
            self._copy_from_leader(hosted)
        if has_moved:
            hosted.log.high_watermark_moved(state.high_watermark.offset)
        hosted.notify()

    def _lead(self, hosted: HostedPartition, leader_epoch: int, *, is_new_epoch: bool) -> None:
        """Nothing is cut: whoever is elected has everything that is committed."""
        if is_new_epoch:
            hosted.log.begin_epoch(leader_epoch)
        hosted.isr_changes = self._isr_changes
        if self._isr_changes is not None and hosted.state.followers:
            self._isr_changes.consider(hosted)
            if hosted.state.is_anybody_waited_for():
                self._isr_changes.watch(hosted)

    def _stop_leading(self, hosted: HostedPartition) -> None:
        if hosted.isr_changes is not None:
            hosted.isr_changes.forget(hosted)
            hosted.isr_changes = None

    def _copy_from_leader(self, hosted: HostedPartition) -> None:
        """Has the partition copied from its leader, if it has one and that is not this node. What of the log is right,
        the leader says in its first answer."""
        if self._fetchers is None:
            return
        state, log = hosted.state, hosted.log
        if state.leader_id in (NO_LEADER, self._node_id):
            self._fetchers.stop(hosted)
            return
        if log.latest_epoch < 0 and log.log_end_offset > state.high_watermark.offset:
            # A log without epochs gives the leader nothing to compare: what is committed is all that is certain.
            hosted.truncate(state.high_watermark.offset)
        self._fetchers.follow(hosted, state.leader_id, state.leader_epoch)

    async def _flush(self, partitions: Collection[HostedPartition]) -> dict[HostedPartition, Exception]:
        """Syncs logs, as many at a time as there are threads for it. Returns those that could not be, and why."""
        assert self._environment is not None, "only those copy who have other nodes"
        # Others may wait for the same sync: it is not theirs to give up if this one is.
        syncs = [asyncio.shield(self._environment.flush(hosted.log)) for hosted in partitions]
        failed: dict[HostedPartition, Exception] = {}
        for hosted, outcome in zip(partitions, await asyncio.gather(*syncs, return_exceptions=True), strict=True):
            if isinstance(outcome, (KafkaError, OSError)):
                failed[hosted] = outcome
            elif outcome is not None:
                raise outcome
        return failed

    async def _settle_cuts(self, partitions: Collection[HostedPartition]) -> dict[HostedPartition, Exception]:
        """Brings what was cut to the device, and to the checkpoint, and takes producers back to where the logs end now.
        Returns those for which that failed, and why."""
        cuts = {hosted: hosted.cuts for hosted in partitions}
        unread = await self._store.reload_producers(hosted.log for hosted in partitions)
        failed = {hosted: unread[hosted.log] for hosted in partitions if hosted.log in unread}
        failed |= await self._flush([hosted for hosted in partitions if hosted not in failed])
        refused = await self._store.lower_recovery_points(hosted.log for hosted in partitions if hosted not in failed)
        failed |= {hosted: refused[hosted.log] for hosted in partitions if hosted.log in refused}
        for hosted, count in cuts.items():
            if hosted not in failed:
                hosted.settled_cuts = max(hosted.settled_cuts, count)
        return failed

    async def _settle_before_leading(
        self, topic: TopicImage, partitions: Collection[HostedPartition]
    ) -> Collection[HostedPartition]:
        """What this node writes as a leader follows what it has cut as a follower. Returns those that it cannot lead:
        they are offline until that is tried again."""
        assert self._fetchers is not None, "only those cut their logs who copy from others"
        for hosted in partitions:
            self._fetchers.stop(hosted)
        failed = await self._settle_cuts(partitions)
        for hosted, error in failed.items():
            hosted.go_offline(str(error))
            self._note_offline(topic, hosted.index, error)
        return failed

    def _let_go(self, hosted: HostedPartition) -> None:
        """Neither leads nor copies a partition any more."""
        self._stop_leading(hosted)
        if self._fetchers is not None:
            self._fetchers.stop(hosted)

    def _drop(self, hosted: HostedPartition) -> None:
        """This node has no replica of the partition any more."""
        self.misplaced.pop((hosted.topic_id, hosted.index), None)
        self._offline.pop((hosted.topic_id, hosted.index), None)
        self.removals += 1
        self._retire(hosted)
        self._take_away(hosted, self.clock.now_ms())

    def _retire(self, hosted: HostedPartition) -> None:
        """Nobody is served from the partition any more."""
        hosted.is_removed = True
        hosted.state.resign()

    def _take_away(self, hosted: HostedPartition, now_ms: int) -> None:
        self._let_go(hosted)
        self.moves.call_off(hosted)
        self.flushed_by_time.pop(hosted, None)
        self._store.discard(hosted.log, now_ms)
        hosted.notify()

    async def _remove(self, topic: TopicImage) -> None:
        """Nobody is served from the topic any more. Its logs are taken away with turns for others in between."""
        now_ms = self.clock.now_ms()
        breather = Breather()
        partitions = self._by_id.pop(topic.topic_id, {})
        if self._by_name.get(topic.name.encode()) is partitions:
            del self._by_name[topic.name.encode()]
        self.removals += bool(partitions)
        for hosted in partitions.values():
            self._retire(hosted)
        for index in range(len(topic.partitions)):
            self.misplaced.pop((topic.topic_id, index), None)
            if self._offline.pop((topic.topic_id, index), None) is not None:
                self._store.discard_returned(topic.name, index, now_ms)
            if (removed := partitions.get(index)) is not None:
                self._take_away(removed, now_ms)
            await breather.pause_if_due()

    async def _apply_configs(
        self, image: MetadataImage, changed: Iterable[ConfigResource], config: BrokerConfig
    ) -> None:
        """A topic's change reaches its logs; a change of the broker's settings may reach all."""
        names: set[str] = set()
        for resource in changed:
            if resource.type == ResourceType.TOPIC:
                names.add(resource.name)
            elif resource.type == ResourceType.BROKER:
                names.update(name.decode() for name in self._by_name)
        breather = Breather()
        for name in names:
            partitions = self._by_name.get(name.encode())
            if partitions:
                topic_config = resolve_topic_config(image.configs.of_topic(name), config)
                for hosted in list(partitions.values()):
                    self._follow_config(hosted, topic_config)
            await breather.pause_if_due()

    def _follow_config(self, hosted: HostedPartition, config: TopicConfig) -> None:
        hosted.reconfigure(config)
        if config.flush_ms == NEVER_MS:
            self.flushed_by_time.pop(hosted, None)
        else:
            self.flushed_by_time[hosted] = None
