"""The values that go into a `RaftCore` and come out of it.

Requests come in from other nodes, and each is answered by `Ready.reply`. Requests go out in `Ready.messages`; the
driver that sends them steps the response, or `RequestFailed` if there is none, exactly once. The requests and responses
are those of Kafka's protocol, without what only the wire needs.

End offsets are exclusive: they are the offset of the next record.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.uuids import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from barnabas.protocol.errors import Error
    from barnabas.raft.consensus.log_history import LogEnd, SnapshotId
    from barnabas.raft.consensus.voter_sets import Voter, VoterEndpoint, VoterNode

NO_NODE = -1
NO_OFFSET = -1
UNKNOWN_HIGH_WATERMARK = (1 << 63) - 1
"""What a reader says that does not tell its high watermark: it is not woken when that of the leader moves."""


class Role(Enum):
    UNATTACHED = "unattached"
    FOLLOWER = "follower"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"
    RESIGNED = "resigned"


class HardState(NamedTuple):
    """What must survive a crash: otherwise a node could vote twice in an epoch, or lead an old one again."""

    epoch: int = 0
    leader_id: int = NO_NODE
    voted_id: int = NO_NODE
    voted_directory_id: Uuid = ZERO_UUID


class Head(NamedTuple):
    """With what every response begins: whether it was refused, and what the other node knows of the leader."""

    error: Error
    epoch: int
    leader_id: int = NO_NODE
    leader_endpoints: tuple[VoterEndpoint, ...] = ()


# Between nodes


class VoteRequest(NamedTuple):
    """A pre-vote asks whether a vote would be granted, and changes nothing: nobody is disturbed by a node that cannot
    win (KIP-996)."""

    candidate: Voter
    epoch: int
    log_end: LogEnd
    is_pre_vote: bool = False
    voter: Voter | None = None
    """Who is asked; None if the request does not say."""


class VoteResponse(NamedTuple):
    voter_id: int
    head: Head
    is_granted: bool
    is_pre_vote: bool = False


class BeginEpochRequest(NamedTuple):
    leader_id: int
    epoch: int
    endpoints: tuple[VoterEndpoint, ...] = ()
    voter: Voter | None = None


class BeginEpochResponse(NamedTuple):
    voter_id: int
    head: Head


class EndEpochRequest(NamedTuple):
    """The leader of `epoch` has resigned. The sooner a voter is in `successors`, the sooner should it stand."""

    leader_id: int
    epoch: int
    successors: tuple[Voter, ...] = ()
    endpoints: tuple[VoterEndpoint, ...] = ()


class EndEpochResponse(NamedTuple):
    voter_id: int
    head: Head


class FetchRequest(NamedTuple):
    """A replica asks for what follows `log_end`, which is durable there."""

    replica: Voter
    epoch: int
    log_end: LogEnd
    high_watermark: int = UNKNOWN_HIGH_WATERMARK


class FetchedBatch(NamedTuple):
    """A batch from the leader's log, and what it says of the voters."""

    base_offset: int
    end_offset: int
    epoch: int
    payload: object
    kraft_version: int | None = None
    voters: tuple[VoterNode, ...] | None = None


class FetchResponse(NamedTuple):
    """At most one of `divergence`, `snapshot` and `batches` is given."""

    request: FetchRequest
    head: Head
    high_watermark: int = NO_OFFSET
    divergence: LogEnd | None = None
    snapshot: SnapshotId | None = None
    batches: tuple[FetchedBatch, ...] = ()


class FetchSnapshotRequest(NamedTuple):
    replica: Voter
    epoch: int
    snapshot: SnapshotId
    position: int


class FetchSnapshotResponse(NamedTuple):
    """As an answer of this node it has no data yet: the core only knows whether it may be given."""

    request: FetchSnapshotRequest
    head: Head
    size: int = 0
    data: bytes = b""


class UpdateVoterRequest(NamedTuple):
    """A voter is reached at other addresses than the voters record says."""

    voter: Voter
    epoch: int
    endpoints: tuple[VoterEndpoint, ...]


class UpdateVoterResponse(NamedTuple):
    head: Head


Request = VoteRequest | BeginEpochRequest | EndEpochRequest | FetchRequest | FetchSnapshotRequest | UpdateVoterRequest
Response = (
    VoteResponse | BeginEpochResponse | EndEpochResponse | FetchResponse | FetchSnapshotResponse | UpdateVoterResponse
)


class RequestFailed(NamedTuple):
    """A request that was sent to a node got no response."""

    to: int
    request: Request
    is_unreachable: bool
    """Whether no connection could be made: its process or its machine is gone."""


# In this node


class Propose(NamedTuple):
    """A request to the leader to append `record_count` records."""

    payload: object
    record_count: int


class Flushed(NamedTuple):
    """This node's log is durable below `offset`."""

    offset: int


class Resign(NamedTuple):
    """This node must stop leading."""


class AppendFailed(NamedTuple):
    """Entries could not be written: the log ends at `log_end`, and this node must stop leading."""

    log_end: LogEnd


class SnapshotLoaded(NamedTuple):
    """The snapshot that was fetched is durable, and the log begins anew at its end."""

    snapshot: SnapshotId
    kraft_version: int
    voters: tuple[VoterNode, ...]


class SnapshotUnusable(NamedTuple):
    """The snapshot that was fetched is not valid, or could not be written: it has to be fetched again."""


class LogTrimmed(NamedTuple):
    """There are other snapshots than before, and perhaps the log starts later."""

    start_offset: int
    oldest: SnapshotId | None
    newest: SnapshotId | None


Event = Propose | Flushed | Resign | AppendFailed | SnapshotLoaded | SnapshotUnusable | LogTrimmed | RequestFailed
Inbound = Request | Response | Event


# What comes out


class LeaderChange(NamedTuple):
    """The payload of the first entry of a leader's epoch."""

    leader_id: int
    voters: tuple[int, ...]
    granting_voters: tuple[int, ...]
    named: tuple[VoterNode, ...] | None = None
    """The voters, if two more records follow: kraft.version, and the voters with their endpoints."""

    @property
    def record_count(self) -> int:
        return 1 if self.named is None else 3


class VotersChange(NamedTuple):
    """The payload of an entry with which a voter's endpoints change."""

    voters: tuple[VoterNode, ...]


class Entry(NamedTuple):
    """`record_count` records to append at `base_offset`."""

    base_offset: int
    epoch: int
    record_count: int
    payload: object


class SnapshotPart(NamedTuple):
    """Bytes of a snapshot, to be written at a position of a file. After the last ones `SnapshotLoaded` is due."""

    snapshot: SnapshotId
    position: int
    data: bytes
    is_last: bool


class Outbound(NamedTuple):
    to: int
    """NO_NODE for anybody who may know the leader."""
    endpoints: tuple[VoterEndpoint, ...]
    request: Request


class Ready(NamedTuple):
    """What has to be done now, in this order, except that messages and the reply have to wait for the hard state to be
    durable, and nothing else has to."""

    truncate_to: int | None = None
    entries: tuple[Entry, ...] = ()
    snapshot_part: SnapshotPart | None = None
    hard_state: HardState | None = None
    messages: tuple[Outbound, ...] = ()
    reply: Response | None = None
    high_watermark: int | None = None
    role: Role | None = None


class NotLeaderError(Exception):
    """Only the leader can append."""


class CommittedRecordsLostError(Exception):
    """The leader's log lacks records that were committed: disks of a majority were lost or rolled back."""
