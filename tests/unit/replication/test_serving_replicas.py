"""What nodes with several replicas of a partition answer to clients and followers, in simulation: who leads, who is
near, how far may be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker.api.fetch.fetch import WHOLE_BYTES_MAX as FETCHED_AT_ONCE
from barnabas.broker.api.produce.produce_wire import PARTITIONS_AT_ONCE as PRODUCED_AT_ONCE
from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.batch import build_batch
from barnabas.protocol.errors import Error
from barnabas.protocol.record import Record
from barnabas.replication.replica_manager import RACK_AWARE_SELECTOR
from tests.unit.broker.api.stand_ins import topic_id
from tests.unit.replication.simulated_cluster import TOPIC, Client, Cluster, Writer, production, values_of

if TYPE_CHECKING:
    from collections.abc import Iterator

LATEST = -1
LEADER, FOLLOWER, ANOTHER = 1, 2, 3


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster(5, settings={"replica_selector_class": RACK_AWARE_SELECTOR}, racks=["a", "b", "b"])
    cluster.wait_until_led()
    yield cluster
    cluster.stop()


@pytest.fixture
def writer(cluster: Cluster) -> Writer:
    return Writer(cluster, 0, 1000)


@pytest.fixture
def client(cluster: Cluster) -> Client:
    return Client(cluster)


BATCH = build_batch([Record(value=b"v", timestamp=1)])


def fetching(
    offset: int,
    *,
    epoch: int = -1,
    rack: str = "",
    max_wait_ms: int = 0,
    replica: int = -1,
    broker_epoch: int = -1,
    last_epoch: int = -1,
) -> m.FetchRequest:
    partition = m.FetchRequest.FetchPartition(
        partition=0,
        fetch_offset=offset,
        partition_max_bytes=1_000_000,
        current_leader_epoch=epoch,
        last_fetched_epoch=last_epoch,
        log_start_offset=0,
    )
    topic = m.FetchRequest.FetchTopic(topic=TOPIC, topic_id=topic_id(TOPIC), partitions=[partition])
    return m.FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1_000_000,
        topics=[topic],
        rack_id=rack,
        replica_state=m.FetchRequest.ReplicaState(replica_id=replica, replica_epoch=broker_epoch),
    )


def fetched(client: Client, node_id: int, request: m.FetchRequest, version: int = 17) -> Any:
    return client.ask(node_id, request, version).responses[0].partitions[0]


# ── the wrong broker ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", [9, 10, 12, 13])
def test_a_producer_at_the_wrong_broker_is_told_the_right_one(cluster: Cluster, client: Client, version: int) -> None:
    response = client.ask(FOLLOWER, production(0, BATCH), version)
    answer = response.responses[0].partition_responses[0]
    assert answer.error_code == Error.NOT_LEADER_OR_FOLLOWER
    leader = cluster.controller.partitions[0]
    if version >= 10:
        assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (LEADER, leader.leader_epoch)
        assert [(each.node_id, each.host, each.port, each.rack) for each in response.node_endpoints] == [
            (LEADER, "node-1", 9092, "a")
        ]
    else:
        assert response.node_endpoints == []


@pytest.mark.parametrize("version", [15, 16, 18])
def test_a_reader_with_an_old_epoch_is_told_the_new_one(
    cluster: Cluster, client: Client, writer: Writer, version: int
) -> None:
    writer.write()
    cluster.controller.lead(0, FOLLOWER)
    cluster.wait_until_led()
    cluster.run_until(lambda: cluster.nodes[LEADER].partition().state.leader_epoch == 1, 5)
    response = client.ask(LEADER, fetching(0, epoch=0), version)
    answer = response.responses[0].partitions[0]
    assert answer.error_code == Error.FENCED_LEADER_EPOCH
    if version >= 16:
        assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (FOLLOWER, 1)
        assert [(each.node_id, each.host) for each in response.node_endpoints] == [(FOLLOWER, "node-2")]
    else:
        assert answer.current_leader.leader_id == -1


def test_a_producer_of_very_many_batches_is_told_the_right_broker(cluster: Cluster, client: Client) -> None:
    request = production(0, BATCH)
    request.topic_data[0].partition_data *= 2 * PRODUCED_AT_ONCE
    response = client.ask(FOLLOWER, request, 13)
    answers = response.responses[0].partition_responses
    assert len(answers) == 2 * PRODUCED_AT_ONCE
    assert {(each.error_code, each.current_leader.leader_id) for each in answers} == {
        (Error.NOT_LEADER_OR_FOLLOWER, LEADER)
    }
    assert [(each.node_id, each.host) for each in response.node_endpoints] == [(LEADER, "node-1")]


def test_a_reader_of_very_many_partitions_is_told_the_right_broker(cluster: Cluster, client: Client) -> None:
    cluster.controller.lead(0, FOLLOWER)
    cluster.run_until(lambda: cluster.nodes[LEADER].partition().state.leader_epoch == 1, 5)
    request = fetching(0, epoch=0)
    (known,) = request.topics[0].partitions
    request.topics[0].partitions += [
        m.FetchRequest.FetchPartition(partition=index, partition_max_bytes=1000) for index in range(1, 1000)
    ]
    assert len(codec.encode(request, 17)) > FETCHED_AT_ONCE
    response = client.ask(LEADER, request, 17)
    answers = {each.partition_index: each for topic in response.responses for each in topic.partitions}
    assert len(answers) == 1000
    answer = answers[known.partition]
    assert (answer.error_code, answer.current_leader.leader_id) == (Error.FENCED_LEADER_EPOCH, FOLLOWER)
    assert [(each.node_id, each.host) for each in response.node_endpoints] == [(FOLLOWER, "node-2")]


def test_a_partition_without_a_leader_has_no_endpoint(cluster: Cluster, client: Client) -> None:
    for node_id in (ANOTHER, LEADER):
        cluster.kill(node_id)
        cluster.controller.fence(node_id)
    cluster.kill(FOLLOWER)
    cluster.controller.fence(FOLLOWER)
    cluster.start(ANOTHER)
    cluster.run_for(1)
    response = client.ask(ANOTHER, production(0, BATCH), 13)
    assert response.responses[0].partition_responses[0].error_code == Error.NOT_LEADER_OR_FOLLOWER
    assert response.node_endpoints == []


# ── reading from followers ───────────────────────────────────────────────────────────────────────────────────────────


def test_the_leader_sends_a_consumer_to_a_replica_in_its_rack(cluster: Cluster, client: Client, writer: Writer) -> None:
    writer.write(3)
    cluster.wait_until_equal()
    answer = fetched(client, LEADER, fetching(1, rack="b", max_wait_ms=500))
    assert answer.preferred_read_replica in (FOLLOWER, ANOTHER)
    assert (answer.error_code, answer.records) == (Error.NONE, b"")
    assert answer.high_watermark == cluster.leader().partition().state.high_watermark.offset


def test_a_consumer_that_has_everything_is_sent_to_its_rack_at_once_and_back_when_nobody_is_left_there(
    cluster: Cluster, client: Client, writer: Writer
) -> None:
    writer.write(3)
    cluster.wait_until_equal()
    request = fetching(cluster.leader().partition().log.log_end_offset, rack="b", max_wait_ms=1000)
    request.session_epoch = -1
    begun = cluster.scheduler.now
    assert fetched(client, LEADER, request).preferred_read_replica in (FOLLOWER, ANOTHER)
    assert cluster.scheduler.now - begun < 0.5
    for node_id in (FOLLOWER, ANOTHER):
        cluster.kill(node_id)
        cluster.controller.fence(node_id)
    cluster.run_for(1)
    assert fetched(client, LEADER, request).preferred_read_replica == -1


@pytest.mark.parametrize(("rack", "version"), [("a", 17), ("", 17), ("elsewhere", 17), ("b", 10)])
def test_other_consumers_stay_with_the_leader(
    cluster: Cluster, client: Client, writer: Writer, rack: str, version: int
) -> None:
    writer.write(3)
    cluster.wait_until_equal()
    answer = fetched(client, LEADER, fetching(0, rack=rack), version)
    assert answer.preferred_read_replica == -1
    assert values_of([bytes(answer.records)])[0] == writer.acknowledged[0]


def test_nobody_is_sent_to_a_replica_that_is_not_in_sync_or_has_not_got_so_far(
    cluster: Cluster, client: Client, writer: Writer
) -> None:
    writer.write(2)
    cluster.wait_until_equal()
    for node_id in (FOLLOWER, ANOTHER):
        cluster.kill(node_id)
        cluster.controller.fence(node_id)
    cluster.run_for(1)
    assert fetched(client, LEADER, fetching(0, rack="b")).preferred_read_replica == -1


def test_a_follower_serves_consumers_up_to_its_high_watermark(cluster: Cluster, client: Client, writer: Writer) -> None:
    writer.write(3)
    cluster.wait_until_equal()
    answer = fetched(client, FOLLOWER, fetching(0, rack="b", epoch=0))
    end = cluster.nodes[FOLLOWER].partition().log.log_end_offset
    assert (answer.error_code, answer.high_watermark) == (Error.NONE, end)
    assert values_of([bytes(answer.records)])[0] == writer.acknowledged[0]
    assert fetched(client, FOLLOWER, fetching(end + 1)).error_code == Error.OFFSET_OUT_OF_RANGE
    assert fetched(client, FOLLOWER, fetching(0), version=10).error_code == Error.NOT_LEADER_OR_FOLLOWER


def test_a_consumer_that_waits_at_a_follower_is_answered_when_records_are_committed(
    cluster: Cluster, client: Client, writer: Writer
) -> None:
    writer.write()
    cluster.wait_until_equal()
    end = cluster.nodes[FOLLOWER].partition().log.log_end_offset
    waiting = client.loop.create_task(client.send(FOLLOWER, fetching(end, max_wait_ms=4000), 17))
    cluster.run_for(0.5)
    begun = cluster.scheduler.now
    writer.write()
    cluster.run_until(waiting.done, 1)
    assert cluster.scheduler.now - begun < 0.2
    assert waiting.result().responses[0].partitions[0].records


# ── after an election ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_new_leader_does_not_tell_its_end_before_it_knows_what_is_committed(
    cluster: Cluster, client: Client, writer: Writer
) -> None:
    writer.write(3)
    end = cluster.leader().partition().log.log_end_offset
    cluster.network.cut("node-2", "node-1")
    cluster.network.cut("node-2", "node-3")
    state = cluster.nodes[FOLLOWER].partition().state
    state.high_watermark = state.high_watermark._replace(offset=1)
    cluster.controller.lead(0, FOLLOWER)
    cluster.wait_until_led()

    def ask(timestamp: int) -> Any:
        partition = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        topic = m.ListOffsetsRequest.ListOffsetsTopic(name=TOPIC, partitions=[partition])
        return client.ask(FOLLOWER, m.ListOffsetsRequest(replica_id=-1, topics=[topic]), 7).topics[0].partitions[0]

    assert ask(LATEST).error_code == Error.OFFSET_NOT_AVAILABLE
    cluster.heal()
    cluster.wait_until_equal()
    assert (ask(LATEST).error_code, ask(LATEST).offset) == (Error.NONE, end)


# ── followers ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_follower_sees_what_is_not_committed_and_strangers_do_not(
    cluster: Cluster, client: Client, writer: Writer
) -> None:
    writer.write()
    cluster.cut_off(FOLLOWER)
    cluster.cut_off(ANOTHER)
    response = client.ask(LEADER, production(0, BATCH, acks=1), 13)
    offset = response.responses[0].partition_responses[0].base_offset
    assert fetched(client, LEADER, fetching(offset)).records == b""
    epoch = cluster.nodes[ANOTHER].epoch
    seen = fetched(client, LEADER, fetching(offset, epoch=0, replica=ANOTHER, broker_epoch=epoch))
    assert values_of([bytes(seen.records)]) == [b"v"]


@pytest.mark.parametrize(
    ("replica", "epoch", "broker_epoch_ahead", "error"),
    [
        (9, 0, 0, Error.UNKNOWN_LEADER_EPOCH),
        (9, -1, 0, Error.NOT_LEADER_OR_FOLLOWER),
        (ANOTHER, 0, -1, Error.NOT_LEADER_OR_FOLLOWER),
        (ANOTHER, 0, 1, Error.NONE),
        (ANOTHER, 7, 0, Error.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_who_is_no_follower_copies_nothing(
    cluster: Cluster, client: Client, replica: int, epoch: int, broker_epoch_ahead: int, error: Error
) -> None:
    broker_epoch = cluster.nodes[ANOTHER].epoch + broker_epoch_ahead
    request = fetching(0, epoch=epoch, replica=replica, broker_epoch=broker_epoch)
    assert fetched(client, LEADER, request).error_code == error


def test_a_follower_whose_log_diverges_is_told_where_and_does_not_count(
    cluster: Cluster, client: Client, writer: Writer
) -> None:
    writer.write(2)
    cluster.controller.lead(0, FOLLOWER)
    cluster.wait_until_led()
    start = cluster.leader().partition().log.log_end_offset
    writer.write()
    cluster.cut_off(ANOTHER)
    request = fetching(start + 5, epoch=1, replica=ANOTHER, broker_epoch=-1, last_epoch=0)
    answer = fetched(client, FOLLOWER, request)
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (0, start)
    follower = next(
        each for replica, each in cluster.leader().partition().state.followers.items() if replica == ANOTHER
    )
    assert follower.end is not None
    assert follower.end.offset != start + 5
