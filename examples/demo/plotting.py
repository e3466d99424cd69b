"""The plot of a run: throughput at the top, lag at the bottom, and when the pipeline was killed."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from examples.demo.watching import Sample


def draw(samples: Sequence[Sample], killed_at_s: float, back_at_s: float, path: Path) -> None:
    figure = Figure(figsize=(9, 6), layout="constrained")
    rates, lag = figure.subplots(2, 1, sharex=True)
    times = [later.seconds for _, later in pairwise(samples)]
    for label, name in (("tweets produced", "produced"), ("popular tweets written", "written")):
        steps = [
            (getattr(later, name) - getattr(earlier, name)) / (later.seconds - earlier.seconds)
            for earlier, later in pairwise(samples)
        ]
        rates.step(times, steps, where="pre", label=label)
    rates.set_ylabel("records/s")
    rates.set_title("A pipeline that is killed, and loses nothing")
    rates.legend()
    lag.fill_between([each.seconds for each in samples], [each.lag for each in samples], alpha=0.5)
    lag.set_ylabel("lag of the pipeline's group, records")
    lag.set_xlabel("seconds")
    for axes in (rates, lag):
        axes.axvspan(killed_at_s, back_at_s, color="tab:red", alpha=0.15)
        axes.grid(alpha=0.3)
    lag.annotate("SIGKILL", (killed_at_s, 0), xytext=(4, 4), textcoords="offset points", color="tab:red")
    figure.savefig(path)
