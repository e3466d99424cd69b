"""Decisions on replicas that move."""

from __future__ import annotations

from barnabas.metadata.versions import VersionedRecord
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.unit.controller.cluster import Cluster, directory


def reassign(cluster: Cluster, name: str, replicas: list[int] | None) -> Error:
    request = m.AlterPartitionReassignmentsRequest
    partition = request.ReassignablePartition(partition_index=0, replicas=replicas)
    response = cluster.send(request(topics=[request.ReassignableTopic(name=name, partitions=[partition])]))
    (topic,) = response.responses
    (result,) = topic.partitions
    return Error(result.error_code)


def put_in_sync(cluster: Cluster, name: str, *isr: int) -> None:
    """The leader reports these as in sync."""
    partition = cluster.partition(name)
    request = m.AlterPartitionRequest
    members = [request.BrokerState(broker_id=each, broker_epoch=cluster.state.brokers[each].epoch) for each in isr]
    data = request.PartitionData(
        partition_index=0,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        new_isr_with_epochs=members,
    )
    topic = request.TopicData(topic_id=cluster.topic(name).topic_id, partitions=[data])
    leader = partition.leader
    cluster.send(request(broker_id=leader, broker_epoch=cluster.state.brokers[leader].epoch, topics=[topic]))


def on(cluster: Cluster, *replicas: int) -> None:
    request = m.CreateTopicsRequest
    assignment = request.CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))
    topic = request.CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=[assignment])
    assert cluster.send(request(topics=[topic])).topics[0].error_code == Error.NONE


def test_replicas_are_added_before_others_are_removed() -> None:
    cluster = Cluster(brokers=3)
    on(cluster, 1, 2)
    assert reassign(cluster, "t", [3, 2]) == Error.NONE
    moving = cluster.partition("t")
    assert (moving.replicas, moving.adding_replicas, moving.removing_replicas) == ((3, 2, 1), (3,), (1,))
    assert moving.directories == (directory(3), directory(2), directory(1))
    assert moving.leader == 1
    put_in_sync(cluster, "t", 1, 2, 3)
    moved = cluster.partition("t")
    assert (moved.replicas, moved.adding_replicas, moved.removing_replicas) == ((3, 2), (), ())
    assert set(moved.isr) == {2, 3}
    assert moved.leader == 3


def test_replicas_that_are_only_removed_or_put_in_another_order_are_so_at_once() -> None:
    cluster = Cluster(brokers=3)
    on(cluster, 1, 2, 3)
    assert reassign(cluster, "t", [3, 1]) == Error.NONE
    partition = cluster.partition("t")
    assert (partition.replicas, set(partition.isr), partition.leader) == ((3, 1), {1, 3}, 1)
    assert (partition.adding_replicas, partition.removing_replicas) == ((), ())


def test_a_reassignment_can_be_replaced_by_another() -> None:
    cluster = Cluster(brokers=4)
    on(cluster, 1)
    assert reassign(cluster, "t", [2, 3]) == Error.NONE
    assert reassign(cluster, "t", [3, 4]) == Error.NONE
    partition = cluster.partition("t")
    assert partition.adding_replicas == (3, 4)
    assert set(partition.removing_replicas) == {1, 2}
    put_in_sync(cluster, "t", 1, 3)
    assert cluster.partition("t").replicas != (3, 4)
    put_in_sync(cluster, "t", 1, 3, 4)
    assert cluster.partition("t").replicas == (3, 4)


def test_a_reassignment_is_cancelled() -> None:
    cluster = Cluster(brokers=3)
    on(cluster, 1, 2)
    assert reassign(cluster, "t", [3, 2]) == Error.NONE
    assert reassign(cluster, "t", None) == Error.NONE
    partition = cluster.partition("t")
    assert set(partition.replicas) == {1, 2}
    assert (partition.adding_replicas, partition.removing_replicas) == ((), ())
    assert reassign(cluster, "t", None) == Error.NO_REASSIGNMENT_IN_PROGRESS


def test_a_reassignment_whose_new_replicas_alone_are_in_sync_is_not_cancelled() -> None:
    cluster = Cluster(brokers=3)
    on(cluster, 1)
    assert reassign(cluster, "t", [2, 3]) == Error.NONE
    put_in_sync(cluster, "t", 1, 2)
    cluster.stop_broker(1)
    assert cluster.partition("t").isr == (2,)
    assert reassign(cluster, "t", None) == Error.INVALID_REPLICA_ASSIGNMENT


def test_an_order_of_replicas_that_is_there_already_writes_nothing() -> None:
    cluster = Cluster(brokers=2)
    on(cluster, 1, 2)
    assert reassign(cluster, "t", [1, 2]) == Error.NONE
    assert cluster.last == []


def test_a_broker_that_has_no_replica_any_more_is_not_eligible_to_lead() -> None:
    cluster = Cluster(brokers=2)
    on(cluster, 1, 2)
    record = m.ConfigRecord(resource_type=2, resource_name="t", name="min.insync.replicas", value="2")
    cluster.append([VersionedRecord(record, 0)])
    assert reassign(cluster, "t", [2]) == Error.NONE
    partition = cluster.partition("t")
    assert (partition.replicas, partition.isr, partition.elr) == ((2,), (2,), ())
