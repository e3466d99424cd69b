"""`barnabas doctor`: what is in data folders, and whether Barnabas and Apache Kafka can open them. Nothing is changed.

The exit code is 0 if all is well, and 1 if anything was found that a start would refuse, lose or leave offline. With
`--kafka-properties` it makes the server.properties with which Apache Kafka opens the folders.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any

from barnabas.cli.command_line import EXIT_FAILED, EXIT_OK, CommandError, Parser, UsageError, positive_int
from barnabas.cli.output import Column, comma_list, number, print_json, print_table
from barnabas.cli.progress_bar import byte_bar, counting_bar
from barnabas.cli.start_command import CLUSTER_PROPERTIES
from barnabas.node.doctor.examination import Ports, Progress, examine
from barnabas.node.doctor.kafka_properties import NoPropertiesError, kafka_properties
from barnabas.node.doctor.report import Effect
from barnabas.node.initial_features import VERSION_NAMES
from barnabas.ports import SystemClock, SystemDisk, SystemRandom, SystemThreads
from barnabas.protocol.uuids import to_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from barnabas.node.doctor.report import Finding, FolderSummary, MetadataSummary, PartitionSummary, Report

STDOUT = "-"
FINDINGS_SHOWN_MAX = 50
EPILOG = """examples:
  barnabas doctor --data-dir barnabas-data
  barnabas doctor --data-dir /disk1/kafka --data-dir /disk2/kafka --deep
  barnabas doctor --data-dir barnabas-data --kafka-properties server.properties

Give all folders of a node together. A folder that a broker has open is read all the same, with a warning. Without
--deep, only that is read which a start reads.

exit codes: 0 all is well, 1 something is wrong with a folder, 2 the command line is
"""
VERDICTS = {
    Effect.OPENS: "opens it",
    Effect.LOSES: "starts, but with losses",
    Effect.OFFLINE: "starts, but something is offline",
    Effect.REFUSES: "does not start",
}


def run(arguments: Sequence[str]) -> int:
    options = build_parser().parse(arguments)
    folders = checked_folders(options.data_dir)
    check_output(options, folders)
    report = examine_with_bars(folders, options)
    if options.kafka_properties is not None:
        give_properties(report, options.kafka_properties)
    if options.kafka_properties == STDOUT:
        for finding in report.findings:
            if finding.kafka is not Effect.OPENS:
                print(f"barnabas doctor: {finding.place}: {finding.text}", file=sys.stderr)
    elif options.json:
        print_json(as_json(report))
    else:
        show(report, options)
    return EXIT_FAILED if report.has_problems else EXIT_OK


def build_parser() -> Parser:
    parser = Parser("barnabas doctor", "Inspect the data folders of a node without changing them.", EPILOG)
    parser.add_argument(
        "--data-dir",
        action="append",
        required=True,
        metavar="DIR",
        help="a data folder of the node, of Barnabas or of Apache Kafka; may be given several times",
    )
    parser.add_argument(
        "--deep", action="store_true", help="read every batch of every log, and compare indexes with them"
    )
    parser.add_argument("--partitions", action="store_true", help="show each partition, not only each topic")
    parser.add_argument(
        "--kafka-properties",
        nargs="?",
        const=STDOUT,
        metavar="FILE",
        help="write the server.properties with which Apache Kafka opens the folders; without a FILE, print it, and "
        "only what keeps Kafka from opening them besides, on stderr",
    )
    parser.add_argument(
        "--threads", type=positive_int, default=2, metavar="N", help="logs that are read at once (default 2)"
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    return parser


def checked_folders(given: Sequence[str]) -> list[str]:
    folders = list(dict.fromkeys(os.path.abspath(path) for path in given))
    for folder in folders:
        if not os.path.exists(folder):
            raise UsageError(f"there is no folder {folder}")
        if not os.path.isdir(folder):
            raise UsageError(f"{folder} is not a directory")
        if os.path.exists(f"{folder}/{CLUSTER_PROPERTIES}"):
            raise UsageError(f"{folder} has a cluster of several nodes: give the folder of one, as {folder}/node-1")
        if not os.access(folder, os.R_OK | os.X_OK):
            raise CommandError(f"{folder} cannot be read: permission denied")
        if "," in folder:
            raise UsageError(
                f"{folder} has a comma in its name, and log.dirs is a list with commas: no broker can open it"
            )
    return folders


def check_output(options: argparse.Namespace, folders: Sequence[str]) -> None:
    if options.kafka_properties is None:
        return
    if options.kafka_properties == STDOUT:
        if options.json:
            raise UsageError("--json and --kafka-properties cannot both go to standard output: name a FILE for one")
        return
    file = os.path.abspath(options.kafka_properties)
    if any(os.path.commonpath([file, folder]) == folder for folder in folders):
        raise UsageError(f"{file} is in a data folder, in which nothing is changed: choose another place")
    if os.path.exists(file):
        raise UsageError(f"{file} exists already: remove it, or choose another name")


def examine_with_bars(folders: Sequence[str], options: argparse.Namespace) -> Report:
    ports = Ports(SystemDisk(), SystemClock(), SystemRandom(), SystemThreads())
    with ExitStack() as bars:
        shown: dict[str, Any] = {}

        def opened(done: int, of: int) -> None:
            if done == 1:
                bars.close()
                shown["opened"] = bars.enter_context(counting_bar("opening", of, "partitions"))
            shown["opened"](1)

        def checking(total_bytes: int) -> None:
            bars.close()
            shown["checked"] = bars.enter_context(byte_bar("checking", total_bytes))

        progress = Progress(opened, checking, lambda amount: shown["checked"](amount))
        return examine(folders, ports, progress, is_deep=options.deep, threads_max=options.threads)


def give_properties(report: Report, target: str) -> None:
    try:
        text = kafka_properties(report)
    except NoPropertiesError as error:
        raise CommandError(f"cannot generate server.properties: {error}") from error
    if target == STDOUT:
        print(text, end="")
        return
    try:
        with open(target, "x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise CommandError(f"cannot write {target}: {error.strerror}") from None


# For people


def show(report: Report, options: argparse.Namespace) -> None:
    show_lines(overview(report))
    show_folders(report.folders)
    show_partitions(report, each=options.partitions)
    show_findings(report.findings)
    if options.kafka_properties is not None:
        print(f"written: {options.kafka_properties}")
    print(f"Barnabas {VERDICTS[report.barnabas]}. Apache Kafka 4.3 {VERDICTS[report.kafka]}.{advice(report)}")


def advice(report: Report) -> str:
    if not report.is_deep and not report.has_problems:
        return " Only what a start reads was read; --deep reads everything."
    return ""


def overview(report: Report) -> list[tuple[str, str]]:
    lines = [
        ("cluster", report.cluster_id or "unknown"),
        (
            "node",
            f"{'unknown' if report.node_id is None else report.node_id} ({', '.join(report.roles) or 'no roles'})",
        ),
    ]
    if report.metadata is not None:
        lines += metadata_lines(report.metadata)
    partitions = [each for folder in report.folders for each in folder.partitions]
    lines.append(
        ("consumer groups", "not counted (--deep counts them)" if report.groups is None else str(report.groups))
    )
    lines.append(("producers", f"{sum(each.producers for each in partitions):,}"))
    lines.append(("open transactions", f"{sum(each.open_transactions for each in partitions):,}"))
    return lines


def metadata_lines(metadata: MetadataSummary) -> list[tuple[str, str]]:
    image = metadata.image
    level = image.features.metadata_version
    voters = ", ".join(
        f"{voter.id} ({', '.join(f'{each.host}:{each.port}' for each in voter.endpoints) or 'no address'})"
        for voter in metadata.voters
    )
    snapshots = counted(len(metadata.snapshots), "snapshot")
    features = ", ".join(f"{name} {value}" for name, value in sorted(image.features.finalized.items()))
    return [
        ("metadata.version", f"{level} ({VERSION_NAMES.get(level, 'unknown')})" if level else "none yet"),
        ("features", features or "none"),
        ("quorum", f"kraft.version {metadata.kraft_version}, {metadata.formatting}"),
        ("voters", voters or comma_list(metadata.static_voter_ids) or "none"),
        ("metadata log", f"up to offset {metadata.end_offset:,}, epoch {metadata.epoch}, {snapshots}"),
        ("brokers", comma_list(sorted(image.brokers)) or "none"),
        ("topics", f"{len(image.topics):,}"),
    ]


def show_folders(folders: Sequence[FolderSummary]) -> None:
    for folder in folders:
        segments = sum(each.segments for each in folder.partitions)
        show_lines(
            [
                ("folder", folder.path),
                ("directory id", "none" if folder.meta is None else to_text(folder.meta.directory_id)),
                ("last stop", last_stop(folder)),
                ("holds", f"{counted(len(folder.partitions), 'partition')}, {counted(segments, 'segment')}"),
                ("size", f"{size(folder.size_bytes)}, {size(folder.free_bytes)} free"),
                ("checkpoints", ", ".join(map(short_name, folder.checkpoints)) or "none"),
                *left_behind(folder),
            ]
        )


def left_behind(folder: FolderSummary) -> list[tuple[str, str]]:
    found = (
        ("set aside", folder.stray),
        ("on their way here", folder.future),
        ("deleted topics", folder.deleted),
        ("leftover files", folder.leftovers),
    )
    return [(name, f"{len(names):,}, such as {names[0]}") for name, names in found if names]


def show_lines(lines: Iterable[tuple[str, str]]) -> None:
    for name, value in lines:
        print(f"{name + ':':<18} {value}")
    print()


def counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def last_stop(folder: FolderSummary) -> str:
    if folder.is_in_use:
        return "running"
    return "not clean" if folder.clean_shutdown_epoch is None else "clean"


def short_name(checkpoint: str) -> str:
    return checkpoint.removesuffix("-checkpoint").removesuffix("-offset")


def show_partitions(report: Report, *, each: bool) -> None:
    partitions = sorted(
        (partition for folder in report.folders for partition in folder.partitions),
        key=lambda partition: (partition.topic, partition.partition),
    )
    if not partitions:
        return
    of_topics = groupby(partitions, key=lambda partition: partition.topic)
    groups = [[partition] for partition in partitions] if each else [list(found) for _, found in of_topics]
    columns = [Column("TOPIC"), number("PARTITION" if each else "PARTITIONS"), number("SEGMENTS"), number("SIZE")]
    columns += [number("OFFSETS"), Column("TIME (UTC)")]
    print_table(columns, [partition_row(group, each=each) for group in groups])
    print()


def partition_row(group: Sequence[PartitionSummary], *, each: bool) -> tuple[object, ...]:
    firsts = [found.first_timestamp_ms for found in group if found.first_timestamp_ms is not None]
    lasts = [found.last_timestamp_ms for found in group if found.last_timestamp_ms is not None]
    lowest = min(found.log_start_offset for found in group)
    return (
        group[0].topic,
        group[0].partition if each else len(group),
        f"{sum(found.segments for found in group):,}",
        size(sum(found.size_bytes for found in group)),
        f"{lowest:,} – {max(found.log_end_offset for found in group):,}",
        period(min(firsts, default=None), max(lasts, default=None)),
    )


def show_findings(findings: Sequence[Finding]) -> None:
    ordered = sorted(findings, key=lambda finding: -max(finding.barnabas, finding.kafka))
    for finding in ordered[:FINDINGS_SHOWN_MAX]:
        print(f"{'✘' if finding.is_problem else '·'} {finding.place}")
        print(f"    {finding.text}")
        if finding.is_problem:
            print(f"    Barnabas {VERDICTS[finding.barnabas]}; Apache Kafka {VERDICTS[finding.kafka]}")
    if len(ordered) > FINDINGS_SHOWN_MAX:
        print(f"… and {len(ordered) - FINDINGS_SHOWN_MAX:,} more: --json has all of them")
    if ordered:
        print()


def size(count: int) -> str:
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def period(first_ms: int | None, last_ms: int | None) -> str:
    """The day is not said twice."""
    if first_ms is None or last_ms is None:
        return "" if first_ms is None else moment(first_ms)
    first, last = moment(first_ms), moment(last_ms)
    day = first.partition(" ")[0]
    return first if first == last else f"{first} – {last.removeprefix(f'{day} ')}"


def moment(timestamp_ms: int) -> str:
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):  # Producers may write any number.
        return str(timestamp_ms)


# For programs


def as_json(report: Report) -> dict[str, Any]:
    return {
        "cluster_id": report.cluster_id,
        "node_id": report.node_id,
        "roles": list(report.roles),
        "opens": {"barnabas": report.barnabas.name.lower(), "apache_kafka": report.kafka.name.lower()},
        "is_deep": report.is_deep,
        "consumer_groups": report.groups,
        "metadata": None if report.metadata is None else metadata_as_json(report.metadata),
        "folders": [folder_as_json(folder) for folder in report.folders],
        "findings": [
            {
                "place": finding.place,
                "text": finding.text,
                "barnabas": finding.barnabas.name.lower(),
                "apache_kafka": finding.kafka.name.lower(),
            }
            for finding in report.findings
        ],
    }


def metadata_as_json(metadata: MetadataSummary) -> dict[str, Any]:
    image = metadata.image
    return {
        "folder": metadata.folder,
        "formatting": metadata.formatting,
        "features": image.features.levels(metadata.kraft_version),
        "voters": [
            {
                "id": voter.id,
                "directory_id": to_text(voter.directory_id),
                "endpoints": [endpoint._asdict() for endpoint in voter.endpoints],
            }
            for voter in metadata.voters
        ],
        "static_voters": list(metadata.static_voter_ids),
        "end_offset": metadata.end_offset,
        "epoch": metadata.epoch,
        "snapshots": [snapshot._asdict() for snapshot in metadata.snapshots],
        "brokers": sorted(image.brokers),
        "topics": len(image.topics),
    }


def folder_as_json(folder: FolderSummary) -> dict[str, Any]:
    return {
        "path": folder.path,
        "cluster_id": None if folder.meta is None else folder.meta.cluster_id,
        "node_id": None if folder.meta is None else folder.meta.node_id,
        "directory_id": None if folder.meta is None else to_text(folder.meta.directory_id),
        "is_in_use": folder.is_in_use,
        "clean_shutdown_epoch": folder.clean_shutdown_epoch,
        "checkpoints": dict(folder.checkpoints),
        "size_bytes": folder.size_bytes,
        "free_bytes": folder.free_bytes,
        "stray": list(folder.stray),
        "future": list(folder.future),
        "deleted": list(folder.deleted),
        "leftovers": list(folder.leftovers),
        "partitions": [partition._asdict() for partition in folder.partitions],
    }
