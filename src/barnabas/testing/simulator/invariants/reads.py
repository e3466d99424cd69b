"""What any replica has shown to a reader stays readable, and the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.batch import iter_headers, read_header
from barnabas.testing.simulator.invariants.committed_logs import describe
from barnabas.testing.simulator.protocols import Violation

if TYPE_CHECKING:
    from barnabas.testing.simulator.cluster import SimulatedCluster
    from barnabas.testing.simulator.invariants.committed_logs import CommittedLogs
    from barnabas.testing.simulator.load.history import History, Read

FOR_EVER = 1 << 62


class ShownStaysReadable:
    name = "what was shown stays readable"

    def __init__(self, history: History, committed: CommittedLogs) -> None:
        self._history = history
        self._committed = committed
        self._reads = 0

    def observe(self, cluster: SimulatedCluster) -> None:  # noqa: ARG002 (others look at the nodes)
        reads = self._history.reads
        for read in reads[self._reads :]:
            if read.records:
                self._check(read)
        self._reads = len(reads)

    def finish(self, cluster: SimulatedCluster) -> None:
        self.observe(cluster)
        for log in self._committed:
            for batch in log.ahead.values():
                raise Violation(
                    self.name,
                    f"{log.partition}, offset {batch.header.base_offset}: {batch.source} was shown what is nowhere any"
                    f" more; the log ends at {log.end}",
                )

    def _check(self, read: Read) -> None:
        first = read_header(read.records)
        source = f"{read.reader} (by node {read.node}, leader epoch {read.leader_epoch}, at {read.at_s:.3f} s)"
        if not first.base_offset <= read.offset < first.next_offset:
            raise Violation(
                self.name,
                f"{read.partition}: {source} asked for offset {read.offset} and was shown {first.base_offset} first",
            )
        end = read.last_stable_offset if read.is_committed_only else read.high_watermark
        for _, header in iter_headers(read.records):
            if header.next_offset > end:
                raise Violation(
                    self.name,
                    f"{read.partition}: {source} was shown {describe(header)} at offset {header.base_offset}, but may"
                    f" see only what is before {end}",
                )
        contradiction = self._committed.of(read.partition).learn(read.records, FOR_EVER, source)
        if contradiction is not None:
            raise Violation(self.name, contradiction)
