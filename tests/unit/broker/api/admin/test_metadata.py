"""Metadata: which topics an answer holds, version by version, and what becomes of names that nobody knows."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker.api.admin.metadata import metadata
from barnabas.broker.api.admin.topic_creations import IN_FLIGHT_MAX
from barnabas.protocol import codec
from barnabas.protocol import messages as m
from barnabas.protocol.authorized_operations import CLUSTER_OPERATIONS, OPERATIONS_NOT_ASKED_FOR, TOPIC_OPERATIONS
from barnabas.protocol.errors import Error
from barnabas.protocol.uuids import Uuid
from tests.unit.broker.api.stand_ins import (
    CLUSTER_ID,
    NODE_ID,
    Answer,
    a_broker,
    a_config,
    a_partition,
    a_registration,
    a_topic,
    an_image,
    asked,
    caller,
    no_controller,
    topic_id,
)

if TYPE_CHECKING:
    from barnabas.config.broker_config import BrokerConfig
    from barnabas.metadata.image import MetadataImage

UNKNOWN_ID = Uuid(b"nobody knows me.")
WITHOUT_AUTO_CREATION = a_config(auto_create_topics_enable="false")


def by_name(*names: str | None, **fields: Any) -> m.MetadataRequest:
    return m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name=name) for name in names], **fields)


def by_id(*ids: Uuid) -> m.MetadataRequest:
    return m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name=None, topic_id=id_) for id_ in ids])


def ask(
    request: m.MetadataRequest,
    version: int = 13,
    *,
    image: MetadataImage | None = None,
    listener: str = "PLAINTEXT",
    config: BrokerConfig = WITHOUT_AUTO_CREATION,
) -> m.MetadataResponse:
    async def answer() -> m.MetadataResponse:
        broker = a_broker(image or an_image([a_topic("t", 2), a_topic("__consumer_offsets")]), config=config)
        answer = await metadata(broker.admin, request, caller(version, listener))
        return codec.decode(m.MetadataResponse, b"".join(answer), version) if isinstance(answer, list) else answer

    return asyncio.run(answer())


def names(response: m.MetadataResponse) -> list[str | None]:
    return [topic.name for topic in response.topics]


def errors(response: m.MetadataResponse) -> dict[str | None, int]:
    return {topic.name: topic.error_code for topic in response.topics}


@pytest.mark.parametrize(
    ("version", "topics", "expected"),
    [
        (0, [], ["t", "__consumer_offsets"]),
        (1, [], []),
        (1, None, ["t", "__consumer_offsets"]),
        (13, [], []),
        (13, None, ["t", "__consumer_offsets"]),
    ],
)
def test_an_empty_list_asks_for_all_topics_in_v0_and_for_none_later(
    version: int, topics: list[Any] | None, expected: list[str]
) -> None:
    assert names(ask(m.MetadataRequest(topics=topics), version)) == expected


def test_internal_topics_are_marked() -> None:
    internal = {topic.name: topic.is_internal for topic in ask(m.MetadataRequest(topics=None)).topics}
    assert internal == {"t": False, "__consumer_offsets": True}


def test_a_topic_named_twice_is_answered_once() -> None:
    assert names(ask(by_name("t", "t"))) == ["t"]


def test_topics_are_found_by_id_and_unknown_ids_are_said_to_be() -> None:
    response = ask(by_id(UNKNOWN_ID, topic_id("t")))
    assert {(t.name, t.topic_id, t.error_code) for t in response.topics} == {
        (None, UNKNOWN_ID, Error.UNKNOWN_TOPIC_ID),
        ("t", topic_id("t"), Error.NONE),
    }


def test_ids_go_before_names() -> None:
    request = by_name("nobody")
    request.topics = [*(request.topics or ()), *(by_id(topic_id("t")).topics or ())]
    assert names(ask(request)) == ["t"]


@pytest.mark.parametrize(
    ("request_", "version"), [(by_id(topic_id("t")), 11), (by_name(None), 10), (by_name(None), 12), (by_name(None), 13)]
)
def test_a_topic_without_a_name_that_the_version_allows_is_an_invalid_request(
    request_: m.MetadataRequest, version: int
) -> None:
    response = ask(request_, version)
    assert [topic.error_code for topic in response.topics] == [Error.INVALID_REQUEST]
    assert response.brokers == []
    assert response.error_code == (Error.INVALID_REQUEST if version == 13 else Error.NONE)
    assert codec.encode(response, version)


def test_unknown_and_illegal_names_are_told_apart() -> None:
    assert errors(ask(by_name("t", "nobody", "no/slash", "", "a" * 250))) == {
        "t": Error.NONE,
        "nobody": Error.UNKNOWN_TOPIC_OR_PARTITION,
        "no/slash": Error.INVALID_TOPIC_EXCEPTION,
        "": Error.INVALID_TOPIC_EXCEPTION,
        "a" * 250: Error.INVALID_TOPIC_EXCEPTION,
    }


def test_permitted_operations_are_given_to_who_asks() -> None:
    response = ask(
        by_name("t", include_cluster_authorized_operations=True, include_topic_authorized_operations=True), 8
    )
    assert response.cluster_authorized_operations == CLUSTER_OPERATIONS
    assert response.topics[0].topic_authorized_operations == TOPIC_OPERATIONS
    response = ask(by_name("t"), 8)
    assert response.cluster_authorized_operations == OPERATIONS_NOT_ASKED_FOR
    assert response.topics[0].topic_authorized_operations == OPERATIONS_NOT_ASKED_FOR


def test_brokers_are_given_by_the_listener_that_was_asked() -> None:
    image = an_image([a_topic("t")], [a_registration(endpoints={"INSIDE": 1111, "OUTSIDE": 2222}, rack="r1")])
    (inside,) = ask(m.MetadataRequest(topics=[]), image=image, listener="INSIDE").brokers
    (outside,) = ask(m.MetadataRequest(topics=[]), image=image, listener="OUTSIDE").brokers
    assert (inside.node_id, inside.host, inside.port, inside.rack) == (NODE_ID, "host-1", 1111, "r1")
    assert outside.port == 2222


def test_the_cluster_and_a_controller_are_named() -> None:
    response = ask(m.MetadataRequest(topics=[]))
    assert (response.cluster_id, response.controller_id) == (CLUSTER_ID, NODE_ID)


def test_fenced_brokers_are_neither_listed_nor_the_controller() -> None:
    image = an_image([], [a_registration(fenced=True), a_registration(2)])
    response = ask(m.MetadataRequest(topics=[]), image=image)
    assert [broker.node_id for broker in response.brokers] == [2]
    assert response.controller_id == 2


def test_a_client_never_learns_of_no_broker_at_all() -> None:
    """The only broker of a cluster is fenced in the moment before it stops."""
    image = an_image([], [a_registration(fenced=True)])
    assert [broker.node_id for broker in ask(m.MetadataRequest(topics=[]), image=image).brokers] == [NODE_ID]


@pytest.mark.parametrize(
    ("version", "leader", "error"),
    [
        (13, -1, Error.LEADER_NOT_AVAILABLE),
        (13, 9, Error.LEADER_NOT_AVAILABLE),
        (13, 2, Error.LISTENER_NOT_FOUND),
        (5, 2, Error.LEADER_NOT_AVAILABLE),
    ],
)
def test_a_leader_that_cannot_be_reached_is_none(version: int, leader: int, error: Error) -> None:
    topic = a_topic("t")._replace(partitions=(a_partition(leader, (1, 2, 9)),))
    image = an_image([topic], [a_registration(), a_registration(2, endpoints={"ELSEWHERE": 1})])
    (partition,) = ask(by_name("t"), version, image=image).topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (error, -1)
    assert list(partition.replica_nodes) == [1, 2, 9]
    assert list(partition.offline_replicas) == [2, 9]


def test_a_replica_in_a_folder_that_is_lost_is_offline() -> None:
    image = an_image([a_topic("t")], [a_registration(folders=(Uuid(b"another folder. "),))])
    (partition,) = ask(by_name("t"), image=image).topics[0].partitions
    assert list(partition.offline_replicas) == [NODE_ID]


def test_v0_leaves_out_replicas_that_cannot_be_reached() -> None:
    topic = a_topic("t")._replace(partitions=(a_partition(1, (1, 2)),))
    image = an_image([topic], [a_registration(), a_registration(2, fenced=True)])
    (partition,) = ask(by_name("t"), 0, image=image).topics[0].partitions
    assert partition.error_code == Error.REPLICA_NOT_AVAILABLE
    assert list(partition.replica_nodes) == list(partition.isr_nodes) == [1]


# ── topics that are created because somebody asks ────────────────────────────────────────────────────────────────


def created(request: m.CreateTopicsRequest) -> m.CreateTopicsResponse:
    return m.CreateTopicsResponse(
        topics=[m.CreateTopicsResponse.CreatableTopicResult(name=topic.name) for topic in request.topics]
    )


def ask_and_see_what_is_created(
    *requests: m.MetadataRequest, config: BrokerConfig | None = None, answer: Answer = created
) -> tuple[list[m.MetadataResponse], list[m.CreateTopicsRequest]]:
    async def play() -> tuple[list[m.MetadataResponse], list[m.CreateTopicsRequest]]:
        broker = a_broker(an_image([a_topic("t")]), answer=answer, config=config or a_config(num_partitions="3"))
        bodies = [await metadata(broker.admin, request, caller(13)) for request in requests]
        await asyncio.sleep(0)
        await broker.topic_creations.close()
        responses = [codec.decode(m.MetadataResponse, b"".join(body), 13) for body in bodies if isinstance(body, list)]
        return responses, asked(broker)

    return asyncio.run(play())


def test_an_unknown_topic_is_created_with_the_brokers_defaults_and_unknown_for_now() -> None:
    (response,), (request,) = ask_and_see_what_is_created(by_name("new", "t"))
    assert errors(response) == {"t": Error.NONE, "new": Error.UNKNOWN_TOPIC_OR_PARTITION}
    (topic,) = request.topics
    assert (topic.name, topic.num_partitions, topic.replication_factor) == ("new", 3, 1)


def test_a_topic_that_is_being_created_is_not_requested_again() -> None:
    async def never(request: object) -> Any:
        await asyncio.Event().wait()

    _, requests = ask_and_see_what_is_created(by_name("new"), by_name("new"), by_name("new", "other"), answer=never)
    assert [[topic.name for topic in request.topics] for request in requests] == [["new"], ["other"]]


def test_a_refusal_is_in_the_log_and_the_name_is_requested_again(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(request: m.CreateTopicsRequest) -> m.CreateTopicsResponse:
        result = m.CreateTopicsResponse.CreatableTopicResult(
            name="new", error_code=Error.POLICY_VIOLATION, error_message="not here"
        )
        return m.CreateTopicsResponse(topics=[result])

    async def play() -> int:
        broker = a_broker(an_image(), answer=refuse)
        for _ in range(2):
            await metadata(broker.admin, by_name("new"), caller(13))
            await asyncio.sleep(0)
        return len(asked(broker))

    assert asyncio.run(play()) == 2
    assert "topic new was not created: POLICY_VIOLATION: not here" in caplog.text


def test_internal_topics_are_created_as_their_settings_say() -> None:
    _, (request,) = ask_and_see_what_is_created(by_name("__consumer_offsets"))
    (topic,) = request.topics
    assert (topic.num_partitions, topic.replication_factor) == (50, 1)
    assert {config.name: config.value for config in topic.configs} == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }


def test_the_offsets_topic_has_a_min_isr_of_its_own_where_one_is_set() -> None:
    config = a_config(barnabas_offsets_topic_min_isr="2", min_insync_replicas="1")
    _, (request,) = ask_and_see_what_is_created(by_name("__consumer_offsets"), config=config)
    (topic,) = request.topics
    assert {config.name: config.value for config in topic.configs}["min.insync.replicas"] == "2"


@pytest.mark.parametrize(
    ("request_", "config"),
    [
        (by_name("new", allow_auto_topic_creation=False), a_config()),
        (by_name("new"), WITHOUT_AUTO_CREATION),
        (by_name("no/slash"), a_config()),
        (by_id(UNKNOWN_ID), a_config()),
        (m.MetadataRequest(topics=None), a_config()),
    ],
)
def test_nothing_is_created_unless_a_legal_name_is_asked_for_and_both_sides_allow_it(
    request_: m.MetadataRequest, config: BrokerConfig
) -> None:
    ask_and_see_what_is_created(request_, config=config, answer=no_controller)


def test_topics_being_created_at_a_time_are_limited() -> None:
    _, (request,) = ask_and_see_what_is_created(by_name(*(f"new-{number}" for number in range(IN_FLIGHT_MAX + 10))))
    assert len(request.topics) == IN_FLIGHT_MAX
