"""A client of a cluster whose brokers fail, move leadership, restart and know more or less than each other."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.client import retries
from barnabas.client.cluster import TRANSACTION_COORDINATOR, Call, Cluster
from barnabas.client.offset_queries import LATEST, commit_offsets, committed_offsets, list_offsets
from barnabas.protocol import messages as m
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import Error, KafkaError
from tests.unit.client.brokers import FakeBroker, broker, knows, list_offsets_response, partitions_of, settings_for

if TYPE_CHECKING:
    from collections.abc import Iterator


def in_turn(*answers: Any) -> Any:
    """Answers one after the other, the last one for ever; an answer that is a function gets the request."""
    left = list(answers)

    def answer(request: Any) -> Any:
        chosen = left.pop(0) if len(left) > 1 else left[0]
        return chosen(request) if callable(chosen) else chosen

    return answer


def offsets(offset: int) -> Any:
    return lambda request: list_offsets_response(request, offset)


def refused(error: Error) -> Any:
    return lambda request: list_offsets_response(request, error=error)


def coordinator_at(node: FakeBroker) -> Any:
    def answer(request: m.FindCoordinatorRequest) -> m.FindCoordinatorResponse:
        found = m.FindCoordinatorResponse.Coordinator
        key = request.coordinator_keys[0]
        return m.FindCoordinatorResponse(coordinators=[found(key=key, node_id=1, host="127.0.0.1", port=node.port)])

    return answer


def committed(offset: int, error: Error = Error.NONE) -> m.OffsetFetchResponse:
    response = m.OffsetFetchResponse
    partition = response.OffsetFetchResponsePartitions(committed_offset=offset, error_code=error)
    topic = response.OffsetFetchResponseTopics(name="t", partitions=[partition])
    return response(groups=[response.OffsetFetchResponseGroup(group_id="g", topics=[topic])])


@pytest.fixture
def two() -> Iterator[tuple[FakeBroker, FakeBroker]]:
    with broker({}) as first, broker({}) as second:
        yield first, second


@pytest.fixture
def one() -> Iterator[FakeBroker]:
    """A broker that leads both partitions of topic `t`."""
    with broker({}) as only:
        only.answers[ApiKey.METADATA] = knows({1: only}, {"t": {0: 1, 1: 1}})
        yield only


@pytest.mark.parametrize(
    "error",
    [
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.FENCED_LEADER_EPOCH,
        Error.UNKNOWN_LEADER_EPOCH,
        Error.LEADER_NOT_AVAILABLE,
    ],
)
def test_a_leader_that_leads_no_more_sends_the_client_to_the_next_one(
    two: tuple[FakeBroker, FakeBroker], error: Error
) -> None:
    first, second = two
    nodes = {1: first, 2: second}
    first.answers[ApiKey.METADATA] = second.answers[ApiKey.METADATA] = in_turn(
        knows(nodes, {}),
        knows(nodes, {"t": {0: 1}}),
        knows(nodes, {"t": {0: 2}}, leader_epoch=1),
    )
    first.answers[ApiKey.LIST_OFFSETS] = refused(error)
    second.answers[ApiKey.LIST_OFFSETS] = offsets(7)
    with Cluster.connect(settings_for(first)) as cluster:
        (found,) = list_offsets(cluster, {("t", 0): LATEST}).values()
    assert found is not None
    assert found.offset == 7


def test_a_leader_that_is_gone_sends_the_client_to_the_next_one(two: tuple[FakeBroker, FakeBroker]) -> None:
    first, second = two
    nodes = {1: first, 2: second}
    first.answers[ApiKey.METADATA] = knows(nodes, {"t": {0: 2}})
    second.answers[ApiKey.LIST_OFFSETS] = offsets(1)
    first.answers[ApiKey.LIST_OFFSETS] = offsets(2)
    call = Call(
        ApiKey.LIST_OFFSETS,
        lambda _: m.ListOffsetsRequest(
            replica_id=-1,
            topics=[
                m.ListOffsetsRequest.ListOffsetsTopic(
                    name="t", partitions=[m.ListOffsetsRequest.ListOffsetsPartition(timestamp=LATEST)]
                )
            ],
        ),
        lambda response: int(response.topics[0].partitions[0].error_code),
    )
    with Cluster.connect(settings_for(first)) as cluster:
        assert cluster.ask_leader("t", 0, call).topics[0].partitions[0].offset == 1
        second.close()
        first.answers[ApiKey.METADATA] = knows(nodes, {"t": {0: 1}}, leader_epoch=1)
        assert cluster.ask_leader("t", 0, call).topics[0].partitions[0].offset == 2


def test_each_leader_is_asked_once_for_all_of_its_partitions(two: tuple[FakeBroker, FakeBroker]) -> None:
    first, second = two
    leaders = {"t": {0: 1, 1: 2, 2: 1, 3: 2}, "u": {0: 1}}
    first.answers |= {
        ApiKey.METADATA: knows({1: first, 2: second}, leaders),
        ApiKey.LIST_OFFSETS: offsets(10),
    }
    second.answers[ApiKey.LIST_OFFSETS] = offsets(20)
    wanted = {(topic, partition): LATEST for topic, partitions in leaders.items() for partition in partitions}
    with Cluster.connect(settings_for(first)) as cluster:
        found = list_offsets(cluster, wanted)
    assert {place: at and at.offset for place, at in found.items()} == {
        (topic, partition): 10 * leader for topic, led in leaders.items() for partition, leader in led.items()
    }
    assert (first.count(m.ListOffsetsRequest), second.count(m.ListOffsetsRequest)) == (1, 1)


def test_what_one_leader_has_answered_is_not_asked_again_because_of_another(
    two: tuple[FakeBroker, FakeBroker],
) -> None:
    first, second = two
    first.answers |= {
        ApiKey.METADATA: knows({1: first, 2: second}, {"t": {0: 1, 1: 2}}),
        ApiKey.LIST_OFFSETS: offsets(10),
    }
    second.answers |= {
        ApiKey.METADATA: first.answers[ApiKey.METADATA],
        ApiKey.LIST_OFFSETS: in_turn(None, refused(Error.NOT_LEADER_OR_FOLLOWER), offsets(20)),
    }
    with Cluster.connect(settings_for(first)) as cluster:
        found = list_offsets(cluster, {("t", 0): LATEST, ("t", 1): LATEST})
    assert [at.offset for at in found.values() if at] == [10, 20]
    assert (first.count(m.ListOffsetsRequest), second.count(m.ListOffsetsRequest)) == (1, 3)


def test_an_error_that_will_not_pass_is_raised_at_once_with_partition_and_broker(one: FakeBroker) -> None:
    one.answers[ApiKey.LIST_OFFSETS] = refused(Error.TOPIC_AUTHORIZATION_FAILED)
    with Cluster.connect(settings_for(one)) as cluster, pytest.raises(KafkaError) as caught:
        list_offsets(cluster, {("t", 1): LATEST})
    assert caught.value.error is Error.TOPIC_AUTHORIZATION_FAILED
    assert re.search(rf"t-1: ListOffsets at 127.0.0.1:{one.port}: give this user the right", str(caught.value))
    assert one.count(m.ListOffsetsRequest) == 1


def test_an_error_that_does_not_pass_in_time_is_raised_with_how_long_it_was_tried(one: FakeBroker) -> None:
    one.answers[ApiKey.LIST_OFFSETS] = refused(Error.NOT_LEADER_OR_FOLLOWER)
    with Cluster.connect(settings_for(one)) as cluster, pytest.raises(KafkaError) as caught:
        list_offsets(cluster, {("t", 0): LATEST}, timeout_ms=100)
    assert caught.value.error is Error.NOT_LEADER_OR_FOLLOWER
    assert re.search(r"t-0: .*given up after \d+ tries in 0.\d s", str(caught.value))


def test_a_broker_that_does_not_answer_is_given_up_at_the_deadline(one: FakeBroker) -> None:
    is_over = threading.Event()

    def say_nothing(_: m.ListOffsetsRequest) -> None:
        is_over.wait(10)

    one.answers[ApiKey.LIST_OFFSETS] = say_nothing
    with Cluster.connect(settings_for(one)) as cluster, pytest.raises(KafkaError, match="did not answer") as caught:
        list_offsets(cluster, {("t", 0): LATEST}, timeout_ms=200)
    is_over.set()
    assert caught.value.error is Error.NETWORK_EXCEPTION


def test_nobody_at_the_bootstrap_servers_is_an_error_that_names_them_all(two: tuple[FakeBroker, FakeBroker]) -> None:
    for each in two:
        each.close()
    with pytest.raises(KafkaError) as caught:
        Cluster.connect(settings_for(*two, default_api_timeout_ms="100"))
    assert all(f"127.0.0.1:{each.port}" in str(caught.value) for each in two)
    assert "is the broker running" in str(caught.value)


def test_one_bootstrap_server_that_answers_is_enough(one: FakeBroker, two: tuple[FakeBroker, FakeBroker]) -> None:
    gone, _ = two
    gone.close()
    with Cluster.connect(settings_for(gone, one)) as cluster:
        assert partitions_of(cluster, "t") == {"t": [0, 1]}


def test_bootstrap_servers_are_asked_again_when_all_known_brokers_have_moved(
    one: FakeBroker, two: tuple[FakeBroker, FakeBroker]
) -> None:
    old, _ = two
    old.answers[ApiKey.METADATA] = knows({1: old}, {"t": {0: 1}})
    with Cluster.connect(settings_for(old, one)) as cluster:
        assert partitions_of(cluster, "t") == {"t": [0]}
        old.close()
        assert partitions_of(cluster, "t") == {"t": [0, 1]}


def test_a_connection_that_the_broker_closed_while_idle_costs_no_failed_try(one: FakeBroker) -> None:
    one.answers[ApiKey.LIST_OFFSETS] = offsets(3)
    with Cluster.connect(settings_for(one, retry_backoff_ms="60000")) as cluster:
        for _ in range(2):
            assert list_offsets(cluster, {("t", 0): LATEST})
            connection = cluster.leader("t", 0)
            one.drop_connections()
            while connection.is_usable():
                pass


def test_metadata_is_asked_for_once_while_nothing_says_that_it_is_old(one: FakeBroker) -> None:
    one.answers[ApiKey.LIST_OFFSETS] = offsets(3)
    with Cluster.connect(settings_for(one)) as cluster:
        for _ in range(3):
            list_offsets(cluster, {("t", 0): LATEST, ("t", 1): LATEST})
    assert one.count(m.MetadataRequest) == 2  # to connect, and for the topic


def test_a_broker_that_lags_behind_does_not_bring_back_an_older_leader(two: tuple[FakeBroker, FakeBroker]) -> None:
    first, second = two
    nodes = {1: first, 2: second}
    newer, older = (
        knows(nodes, {"t": {0: 2}}, leader_epoch=5),
        knows(nodes, {"t": {0: 1}}, leader_epoch=4),
    )
    first.answers[ApiKey.METADATA] = second.answers[ApiKey.METADATA] = in_turn(newer, newer, older)
    second.answers[ApiKey.LIST_OFFSETS] = in_turn(refused(Error.UNKNOWN_LEADER_EPOCH), offsets(9))
    with Cluster.connect(settings_for(first)) as cluster:
        (found,) = list_offsets(cluster, {("t", 0): LATEST}).values()
    assert found is not None
    assert found.offset == 9
    assert first.count(m.ListOffsetsRequest) == 0
    asked = [each for each in second.requests if isinstance(each, m.ListOffsetsRequest)]
    assert [each.topics[0].partitions[0].current_leader_epoch for each in asked] == [5, 5]


@pytest.fixture
def early_belief(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing is believed after some tries."""
    monkeypatch.setattr(retries, "ABSENCE_S", 0.02)


@pytest.mark.usefixtures("early_belief")
def test_a_missing_topic_is_believed_after_a_while_and_named(one: FakeBroker) -> None:
    with (
        Cluster.connect(settings_for(one)) as cluster,
        pytest.raises(KafkaError, match="topic 'nowhere' does not exist: create it") as caught,
    ):
        partitions_of(cluster, "t", "nowhere")
    assert caught.value.error is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert one.count(m.MetadataRequest) > 3


def test_a_topic_that_a_broker_hears_of_late_is_found(one: FakeBroker) -> None:
    with Cluster.connect(settings_for(one)) as cluster:
        one.answers[ApiKey.METADATA] = in_turn(knows({1: one}, {}), knows({1: one}, {"new": {0: 1}}))
        assert partitions_of(cluster, "new") == {"new": [0]}


@pytest.mark.usefixtures("early_belief")
def test_a_missing_partition_is_named_with_how_many_there_are(one: FakeBroker) -> None:
    with Cluster.connect(settings_for(one)) as cluster, pytest.raises(KafkaError, match=r"t-2 .*t has 2 partitions"):
        cluster.leader("t", 2)


def test_a_partition_without_a_leader_is_waited_for(one: FakeBroker) -> None:
    one.answers[ApiKey.LIST_OFFSETS] = offsets(3)
    one.answers[ApiKey.METADATA] = in_turn(
        knows({1: one}, {"t": {0: -1}}),
        knows({1: one}, {"t": {0: -1}}),
        knows({1: one}, {"t": {0: 1}}),
    )
    with Cluster.connect(settings_for(one)) as cluster:
        assert list_offsets(cluster, {("t", 0): LATEST})
        one.answers[ApiKey.METADATA] = knows({1: one}, {"u": {0: -1}})
        with pytest.raises(KafkaError, match="u-0: no broker leads the partition"):
            cluster.leader("u", 0, timeout_ms=50)


@pytest.mark.parametrize("error", [Error.NOT_COORDINATOR, Error.COORDINATOR_NOT_AVAILABLE])
def test_a_coordinator_that_is_one_no_more_is_looked_for_again(
    two: tuple[FakeBroker, FakeBroker], error: Error
) -> None:
    first, second = two
    first.answers |= {
        ApiKey.METADATA: knows({1: first, 2: second}, {}),
        ApiKey.FIND_COORDINATOR: in_turn(coordinator_at(first), coordinator_at(second)),
        ApiKey.OFFSET_FETCH: lambda _: committed(-1, error),
    }
    second.answers |= {ApiKey.FIND_COORDINATOR: coordinator_at(second), ApiKey.OFFSET_FETCH: lambda _: committed(5)}
    with Cluster.connect(settings_for(first)) as cluster:
        assert committed_offsets(cluster, "g", [("t", 0)])["t", 0].offset == 5


@pytest.mark.parametrize("error", [Error.COORDINATOR_LOAD_IN_PROGRESS, Error.UNSTABLE_OFFSET_COMMIT])
def test_a_coordinator_that_is_not_ready_is_asked_again(one: FakeBroker, error: Error) -> None:
    one.answers |= {
        ApiKey.FIND_COORDINATOR: coordinator_at(one),
        ApiKey.OFFSET_FETCH: in_turn(committed(-1, error), committed(-1, error), committed(5)),
    }
    with Cluster.connect(settings_for(one)) as cluster:
        assert committed_offsets(cluster, "g", [("t", 0)])["t", 0].offset == 5
    assert one.count(m.FindCoordinatorRequest) == 1
    assert all(each.require_stable for each in one.requests if isinstance(each, m.OffsetFetchRequest))


def test_coordinators_are_remembered_but_not_without_end(one: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.client.cluster.COORDINATORS_MAX", 2)
    one.answers |= {ApiKey.FIND_COORDINATOR: coordinator_at(one), ApiKey.OFFSET_FETCH: lambda _: committed(5)}
    with Cluster.connect(settings_for(one)) as cluster:
        for group in ("a", "b", "a", "c", "b", "c", "a"):
            committed_offsets(cluster, group, [("t", 0)])
    asked = [each.coordinator_keys[0] for each in one.requests if isinstance(each, m.FindCoordinatorRequest)]
    assert asked == ["a", "b", "c", "a"]


def test_a_group_with_members_refuses_commits_of_others_with_what_to_do(one: FakeBroker) -> None:
    response = m.OffsetCommitResponse
    partition = response.OffsetCommitResponsePartition(error_code=Error.UNKNOWN_MEMBER_ID)
    one.answers |= {
        ApiKey.FIND_COORDINATOR: coordinator_at(one),
        ApiKey.OFFSET_COMMIT: lambda _: response(
            topics=[response.OffsetCommitResponseTopic(name="t", partitions=[partition])]
        ),
    }
    with (
        Cluster.connect(settings_for(one)) as cluster,
        pytest.raises(KafkaError, match=r"group 'g': t-0: .*has members"),
    ):
        commit_offsets(cluster, "g", {("t", 0): 1})


def test_errors_of_one_api_may_be_retried_for_that_api(one: FakeBroker) -> None:
    busy = m.InitProducerIdResponse(error_code=Error.CONCURRENT_TRANSACTIONS)
    one.answers |= {
        ApiKey.FIND_COORDINATOR: coordinator_at(one),
        ApiKey.INIT_PRODUCER_ID: in_turn(busy, m.InitProducerIdResponse(producer_id=4)),
    }
    call = Call(
        ApiKey.INIT_PRODUCER_ID,
        lambda _: m.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000),
        retried=frozenset({Error.CONCURRENT_TRANSACTIONS}),
    )
    with Cluster.connect(settings_for(one)) as cluster:
        assert cluster.ask_coordinator("x", call, key_type=TRANSACTION_COORDINATOR).producer_id == 4
    (asked,) = [each for each in one.requests if isinstance(each, m.FindCoordinatorRequest)]
    assert asked.key_type == TRANSACTION_COORDINATOR


def test_a_broker_without_a_version_in_common_is_an_error_at_once() -> None:
    with broker({}, newest={ApiKey.LIST_OFFSETS: 0}) as old:
        old.answers[ApiKey.METADATA] = knows({1: old}, {"t": {0: 1}})
        with Cluster.connect(settings_for(old)) as cluster, pytest.raises(KafkaError) as caught:
            list_offsets(cluster, {("t", 0): LATEST})
    assert caught.value.error is Error.UNSUPPORTED_VERSION


def test_an_error_of_the_whole_cluster_is_raised_at_once(one: FakeBroker) -> None:
    one.answers[ApiKey.METADATA] = lambda _: m.MetadataResponse(error_code=Error.UNKNOWN_SERVER_ERROR)
    with pytest.raises(KafkaError) as caught:
        Cluster.connect(settings_for(one))
    assert caught.value.error is Error.UNKNOWN_SERVER_ERROR
    assert one.count(m.MetadataRequest) == 1
