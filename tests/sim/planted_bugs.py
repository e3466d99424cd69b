"""Bugs that the simulator has to find: each is a small change of the product's own code, made for the time of a run."""

from __future__ import annotations

import copy as copying
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

from barnabas.broker.coordinators.led_shard import LedShard
from barnabas.broker.coordinators.transaction_markers import MarkerWrite
from barnabas.controller.decisions import broker_registrations
from barnabas.groups.classic.classic_group import ClassicGroup
from barnabas.groups.consumer import heartbeat
from barnabas.groups.consumer.reconciliation import reconcile
from barnabas.log.producers import producer_snapshot
from barnabas.log.producers.producer_snapshot import encode_snapshot
from barnabas.log.producers.producer_state import ProducerState
from barnabas.metadata import replay
from barnabas.metadata.conversions import merge
from barnabas.protocol.errors import Error
from barnabas.raft.consensus import standing
from barnabas.raft.consensus.leader_state import LeaderState
from barnabas.raft.consensus.messages import Role
from barnabas.replication.hosted import HostedPartition
from barnabas.replication.log_store import LogStore
from barnabas.replication.partition import PartitionState
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.testing.simulator.load.mixed_load import Mix

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from barnabas.log.producers.producer_state import ProducerEntry
    from barnabas.raft.consensus.node_state import NodeState


class PlantedBug(NamedTuple):
    name: str
    changes: tuple[tuple[Any, str, Any], ...]
    """What is replaced: where, which name, and by what."""
    invariant: str
    """The promise that it breaks."""
    faults: tuple[str, ...]
    """Under which it shows."""
    mix: Mix
    seeds: int
    """Within so many it has to be found."""
    took: int
    """So many it took when this was written."""
    seconds: float = 30.0
    nodes: int = 3

    @contextmanager
    def planted(self) -> Iterator[None]:
        with ExitStack() as stack:
            for place, name, instead in self.changes:
                stack.enter_context(patch.object(place, name, instead))
            yield


NOBODY = Mix(producers=0, transactional=0, readers=0, classic_members=0, consumer_members=0)
PRODUCERS = NOBODY._replace(producers=3, producer_pause_s=1.0)
TRANSACTIONS = NOBODY._replace(transactional=3, transaction_pause_s=0.5, readers=1, reader_pause_s=1.0)
CLASSIC = NOBODY._replace(classic_members=3)
CONSUMERS = NOBODY._replace(consumer_members=3)

CRASHES = ("kill", "power loss", "isolation")


# Replication


def acknowledged_at_once(state: PartitionState[Any], end_offset: int) -> Error:
    return Error.NONE


def truncated_to_high_watermark(manager: ReplicaManager, hosted: HostedPartition) -> None:
    """As before there were leader epochs: whoever follows a leader keeps only what it knows to be committed."""
    state = hosted.state
    if state.leader_id not in (-1, manager._node_id) and hosted.log.log_end_offset > state.high_watermark.offset:
        hosted.truncate(state.high_watermark.offset)
    copy_from_leader(manager, hosted)


def log_end_as_high_watermark(store: LogStore, log: Any) -> int:
    end: int = log.log_end_offset
    return end


def copied_as_committed(
    hosted: HostedPartition, batches: memoryview, leader_high_watermark: int, leader_log_start: int
) -> None:
    copy(hosted, batches, 1 << 62, leader_log_start)


def counted_when_heard_of(state: PartitionState[Any], now_ms: int) -> bool:
    """A replica that joins holds the high watermark back only when its leader knows that it has joined. (Leaders wait
    for those, too, that may join soon, which would hide this: so they must not.)"""
    maximal_isr, state.maximal_isr = state.maximal_isr, state.isr
    try:
        return move_high_watermark(state, now_ms)
    finally:
        state.maximal_isr = maximal_isr


def never(*_arguments: Any) -> bool:
    return False


def done_in_any_epoch(hosted: HostedPartition, end_offset: int, leader_epoch: int) -> Error | None:
    """What was appended is taken for committed when the epoch has ended."""
    state = hosted.state
    if not state.is_leader or state.leader_epoch != leader_epoch:
        return Error.NONE
    return state.outcome(end_offset)


move_high_watermark = PartitionState.move_high_watermark
copy = HostedPartition.copy
copy_from_leader = ReplicaManager._copy_from_leader

# Producers and transactions


def forgets_producers(producers: ProducerState, header: Any, batch: memoryview) -> None:
    return None


def last_batches_only(producers: Mapping[int, ProducerEntry]) -> bytes:
    kept = {}
    for producer_id, entry in producers.items():
        kept[producer_id] = copied = copying.copy(entry)
        copied.batches = entry.batches[-1:]
    return encode_snapshot(kept)


def takes_everything_again(producers: ProducerState, *arguments: Any, **options: Any) -> None:
    check(producers, *arguments, **options)


def marks_the_first_only(write: MarkerWrite, partitions: Any, timeout_ms: int) -> None:
    """The first partition has its marker; the others get the opposite one."""
    first, *others = partitions
    start_marking(write, [first], timeout_ms)
    if others:
        opposite = write._marker._replace(is_commit=not write._marker.is_commit)
        start_marking(MarkerWrite(write._writer, opposite, write._on_done), others, timeout_ms)


def as_stable_as_committed(producers: ProducerState, high_watermark: int) -> int:
    return high_watermark


check = ProducerState.check
start_marking = MarkerWrite.start

# Groups


def reconciled_without_owners(member: Any, target: Any, reported: Any, **options: Any) -> Any:
    return reconcile(member, target._replace(owner_of=lambda _topic, _partition: None), reported, **options)


def any_generation(group: ClassicGroup, member_id: str, instance_id: str | None, generation: int) -> Error:
    return Error.NONE


def answered_at_once(shard: LedShard[Any], end_offset: int) -> bool:
    return shard.is_led()


# Metadata


def votes_for_anybody(core: NodeState, request: Any) -> bool:
    is_up_to_date = request.log_end >= core.log.end
    return bool(is_up_to_date) and core.role is not Role.LEADER


def votes_for_the_outdated(core: NodeState, request: Any) -> bool:
    """Everything is checked but the candidate's log."""
    return may_grant(core, request._replace(log_end=core.log.end))


def committed_alone(leader: LeaderState) -> int | None:
    reached = max(replica.end_offset for replica in leader._voters.values())
    return reached if reached > leader.epoch_start else None


def in_the_same_epoch(partition: Any, change: Any) -> Any:
    return merge(partition, change)._replace(leader_epoch=partition.leader_epoch)


may_grant = standing._may_grant


def none_leave(*_arguments: Any) -> list[Any]:
    return []


BUGS = [
    PlantedBug(
        "acknowledged before it is replicated",
        ((PartitionState, "outcome", acknowledged_at_once),),
        "acknowledged records are never lost",
        CRASHES,
        PRODUCERS,
        seeds=10,
        took=2,
    ),
    PlantedBug(
        "a leader of an old epoch is not fenced",
        ((HostedPartition, "outcome", done_in_any_epoch),),
        "acknowledged records are never lost",
        ("isolation", "cut", "one-way cut"),
        PRODUCERS,
        seeds=10,
        took=1,
    ),
    PlantedBug(
        "cut to the high watermark instead of the end of the epoch",
        ((ReplicaManager, "_copy_from_leader", truncated_to_high_watermark),),
        "replicas are equal below the high watermark",
        ("kill", "cut", "slow network", "isolation"),
        PRODUCERS,
        seeds=10,
        took=1,
    ),
    PlantedBug(
        "the high watermark is restored too high",
        ((LogStore, "high_watermark_of", log_end_as_high_watermark),),
        "replicas are equal below the high watermark",
        CRASHES,
        PRODUCERS,
        seeds=80,
        took=36,
    ),
    PlantedBug(
        "a follower takes all that it has copied for committed",
        ((HostedPartition, "copy", copied_as_committed),),
        "replicas are equal below the high watermark",
        ("kill", "cut", "one-way cut"),
        PRODUCERS,
        seeds=20,
        took=2,
    ),
    PlantedBug(
        "a replica that joins is counted too late",
        (
            (PartitionState, "move_high_watermark", counted_when_heard_of),
            (PartitionState, "_may_join_soon", never),
        ),
        "replicas are equal below the high watermark",
        ("clean stop", "cut at a join"),
        PRODUCERS,
        seeds=12,
        took=2,
        seconds=60.0,
        nodes=5,
    ),
    PlantedBug(
        "a broker that did not stop cleanly stays in sync",
        ((broker_registrations, "_end_previous_incarnation", none_leave),),
        "replicas are equal below the high watermark",
        ("power loss", "kill"),
        PRODUCERS,
        seeds=20,
        took=3,
    ),
    PlantedBug(
        "followers forget producers",
        ((ProducerState, "replay", forgets_producers),),
        "no duplicate of an idempotent producer",
        ("kill", "resets", "isolation"),
        PRODUCERS,
        seeds=40,
        took=12,
    ),
    PlantedBug(
        "a clean stop leaves the last batch of a producer only",
        ((producer_snapshot, "encode_snapshot", last_batches_only),),
        "a batch that comes again is recognised",
        ("rolling restart", "resets", "cut", "slow network"),
        PRODUCERS,
        seeds=10,
        took=2,
        seconds=60.0,
    ),
    PlantedBug(
        "a batch that comes again is appended again",
        ((ProducerState, "check", takes_everything_again),),
        "no duplicate of an idempotent producer",
        ("resets", "isolation", "cut"),
        PRODUCERS,
        seeds=10,
        took=1,
    ),
    PlantedBug(
        "a marker says something else in other partitions",
        ((MarkerWrite, "start", marks_the_first_only),),
        "transactions are atomic",
        ("clock jump",),
        TRANSACTIONS,
        seeds=5,
        took=1,
    ),
    PlantedBug(
        "open transactions do not hold up readers of committed data",
        ((ProducerState, "last_stable_offset", as_stable_as_committed),),
        "transactions are atomic",
        ("clock jump",),
        TRANSACTIONS,
        seeds=5,
        took=1,
    ),
    PlantedBug(
        "offsets are acknowledged before they are replicated",
        ((LedShard, "is_committed", answered_at_once),),
        "committed offsets are never lost",
        CRASHES,
        CLASSIC,
        seeds=30,
        took=8,
    ),
    PlantedBug(
        "the generation of a commit is not checked",
        ((ClassicGroup, "check_commit", any_generation),),
        "one owner per partition and group generation",
        ("pause", "resets"),
        CLASSIC,
        seeds=10,
        took=2,
    ),
    PlantedBug(
        "a partition is given away before its owner has revoked it",
        ((heartbeat, "reconcile", reconciled_without_owners),),
        "one owner per partition and member epoch",
        ("pause", "resets"),
        CONSUMERS,
        seeds=10,
        took=3,
    ),
    PlantedBug(
        "a vote for everybody who asks",
        ((standing, "_may_grant", votes_for_anybody),),
        "one leader of the quorum per epoch",
        ("kill", "isolation", "kill all", "one-way cut"),
        NOBODY,
        seeds=80,
        took=32,
    ),
    PlantedBug(
        "a vote for a candidate that lacks committed metadata",
        ((standing, "_may_grant", votes_for_the_outdated),),
        "committed metadata is never lost",
        ("kill", "isolation", "cut", "one-way cut"),
        NOBODY,
        seeds=40,
        took=9,
    ),
    PlantedBug(
        "the leader of the quorum commits alone",
        ((LeaderState, "high_watermark", committed_alone),),
        "committed metadata is never lost",
        ("isolation", "kill"),
        NOBODY,
        seeds=30,
        took=7,
    ),
    PlantedBug(
        "a new leader in the old epoch",
        ((replay, "merge", in_the_same_epoch),),
        "one leader of a partition per epoch",
        ("kill", "isolation"),
        NOBODY,
        seeds=5,
        took=1,
    ),
]
