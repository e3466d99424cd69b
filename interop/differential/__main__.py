"""`python -m interop.differential`: sends requests to both brokers until an answer differs, and shows the shortest
sequence that leads there; or, with `--all`, goes on, and shows one sequence for each kind of difference."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from interop.differential.campaign import DifferenceError, Tally, collect, hunt
from interop.differential.nodes import pair_of_nodes

if TYPE_CHECKING:
    from collections.abc import Callable


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m interop.differential", description=__doc__)
    parser.add_argument("--seeds", type=int, default=4, help="how many seeds")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--requests", type=int, default=5_000, help="requests of each seed")
    parser.add_argument("--all", action="store_true", help="go on after a difference, and shrink none")
    parser.add_argument(
        "--only", default="", metavar="PATH", help="go on until such a field differs, as JoinGroup.error"
    )
    options = parser.parse_args()
    tally = Tally()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    try:
        with tempfile.TemporaryDirectory() as folder, pair_of_nodes(Path(folder)) as pair, _bar() as bar:
            task = bar.add_task("requests", total=options.seeds * options.requests)

            def progress(done: int) -> None:
                bar.update(task, completed=done)

            for seed in seeds:
                if not options.all:
                    hunt(pair, seed, options.requests, tally, progress, options.only)
                    continue
                for each in collect(pair, seed, options.requests, tally, progress):
                    print(each, end="\n\n", flush=True)
    except DifferenceError as difference:
        print(difference)
        return 1
    _sum_up(tally, print)
    return bool(tally.differences or tally.missing)


def _bar() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True))


def _sum_up(tally: Tally, say: Callable[[str], None]) -> None:
    say(tally.coverage())
    for title, counted in (
        ("allowed differences", tally.allowed),
        ("differences that were not there the second time", tally.unsteady),
        ("differences", tally.differences),
    ):
        if counted:
            say(f"{title}:")
        for what, count in counted.most_common():
            say(f"{count:6} {what}")


if __name__ == "__main__":
    sys.exit(main())
