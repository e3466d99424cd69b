"""SIGKILL at each step of a transaction: after each record of the transaction log and between the markers.

Afterwards the transaction is wholly visible or wholly gone, be it that its producer goes on or that it never returns;
the group's offsets say the same, and nobody waits for it any more.

Every state gets a transaction of its own, with logs that no other one writes to, on one node: so one kill and one
restart show them all.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from barnabas.broker.coordinators.coordinator_spec import partition_of
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.chaos.committed import read_committed
from tests.chaos.transaction_steps import (
    FIRST,
    OFFSET_AFTER,
    OFFSET_BEFORE,
    PARTITIONS,
    RETRIED,
    SECOND,
    Crash,
    Transaction,
    Versions,
    crashes,
    cut,
    log_files,
    run_steps,
    run_whole,
)
from tests.peers import wait_until
from tests.wire import groups
from tests.wire.connection import Connection
from tests.wire.requests import LATEST, Topic, create_topic, list_offsets_request

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.conftest import MakeNode
    from tests.peers import Peer

SHORT_TIMEOUT_MS, LONG_TIMEOUT_MS = 5_000, 120_000
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
TRANSACTION = 1
"""The kind of a coordinator's key that is a transactional id."""
COMPLETE = {"CompleteCommit", "CompleteAbort"}
STABLE_S_MAX = 90.0


@dataclass(frozen=True, slots=True)
class Case:
    """A transaction, where the node is killed, and whether its producer comes back and goes on."""

    transaction: Transaction
    crash: Crash
    is_resumed: bool

    @property
    def is_committed(self) -> bool:
        """What must become of it: only a transaction whose end was decided, or is asked for again, is committed."""
        is_decided = self.crash.markers is not None or self.crash.is_complete
        return self.transaction.is_commit and (is_decided or self.is_resumed)

    def __str__(self) -> str:
        return f"{self.crash}, {'resumed' if self.is_resumed else 'left alone'}"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("versions", [FIRST, SECOND], ids=lambda versions: f"{versions.name}-protocol")
def test_a_transaction_is_wholly_visible_or_wholly_gone_after_a_kill_at_any_step(
    make_node: MakeNode, topic: str, versions: Versions, is_commit: bool
) -> None:
    wanted = list(itertools.product(crashes(versions), (True, False)))
    count = len(wanted)
    node = make_node(
        {
            "offsets.topic.num.partitions": str(count),
            "transaction.state.log.num.partitions": str(count),
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
        }
    )
    with Connection(node.port) as connection:
        sink = create_topic(connection, topic, count * PARTITIONS)
        cases = list(_cases(wanted, sink, versions, is_commit))
        _run_all(connection, node, cases)
    node.kill()
    for case in cases:
        cut(log_files(case.transaction, node.data_dir, count), case.transaction, case.crash)
    node.start()

    with Connection(node.port) as connection:
        for case in cases:
            if case.is_resumed:
                run_steps(connection, case.transaction.steps()[case.crash.steps :])
        _await_stable_ends(connection, cases)
        for case in cases:
            assert _committed(connection, case) == (OFFSET_AFTER if case.is_committed else OFFSET_BEFORE), f"{case}"
        again = [_again(case.transaction) for case in cases]
        for transaction in again:
            run_steps(connection, transaction.steps())
        _await_stable_ends(connection, cases)
    visible = read_committed(node.bootstrap, topic, count * PARTITIONS)
    for case, later in zip(cases, again, strict=True):
        for partition in case.transaction.partitions:
            first = case.transaction.values(partition) if case.is_committed else []
            assert visible[partition] == first + later.values(partition), f"{case}, {topic}-{partition}"


def _cases(wanted: Sequence[tuple[Crash, bool]], sink: Topic, versions: Versions, is_commit: bool) -> Iterator[Case]:
    transactional_ids, group_ids = _apart("transaction", len(wanted)), _apart("group", len(wanted))
    for number, (crash, is_resumed) in enumerate(wanted):
        timeout_ms = LONG_TIMEOUT_MS if is_resumed else SHORT_TIMEOUT_MS
        transaction = Transaction(
            transactional_ids[number],
            group_ids[number],
            sink,
            number * PARTITIONS,
            versions,
            is_commit,
            timeout_ms,
        )
        yield Case(transaction, crash, is_resumed)


def _apart(prefix: str, count: int) -> list[str]:
    """So many names that each have a coordinator's partition, of so many, to themselves."""
    names: dict[int, str] = {}
    for number in itertools.count():
        name = f"{prefix}-{number}"
        names.setdefault(partition_of(name, count), name)
        if len(names) == count:
            return list(names.values())
    raise AssertionError("counting does not end")


def _run_all(connection: Connection, node: Peer, cases: Sequence[Case]) -> None:
    """Each group has committed an offset before; then each transaction runs to its end."""
    groups.await_coordinator(connection, *(case.transaction.group for case in cases))
    wait_until(
        lambda: (
            groups.find_coordinator(connection, cases[0].transaction.transactional_id, TRANSACTION)[0] == Error.NONE
        ),
        "transactions have a coordinator",
    )
    for case in cases:
        transaction = case.transaction
        before = {transaction.first_partition: OFFSET_BEFORE}
        request = groups.commit_request(transaction.group, transaction.topic, before)
        assert groups.commit(connection, request) == {transaction.first_partition: Error.NONE}
        run_whole(connection, transaction, node.data_dir, len(cases))
    asked = m.DescribeTransactionsRequest(transactional_ids=[case.transaction.transactional_id for case in cases])

    def are_complete() -> bool:
        answer = connection.call(asked, 0, m.DescribeTransactionsResponse)
        return all(each.transaction_state in COMPLETE for each in answer.transaction_states)

    wait_until(are_complete, "all transactions are complete")


def _await_stable_ends(connection: Connection, cases: Sequence[Case]) -> None:
    """Wait until a reader of committed records may read all partitions to their ends."""
    topic, count = cases[0].transaction.topic, len(cases) * PARTITIONS
    open_in: list[int] = []

    def is_stable() -> bool:
        ends = _ends(connection, topic, count, READ_UNCOMMITTED)
        open_in[:] = [
            each for each, end in _ends(connection, topic, count, READ_COMMITTED).items() if end != ends[each]
        ]
        return not open_in

    try:
        wait_until(is_stable, "no transaction is open in any partition", STABLE_S_MAX)
    except AssertionError as late:
        raise AssertionError({each: str(cases[each // PARTITIONS]) for each in open_in}) from late


def _ends(connection: Connection, topic: Topic, partitions: int, isolation_level: int) -> Mapping[int, int]:
    request = list_offsets_request(topic, LATEST)
    wanted = m.ListOffsetsRequest.ListOffsetsPartition
    request.topics[0].partitions = [wanted(partition_index=p, timestamp=LATEST) for p in range(partitions)]
    request.isolation_level = isolation_level
    (answer,) = connection.call(request, 7, m.ListOffsetsResponse).topics
    assert {Error(each.error_code) for each in answer.partitions} <= {Error.NONE, *RETRIED}
    return {each.partition_index: each.offset for each in answer.partitions}


def _committed(connection: Connection, case: Case) -> int:
    """The group's offset, as one who asks for what no transaction can change any more learns it."""
    transaction = case.transaction
    request = m.OffsetFetchRequest
    topic = request.OffsetFetchRequestTopics(
        name=transaction.topic.name, partition_indexes=[transaction.first_partition]
    )
    asked = request(
        groups=[request.OffsetFetchRequestGroup(group_id=transaction.group, topics=[topic])], require_stable=True
    )
    found = -1

    def is_stable() -> bool:
        nonlocal found
        (answered,) = connection.call(asked, 9, m.OffsetFetchResponse).groups
        if Error(answered.error_code) in RETRIED:
            return False
        (partition,) = answered.topics[0].partitions
        found = partition.committed_offset
        return Error(partition.error_code) == Error.NONE

    wait_until(is_stable, f"the offset of {transaction.group} is stable: {case}")
    return found


def _again(transaction: Transaction) -> Transaction:
    """Another transaction of the same producer to the same partitions, which is committed."""
    return Transaction(
        transaction.transactional_id,
        transaction.group,
        transaction.topic,
        transaction.first_partition,
        transaction.versions,
        True,
        LONG_TIMEOUT_MS,
    )
