"""The promises that a simulated cluster is held to: each has a name, and says what it found where it was broken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.testing.simulator.invariants.committed_logs import CommittedLogs
from barnabas.testing.simulator.invariants.complaints import NobodyComplains
from barnabas.testing.simulator.invariants.groups import (
    CommittedOffsetsAreKept,
    OneOwnerPerEpoch,
    OneOwnerPerGeneration,
)
from barnabas.testing.simulator.invariants.leaders import OnePartitionLeaderPerEpoch, OneQuorumLeaderPerEpoch
from barnabas.testing.simulator.invariants.reads import ShownStaysReadable
from barnabas.testing.simulator.invariants.records import (
    AcknowledgedRecordsAreKept,
    NoDuplicates,
    OrderIsKept,
    RepeatedBatchesAreKnown,
)
from barnabas.testing.simulator.invariants.replicas import CommittedMetadataIsKept, ReplicasAreEqual
from barnabas.testing.simulator.invariants.transactions import TransactionsAreAtomic
from barnabas.testing.simulator.invariants.watermarks import WatermarksNeverFall
from barnabas.testing.simulator.load.mixed_load import MixedLoad

if TYPE_CHECKING:
    from barnabas.testing.simulator.cluster import SimulatedCluster
    from barnabas.testing.simulator.load.history import History
    from barnabas.testing.simulator.protocols import Invariant, Load


def make_invariants(cluster: SimulatedCluster, load: Load) -> list[Invariant]:  # noqa: ARG001 (the cluster is observed)
    """All of them, about what this load was told."""
    assert isinstance(load, MixedLoad), "promises are about what clients were told"
    return all_invariants(load.history)


def all_invariants(history: History) -> list[Invariant]:
    """In the order in which they are asked: those that gather what is committed come before those that compare."""
    committed = CommittedLogs()
    return [
        OneQuorumLeaderPerEpoch(),
        OnePartitionLeaderPerEpoch(),
        WatermarksNeverFall(history),
        CommittedMetadataIsKept(committed),
        ReplicasAreEqual(committed),
        ShownStaysReadable(history, committed),
        AcknowledgedRecordsAreKept(history, committed),
        NoDuplicates(committed),
        OrderIsKept(committed),
        RepeatedBatchesAreKnown(history, committed),
        TransactionsAreAtomic(history, committed),
        OneOwnerPerGeneration(history),
        OneOwnerPerEpoch(history),
        CommittedOffsetsAreKept(history),
        NobodyComplains(history),
    ]
