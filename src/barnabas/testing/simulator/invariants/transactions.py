"""Transactions are atomic: all of their records and offsets come into effect, or none.

The logs decide. A transactional batch is *committed* or *aborted* by the next marker of its producer in its partition,
and open until there is one. From that follows what producers may be told, what readers of committed data may see, and
what a consume–process–produce loop has achieved: every input up to the committed offset has its output once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.batch import decode_records, iter_headers
from barnabas.protocol.control_records import ControlRecordType, decode_key
from barnabas.testing.simulator.invariants.committed_logs import describe
from barnabas.testing.simulator.protocols import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.protocol.batch import BatchHeader
    from barnabas.testing.simulator.cluster import SimulatedCluster
    from barnabas.testing.simulator.invariants.committed_logs import CommittedBatch, CommittedLogs
    from barnabas.testing.simulator.load.history import History, Read, SentBatch, TopicPartition, Transaction


class Verdict(NamedTuple):
    """How the transaction of a batch has ended in its partition, and by which marker."""

    is_committed: bool
    marker_offset: int

    def __str__(self) -> str:
        return f"{'committed' if self.is_committed else 'aborted'} by the marker at offset {self.marker_offset}"


class _Written(NamedTuple):
    partition: TopicPartition
    producer_id: int
    epoch: int
    base_sequence: int


class Verdicts:
    """Reads the markers in all logs, as they are committed."""

    def __init__(self, committed: CommittedLogs) -> None:
        self._committed = committed
        self._looked_at: dict[TopicPartition, int] = {}
        self._open: dict[tuple[TopicPartition, int], list[CommittedBatch]] = {}
        self.of: dict[tuple[TopicPartition, int], Verdict] = {}
        """By partition and base offset."""
        self.written: dict[_Written, CommittedBatch] = {}

    def update(self) -> None:
        for log in self._committed:
            start = self._looked_at.get(log.partition, 0)
            for batch in log.batches[start:]:
                if batch.header.is_transactional:
                    self._take(log.partition, batch)
            self._looked_at[log.partition] = len(log.batches)

    def known_up_to(self, partition: TopicPartition) -> int:
        return self._committed.of(partition).end

    def still_open(self) -> Iterator[tuple[TopicPartition, BatchHeader]]:
        return ((partition, each.header) for (partition, _), batches in self._open.items() for each in batches)

    def committed_batches(self) -> Iterator[tuple[TopicPartition, CommittedBatch]]:
        for key, batch in self.written.items():
            verdict = self.of.get((key.partition, batch.header.base_offset))
            if verdict is not None and verdict.is_committed:
                yield key.partition, batch

    def _take(self, partition: TopicPartition, batch: CommittedBatch) -> None:
        header = batch.header
        producer = (partition, header.producer_id)
        if header.is_control:
            (record,) = decode_records(batch.data)
            is_commit = decode_key(record.key or b"") is ControlRecordType.COMMIT
            for each in self._open.pop(producer, ()):
                self.of[partition, each.header.base_offset] = Verdict(is_commit, header.base_offset)
        else:
            self._open.setdefault(producer, []).append(batch)
            key = _Written(partition, header.producer_id, header.producer_epoch, header.base_sequence)
            self.written.setdefault(key, batch)


class TransactionsAreAtomic:
    name = "transactions are atomic"

    def __init__(self, history: History, committed: CommittedLogs) -> None:
        self._history = history
        self._verdicts = Verdicts(committed)
        self._seen = 0
        self._open: list[Transaction] = []
        self._reads = 0
        self._undecided: list[Read] = []
        """Of committed data, which the logs are not known well enough to judge."""

    def observe(self, cluster: SimulatedCluster) -> None:  # noqa: ARG002 (others look at the nodes)
        self._verdicts.update()
        transactions = self._history.transactions
        self._open += transactions[self._seen :]
        self._seen = len(transactions)
        self._open = [each for each in self._open if not self._is_settled(each)]
        reads = self._history.reads
        self._undecided += [each for each in reads[self._reads :] if each.is_committed_only and each.records]
        self._reads = len(reads)
        self._undecided = [read for read in self._undecided if not self._is_proper(read)]

    def finish(self, cluster: SimulatedCluster) -> None:
        self.observe(cluster)
        for partition, header in self._verdicts.still_open():
            raise Violation(
                self.name,
                f"{partition}, offset {header.base_offset}: {describe(header)} are in a transaction that nobody has"
                f" ended when all is whole again, at {cluster.now_s:.3f} s",
            )
        for transaction in self._history.transactions:
            self._check_all_or_nothing(transaction)
        self._check_outputs()

    # ── what producers were told ─────────────────────────────────────────────────────────────────────────────

    def _verdict(self, batch: SentBatch) -> Verdict | None:
        found = self._verdicts.written.get(
            _Written(batch.partition, batch.producer_id, batch.epoch, batch.base_sequence)
        )
        return None if found is None else self._verdicts.of.get((batch.partition, found.header.base_offset))

    def _is_settled(self, transaction: Transaction) -> bool:
        """Whether nothing more can be learnt of it: its producer was told how it ended, and all logs say the same."""
        if transaction.told_committed is None:
            return False
        is_settled = True
        for batch in transaction.batches:
            verdict = self._verdict(batch)
            if verdict is None:
                is_settled = False
            elif verdict.is_committed is not transaction.told_committed:
                told = "committed" if transaction.told_committed else "aborted"
                raise Violation(
                    self.name,
                    f"{batch.partition}: {transaction}, of which {batch} are a part, was {verdict}, but its producer"
                    f" was told at {transaction.told_s:.3f} s that it was {told}",
                )
        return is_settled

    def _check_all_or_nothing(self, transaction: Transaction) -> None:
        if not transaction.batches:
            return
        verdicts = {batch: self._verdict(batch) for batch in transaction.batches}
        in_effect = [batch for batch, verdict in verdicts.items() if verdict is not None and verdict.is_committed]
        missing = [batch for batch in transaction.batches if batch not in in_effect]
        if in_effect and not transaction.commit_was_sent:
            raise Violation(
                self.name,
                f"{in_effect[0].partition}: {in_effect[0]} were {verdicts[in_effect[0]]}, but the producer of"
                f" {transaction} never asked for that",
            )
        if in_effect and missing:
            raise Violation(
                self.name,
                f"{transaction} has come into effect with {in_effect[0]} in {in_effect[0].partition}, but without"
                f" {missing[0]} in {missing[0].partition}, which are {verdicts[missing[0]] or 'not in the log'}",
            )
        if missing and transaction.told_committed:
            raise Violation(
                self.name,
                f"{missing[0].partition}: {transaction} was told to be committed at {transaction.told_s:.3f} s, but"
                f" {missing[0]} are {verdicts[missing[0]] or 'not in the log'}",
            )

    # ── what readers of committed data saw ───────────────────────────────────────────────────────────────────

    def _is_proper(self, read: Read) -> bool:
        """Whether it showed what it had to. False while the log is not known that far."""
        if self._verdicts.known_up_to(read.partition) < read.high_watermark:
            return False
        for header, is_shown in shown_batches(read):
            verdict = self._verdicts.of.get((read.partition, header.base_offset))
            if verdict is None or verdict.marker_offset >= read.high_watermark:
                state = "was open"
            elif verdict.is_committed is not is_shown:
                state = f"was {verdict}"
            else:
                continue
            raise Violation(
                self.name,
                f"{read.partition}, offset {header.base_offset}: {read.reader}, a reader of committed data, was"
                f" {'shown' if is_shown else 'denied'} {describe(header)} at {read.at_s:.3f} s by node {read.node}, up"
                f" to the last stable offset {read.last_stable_offset}, but the transaction {state}",
            )
        return True

    # ── what consume–process–produce loops have achieved ─────────────────────────────────────────────────────

    def _check_outputs(self) -> None:
        outputs: dict[str, dict[int, str]] = {}
        for partition, batch in self._verdicts.committed_batches():
            for record in decode_records(batch.data):
                transactional_id, _, number = bytes(record.value or b"").decode(errors="replace").rpartition("/")
                place = f"{partition}, offset {record.offset}"
                if not number.isdecimal():
                    continue
                known = outputs.setdefault(transactional_id, {}).setdefault(int(number), place)
                if known != place:
                    raise Violation(
                        self.name,
                        f"input {number} of {transactional_id} has two committed outputs: {known}, and {place}",
                    )
        committed = {
            each.group_offset.group: each.transactional_id
            for each in self._history.transactions
            if each.group_offset is not None
        }
        latest = {seen.group: seen for seen in self._history.offsets_seen if seen.group in committed}
        for group, seen in latest.items():
            done = outputs.get(committed[group], {})
            end = max(seen.offset, 0)
            lacking = next((each for each in range(end) if each not in done), None)
            if lacking is not None:
                raise Violation(
                    self.name,
                    f"group {group} has committed offset {end} for {seen.partition}, as node {seen.node} said at"
                    f" {seen.at_s:.3f} s, but input {lacking} has no committed output",
                )
            beyond = next((each for each in done if each >= end), None)
            if beyond is not None:
                raise Violation(
                    self.name,
                    f"input {beyond} of {committed[group]} has a committed output ({done[beyond]}), but group {group}"
                    f" has committed offset {end} for {seen.partition}, as node {seen.node} said at {seen.at_s:.3f} s",
                )


def shown_batches(read: Read) -> Iterator[tuple[BatchHeader, bool]]:
    """The transactional batches of an answer to a reader of committed data, and whether it shows them, as consumers
    decide it: those of producers in the list of aborted transactions are left out, from the offset there to the
    marker."""
    aborted = sorted(read.aborted, key=lambda each: each[1])
    leaving_out: set[int] = set()
    for _, header in iter_headers(read.records):
        while aborted and aborted[0][1] <= header.last_offset:
            leaving_out.add(aborted.pop(0)[0])
        if not header.is_transactional:
            continue
        if header.is_control:
            leaving_out.discard(header.producer_id)
        else:
            yield header, header.producer_id not in leaving_out
