"""What a replica that does not lead asks for next: records, or a part of a snapshot; and which node it asks.

One request is under way at a time, and the next one leaves only when everything that came with the last is durable:
the offset in a fetch is what the leader counts towards the high watermark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.raft.consensus.messages import FetchRequest, FetchSnapshotRequest

if TYPE_CHECKING:
    from barnabas.raft.consensus.log_history import LogEnd, SnapshotId
    from barnabas.raft.consensus.voter_sets import Voter


class Download(NamedTuple):
    """A snapshot of which everything before `position` has been fetched."""

    snapshot: SnapshotId
    position: int


class Fetching:
    """Begins anew with each leader."""

    __slots__ = ("at_ms", "download", "has_fetched", "in_flight", "is_installing", "is_leader_doubtful")

    def __init__(self, now_ms: int) -> None:
        self.at_ms = now_ms
        """When the next request may leave."""
        self.in_flight: FetchRequest | FetchSnapshotRequest | None = None
        self.download: Download | None = None
        self.is_installing = False
        """Whether a snapshot is complete and being put into effect."""
        self.has_fetched = False
        """Whether this leader has answered. A follower that was answered supports its leader, and no pre-vote."""
        self.is_leader_doubtful = False
        """Whether somebody else should be asked, because the leader does not answer."""

    def is_free(self) -> bool:
        return self.in_flight is None and not self.is_installing

    def next_request(
        self, local: Voter, epoch: int, log_end: LogEnd, high_watermark: int
    ) -> FetchRequest | FetchSnapshotRequest:
        if self.download is not None and not self.is_leader_doubtful:
            self.in_flight = FetchSnapshotRequest(local, epoch, self.download.snapshot, self.download.position)
        else:
            self.in_flight = FetchRequest(local, epoch, log_end, high_watermark)
        return self.in_flight

    def try_again_at(self, now_ms: int) -> None:
        self.in_flight = None
        self.at_ms = now_ms
