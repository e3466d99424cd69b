"""What is measured of one node's chores and limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.case import Plan
from bench.family import Family
from bench.report import CPU_NOTE
from bench.upkeep import compaction, scale
from bench.upkeep.nodes import APACHE_KAFKA, BARNABAS
from bench.upkeep.recompression import LZ4_TO_ZSTD

if TYPE_CHECKING:
    from bench.case import Case
    from bench.upkeep.nodes import FolderNode


def every(plan: Plan) -> list[Case[FolderNode]]:
    return [*compaction.every(plan), *scale.every(plan), LZ4_TO_ZSTD]


UPKEEP = Family(
    command="python -m bench upkeep",
    ours=BARNABAS,
    theirs=APACHE_KAFKA,
    standard_cases=every,
    full_cases=every,
    plan=Plan(),
    rounds=3,
    table="upkeep",
    cpu_note=CPU_NOTE,
)
