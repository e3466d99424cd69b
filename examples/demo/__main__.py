"""`make demo`: a node, a stream of tweets, a Spark pipeline that is killed halfway, and proof that nothing was lost.

1. A node starts in a temporary folder, and a generator fills its topic `tweets` at a steady rate.
2. A Spark pipeline (`examples/demo/pipeline`, in a process of its own) writes the popular ones to `popular_tweets`.
3. A `read_committed` consumer counts what comes out, and the lag of the pipeline's consumer group is watched.
4. Halfway through, the pipeline is killed by SIGKILL, with all its child processes, and started again.
5. When the lag is zero, the output is compared with what the generator says it must be: each tweet exactly once.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.live import Live
from rich.table import Table

from barnabas.spark.java import JavaMissingError, find_java
from barnabas.testing.node_process import Node
from examples.common import as_json, create_topics, produce
from examples.demo.pipeline import GROUP
from examples.demo.plotting import draw
from examples.demo.watching import Sample, Watch
from examples.tweets import POPULAR_ABOVE, Topics, Tweet, generate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

EVENTS: Final = 60_000
PER_SECOND: Final = 2_000
SEED: Final = 7
LOOK_S: Final = 0.5
DEADLINE_S: Final = 160.0
HASHTAGS_SHOWN: Final = 7
ROOT: Final = Path(__file__).resolve().parents[2]


class DemoError(RuntimeError):
    """The pipeline did not do what it should; the message says what went wrong."""


class Pipeline:
    """The Spark process, in a process group of its own, so that a signal also reaches the JVM and the workers."""

    def __init__(self, bootstrap: str, checkpoint: Path, log: Path) -> None:
        self._command = [
            sys.executable,
            "-m",
            "examples.demo.pipeline",
            f"--bootstrap={bootstrap}",
            f"--checkpoint={checkpoint}",
        ]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )

    def end(self, number: signal.Signals) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):  # it may have exited by itself, with all its children
                os.killpg(self._process.pid, number)
            self._process.wait(60)
            self._process = None

    def require_running(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            last = self._log.read_text(errors="replace")[-2000:]
            raise DemoError(f"the pipeline exited by itself:\n{last}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description="a pipeline that loses nothing")
    parser.add_argument("--events", type=int, default=EVENTS, help="tweets to generate (default %(default)s)")
    parser.add_argument("--plot", type=Path, default=Path("demo.png"), help="file for the plot (default %(default)s)")
    given = parser.parse_args()
    console = Console()
    try:
        find_java()
        run(given.events, given.plot, console)
    except (DemoError, JavaMissingError) as error:
        console.print(str(error), style="red", markup=False)
        return 1
    return 0


def run(events: int, plot: Path, console: Console) -> None:
    topics = Topics()
    tweets = list(generate(SEED, events))
    expected = {tweet.id for tweet in tweets if tweet.likes > POPULAR_ABOVE or tweet.replies > POPULAR_ABOVE}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="barnabas-demo-")))
        node = stack.enter_context(Node(folder / "data"))
        console.print(f"node ready at {node.bootstrap}; starting Spark", markup=False)
        create_topics(node.bootstrap, (topics.tweets, topics.popular), partitions=2)
        pipeline = Pipeline(node.bootstrap, folder / "checkpoint", folder / "pipeline.log")
        stack.callback(pipeline.end, signal.SIGKILL)
        watch = Watch(node.bootstrap, topics.tweets, GROUP, topics.popular)
        stack.callback(watch.close)
        generator = threading.Thread(target=fill, args=(node.bootstrap, topics.tweets, tweets), daemon=True)
        pipeline.start()
        generator.start()
        with Live(console=console, refresh_per_second=4) as live:
            show = Show(watch, live, events)
            show.until(pipeline, lambda sample: sample.written >= 0.4 * len(expected), "the pipeline is running")
            pipeline.end(signal.SIGKILL)
            killed_at_s = watch.seconds
            console.print(
                f"{killed_at_s:.0f} s: the pipeline is killed by SIGKILL in the middle of its work", style="red"
            )
            pipeline.start()
            before = watch.output.ids.total()
            show.until(pipeline, lambda sample: sample.written > before, "restarted from its checkpoint")
            back_at_s = watch.seconds
            console.print(f"{back_at_s:.0f} s: it continues where it left off", style="green")
            generator.join(DEADLINE_S)
            show.until(pipeline, lambda sample: sample.produced == events and sample.lag == 0, "catching up")
        pipeline.end(signal.SIGTERM)
        watch.look(LOOK_S)
        verify(watch, expected)
    draw(watch.samples, killed_at_s, back_at_s, plot)
    console.print(
        f"\n{events:,} tweets, {len(expected):,} of them popular; {watch.output.ids.total():,} came out: "
        "every one of them, none twice, despite a SIGKILL.",
        style="bold green",
    )
    console.print(f"plot of throughput and lag: {plot}", markup=False)
    console.print("next: examples/README.md has nine pipelines, and docs/pipelines.md explains how to write one")


def fill(bootstrap: str, topic: str, tweets: Sequence[Tweet]) -> None:
    produce(bootstrap, topic, ((tweet.user, as_json(tweet), None) for tweet in paced(tweets)))


def paced(tweets: Sequence[Tweet]) -> Iterator[Tweet]:
    """Tweets at a rate of `PER_SECOND`, however long it takes to send them."""
    started = time.monotonic()
    for number, tweet in enumerate(tweets):
        ahead_s = number / PER_SECOND - (time.monotonic() - started)
        if ahead_s > LOOK_S / 10:
            time.sleep(ahead_s)
        yield tweet


class Show:
    """The live table, and waiting for something to show up in it."""

    def __init__(self, watch: Watch, live: Live, events: int) -> None:
        self._watch = watch
        self._live = live
        self._events = events

    def until(self, pipeline: Pipeline, is_reached: Callable[[Sample], bool], doing: str) -> None:
        while True:
            sample = self._watch.look(LOOK_S)
            self._live.update(self._table(sample, doing))
            if is_reached(sample):
                return
            pipeline.require_running()
            if sample.seconds > DEADLINE_S:
                raise DemoError(f"not done after {DEADLINE_S:.0f} s ({doing}): {sample}")

    def _table(self, sample: Sample, doing: str) -> Table:
        title = (
            f"{sample.seconds:.0f} s · {doing} · {sample.produced:,} of {self._events:,} tweets · lag {sample.lag:,}"
        )
        table = Table("hashtag", "popular tweets", title=title, width=72)
        most = self._watch.output.hashtags.most_common(HASHTAGS_SHOWN)
        for hashtag, count in most:
            table.add_row(f"#{hashtag}", f"{count:>6,} {'█' * (30 * count // most[0][1])}")
        return table


def verify(watch: Watch, expected: set[int]) -> None:
    seen = watch.output.ids
    if missing := expected - seen.keys():
        raise DemoError(f"{len(missing)} tweets are missing, the first of which is {min(missing)}")
    if watch.output.twice:
        raise DemoError(f"{watch.output.twice} tweets came out more than once")
    if strange := seen.keys() - expected:
        raise DemoError(f"{len(strange)} tweets should not have come out, the first of which is {min(strange)}")


if __name__ == "__main__":
    sys.exit(main())
