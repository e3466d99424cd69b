"""A node's copy of the metadata log, as far as the rules of the quorum need it: where it ends, how much of it is
durable and how much committed, and which voters it names.

What is appended or truncated here has to be appended or truncated on disk.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.raft.consensus.messages import CommittedRecordsLostError, Entry
from barnabas.raft.consensus.voter_sets import VoterHistory, VoterSet

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.raft.consensus.log_history import LogEnd, LogHistory
    from barnabas.raft.consensus.messages import FetchedBatch, SnapshotLoaded

logger = logging.getLogger("barnabas.raft")


class ReplicaLog:
    """Invariants: `durable_end` is at most the end of the log, and `high_watermark` never decreases."""

    __slots__ = ("durable_end", "high_watermark", "history", "voters")

    def __init__(
        self, history: LogHistory, voters: VoterHistory, *, durable_end: int | None = None, high_watermark: int = 0
    ) -> None:
        """`durable_end` is how far the log is known to be synced; None for all of it."""
        self.history = history
        self.voters = voters
        self.durable_end = history.end.offset if durable_end is None else durable_end
        self.high_watermark = high_watermark

    @property
    def end(self) -> LogEnd:
        return self.history.end

    @property
    def is_durable(self) -> bool:
        return self.durable_end == self.history.end.offset

    def append(self, epoch: int, payload: object, record_count: int, voters: VoterSet | None = None) -> Entry:
        """The leader appends. `voters` are those that the last of these records names, if it does."""
        assert record_count > 0, "an entry without records has no offset"
        base_offset = self.end.offset
        self.history.append(epoch, base_offset + record_count)
        if voters is not None:
            self.voters.append(base_offset + record_count - 1, voters=voters)
        return Entry(base_offset, epoch, record_count, payload)

    def append_fetched(self, batches: Iterable[FetchedBatch], epoch: int) -> Iterable[Entry]:
        """Batches from the leader of `epoch`, as far as they continue this log."""
        for batch in batches:
            end = self.end
            if batch.base_offset != end.offset or not end.epoch <= batch.epoch <= epoch:
                logger.warning(
                    "ignoring a batch from the leader of epoch %d with base offset %d and epoch %d: the log ends at %s",
                    epoch,
                    batch.base_offset,
                    batch.epoch,
                    end,
                )
                return
            self.history.append(batch.epoch, batch.end_offset)
            if batch.kraft_version is not None or batch.voters is not None:
                voters = None if batch.voters is None else VoterSet(batch.voters)
                self.voters.append(batch.end_offset - 1, kraft_version=batch.kraft_version, voters=voters)
            yield Entry(batch.base_offset, batch.epoch, batch.end_offset - batch.base_offset, batch.payload)

    def flushed(self, offset: int) -> None:
        assert offset <= self.end.offset, f"flushed to {offset}, beyond the end of the log {self.end.offset}"
        self.durable_end = max(self.durable_end, offset)

    def commit(self, offset: int) -> bool:
        """Everything below `offset` is committed. Whether that is news."""
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        self.voters.forget_before(offset)
        return True

    def truncation_for(self, divergence: LogEnd) -> int:
        """What a leader's log and this one have in common. CommittedRecordsLostError if that is less than what was
        committed."""
        offset = self.history.truncation_for(divergence)
        if offset < self.high_watermark:
            raise CommittedRecordsLostError(
                f"The leader of the metadata quorum asks for the log to be truncated to offset {offset}, but "
                f"everything below {self.high_watermark} was committed: the disks of a majority of the voters must "
                "have been lost or replaced."
            )
        return offset

    def truncate_to(self, offset: int) -> bool:
        """Whether there was anything to truncate."""
        if offset >= self.end.offset:
            return False
        self.history.truncate_to(offset)
        self.voters.truncate_to(offset)
        self.durable_end = min(self.durable_end, offset)
        return True

    def restart_at(self, loaded: SnapshotLoaded) -> bool:
        """A snapshot takes the place of the log. Whether it commits anything that was not known to be."""
        end_offset = loaded.snapshot.end_offset
        self.history.restart_at(loaded.snapshot)
        if loaded.kraft_version or loaded.voters:
            self.voters = VoterHistory(loaded.kraft_version, VoterSet(loaded.voters), end_offset - 1)
        self.durable_end = end_offset
        return self.commit(end_offset)
