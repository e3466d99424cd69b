"""Each promise by itself: a history that keeps it passes, and one that breaks it is told apart, with place and time."""

from __future__ import annotations

import pytest

from barnabas.protocol.batch import build_batch, read_header
from barnabas.protocol.control_records import ControlRecordType, encode_end_transaction
from barnabas.protocol.record import Record
from barnabas.testing.simulator.cluster import SimulatedCluster
from barnabas.testing.simulator.invariants.committed_logs import CommittedLogs
from barnabas.testing.simulator.invariants.groups import (
    CommittedOffsetsAreKept,
    OneOwnerPerEpoch,
    OneOwnerPerGeneration,
)
from barnabas.testing.simulator.invariants.reads import ShownStaysReadable
from barnabas.testing.simulator.invariants.records import (
    AcknowledgedRecordsAreKept,
    NoDuplicates,
    OrderIsKept,
    RepeatedBatchesAreKnown,
)
from barnabas.testing.simulator.invariants.transactions import TransactionsAreAtomic
from barnabas.testing.simulator.invariants.watermarks import WatermarksNeverFall
from barnabas.testing.simulator.load.history import (
    Assignment,
    Fate,
    GroupOffset,
    History,
    OffsetCommit,
    OffsetsSeen,
    Read,
    Refusal,
    SentBatch,
    TopicPartition,
    Transaction,
)
from barnabas.testing.simulator.protocols import Invariant, Violation

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
NODE, EPOCH = 1, 3


@pytest.fixture(scope="module")
def cluster() -> SimulatedCluster:
    """Nodes that were never started: there is nothing to see of them."""
    return SimulatedCluster(seed=0, nodes=1)


@pytest.fixture
def history() -> History:
    return History()


@pytest.fixture
def committed() -> CommittedLogs:
    return CommittedLogs()


def a_batch(
    offset: int, sequence: int = -1, *, producer: int = -1, value: str = "a", transactional: bool = False
) -> bytes:
    return build_batch(
        [Record(value=value.encode(), timestamp=1)],
        base_offset=offset,
        leader_epoch=EPOCH,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=sequence,
        is_transactional=transactional,
    )


def a_marker(offset: int, producer: int, kind: ControlRecordType) -> bytes:
    key, value = encode_end_transaction(kind, 0)
    return build_batch(
        [Record(value=value, key=key, timestamp=1)],
        base_offset=offset,
        leader_epoch=EPOCH,
        producer_id=producer,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )


def commit(logs: CommittedLogs, partition: TopicPartition, *batches: bytes) -> None:
    assert logs.of(partition).learn(b"".join(batches), 1 << 62, "node 1 at 1.000 s") is None


def sent(partition: TopicPartition, batch: bytes, offset: int = -1) -> SentBatch:
    header = read_header(batch)
    found = SentBatch(partition, header.producer_id, header.producer_epoch, header.base_sequence, 1, header.crc)
    if offset >= 0:
        found.fate, found.offset, found.told_s = Fate.DONE, offset, 2.0
    return found


def a_read(
    batches: bytes, *, offset: int = 0, end: int, stable: int | None = None, aborted: tuple[tuple[int, int], ...] = ()
) -> Read:
    is_committed_only = stable is not None
    stable = end if stable is None else stable
    return Read("reader", P0, NODE, EPOCH, is_committed_only, True, offset, batches, aborted, end, stable, 5.0)


def keeps(invariant: Invariant, cluster: SimulatedCluster) -> None:
    invariant.observe(cluster)
    invariant.finish(cluster)


def breaks(invariant: Invariant, cluster: SimulatedCluster, *words: str) -> None:
    with pytest.raises(Violation) as violation:
        keeps(invariant, cluster)
    assert violation.value.invariant == invariant.name
    for word in words:
        assert word in violation.value.text


# Logs


def test_what_is_committed_at_an_offset_is_the_same_for_everybody(committed: CommittedLogs) -> None:
    log = committed.of(P0)
    assert log.learn(a_batch(0) + a_batch(1), 2, "node 1 at 1.000 s") is None
    assert log.learn(a_batch(0) + a_batch(1), 2, "node 2 at 2.000 s") is None
    other = log.learn(a_batch(0) + a_batch(1, value="b"), 2, "node 3 at 3.000 s")
    assert other is not None
    assert "t-0, offset 1: node 3 at 3.000 s" in other


def test_what_is_beyond_the_high_watermark_says_nothing(committed: CommittedLogs) -> None:
    log = committed.of(P0)
    assert log.learn(a_batch(0) + a_batch(1), 1, "node 1") is None
    assert log.learn(a_batch(0) + a_batch(1, value="b"), 2, "node 2") is None


def test_an_acknowledged_batch_is_where_its_producer_was_told(
    cluster: SimulatedCluster, history: History, committed: CommittedLogs
) -> None:
    batch = a_batch(0, 0, producer=7)
    history.batches.append(sent(P0, batch, 0))
    commit(committed, P0, batch)
    keeps(AcknowledgedRecordsAreKept(history, committed), cluster)


def test_an_acknowledged_batch_that_another_took_the_place_of_is_lost(
    cluster: SimulatedCluster, history: History, committed: CommittedLogs
) -> None:
    history.batches.append(sent(P0, a_batch(0, 0, producer=7), 0))
    commit(committed, P0, a_batch(0, 0, producer=8))
    breaks(AcknowledgedRecordsAreKept(history, committed), cluster, "t-0", "offset 0", "producer 7", "producer 8")


def test_an_acknowledged_batch_that_is_nowhere_is_lost(
    cluster: SimulatedCluster, history: History, committed: CommittedLogs
) -> None:
    history.batches.append(sent(P0, a_batch(0, 0, producer=7), 0))
    breaks(AcknowledgedRecordsAreKept(history, committed), cluster, "the log ends at 0")


def test_a_batch_of_unknown_fate_may_be_there_or_not(
    cluster: SimulatedCluster, history: History, committed: CommittedLogs
) -> None:
    history.batches.append(sent(P0, a_batch(0, 0, producer=7)))
    keeps(AcknowledgedRecordsAreKept(history, committed), cluster)


def test_a_sequence_that_comes_twice_is_a_duplicate(cluster: SimulatedCluster, committed: CommittedLogs) -> None:
    commit(committed, P0, a_batch(0, 0, producer=7), a_batch(1, 1, producer=7), a_batch(2, 1, producer=7))
    keeps(OrderIsKept(committed), cluster)
    breaks(NoDuplicates(committed), cluster, "t-0, offset 2", "sequence 2 is due")


def test_a_leader_may_not_refuse_what_is_in_its_log(
    cluster: SimulatedCluster, history: History, committed: CommittedLogs
) -> None:
    batch = a_batch(0, 0, producer=7)
    history.refusals.append(Refusal(sent(P0, batch), "producer", NODE, EPOCH, 5.0))
    keeps(RepeatedBatchesAreKnown(history, committed), cluster)
    commit(committed, P0, batch)
    breaks(RepeatedBatchesAreKnown(history, committed), cluster, "t-0, offset 0", "node 1", "at 5.000 s")


def test_a_leader_that_was_replaced_may_lack_what_its_successor_has(
    cluster: SimulatedCluster, history: History, committed: CommittedLogs
) -> None:
    batch = a_batch(0, 0, producer=7)
    history.refusals.append(Refusal(sent(P0, batch), "producer", NODE, EPOCH - 1, 5.0))
    commit(committed, P0, batch)
    keeps(RepeatedBatchesAreKnown(history, committed), cluster)


def test_a_sequence_before_its_turn_breaks_the_order(cluster: SimulatedCluster, committed: CommittedLogs) -> None:
    commit(committed, P0, a_batch(0, 0, producer=7), a_batch(1, 2, producer=7))
    keeps(NoDuplicates(committed), cluster)
    breaks(OrderIsKept(committed), cluster, "t-0, offset 1", "before sequence 1")


def test_a_high_watermark_that_falls_within_an_epoch_is_told(cluster: SimulatedCluster, history: History) -> None:
    history.reads += [a_read(b"", end=5), a_read(b"", end=4)]
    breaks(WatermarksNeverFall(history), cluster, "t-0, epoch 3", "high watermark 4", "after 5")


def test_what_was_shown_and_is_nowhere_any_more_is_told(
    cluster: SimulatedCluster, history: History, committed: CommittedLogs
) -> None:
    commit(committed, P0, a_batch(0))
    history.reads.append(a_read(a_batch(2), offset=2, end=3))
    breaks(ShownStaysReadable(history, committed), cluster, "t-0, offset 2", "the log ends at 1")


def test_what_was_shown_and_is_another_now_is_told(
    cluster: SimulatedCluster, history: History, committed: CommittedLogs
) -> None:
    commit(committed, P0, a_batch(0))
    history.reads.append(a_read(a_batch(0, value="b"), end=1))
    breaks(ShownStaysReadable(history, committed), cluster, "t-0, offset 0", "reader")


def test_nothing_is_shown_beyond_the_high_watermark(
    cluster: SimulatedCluster, history: History, committed: CommittedLogs
) -> None:
    history.reads.append(a_read(a_batch(0), end=0))
    breaks(ShownStaysReadable(history, committed), cluster, "may see only what is before 0")


# Transactions


def a_transaction(history: History, *, told: bool | None, commit_was_sent: bool = True) -> Transaction:
    """One record in each of two partitions."""
    transaction = Transaction("tx", 1)
    transaction.batches = [
        sent(P0, a_batch(0, 0, producer=7, value="tx/0", transactional=True)),
        sent(P1, a_batch(0, 0, producer=7, value="tx/1", transactional=True)),
    ]
    transaction.commit_was_sent = commit_was_sent
    transaction.told_committed = told
    transaction.group_offset = GroupOffset("g", P0, 2)
    history.transactions.append(transaction)
    return transaction


def end_in(logs: CommittedLogs, partition: TopicPartition, value: str, kind: ControlRecordType) -> None:
    commit(logs, partition, a_batch(0, 0, producer=7, value=value, transactional=True), a_marker(1, 7, kind))


def seen_offset(offset: int) -> OffsetsSeen:
    return OffsetsSeen("g", P0, offset, "", NODE, EPOCH, 8.0, 9.0)


@pytest.mark.parametrize("told", [True, None])
def test_a_transaction_may_come_into_effect_whole(
    cluster: SimulatedCluster, history: History, committed: CommittedLogs, told: bool | None
) -> None:
    a_transaction(history, told=told)
    end_in(committed, P0, "tx/0", ControlRecordType.COMMIT)
    end_in(committed, P1, "tx/1", ControlRecordType.COMMIT)
    history.offsets_seen.append(seen_offset(2))
    keeps(TransactionsAreAtomic(history, committed), cluster)


def test_a_transaction_that_was_committed_in_one_partition_only_is_told(
    cluster: SimulatedCluster, history: History, committed: CommittedLogs
) -> None:
    a_transaction(history, told=None)
    end_in(committed, P0, "tx/0", ControlRecordType.COMMIT)
    end_in(committed, P1, "tx/1", ControlRecordType.ABORT)
    breaks(
        TransactionsAreAtomic(history, committed), cluster, "t-0", "but without", "aborted by the marker at offset 1"
    )


def test_a_transaction_that_ends_otherwise_than_its_producer_was_told_is_told(
    cluster: SimulatedCluster, history: History, committed: CommittedLogs
) -> None:
    a_transaction(history, told=True)
    end_in(committed, P0, "tx/0", ControlRecordType.ABORT)
    breaks(TransactionsAreAtomic(history, committed), cluster, "transaction 1 of tx", "aborted")


def test_a_transaction_that_nobody_committed_does_not_come_into_effect(
    cluster: SimulatedCluster, history: History, committed: CommittedLogs
) -> None:
    a_transaction(history, told=None, commit_was_sent=False)
    end_in(committed, P0, "tx/0", ControlRecordType.COMMIT)
    end_in(committed, P1, "tx/1", ControlRecordType.COMMIT)
    breaks(TransactionsAreAtomic(history, committed), cluster, "never asked for that")


def test_a_transaction_that_stays_open_is_told(
    cluster: SimulatedCluster, history: History, committed: CommittedLogs
) -> None:
    commit(committed, P0, a_batch(0, 0, producer=7, transactional=True))
    breaks(TransactionsAreAtomic(history, committed), cluster, "t-0, offset 0", "nobody has ended")


def test_offsets_come_into_effect_with_the_records(
    cluster: SimulatedCluster, history: History, committed: CommittedLogs
) -> None:
    a_transaction(history, told=None)
    end_in(committed, P0, "tx/0", ControlRecordType.COMMIT)
    end_in(committed, P1, "tx/1", ControlRecordType.COMMIT)
    history.offsets_seen.append(seen_offset(-1))
    breaks(TransactionsAreAtomic(history, committed), cluster, "group g has committed offset 0")


def test_readers_of_committed_data_see_no_open_transaction(
    cluster: SimulatedCluster, history: History, committed: CommittedLogs
) -> None:
    batch = a_batch(0, 0, producer=7, transactional=True)
    commit(committed, P0, batch, a_marker(1, 7, ControlRecordType.COMMIT))
    history.reads.append(a_read(batch, end=1, stable=1))
    breaks(TransactionsAreAtomic(history, committed), cluster, "t-0, offset 0", "was open")


@pytest.mark.parametrize("aborted", [(), ((7, 0),)])
def test_readers_of_committed_data_see_what_was_committed_and_nothing_else(
    cluster: SimulatedCluster, history: History, committed: CommittedLogs, aborted: tuple[tuple[int, int], ...]
) -> None:
    batch = a_batch(0, 0, producer=7, transactional=True)
    commit(committed, P0, batch, a_marker(1, 7, ControlRecordType.ABORT))
    history.reads.append(a_read(batch, end=2, stable=2, aborted=aborted))
    if aborted:
        keeps(TransactionsAreAtomic(history, committed), cluster)
    else:
        breaks(TransactionsAreAtomic(history, committed), cluster, "was shown", "was aborted")


# Groups


def an_assignment(
    member: str, generation: int, at_s: float, *partitions: TopicPartition, epoch: int = EPOCH
) -> Assignment:
    return Assignment("g", member, generation, frozenset(partitions), NODE, epoch, at_s - 0.1, at_s)


def a_commit(member: str, generation: int, number: int, sent_s: float, *, told_s: float | None = None) -> OffsetCommit:
    made = OffsetCommit("g", P0, number, f"{member}/{number}", member, generation, sent_s)
    if told_s is not None:
        made.fate, made.told_s, made.coordinator_epoch = Fate.DONE, told_s, EPOCH
    return made


def test_a_partition_has_one_owner_in_a_generation(cluster: SimulatedCluster, history: History) -> None:
    history.generations += [
        an_assignment("a", 1, 1.0, P0),
        an_assignment("b", 1, 1.0, P1),
        an_assignment("b", 2, 2.0, P0),
    ]
    keeps(OneOwnerPerGeneration(history), cluster)
    history.generations.append(an_assignment("c", 2, 2.5, P0))
    breaks(OneOwnerPerGeneration(history), cluster, "generation 2", "t-0", "given to b at 2.000 s and to c at 2.500 s")


def test_a_member_of_an_old_generation_commits_nothing(cluster: SimulatedCluster, history: History) -> None:
    history.generations += [an_assignment("a", 1, 1.0, P0), an_assignment("b", 2, 2.0, P0)]
    history.commits.append(a_commit("a", 1, 1, 1.9, told_s=2.1))
    keeps(OneOwnerPerGeneration(history), cluster)
    history.commits.append(a_commit("a", 1, 2, 2.1, told_s=2.2))
    breaks(OneOwnerPerGeneration(history), cluster, "a/2", "generation 2")


def test_a_claim_is_not_confirmed_once_another_member_owns_the_partition(
    cluster: SimulatedCluster, history: History
) -> None:
    history.grants += [an_assignment("a", 1, 1.0, P0), an_assignment("b", 2, 3.0, P0)]
    history.claims.append(an_assignment("a", 1, 2.0, P0))
    keeps(OneOwnerPerEpoch(history), cluster)
    history.claims.append(an_assignment("a", 1, 4.0, P0))
    breaks(OneOwnerPerEpoch(history), cluster, "a claimed t-0", "b was given it in epoch 2")


def test_a_coordinator_that_was_replaced_may_confirm_what_it_does_not_know_better(
    cluster: SimulatedCluster, history: History
) -> None:
    history.grants.append(an_assignment("b", 2, 3.0, P0))
    history.claims.append(an_assignment("a", 1, 4.0, P0, epoch=EPOCH - 1))
    keeps(OneOwnerPerEpoch(history), cluster)


def test_committed_offsets_are_found_again(cluster: SimulatedCluster, history: History) -> None:
    history.commits += [a_commit("a", 1, 1, 1.0, told_s=1.1), a_commit("a", 1, 2, 2.0, told_s=2.1)]
    history.offsets_seen.append(OffsetsSeen("g", P0, 2, "a/2", NODE, EPOCH, 3.0, 3.1))
    keeps(CommittedOffsetsAreKept(history), cluster)
    history.offsets_seen.append(OffsetsSeen("g", P0, 1, "a/1", NODE, EPOCH, 4.0, 4.1))
    breaks(CommittedOffsetsAreKept(history), cluster, "asked at 4.000 s", "a/1", "a/2")


def test_an_offset_whose_commit_was_never_answered_may_be_found_or_not(
    cluster: SimulatedCluster, history: History
) -> None:
    history.commits += [a_commit("a", 1, 1, 1.0, told_s=1.1), a_commit("a", 1, 2, 2.0)]
    history.offsets_seen += [
        OffsetsSeen("g", P0, 1, "a/1", NODE, EPOCH, 3.0, 3.1),
        OffsetsSeen("g", P0, 2, "a/2", NODE, EPOCH, 4.0, 4.1),
    ]
    keeps(CommittedOffsetsAreKept(history), cluster)


def test_offsets_that_are_gone_are_told(cluster: SimulatedCluster, history: History) -> None:
    history.commits.append(a_commit("a", 1, 1, 1.0, told_s=1.1))
    history.offsets_seen.append(OffsetsSeen("g", P0, -1, "", NODE, EPOCH, 3.0, 3.1))
    breaks(CommittedOffsetsAreKept(history), cluster, "has nothing")
