"""Whatever brokers and users ask for, in whatever order, the cluster stays consistent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.controller.decisions.controller_state import ControllerState, PartitionKey
from barnabas.metadata.image import NO_LEADER, MetadataImage
from barnabas.metadata.replay import ImageDraft
from barnabas.protocol import messages as m
from tests.unit.controller.cluster import CLUSTER_ID, Cluster, creation

if TYPE_CHECKING:
    from barnabas.protocol.compiler.structs import Message

BROKERS = st.integers(1, 3)
TOPICS = st.sampled_from(["a", "b", "c"])
BOUNDARIES = ("BeginTransactionRecord", "EndTransactionRecord", "AbortTransactionRecord")


class ClusterLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster(brokers=0)
        self.epochs: dict[PartitionKey, tuple[int, int]] = {}
        self.clean_epochs: dict[int, int] = {}

    @initialize(unclean=st.booleans())
    def begin(self, unclean: bool) -> None:
        self.cluster = Cluster(brokers=3, is_unclean_election_enabled=unclean)

    @rule(name=TOPICS, partitions=st.integers(1, 3), factor=st.integers(1, 3), min_isr=st.integers(1, 3))
    def create_topic(self, name: str, partitions: int, factor: int, min_isr: int) -> None:
        self.cluster.send(creation(name, partitions, factor, min_insync_replicas=str(min_isr)))

    @rule(name=TOPICS)
    def delete_topic(self, name: str) -> None:
        self.cluster.send(m.DeleteTopicsRequest(topic_names=[name]))

    @rule(name=TOPICS, count=st.integers(1, 5))
    def grow_topic(self, name: str, count: int) -> None:
        topic = m.CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=None)
        self.cluster.send(m.CreatePartitionsRequest(topics=[topic]))

    @rule(name=TOPICS, value=st.integers(1, 3))
    def change_min_isr(self, name: str, value: int) -> None:
        request = m.IncrementalAlterConfigsRequest
        config = request.AlterableConfig(name="min.insync.replicas", config_operation=0, value=str(value))
        resource = request.AlterConfigsResource(resource_type=2, resource_name=name, configs=[config])
        self.cluster.send(request(resources=[resource]))

    @rule(broker_id=BROKERS, want_fence=st.booleans(), want_shut_down=st.booleans())
    def heartbeat(self, broker_id: int, want_fence: bool, want_shut_down: bool) -> None:
        if broker_id in self.cluster.state.brokers:
            response = self.cluster.heartbeat(broker_id, want_fence=want_fence, want_shut_down=want_shut_down)
            if response.should_shut_down:
                self.clean_epochs[broker_id] = self.cluster.state.brokers[broker_id].epoch

    @rule(broker_id=BROKERS, was_clean=st.booleans())
    def restart(self, broker_id: int, was_clean: bool) -> None:
        previous = self.clean_epochs.get(broker_id, -1) if was_clean else -1
        self.cluster.send(self.cluster.registration(broker_id, previous_broker_epoch=previous))

    @rule(broker_id=BROKERS)
    def unregister(self, broker_id: int) -> None:
        self.cluster.send(m.UnregisterBrokerRequest(broker_id=broker_id))

    @rule(milliseconds=st.sampled_from([1000, 5000, 10_000]))
    def pass_time(self, milliseconds: int) -> None:
        self.cluster.now_ms += milliseconds
        self.cluster.expire_sessions()

    @precondition(lambda self: len(self.cluster.state.metadata.topics_by_name) > 0)
    @rule(data=st.data())
    def alter_partition(self, data: st.DataObject) -> None:
        topic = data.draw(st.sampled_from(list(self.cluster.state.metadata.topics_by_name.values())))
        index = data.draw(st.integers(0, len(topic.partitions) - 1))
        partition = topic.partitions[index]
        if partition.leader == NO_LEADER:
            return
        others = data.draw(st.lists(st.sampled_from(partition.replicas), unique=True))
        request = m.AlterPartitionRequest
        wanted = request.PartitionData(
            partition_index=index,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            new_isr=list(dict.fromkeys([partition.leader, *others])),
        )
        leader_epoch = self.cluster.state.brokers[partition.leader].epoch
        topics = [request.TopicData(topic_id=topic.topic_id, partitions=[wanted])]
        self.cluster.send(request(broker_id=partition.leader, broker_epoch=leader_epoch, topics=topics))

    @rule(kind=st.integers(0, 1))
    def elect_leaders(self, kind: int) -> None:
        self.cluster.send(m.ElectLeadersRequest(election_type=kind, topic_partitions=None))

    @invariant()
    def leaders_are_in_sync_live_replicas(self) -> None:
        state = self.cluster.state
        for topic in state.metadata.topics_by_name.values():
            for partition in topic.partitions:
                assert set(partition.isr) <= set(partition.replicas)
                assert set(partition.elr) <= set(partition.replicas)
                assert not set(partition.elr) & set(partition.isr)
                assert len(partition.directories) == len(partition.replicas)
                if partition.leader != NO_LEADER:
                    assert partition.leader in partition.isr
                    assert state.brokers[partition.leader].is_active
                for member in partition.isr:
                    assert state.is_active(member)

    @invariant()
    def epochs_never_fall(self) -> None:
        for topic in self.cluster.state.metadata.topics_by_id.values():
            for index, partition in enumerate(topic.partitions):
                key = PartitionKey(topic.topic_id, index)
                before = self.epochs.get(key, (0, 0))
                assert (partition.leader_epoch, partition.partition_epoch) >= before
                assert partition.leader_epoch >= before[0]
                self.epochs[key] = (partition.leader_epoch, partition.partition_epoch)

    @invariant()
    def indexes_say_what_the_metadata_says(self) -> None:
        state = self.cluster.state
        rebuilt = ControllerState(image_of([record.message for record in self.cluster.records]), 0)
        for broker_id in range(1, 4):
            assert set(state.in_sync_partitions(broker_id)) == set(rebuilt.in_sync_partitions(broker_id))
            assert set(state.eligible_partitions(broker_id)) == set(rebuilt.eligible_partitions(broker_id))
            assert state.leads_any(broker_id) == rebuilt.leads_any(broker_id)
        assert set(state.leaderless.snapshot()) == set(rebuilt.leaderless.snapshot())
        assert set(state.imbalanced.snapshot()) == set(rebuilt.imbalanced.snapshot())
        assert state.metadata.topics_by_id == rebuilt.metadata.topics_by_id
        assert state.brokers == rebuilt.brokers


def image_of(records: list[Message]) -> MetadataImage:
    replay = ImageDraft(MetadataImage(CLUSTER_ID))
    for record in records:
        if type(record).__name__ not in BOUNDARIES:
            replay.apply(record)
    return replay.freeze(offset=len(records) - 1, epoch=1, timestamp_ms=0)


TestClusterLife: Any = ClusterLife.TestCase
TestClusterLife.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
