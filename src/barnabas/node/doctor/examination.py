"""Examines the data folders of one node: a start is rehearsed, step by step, and nothing is changed.

The steps are those of `node/node`: which node owns the folders, what the metadata says, what the logs hold. Each is run
by the code that a start runs, on a `RehearsalDisk`. A step that fails is told and does not keep the others from being
tried, so that one look finds all that is wrong. What a start would say in its log is told as well.

What Apache Kafka makes of it was asked of Kafka 4.3.1, where it differs (`kafka_rules`).
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.broker.coordinators.coordinator_spec import OFFSETS_TOPIC
from barnabas.broker.coordinators.group_coordinator import shard_settings
from barnabas.broker.coordinators.shard_loading import replay_log
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.topic_config import resolve_topic_config
from barnabas.controller.controller_node import read_own_quorum
from barnabas.groups import group_records
from barnabas.groups.group_shard import GroupShard
from barnabas.log.folder import checkpoints
from barnabas.log.folder.data_dir import LOCK, DataDir
from barnabas.log.folder.meta_properties import (
    META_PROPERTIES,
    DamagedMetaPropertiesError,
    MetaPropertiesError,
    read_meta_properties,
)
from barnabas.log.segments.file_names import (
    CLEANED,
    DELETE_FOLDER,
    DELETED,
    FUTURE_FOLDER,
    LOG,
    STRAY_FOLDER,
    SWAP,
    parse_folder,
    partition_folder,
)
from barnabas.log.segments.open_files import FilePool
from barnabas.metadata.image import MetadataImage
from barnabas.node.doctor import kafka_rules
from barnabas.node.doctor.deep_check import check_log
from barnabas.node.doctor.partition_summaries import summary_of
from barnabas.node.doctor.rehearsal_disk import ChangeKind, RehearsalDisk
from barnabas.node.doctor.report import Effect, Finding, FolderSummary, MetadataSummary, Report
from barnabas.node.folders import open_folders
from barnabas.node.start_errors import START_ERRORS
from barnabas.protocol.errors import DecodeError, KafkaError
from barnabas.protocol.uuids import ZERO_UUID
from barnabas.raft.consensus.voter_sets import VOTERS_IN_LOG, Voter, VoterNode
from barnabas.raft.folder.format import BOOTSTRAP_FILE
from barnabas.raft.folder.metadata_log import MetadataLog, MetadataLogLimits, metadata_folder, read_folder
from barnabas.raft.folder.quorum_state import QuorumStateError, read_static_voters
from barnabas.raft.folder.snapshots import list_snapshots
from barnabas.raft.image_publisher import ImagePublisher
from barnabas.raft.quorum_client import QuorumSettings, read_quorum
from barnabas.raft.wire.quorum_peers import Address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from barnabas.config.topic_config import TopicConfig
    from barnabas.log.folder.checkpoints import TopicPartition
    from barnabas.log.folder.data_dir import OpenedPartitions
    from barnabas.log.folder.meta_properties import MetaProperties
    from barnabas.log.partition_log import PartitionLog
    from barnabas.ports import Clock, Disk, Random, Threads
    from barnabas.raft.folder.metadata_log import FolderContent

GROUPS_BYTES_MAX = 32 * 1024 * 1024
"""Groups are counted without being asked for if `__consumer_offsets` is no larger."""
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
CHECKPOINTS = (
    checkpoints.RECOVERY_POINTS,
    checkpoints.LOG_START_OFFSETS,
    checkpoints.HIGH_WATERMARKS,
    checkpoints.UNREPLICATED_TXNS,
    CLEANER_OFFSETS,
)


class Progress(NamedTuple):
    """Who hears how far it is: partitions that were opened, of how many, and bytes that were checked."""

    opened: Callable[[int, int], None]
    checking: Callable[[int], None]
    """How many bytes are going to be checked."""
    checked: Callable[[int], None]


class Ports(NamedTuple):
    disk: Disk
    clock: Clock
    random: Random
    threads: Threads


def examine(paths: Sequence[str], ports: Ports, progress: Progress, *, is_deep: bool, threads_max: int) -> Report:
    """Blocks, for long if there is much. The folders are those of one node."""
    rehearsal = RehearsalDisk(ports.disk)
    try:
        with _warnings() as warned:
            examination = _Examination(paths, ports, rehearsal, progress, is_deep=is_deep, threads_max=threads_max)
            report = examination.run()
        return report._replace(findings=(*report.findings, *examination.consequences(warned)))
    finally:
        rehearsal.close_all()


@contextmanager
def _warnings() -> Iterator[list[logging.LogRecord]]:
    """Gathers what would be logged, in place of logging it."""
    gathered: list[logging.LogRecord] = []

    class Gather(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            gathered.append(record)

    logger = logging.getLogger("barnabas")
    handler, propagates, level = Gather(logging.WARNING), logger.propagate, logger.level
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.WARNING)
    try:
        yield gathered
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates
        logger.setLevel(level)


class _Examination:
    def __init__(
        self,
        paths: Sequence[str],
        ports: Ports,
        rehearsal: RehearsalDisk,
        progress: Progress,
        *,
        is_deep: bool,
        threads_max: int,
    ) -> None:
        self._paths = paths
        self._ports = ports
        self._disk = rehearsal
        self._progress = progress
        self._is_deep = is_deep
        self._threads_max = threads_max
        self._findings: list[Finding] = []
        self._metas: dict[str, MetaProperties] = {}
        self._logs: list[PartitionLog] = []
        self._files = FilePool(rehearsal)

    def run(self) -> Report:
        self._read_identities()
        first = next(iter(self._metas.values()), None)
        metadata_path = next((path for path in self._paths if self._disk.exists(metadata_folder(path))), None)
        metadata = None
        config = self._config(first.node_id if first is not None else 1, metadata_path)
        if first is not None:
            self._check_owner(config)
            metadata = self._read_metadata(self._metadata_home(metadata_path), first)
        folders = tuple(self._look_into(path, config, metadata) for path in self._paths)
        if metadata is not None and first is not None:
            self._compare_with_metadata(metadata.image, first.node_id)
        if self._is_deep:
            self._check_deeply()
        groups = self._count_groups(config)
        home = self._metadata_home(metadata_path)
        return Report(
            None if first is None else first.cluster_id,
            None if first is None else first.node_id,
            _roles(first, metadata, bool(self._logs)),
            self._metas[home].directory_id if home in self._metas else None,
            folders,
            metadata,
            groups,
            tuple(self._findings),
            self._is_deep,
        )

    def consequences(self, warned: Sequence[logging.LogRecord]) -> Iterator[Finding]:
        """What the rehearsed start would have lost, and what it would have said."""
        lost = [
            change
            for change in self._disk.changes()
            if change.path.endswith(LOG)
            and change.kind in (ChangeKind.REMOVED, ChangeKind.TRUNCATED)
            and not self._is_in_use(change.path)
        ]
        for change in lost:
            if change.kind is ChangeKind.TRUNCATED:
                cut = f"{change.new_bytes} of {change.old_bytes}"
                what = f"a start truncates it at position {cut}, where no valid batch begins"
            else:
                what = f"a start removes it, with {change.old_bytes} bytes"
            yield Finding(
                change.path,
                f"{what}. That is right for the torn end of a log that a crash has left; else restore the folder of "
                "the partition from a copy, or from another replica, before anything is started on it",
                Effect.LOSES,
                Effect.LOSES,
            )
        told = {change.path for change in lost}
        for record in warned:
            text = record.getMessage()
            if record.exc_info is None and not any(path in text for path in told):
                place = next((word.rstrip(",:;") for word in text.split() if word.startswith(tuple(self._paths))), "")
                yield Finding(place or self._paths[0], f"a start says: {text}")

    # Whose folders these are

    def _read_identities(self) -> None:
        for path in self._paths:
            try:
                meta = read_meta_properties(self._disk, path)
            except (MetaPropertiesError, checkpoints.CheckpointError, OSError) as error:
                effect = self._effect_of_identity(path, error)
                self._add(f"{path}/{META_PROPERTIES}", f"{error}. Restore the file from a copy", _both(effect))
                continue
            if meta is not None:
                self._metas[path] = meta
            elif any(parse_folder(name) is not None for name in self._disk.list_folder(path)):
                self._add(
                    path,
                    f"has partitions but no {META_PROPERTIES}, so that its cluster and node are unknown: restore that "
                    "file from a copy",
                    _both(Effect.REFUSES),
                )
            else:
                self._add(
                    path,
                    "is not formatted: `barnabas start` formats it for a new cluster of one node, `barnabas format` "
                    "for a node of several; Apache Kafka needs `kafka-storage format` first",
                    (Effect.OPENS, Effect.REFUSES),
                )

    def _effect_of_identity(self, path: str, error: Exception) -> Effect:
        """As Kafka does, a node goes on without a folder whose identity is damaged, if it has another one, and unless
        this is the one of the metadata log."""
        is_needed = len(self._paths) == 1 or self._disk.exists(metadata_folder(path))
        is_damaged = isinstance(error, DamagedMetaPropertiesError | OSError)
        return Effect.OFFLINE if is_damaged and not is_needed else Effect.REFUSES

    def _config(self, node_id: int, metadata_path: str | None) -> BrokerConfig:
        overrides = {"node.id": str(node_id), "log.dirs": ",".join(self._paths)}
        if metadata_path is not None:
            overrides["metadata.log.dir"] = metadata_path
        config, _ = BrokerConfig.for_single_node(data_dir=self._paths[0], host="127.0.0.1", port=0, overrides=overrides)
        return config

    def _check_owner(self, config: BrokerConfig) -> None:
        ports = self._ports
        try:
            folders = open_folders(config, (), disk=self._disk, clock=ports.clock, random=ports.random)
        except START_ERRORS as error:
            if not any(finding.barnabas is Effect.REFUSES for finding in self._findings):
                path = next((path for path in self._paths if path in str(error)), self._paths[0])
                self._add(f"{path}/{META_PROPERTIES}", str(error), _both(Effect.REFUSES))
            return
        folders.unlock()

    # The metadata

    def _metadata_home(self, metadata_path: str | None) -> str:
        return metadata_path or next(iter(self._metas), self._paths[0])

    def _read_metadata(self, home: str, first: MetaProperties) -> MetadataSummary | None:
        """None if there is no metadata that can be read."""
        folder = metadata_folder(home)
        if not self._disk.exists(folder) and not self._disk.exists(f"{home}/{BOOTSTRAP_FILE}"):
            self._add(
                home,
                "has no metadata log: if it is in another folder of the node (metadata.log.dir), give that one too, "
                "with --data-dir",
                _both(Effect.REFUSES),
            )
            return None
        directory_id = self._metas[home].directory_id if home in self._metas else ZERO_UUID
        local = Voter(first.node_id, directory_id)
        try:
            content = read_folder(self._disk, folder)
            static_ids = read_static_voters(self._disk, folder) if self._disk.exists(folder) else ()
            publisher = self._open_quorum(home, first.cluster_id, local, content, static_ids)
        except (*START_ERRORS, QuorumStateError, DecodeError, OSError) as error:
            self._add(folder, str(error), (Effect.REFUSES, kafka_rules.effect_of_metadata(error)))
            return None
        return MetadataSummary(
            folder,
            _formatting(content, static_ids),
            content.kraft_version,
            content.voters,
            static_ids,
            content.end_offset,
            content.epoch,
            tuple(list_snapshots(self._disk, folder)) if self._disk.exists(folder) else (),
            publisher.committed,
        )

    def _open_quorum(
        self, home: str, cluster_id: str, local: Voter, content: FolderContent, static_ids: Sequence[int]
    ) -> ImagePublisher:
        """As a start does, but for voters that are elsewhere: what they have committed, nobody asks them."""
        folder, publisher = metadata_folder(home), ImagePublisher(cluster_id)
        ids = {voter.id for voter in content.voters} or set(static_ids)
        settings = _quorum_settings(local, content, static_ids)
        if not ids or local.id in ids:
            opened = read_own_quorum(self._disk, home, local, settings).opened
        else:
            opened = read_quorum(self._disk, folder, local, settings)
        publisher.restore(folder, content.snapshot, content.batches)
        if self._disk.exists(folder):
            MetadataLog.open(
                folder, opened.content, MetadataLogLimits(), disk=self._disk, clock=self._ports.clock
            ).close()
        return publisher

    # The logs

    def _look_into(self, path: str, config: BrokerConfig, metadata: MetadataSummary | None) -> FolderSummary:
        ports, names = self._ports, self._disk.list_folder(path)
        data_dir = DataDir.lock(path, disk=self._disk, clock=ports.clock, files=self._files, random=ports.random)
        lock = f"{path}/{LOCK}"
        if lock in self._disk.in_use:
            self._add(
                path,
                "is in use by a running broker, and is read while it is written to: what looks torn at the end of a "
                "log may not be. Stop the broker for a reliable report",
            )
        elif (error := self._disk.not_lockable.get(lock)) is not None:
            self._add(path, f"cannot be locked, so that a broker may write to it meanwhile: {error}")
        self._findings += kafka_rules.unknown_folders(self._disk, path, names)
        known = self._read_checkpoints(path)
        epoch = data_dir.take_clean_shutdown()
        high_watermarks = known.get(checkpoints.HIGH_WATERMARKS, {})
        image = MetadataImage("") if metadata is None else metadata.image

        def config_of(partition: TopicPartition) -> TopicConfig:
            return resolve_topic_config(image.configs.of_topic(partition.topic), config)

        opened = data_dir.open_partitions(
            config_of,
            clean_shutdown=epoch is not None,
            threads=ports.threads,
            threads_max=self._threads_max,
            on_progress=self._progress.opened,
        )
        self._tell_of_failures(path, opened)
        logs = sorted(opened.logs.values(), key=lambda log: (log.topic, log.partition))
        self._logs += logs
        for log in logs:
            self._findings += kafka_rules.leader_epochs(ports.disk, log.folder)
        marked = {
            mark: tuple(name for name in names if (parsed := parse_folder(name)) is not None and parsed.mark == mark)
            for mark in (STRAY_FOLDER, FUTURE_FOLDER, DELETE_FOLDER)
        }
        return FolderSummary(
            path,
            self._metas.get(path),
            lock in self._disk.in_use,
            epoch,
            {name: len(offsets) for name, offsets in known.items()},
            tuple(summary_of(log, high_watermarks) for log in logs),
            marked[STRAY_FOLDER],
            marked[FUTURE_FOLDER],
            marked[DELETE_FOLDER],
            tuple(self._leftovers(path, names)),
            ports.disk.space(path).usable_bytes,
        )

    def _read_checkpoints(self, path: str) -> dict[str, dict[TopicPartition, int]]:
        known = {}
        for name in CHECKPOINTS:
            file = f"{path}/{name}"
            if not self._disk.exists(file):
                continue
            try:
                known[name] = checkpoints.read_offsets(self._disk, file)
            except checkpoints.CheckpointError as error:
                self._findings.append(kafka_rules.checkpoint(file, error))
            except OSError as error:
                self._add(file, f"cannot be read: {error}", _both(Effect.REFUSES))
        return known

    def _leftovers(self, path: str, names: Sequence[str]) -> Iterator[str]:
        """As they are, not as the rehearsal has left them."""
        disk = self._ports.disk
        for name in names:
            parsed = parse_folder(name)
            if parsed is not None and not parsed.mark and disk.is_folder(f"{path}/{name}"):
                for file in disk.list_folder(f"{path}/{name}"):
                    if file.endswith((DELETED, CLEANED, SWAP)):
                        yield f"{name}/{file}"

    def _tell_of_failures(self, path: str, opened: OpenedPartitions) -> None:
        for partition, error in opened.failures.items():
            text = str(error)
            folder = f"{path}/{partition_folder(*partition)}"
            self._add(
                folder,
                text if folder in text else f"cannot be opened: {text}",
                (Effect.OFFLINE, kafka_rules.effect_of_failed_partition(error, len(self._paths))),
            )

    def _compare_with_metadata(self, image: MetadataImage, node_id: int) -> None:
        """Logs that belong to no topic, and replicas of this node that have no log."""
        placed = {}
        for topic in image.topics:
            for number, partition in enumerate(topic.partitions):
                if node_id in partition.replicas:
                    placed[topic.name, number] = topic.topic_id
        found = set()
        for log in self._logs:
            name = (log.topic, log.partition)
            expected = placed.get(name)
            if expected is not None and log.topic_id == expected:
                found.add(name)
            elif log.topic_id is None:
                self._add(
                    log.folder,
                    "has no partition.metadata that says which topic it is of: a start sets the log aside, as "
                    "*-stray, and begins an empty one. Restore that file from a copy",
                    _both(Effect.LOSES if expected is not None else Effect.OPENS),
                )
            else:
                self._add(log.folder, "belongs to no topic of this cluster: a start sets it aside, as *-stray")
        for topic_name, number in sorted(placed.keys() - found):
            if not any(finding.place.endswith(f"/{topic_name}-{number}") for finding in self._findings):
                self._add(
                    f"{self._paths[0]}/{topic_name}-{number}",
                    "is missing, though the metadata says that this node has a replica: a start makes an empty one. If "
                    "it is in another folder of the node, give that one too, with --data-dir; else restore it from a "
                    "copy, unless another replica has its records, or it was never written to",
                    _both(Effect.OPENS if self._disk.in_use else Effect.LOSES),
                )

    def _is_in_use(self, path: str) -> bool:
        """What a running broker has written since a file was read is no torn end, and what it makes is not missing."""
        return any(path.startswith(lock.removesuffix(LOCK)) for lock in self._disk.in_use)

    def _check_deeply(self) -> None:
        self._progress.checking(sum(log.size_bytes for log in self._logs))
        for log in self._logs:
            self._findings += check_log(log, self._disk, self._progress.checked)

    def _count_groups(self, config: BrokerConfig) -> int | None:
        logs = [log for log in self._logs if log.topic == OFFSETS_TOPIC]
        if not self._is_deep and sum(log.size_bytes for log in logs) > GROUPS_BYTES_MAX:
            return None
        try:
            return sum(asyncio.run(self._groups_in(log, config)) for log in logs)
        except (DecodeError, KafkaError) as error:
            self._add(logs[0].folder, f"groups cannot be loaded: {error}", _both(Effect.OFFLINE))
            return None

    async def _groups_in(self, log: PartitionLog, config: BrokerConfig) -> int:
        shard = GroupShard(shard_settings(config))

        async def run(function: Callable[..., Any], *arguments: Any) -> Any:
            return function(*arguments)

        await replay_log(
            log,
            shard,
            group_records.decode,
            buffer_bytes=config.offsets_load_buffer_size,
            disk=self._disk,
            run_in_thread=run,
        )
        shard.loaded(0)
        return len(shard.group_ids())

    def _add(self, place: str, text: str, effects: tuple[Effect, Effect] = (Effect.OPENS, Effect.OPENS)) -> None:
        self._findings.append(Finding(place, text, *effects))


def _both(effect: Effect) -> tuple[Effect, Effect]:
    return effect, effect


def _quorum_settings(local: Voter, content: FolderContent, static_ids: Sequence[int]) -> QuorumSettings:
    """What a node would be told of its quorum, if it is not the only voter."""
    if content.voters:
        others = [voter for voter in content.voters if voter.id != local.id]
        addresses = [Address(each.endpoints[0].host, each.endpoints[0].port) for each in others if each.endpoints]
        return QuorumSettings(bootstrap_servers=tuple(addresses))
    return QuorumSettings(static_voters=tuple(VoterNode(node_id, ZERO_UUID, ()) for node_id in static_ids))


def _formatting(content: FolderContent, static_ids: Sequence[int]) -> str:
    if content.voters or content.kraft_version >= VOTERS_IN_LOG:
        return "voters in the metadata log"
    if static_ids:
        return "voters by controller.quorum.voters"
    return "no voters yet"


def _roles(first: MetaProperties | None, metadata: MetadataSummary | None, has_logs: bool) -> tuple[str, ...]:
    """A broker has registered itself, a controller votes. A node that was never started may be both."""
    if first is None or metadata is None:
        return ()
    voters = {voter.id for voter in metadata.voters} or set(metadata.static_voter_ids)
    is_controller = first.node_id in voters or first.node_id in metadata.image.controllers
    is_broker = first.node_id in metadata.image.brokers or has_logs
    if not is_broker and not metadata.image.brokers and not metadata.image.controllers:
        is_broker = True
    roles = (("broker", is_broker), ("controller", is_controller or not voters))
    return tuple(name for name, has in roles if has)
