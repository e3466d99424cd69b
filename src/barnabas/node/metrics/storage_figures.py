"""What a broker has on its disks: logs, their syncs, their data folders, and the cleaner that compacts them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.metrics.exposition import GAUGE, SUMMARY, Family, gauge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from barnabas.broker.broker import Broker
    from barnabas.broker.cleaner import LogCleaner
    from barnabas.broker.flusher import Flusher
    from barnabas.replication.hosted import HostedPartition
    from barnabas.replication.log_store import LogStore

CLEANER: Final = "kafka_log_logcleaner_"
CLEANER_MANAGER: Final = "kafka_log_logcleanermanager_"


def storage_families(broker: Broker, loop_now_s: float) -> Iterator[Family]:
    partitions = sorted(broker.replicas, key=lambda each: (each.topic, each.index))
    yield from log_families(partitions)
    yield from flush_families(broker.flusher)
    yield from folder_families(broker.store)
    yield from cleaner_families(broker.cleaner, broker.store, loop_now_s)


def log_families(partitions: Sequence[HostedPartition]) -> Iterator[Family]:
    """Each log: how large it is, and from where to where it goes."""
    figures: tuple[tuple[str, str, Callable[[HostedPartition], int]], ...] = (
        ("size", "bytes of the segments of a log", lambda each: each.log.size_bytes),
        ("logstartoffset", "the first offset of a log", lambda each: each.log.log_start_offset),
        ("logendoffset", "the offset after the last of a log", lambda each: each.log.log_end_offset),
        ("numlogsegments", "segments of a log", lambda each: len(each.log.segments.all)),
    )
    for name, explanation, figure in figures:
        family = Family(f"kafka_log_log_{name}", GAUGE, explanation)
        for each in partitions:
            family.add(figure(each), topic=each.topic, partition=str(each.index))
        yield family


def flush_families(flusher: Flusher) -> Iterator[Family]:
    times = Family("kafka_log_logflushstats_logflushrateandtimems", SUMMARY, "milliseconds that syncs of logs take")
    times.add_durations(flusher.times)
    yield times


def folder_families(store: LogStore) -> Iterator[Family]:
    offline = [data_dir.path for data_dir in store.failed]
    folders = Family("kafka_log_logmanager_logdirectoryoffline", GAUGE, "1 for a data folder that has failed")
    for each in store.online:
        folders.add(0, logDirectory=each.data_dir.path)
    for path in offline:
        folders.add(1, logDirectory=path)
    yield folders
    cordoned = Family("kafka_log_logmanager_logdirectorycordoned", GAUGE, "1 for a data folder that takes no new logs")
    for each in store.online:
        cordoned.add(store.is_cordoned(each.data_dir), logDirectory=each.data_dir.path)
    yield cordoned
    yield gauge("kafka_log_logmanager_offlinelogdirectorycount", "data folders that have failed", len(offline))


def cleaner_families(cleaner: LogCleaner, store: LogStore, loop_now_s: float) -> Iterator[Family]:
    figures = cleaner.figures
    yield gauge(f"{CLEANER}deadthreadcount", "1 if the cleaner has ended of its own accord", cleaner.is_dead)
    yield gauge(f"{CLEANER}max_clean_time_secs", "seconds that the last cleaning took", round(figures.took_s, 3))
    yield gauge(
        f"{CLEANER}cleaner_recopy_percent",
        "how much of what the last cleaning has read it wrote again",
        round(100 * figures.recopied_share, 2),
    )
    yield gauge(
        f"{CLEANER_MANAGER}max_dirty_percent",
        "how much of the dirtiest log is dirty that is to be cleaned",
        round(100 * figures.dirtiest_share, 2),
    )
    if figures.looked_s is not None:
        yield gauge(
            f"{CLEANER_MANAGER}time_since_last_run_ms",
            "milliseconds since the cleaner has last looked for dirty logs",
            round(1000 * max(loop_now_s - figures.looked_s, 0.0)),
        )
    counts = Family(f"{CLEANER_MANAGER}uncleanable_partitions_count", GAUGE, "logs that are not compacted any more")
    sizes = Family(f"{CLEANER_MANAGER}uncleanable_bytes", GAUGE, "bytes of such logs, without their active segments")
    uncleanable = [(store.folder_of(log), log) for log in list(cleaner.uncleanable)]
    for each in store.online:
        logs = [log for folder, log in uncleanable if folder is each.data_dir]
        counts.add(len(logs), logDirectory=each.data_dir.path)
        sizes.add(sum(log.size_bytes - log.segments.active.size for log in logs), logDirectory=each.data_dir.path)
    yield counts
    yield sizes
