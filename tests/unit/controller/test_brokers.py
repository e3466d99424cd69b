"""Brokers come, beat, fall silent and go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.controller.decisions.broker_transitions import PARTITIONS_AT_ONCE, fence
from barnabas.controller.decisions.context import MAX_RECORDS_PER_BATCH
from barnabas.metadata.image import NO_LEADER, RECOVERED, RECOVERING
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.protocol.uuids import Uuid
from tests.unit.controller.cluster import Cluster, directory

if TYPE_CHECKING:
    from barnabas.metadata.image import TopicImage


def names(records: list[Any]) -> list[str]:
    return [type(record).__name__ for record in records]


def test_a_registration_is_fenced_and_its_epoch_is_the_offset_that_the_decision_was_given() -> None:
    cluster = Cluster(brokers=0)
    offset = cluster.offset
    assert cluster.send(cluster.registration(1)).broker_epoch == offset
    broker = cluster.state.brokers[1]
    assert (broker.epoch, broker.fenced, broker.directories) == (offset, True, (directory(1),))


def test_the_epoch_of_an_unclean_restart_is_the_decisions_offset_and_not_the_records() -> None:
    cluster = Cluster(sole_broker_id=1)
    cluster.create_topic("t", 3)
    cluster.begin_leadership()
    offset = cluster.offset
    response = cluster.send(cluster.registration(1))
    assert names(cluster.last) == ["PartitionChangeRecord"] * 3 + ["RegisterBrokerRecord"]
    assert response.broker_epoch == offset


def test_a_broker_is_unfenced_when_its_image_contains_its_registration() -> None:
    cluster = Cluster(brokers=0)
    registered_at = cluster.offset
    cluster.send(cluster.registration(1))
    behind = cluster.heartbeat(1, current_metadata_offset=registered_at - 1)
    assert (behind.is_caught_up, behind.is_fenced, cluster.last) == (False, True, [])
    caught_up = cluster.heartbeat(1, current_metadata_offset=registered_at)
    assert (caught_up.is_caught_up, caught_up.is_fenced) == (True, False)
    assert cluster.last == [m.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=registered_at, fenced=-1)]


def test_a_broker_that_wants_to_stay_fenced_does() -> None:
    cluster = Cluster(brokers=0)
    cluster.send(cluster.registration(1))
    assert cluster.heartbeat(1, want_fence=True).is_fenced


def test_an_idle_heartbeat_writes_nothing() -> None:
    cluster = Cluster()
    cluster.heartbeat(1)
    assert cluster.last == []


def test_a_clean_stop_writes_what_kafka_writes() -> None:
    cluster = Cluster()
    topic = cluster.create_topic("t", 2)
    epoch = cluster.state.brokers[1].epoch
    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down
    leaving = {"isr": [], "leader": NO_LEADER, "eligible_leader_replicas": [1], "last_known_elr": [1]}
    assert cluster.last == [
        m.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, in_controlled_shutdown=1),
        m.PartitionChangeRecord(topic_id=topic.topic_id, partition_id=0, **leaving),  # type: ignore[arg-type]
        m.PartitionChangeRecord(topic_id=topic.topic_id, partition_id=1, **leaving),  # type: ignore[arg-type]
    ]
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down
    assert cluster.last == [m.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, fenced=1)]


def test_a_broker_that_leads_nothing_may_stop_at_once() -> None:
    cluster = Cluster()
    response = cluster.heartbeat(1, want_shut_down=True)
    assert (response.should_shut_down, response.is_fenced) == (True, True)
    assert names(cluster.last) == ["BrokerRegistrationChangeRecord"]


def test_after_a_clean_stop_the_eligible_replica_leads_again_in_a_new_epoch() -> None:
    cluster = Cluster()
    cluster.create_topic("t")
    cluster.restart_cleanly(1)
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.elr, partition.last_known_elr) == (1, (1,), (), ())
    assert (partition.leader_epoch, partition.leader_recovery_state) == (2, RECOVERED)


def test_leader_epochs_rise_with_every_restart() -> None:
    cluster = Cluster(sole_broker_id=1)
    cluster.create_topic("t")
    epochs = []
    for restart in range(4):
        if restart % 2:
            cluster.restart_cleanly(1)
        else:
            cluster.begin_leadership()
            cluster.start_broker(1)
        epochs.append(cluster.partition("t").leader_epoch)
    assert epochs == sorted(set(epochs))


def test_after_a_kill_the_last_known_leader_leads_again_as_recovering() -> None:
    cluster = Cluster(sole_broker_id=1)
    cluster.create_topic("t")
    cluster.begin_leadership()
    cluster.start_broker(1)
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.last_known_elr) == (1, (1,), ())
    assert partition.leader_recovery_state == RECOVERING


def test_another_incarnation_waits_until_the_session_of_the_old_one_has_ended() -> None:
    cluster = Cluster()
    assert cluster.send(cluster.registration(1)).error_code == Error.DUPLICATE_BROKER_REGISTRATION
    cluster.now_ms += 9001
    assert cluster.send(cluster.registration(1)).error_code == Error.NONE


def test_a_sole_voter_that_holds_the_folder_does_not_wait_for_its_old_incarnation() -> None:
    cluster = Cluster(sole_broker_id=1)
    cluster.begin_leadership()
    assert cluster.send(cluster.registration(1)).error_code == Error.NONE
    assert cluster.state.brokers[1].fenced


def test_a_sole_voter_refuses_a_second_incarnation_beside_one_that_registered_since_it_leads() -> None:
    cluster = Cluster(sole_broker_id=1)
    cluster.begin_leadership()
    cluster.start_broker(1)
    assert cluster.send(cluster.registration(1)).error_code == Error.DUPLICATE_BROKER_REGISTRATION
    cluster.now_ms += 9001
    assert cluster.send(cluster.registration(1)).error_code == Error.NONE


def test_the_same_incarnation_may_register_again_and_keeps_its_epoch() -> None:
    cluster = Cluster(brokers=0)
    request = cluster.registration(1)
    epoch = cluster.send(request).broker_epoch
    cluster.heartbeat(1)
    assert cluster.send(request).broker_epoch == epoch
    assert not cluster.state.brokers[1].fenced


def test_a_silent_broker_is_fenced_when_its_session_ends_and_others_take_over() -> None:
    cluster = Cluster(brokers=2)
    cluster.create_topic("t", 2, 2)
    assert {partition.leader for partition in cluster.topic("t").partitions} == {1, 2}
    cluster.now_ms += 8000
    cluster.heartbeat(2)
    cluster.now_ms += 2000
    cluster.expire_sessions()
    assert [broker.fenced for broker in cluster.state.brokers.values()] == [True, False]
    assert [(p.leader, p.isr) for p in cluster.topic("t").partitions] == [(2, (2,)), (2, (2,))]


def test_a_broker_in_controlled_shutdown_waits_until_the_others_know() -> None:
    cluster = Cluster(brokers=2)
    cluster.create_topic("t", 2, 2)
    cluster.heartbeat(2)
    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down
    assert {partition.leader for partition in cluster.topic("t").partitions} == {2}
    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down
    cluster.heartbeat(2)
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down


def test_a_broker_on_its_way_out_comes_back_only_by_a_new_registration() -> None:
    cluster = Cluster()
    cluster.create_topic("t")
    cluster.heartbeat(1, want_shut_down=True)
    cluster.now_ms += 10_000
    cluster.expire_sessions()
    assert cluster.heartbeat(1).is_fenced
    assert cluster.partition("t").leader == NO_LEADER
    cluster.start_broker(1)
    assert cluster.partition("t").leader == 1


def test_many_partitions_make_more_records_than_one_batch_holds() -> None:
    cluster = Cluster()
    for number in range(3):
        cluster.create_topic(f"t{number}", 5000)
    cluster.heartbeat(1, want_shut_down=True)
    assert len(cluster.last) == 15_001 > MAX_RECORDS_PER_BATCH
    assert not cluster.state.leads_any(1)


def test_a_broker_of_very_many_partitions_is_fenced_in_parts_that_make_up_the_whole() -> None:
    cluster = Cluster(brokers=2)
    cluster.create_topic("t", 2 * PARTITIONS_AT_ONCE + 1, 2)
    state, broker = cluster.state, cluster.state.brokers[1]
    parts = list(fence(state, cluster.settings, broker))
    assert [len(part) for part in parts] == [PARTITIONS_AT_ONCE, PARTITIONS_AT_ONCE, 1, 1]
    cluster.append([record for part in parts for record in part])
    assert state.brokers[1].fenced
    assert {(partition.leader, partition.isr) for partition in cluster.topic("t").partitions} == {(2, (2,))}


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"cluster_id": "other"}, Error.INCONSISTENT_CLUSTER_ID),
        ({"is_migrating_zk_broker": True}, Error.BROKER_ID_NOT_REGISTERED),
        ({"log_dirs": []}, Error.INVALID_REGISTRATION),
        ({"log_dirs": [Uuid(bytes(15) + b"\x01")]}, Error.INVALID_REGISTRATION),
        ({"log_dirs": [directory(2), directory(2)]}, Error.INVALID_REGISTRATION),
        ({"log_dirs": [directory(1)]}, Error.INVALID_REGISTRATION),
        ({"features": []}, Error.INVALID_REGISTRATION),
        ({"log_dirs": [Uuid(n.to_bytes(16)) for n in range(1000, 2001)]}, Error.INVALID_REGISTRATION),
        (
            {"listeners": [m.BrokerRegistrationRequest.Listener(name=f"L{n}", host="h") for n in range(1001)]},
            Error.INVALID_REGISTRATION,
        ),
        (
            {"features": [m.BrokerRegistrationRequest.Feature(name=f"f{n}") for n in range(1001)]},
            Error.INVALID_REGISTRATION,
        ),
    ],
)
def test_a_registration_that_does_not_fit_is_refused(fields: dict[str, Any], error: Error) -> None:
    cluster = Cluster(brokers=1)
    assert cluster.send(cluster.registration(2, **fields)).error_code == error
    assert cluster.last == []


def test_a_broker_that_does_not_support_a_finalized_level_is_refused() -> None:
    cluster = Cluster(brokers=0)
    request = cluster.registration(1)
    request.features = [feature for feature in request.features if feature.name != "transaction.version"]
    assert cluster.send(request).error_code == Error.UNSUPPORTED_VERSION


@pytest.mark.parametrize("epoch", [-1, 0, 999])
def test_a_heartbeat_of_another_epoch_is_refused(epoch: int) -> None:
    cluster = Cluster()
    request = m.BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch)
    assert cluster.send(request).error_code == Error.STALE_BROKER_EPOCH
    assert cluster.send(m.BrokerHeartbeatRequest(broker_id=9, broker_epoch=0)).error_code == Error.STALE_BROKER_EPOCH


def test_cordoned_directories_are_written_once() -> None:
    cluster = Cluster()
    epoch = cluster.state.brokers[1].epoch
    cluster.heartbeat(1, cordoned_log_dirs=[])
    assert cluster.last == [m.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, cordoned_log_dirs=[])]
    cluster.heartbeat(1, cordoned_log_dirs=[])
    assert cluster.last == []


def assignment(
    cluster: Cluster, broker_id: int, topic: TopicImage, directory_id: Uuid
) -> m.AssignReplicasToDirsRequest:
    """The topic's first partition is in this directory."""
    assign = m.AssignReplicasToDirsRequest
    partitions = [assign.PartitionData(partition_index=0)]
    topics = [assign.TopicData(topic_id=topic.topic_id, partitions=partitions)]
    return assign(
        broker_id=broker_id,
        broker_epoch=cluster.state.brokers[broker_id].epoch,
        directories=[assign.DirectoryData(id=directory_id, topics=topics)],
    )


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_last_leader_does_not_return_with_another_disk_if_others_have_its_records(replicas: int) -> None:
    cluster = Cluster(brokers=2)
    topic = cluster.create_topic("t", factor=replicas)
    last = cluster.partition("t").replicas[-1]
    other = 3 - last
    cluster.now_ms += 9001
    cluster.heartbeat(last)
    cluster.expire_sessions()
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (last, (last,))
    cluster.now_ms += 9001
    cluster.expire_sessions()
    cluster.start_broker(last, log_dirs=[directory(11)])
    before = cluster.partition("t")
    assert (before.leader, before.isr, before.elr, before.last_known_elr) == (NO_LEADER, (), (), (last,))
    cluster.send(assignment(cluster, last, topic, directory(11)))
    cluster.start_broker(other)
    partition = cluster.partition("t")
    assert partition.directory_of(last) == directory(11)
    assert partition.last_known_elr == ()
    assert partition.leader == (last if replicas == 1 else NO_LEADER)


def test_replicas_in_a_directory_that_went_offline_lose_their_leadership() -> None:
    cluster = Cluster(brokers=0)
    cluster.start_broker(1, log_dirs=[directory(1), directory(11)])
    topic = cluster.create_topic("t")
    cluster.send(assignment(cluster, 1, topic, directory(11)))
    assert cluster.partition("t").directories == (directory(11),)
    cluster.heartbeat(1, offline_log_dirs=[directory(11)])
    assert cluster.partition("t").leader == NO_LEADER
    assert cluster.state.brokers[1].directories == (directory(1),)


def test_an_unregistered_broker_is_neither_in_sync_nor_eligible_anywhere() -> None:
    cluster = Cluster(brokers=2)
    cluster.create_topic("t", 2, 2)
    assert cluster.send(m.UnregisterBrokerRequest(broker_id=1)).error_code == Error.NONE
    assert 1 not in cluster.state.brokers
    assert all(1 not in (*p.isr, *p.elr, p.leader) for p in cluster.topic("t").partitions)
    refused = cluster.send(m.UnregisterBrokerRequest(broker_id=1))
    assert refused.error_code == Error.BROKER_ID_NOT_REGISTERED
    assert refused.error_message == "Broker ID 1 is not currently registered"


def test_a_controller_registers_with_its_endpoints() -> None:
    cluster = Cluster(brokers=0)
    request = m.ControllerRegistrationRequest
    listener = request.Listener(name="CONTROLLER", host="127.0.0.1", port=9093)
    cluster.send(request(controller_id=1, incarnation_id=Uuid(b"i" * 16), listeners=[listener]))
    (record,) = cluster.last
    assert isinstance(record, m.RegisterControllerRecord)
    assert [(e.name, e.host, e.port) for e in record.end_points] == [("CONTROLLER", "127.0.0.1", 9093)]


@pytest.mark.parametrize(
    "fields",
    [
        {"listeners": [m.ControllerRegistrationRequest.Listener(name=f"L{n}", host="h") for n in range(1001)]},
        {"features": [m.ControllerRegistrationRequest.Feature(name=f"f{n}") for n in range(1001)]},
    ],
    ids=["listeners", "features"],
)
def test_a_controller_with_thousands_of_listeners_or_features_is_refused(fields: dict[str, Any]) -> None:
    cluster = Cluster(brokers=0)
    refused = cluster.send(m.ControllerRegistrationRequest(controller_id=1, incarnation_id=Uuid(b"i" * 16), **fields))
    assert refused.error_code == Error.INVALID_REGISTRATION
    assert refused.error_message == f"1001 {next(iter(fields))} in request, 1000 are allowed"
    assert cluster.last == []


def test_blocks_of_producer_ids_never_overlap() -> None:
    cluster = Cluster(brokers=2)
    starts = []
    for broker_id in (1, 2, 1):
        epoch = cluster.state.brokers[broker_id].epoch
        block = cluster.send(m.AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=epoch))
        starts.append((block.producer_id_start, block.producer_id_len))
    assert starts == [(0, 1000), (1000, 1000), (2000, 1000)]
    stale = cluster.send(m.AllocateProducerIdsRequest(broker_id=1, broker_epoch=-1))
    assert stale.error_code == Error.STALE_BROKER_EPOCH
