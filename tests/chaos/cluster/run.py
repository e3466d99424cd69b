"""One run: a cluster under load, one fault after the other as a seed has them drawn, and the verdict at the end."""

from __future__ import annotations

import random
import shutil
import time
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.chaos.cluster import faults as kinds
from tests.chaos.cluster import judge
from tests.chaos.cluster.load import NUMBERS, Load, group_of
from tests.chaos.cluster.measures import Happened
from tests.chaos.cluster.nodes import STOP_S_MAX, Nodes
from tests.chaos.cluster.report import Report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tests.chaos.cluster.faults import Fault

    Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class RunOptions:
    nodes: int
    seed: int
    duration_s: float
    """Faults begin for so long; what comes before and after takes its own time."""
    kinds: Sequence[str] = ()
    """Those to choose from; all that the number of nodes allows if there are none."""
    in_order: bool = False
    """Each kind once, as they are listed, instead of by chance for as long as the run takes."""
    has_pipeline: bool = False


def run(folder: Path, options: RunOptions, say: Say) -> Report:
    """`folder` gets the nodes' logs, and their data if anything was wrong; the report says what."""
    nodes = Nodes(folder, options.nodes)
    report = Report(options.nodes, options.seed)
    with nodes:
        try:
            _run(nodes, options, report, say)
        except Exception:  # what is known by then is reported all the same
            report.violations.append(f"the run was not finished: {traceback.format_exc()}")
        report.violations += judge.judge_logs({each: nodes.cluster.log_text(each) for each in nodes.ids})
        if report.violations:
            nodes.cluster.kill()
            _keep_data(nodes)
    return report


def _run(nodes: Nodes, options: RunOptions, report: Report, say: Say) -> None:
    chance = random.Random(options.seed)
    with Load(nodes, has_pipeline=options.has_pipeline) as load:
        report.acknowledged = load.acknowledged
        nodes.await_whole(kinds.WHOLE_S_MAX)
        report.began_at = time.monotonic()
        scene = kinds.Scene(nodes, chance, NUMBERS, group_of("classic"), f"{group_of('classic')}-0")
        say(f"{options.nodes} nodes are ready, seed {options.seed}")
        load.await_progress()
        try:
            for kind in _drawn(options, chance, report.began_at):
                happened = _let(kinds.KINDS[kind](scene), nodes, load, report)
                report.happened.append(happened)
                say(_progress(happened, load, options))
        finally:
            report.ended_at = time.monotonic()
        say("everything is healed: the rest is processed and compared")
        load.finish()
        report.processed = load.processed()
        report.fed = load.fed
        report.pipeline_restarts = load.pipeline_restarts if load.pipeline is not None else None
        report.violations += judge.judge_contents(nodes, load)
    nodes.cluster.stop(deadline_s=STOP_S_MAX)
    report.violations += judge.judge_replicas({each: nodes.cluster[each].data_dir for each in nodes.ids})


def _drawn(options: RunOptions, chance: random.Random, began_at: float) -> Iterator[str]:
    """Every kind comes before any comes again."""
    allowed = [kind for kind in kinds.KINDS if kinds.NODES_MIN.get(kind, 0) <= options.nodes]
    wanted = list(options.kinds or allowed)
    if options.in_order:
        yield from wanted
        return
    while True:
        chance.shuffle(wanted)
        for kind in wanted:
            if time.monotonic() - began_at >= options.duration_s:
                return
            yield kind


def _let(fault: Fault, nodes: Nodes, load: Load, report: Report) -> Happened:
    """The fault happens, is healed, and everything goes on; what the logs should have said is noted if they did not."""
    positions = {node_id: nodes.log_position(node_id) for node_id in nodes.ids}
    nodes.impaired |= set(fault.nodes)
    began = time.monotonic()
    fault.begin()
    time.sleep(max(began + fault.hold_s - time.monotonic(), 0))  # it is held for as long as the seed says
    healed = time.monotonic()
    fault.heal()
    nodes.impaired -= set(fault.nodes)
    whole = nodes.await_whole(kinds.WHOLE_S_MAX)
    processing = load.await_progress()
    logs = {node_id: nodes.log_since(node_id, position) for node_id, position in positions.items()}
    report.violations += judge.judge_signs(fault, logs)
    start = report.began_at
    return Happened(fault.kind, fault.what, began - start, healed - start, whole - start, processing - start)


def _progress(happened: Happened, load: Load, options: RunOptions) -> str:
    processed = ", ".join(f"{name} loop {count:,}" for name, count in load.processed().items())
    of = f" of {options.duration_s:.0f}" if options.duration_s else ""
    return (
        f"[{happened.processing_s:4.0f}{of} s] {happened.kind}: {happened.what}; held for "
        f"{happened.healed_s - happened.began_s:.1f} s, in sync {happened.whole_s - happened.healed_s:.1f} s later; "
        f"{load.count_acknowledged():,} acknowledged, {processed}"
    )


def _keep_data(nodes: Nodes) -> None:
    """Disks in memory are gone with the run: their files are copied for whoever looks for the cause."""
    for node_id in nodes.ids:
        data_dir = nodes.cluster[node_id].data_dir
        shutil.copytree(
            data_dir, data_dir.with_name(f"{data_dir.name}.kept"), ignore=shutil.ignore_patterns(".filler", ".lock")
        )
