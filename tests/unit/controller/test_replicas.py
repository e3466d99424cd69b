"""Leaders change in-sync sets; leaders are elected."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.controller.decisions.controller_state import PartitionKey
from barnabas.controller.decisions.periodic_elections import elect_preferred, elect_unclean
from barnabas.metadata.image import NO_LEADER, RECOVERED, RECOVERING
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.protocol.uuids import Uuid
from tests.unit.controller.cluster import Cluster, directory

Alter, Assign, Elect = m.AlterPartitionRequest, m.AssignReplicasToDirsRequest, m.ElectLeadersRequest


def three_brokers(**configs: Any) -> Cluster:
    cluster = Cluster(brokers=3)
    cluster.create_topic("t", 1, 3, **configs)
    return cluster


def alter_partition(cluster: Cluster, isr: list[int], **fields: Any) -> m.AlterPartitionResponse.PartitionData:
    partition = cluster.partition("t")
    leader = fields.pop("broker_id", partition.leader)
    data = Alter.PartitionData(
        partition_index=fields.pop("partition_index", 0),
        leader_epoch=fields.pop("leader_epoch", partition.leader_epoch),
        partition_epoch=fields.pop("partition_epoch", partition.partition_epoch),
        new_isr_with_epochs=[
            Alter.BrokerState(
                broker_id=broker,
                broker_epoch=cluster.state.brokers[broker].epoch if broker in cluster.state.brokers else -1,
            )
            for broker in isr
        ],
        **fields,
    )
    topic = Alter.TopicData(topic_id=cluster.topic("t").topic_id, partitions=[data])
    response = cluster.send(Alter(broker_id=leader, broker_epoch=cluster.state.brokers[leader].epoch, topics=[topic]))
    result: m.AlterPartitionResponse.PartitionData = response.topics[0].partitions[0]
    return result


def test_a_leader_shrinks_and_expands_the_in_sync_set_without_a_new_leader_epoch() -> None:
    cluster = three_brokers()
    shrunk = alter_partition(cluster, [1, 2])
    assert (shrunk.isr, shrunk.leader_epoch, shrunk.partition_epoch) == ([1, 2], 0, 1)
    expanded = alter_partition(cluster, [1, 2, 3])
    assert (expanded.isr, expanded.leader_epoch, expanded.partition_epoch) == ([1, 2, 3], 0, 2)


def test_who_falls_out_of_a_set_that_is_too_small_stays_eligible() -> None:
    cluster = three_brokers(min_insync_replicas="2")
    alter_partition(cluster, [1])
    assert cluster.partition("t").elr == (2, 3)
    alter_partition(cluster, [1, 3])
    assert cluster.partition("t").elr == ()


def test_an_eligible_replica_leads_when_the_whole_in_sync_set_is_gone() -> None:
    cluster = three_brokers(min_insync_replicas="2")
    alter_partition(cluster, [1])
    cluster.stop_broker(1)
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.elr) == (2, (2,), (1, 3))
    assert partition.leader_recovery_state == RECOVERED


def test_nobody_outside_the_in_sync_set_and_the_eligible_replicas_leads_unless_the_topic_allows_it() -> None:
    for allowed, leader, recovery in (("false", NO_LEADER, RECOVERED), ("true", 2, RECOVERING)):
        cluster = three_brokers(unclean_leader_election_enable=allowed)
        alter_partition(cluster, [1])
        cluster.stop_broker(1)
        partition = cluster.partition("t")
        assert (partition.leader, partition.leader_recovery_state) == (leader, recovery)


@pytest.mark.parametrize(
    ("isr", "fields", "error"),
    [
        ([1, 2], {"leader_epoch": 1}, Error.NOT_CONTROLLER),
        ([1, 2], {"partition_epoch": 9}, Error.NOT_CONTROLLER),
        ([1, 2], {"leader_epoch": -1}, Error.FENCED_LEADER_EPOCH),
        ([1, 2], {"partition_epoch": -1}, Error.INVALID_UPDATE_VERSION),
        ([1, 2], {"broker_id": 2}, Error.INVALID_REQUEST),
        ([2, 3], {}, Error.INVALID_REQUEST),
        ([], {}, Error.INVALID_REQUEST),
        ([1, 4], {}, Error.INVALID_REQUEST),
        ([1], {"leader_recovery_state": RECOVERING}, Error.INVALID_REQUEST),
        ([1, 2], {"partition_index": 5}, Error.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_an_in_sync_set_that_does_not_fit_is_refused(isr: list[int], fields: dict[str, Any], error: Error) -> None:
    cluster = three_brokers()
    assert alter_partition(cluster, isr, **fields).error_code == error
    assert cluster.last == []


def test_a_fenced_replica_or_one_of_an_older_epoch_cannot_join() -> None:
    cluster = three_brokers()
    epoch = cluster.state.brokers[3].epoch
    cluster.stop_broker(3)
    assert alter_partition(cluster, [1, 2, 3]).error_code == Error.INELIGIBLE_REPLICA
    cluster.start_broker(3, previous_broker_epoch=epoch)
    partition = cluster.partition("t")
    data = Alter.PartitionData(
        partition_index=0,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        new_isr_with_epochs=[Alter.BrokerState(broker_id=1), Alter.BrokerState(broker_id=3, broker_epoch=epoch)],
    )
    topic = Alter.TopicData(topic_id=cluster.topic("t").topic_id, partitions=[data])
    response = cluster.send(Alter(broker_id=1, broker_epoch=cluster.state.brokers[1].epoch, topics=[topic]))
    assert response.topics[0].partitions[0].error_code == Error.INELIGIBLE_REPLICA


def test_version_two_names_brokers_without_epochs() -> None:
    cluster = three_brokers()
    data = Alter.PartitionData(partition_index=0, leader_epoch=0, partition_epoch=0, new_isr=[1, 3])
    topic = Alter.TopicData(topic_id=cluster.topic("t").topic_id, partitions=[data])
    cluster.send(Alter(broker_id=1, broker_epoch=cluster.state.brokers[1].epoch, topics=[topic]))
    assert cluster.partition("t").isr == (1, 3)


def test_an_unknown_topic_and_a_stale_broker_are_refused() -> None:
    cluster = three_brokers()
    epoch = cluster.state.brokers[1].epoch
    topic = Alter.TopicData(topic_id=Uuid(b"u" * 16), partitions=[Alter.PartitionData()])
    response = cluster.send(Alter(broker_id=1, broker_epoch=epoch, topics=[topic]))
    assert response.topics[0].partitions[0].error_code == Error.UNKNOWN_TOPIC_ID
    assert cluster.send(Alter(broker_id=1, broker_epoch=-1)).error_code == Error.STALE_BROKER_EPOCH


def test_a_recovering_leader_that_reports_itself_recovered_is() -> None:
    cluster = Cluster(sole_broker_id=1)
    cluster.create_topic("t")
    cluster.begin_leadership()
    cluster.start_broker(1)
    assert cluster.partition("t").leader_recovery_state == RECOVERING
    alter_partition(cluster, [1])
    assert cluster.partition("t").leader_recovery_state == RECOVERED


def test_a_reassignment_ends_when_the_added_replicas_are_in_sync() -> None:
    cluster = Cluster(brokers=3)
    cluster.create_topic("t", 1, 2)
    topic_id = cluster.topic("t").topic_id
    assert cluster.partition("t").replicas == (1, 2)
    begun = m.PartitionChangeRecord(
        topic_id=topic_id,
        partition_id=0,
        replicas=[1, 2, 3],
        adding_replicas=[3],
        removing_replicas=[2],
        directories=[directory(1), directory(2), directory(3)],
    )
    from barnabas.metadata.versions import VersionedRecord

    cluster.append([VersionedRecord(begun, 2)])
    alter_partition(cluster, [1, 2, 3])
    partition = cluster.partition("t")
    assert (partition.replicas, partition.isr) == ((1, 3), (1, 3))
    assert (partition.adding_replicas, partition.removing_replicas) == ((), ())
    assert partition.directories == (directory(1), directory(3))
    assert partition.leader_epoch == 1


def test_replicas_are_assigned_to_directories_or_refused_one_by_one() -> None:
    cluster = Cluster(brokers=2)
    mine, other = cluster.create_topic("mine"), cluster.create_topic("other")
    where = cluster.partition("other").replicas[0]
    broker_id = cluster.partition("mine").replicas[0]
    if where == broker_id:
        other = cluster.create_topic("third")
    epoch = cluster.state.brokers[broker_id].epoch

    def topic(topic_id: Uuid, *partitions: int) -> m.AssignReplicasToDirsRequest.TopicData:
        return Assign.TopicData(
            topic_id=topic_id, partitions=[Assign.PartitionData(partition_index=index) for index in partitions]
        )

    request = Assign(
        broker_id=broker_id,
        broker_epoch=epoch,
        directories=[
            Assign.DirectoryData(
                id=directory(broker_id), topics=[topic(mine.topic_id, 0, 9), topic(Uuid(b"u" * 16), 0)]
            )
        ],
    )
    answered = cluster.send(request).directories[0].topics
    errors = [partition.error_code for answer in answered for partition in answer.partitions]
    assert errors == [Error.NONE, Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_ID]
    assert other is not None


def elect(cluster: Cluster, kind: int, *partitions: int, topic: str = "t") -> list[tuple[int, Error]]:
    wanted = None
    if partitions:
        wanted = [Elect.TopicPartitions(topic=topic, partitions=list(partitions))]
    response = cluster.send(Elect(election_type=kind, topic_partitions=wanted))
    return [
        (result.partition_id, Error(result.error_code))
        for answer in response.replica_election_results
        for result in answer.partition_result
    ]


def test_the_preferred_leader_is_elected_on_request() -> None:
    cluster = three_brokers()
    epoch = cluster.state.brokers[1].epoch
    cluster.stop_broker(1)
    cluster.start_broker(1, previous_broker_epoch=epoch)
    leader = cluster.partition("t").leader
    assert leader != 1
    assert elect(cluster, 0, 0) == [(0, Error.PREFERRED_LEADER_NOT_AVAILABLE)]
    alter_partition(cluster, [leader, 1])
    assert elect(cluster, 0, 0) == [(0, Error.NONE)]
    assert cluster.partition("t").leader == 1
    assert elect(cluster, 0, 0) == [(0, Error.ELECTION_NOT_NEEDED)]
    assert elect(cluster, 0) == []


def test_an_unclean_leader_is_elected_on_request_where_there_is_no_other() -> None:
    cluster = three_brokers()
    alter_partition(cluster, [1])
    cluster.stop_broker(1)
    assert cluster.partition("t").leader == NO_LEADER
    assert elect(cluster, 1, 0) == [(0, Error.NONE)]
    assert cluster.partition("t").leader == 2
    assert elect(cluster, 1, 0, 7) == [(0, Error.ELECTION_NOT_NEEDED), (7, Error.UNKNOWN_TOPIC_OR_PARTITION)]
    assert elect(cluster, 1, 0, topic="u") == [(0, Error.UNKNOWN_TOPIC_OR_PARTITION)]
    assert cluster.send(Elect(election_type=5, topic_partitions=None)).error_code == Error.INVALID_REQUEST
    assert cluster.send(Elect(election_type=5, topic_partitions=[])).error_code == Error.NONE


def test_leadership_goes_back_to_the_preferred_replica_when_that_is_in_sync_again() -> None:
    cluster = three_brokers()
    cluster.stop_broker(1)
    assert cluster.partition("t").leader == 2
    keys = cluster.state.imbalanced.snapshot()
    assert len(keys) == 1
    assert elect_preferred(cluster.state, cluster.settings, keys) == []
    cluster.start_broker(1)
    assert elect_preferred(cluster.state, cluster.settings, keys) == [], "it is not in sync yet"
    alter_partition(cluster, [1, 2, 3])
    (record,) = elect_preferred(cluster.state, cluster.settings, keys)
    cluster.append([record])
    assert cluster.partition("t").leader == 1
    assert cluster.state.imbalanced.snapshot() == ()


def test_a_partition_without_a_leader_gets_one_once_its_topic_allows_unclean_elections() -> None:
    cluster = three_brokers(unclean_leader_election_enable="false")
    alter_partition(cluster, [1])
    cluster.stop_broker(1)
    keys = cluster.state.leaderless.snapshot()
    assert len(keys) == 1
    assert elect_unclean(cluster.state, cluster.settings, keys) == []
    change = m.IncrementalAlterConfigsRequest
    setting = change.AlterableConfig(name="unclean.leader.election.enable", config_operation=0, value="true")
    cluster.send(change(resources=[change.AlterConfigsResource(resource_type=2, resource_name="t", configs=[setting])]))
    cluster.append(elect_unclean(cluster.state, cluster.settings, keys))
    assert cluster.partition("t").leader == 2
    gone = PartitionKey(Uuid(bytes(16)), 0)
    assert elect_unclean(cluster.state, cluster.settings, [gone]) == []
