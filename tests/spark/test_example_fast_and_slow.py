"""The two layers of examples/, end to end."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

from examples.common import run
from examples.fast_and_slow import (
    LATENESS,
    Counts,
    Topics,
    View,
    counts_of,
    fast_layer,
    generate,
    live_counts_of,
    load,
    merged,
    slow_layer,
)

from tests.peers import wait_until
from tests.spark.topics import committed

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.peers import Peer

SEED = 9
EVENTS = 4_000


def counted(views: list[View]) -> Counts:
    return Counter((view.time.replace(second=0, microsecond=0), view.page) for view in views)


def counted_in_closed_minutes(views: list[View]) -> Counts:
    closed_until = max(view.time for view in views) - LATENESS
    return {at: count for at, count in counted(views).items() if at[0] + timedelta(minutes=1) <= closed_until}


def wait_until_caught_up(node: Peer, group: str, topic: str) -> None:
    wait_until(lambda: sum(committed(node, group, topic, 2)) == EVENTS, f"{group} is no longer behind")


def test_live_counts_are_there_first_and_files_are_right_about_late_views(
    spark: SparkSession, node: Peer, topic: str, tmp_path: Path
) -> None:
    *in_time, late = generate(SEED, EVENTS)
    early = in_time[: EVENTS // 2]
    topics = Topics(f"{topic}-views", f"{topic}-live")
    files, checkpoint = str(tmp_path / "files"), str(tmp_path / "checkpoint")

    def run_layers(*layers: str) -> None:
        both = {
            "fast": fast_layer(spark, node.bootstrap, topics, checkpoint),
            "slow": slow_layer(spark, node.bootstrap, topics, files),
        }
        for layer in layers:
            run([both[layer]], once=True)

    load(node.bootstrap, topics, early)
    run_layers("fast", "slow")
    assert live_counts_of(node.bootstrap, topics) == counted_in_closed_minutes(early)
    assert counts_of(spark, files) == counted(early)

    load(node.bootstrap, topics, [*in_time[len(early) :], late])
    run_layers("fast")
    live, slow = live_counts_of(node.bootstrap, topics), counts_of(spark, files)
    assert live == counted_in_closed_minutes(in_time), "the late view came after its minute was forgotten"
    assert merged(slow, live) == live
    assert any(at in live and slow[at] < live[at] for at in slow), "the files end in the middle of a minute"

    run_layers("slow")
    slow = counts_of(spark, files)
    assert slow == merged(slow, live) == counted([*in_time, late])
    for layer in ("fast", "slow"):
        wait_until_caught_up(node, f"{topics.views}-{layer}", topics.views)


def test_the_same_seed_gives_the_same_views() -> None:
    assert list(generate(SEED, 50)) == list(generate(SEED, 50))
    assert list(generate(SEED, 50)) != list(generate(SEED + 1, 50))
