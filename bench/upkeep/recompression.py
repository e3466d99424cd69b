"""A topic with a codec of its own: batches of another one are opened and made anew by the broker."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from bench.case import CaseError, Row, SteadyCase
from bench.cases import BASE, NO_LIMIT, produce
from bench.stats import AtLeast, Measure
from bench.topics import fresh_topic

if TYPE_CHECKING:
    from bench.case import Context
    from bench.results import Figures
    from bench.upkeep.nodes import FolderNode

RECOMPRESSED = dataclasses.replace(BASE, record_bytes=1024, codec="lz4")


def _recompress(context: Context, node: FolderNode) -> Figures:
    with fresh_topic(node.bootstrap, RECOMPRESSED.partitions, settings={"compression.type": "zstd"}) as topic:
        figures = produce(node, topic.name, RECOMPRESSED, context.plan.seconds, NO_LIMIT)
        if (found := topic.record_count()) != figures["records_total"]:
            raise CaseError(f"{topic.name} holds {found:,} records of {figures['records_total']:,.0f}")
    return figures


LZ4_TO_ZSTD: SteadyCase[FolderNode] = SteadyCase(
    "recompress-lz4-zstd",
    (
        Row(
            "produce 1 KiB, acks 1, lz4, into a topic of zstd",
            "MB/s",
            "rate",
            RECOMPRESSED.record_bytes / 1e6,
            True,
            (AtLeast(Measure.RATIO, 1.0),),
        ),
    ),
    _recompress,
)
