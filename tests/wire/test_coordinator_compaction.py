"""What the transaction coordinator writes is compacted: its partition does not grow with the transactions, and nobody's
epoch, and no transaction that is open, is lost with what goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.peers import closed_segment_sizes, wait_until
from tests.wire.connection import Connection
from tests.wire.requests import create_topic
from tests.wire.transactions import (
    END_V1,
    Producer,
    add_partitions,
    await_end,
    await_transactions,
    commit,
    describe_all,
    init,
    init_request,
    write,
)

if TYPE_CHECKING:
    from tests.conftest import MakeNode

PRODUCERS = 50
RECORD_BYTES_MAX = 500
SEGMENT_BYTES = 1 << 20
INIT_VERSION = 4
SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.segment.bytes": str(SEGMENT_BYTES),
    "log.segment.delete.delay.ms": "0",
}


def init_all(connection: Connection, transactional_ids: list[str]) -> dict[str, Producer]:
    """Each producer is given its next epoch, which is a record of the coordinator."""
    for each in transactional_ids:
        connection.send(init_request(each), INIT_VERSION)
    answers = [connection.receive(m.InitProducerIdResponse, INIT_VERSION)[1] for _ in transactional_ids]
    assert {each.error_code for each in answers} == {Error.NONE}
    return {
        name: Producer(name, answer.producer_id, answer.producer_epoch)
        for name, answer in zip(transactional_ids, answers, strict=True)
    }


def test_the_states_of_transactions_are_compacted(make_node: MakeNode, topic: str) -> None:
    node = make_node(SETTINGS)
    log = node.data_dir / "__transaction_state-0"
    names = [f"producer-{number}" for number in range(PRODUCERS)]
    with Connection(node.port) as connection:
        written_to = create_topic(connection, topic)
        await_transactions(connection, *names, "open", "ended")
        open_one, ended = (init(connection, init_request(name)) for name in ("open", "ended"))
        for producer in (open_one, ended):
            add_partitions(connection, producer, {topic: [0]})
            assert write(connection, producer, written_to, [b"v"]).error_code == Error.NONE
        assert commit(connection, ended, END_V1) == Error.NONE
        await_end(connection, ended.transactional_id)
        producers = init_all(connection, names)
        while int(max(log.glob("*.log")).stem) == 0:  # until the first segment is full
            producers = init_all(connection, names)
    wait_until(
        lambda: sum(closed_segment_sizes(log)) < (PRODUCERS + 2) * RECORD_BYTES_MAX,
        "closed segments hold next to nothing",
    )
    assert max(log.glob("*.log")).stat().st_size <= SEGMENT_BYTES
    node.kill()
    node.start()
    with Connection(node.port) as connection:
        await_transactions(connection, *names, "open", "ended")
        found = describe_all(connection, [*names, "open", "ended"])
        assert {each.error for each in found} == {Error.NONE}
        assert [(each.producer_id, each.epoch) for each in found] == [
            (each.id, each.epoch) for each in (*producers.values(), open_one, ended)
        ]
        assert {each.state for each in found[:PRODUCERS]} == {"Empty"}
        assert (found[-2].state, found[-2].partitions) == ("Ongoing", {(topic, 0)})
        assert found[-1].state == "CompleteCommit"
        assert commit(connection, open_one, END_V1) == Error.NONE
        await_end(connection, open_one.transactional_id)
        again = init_all(connection, names)
    assert [each.epoch for each in again.values()] == [each.epoch + 1 for each in producers.values()]
