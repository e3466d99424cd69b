"""FindCoordinator: groups and transactional ids belong to the leader of their partition; share groups to nobody yet."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from barnabas.broker.api.groups.find_coordinator import find_coordinator
from barnabas.broker.coordinators.coordinator_spec import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, partition_of
from barnabas.metadata.image import TopicImage
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.unit.broker.api.stand_ins import (
    NODE_ID,
    a_broker,
    a_partition,
    a_registration,
    a_topic,
    an_image,
    asked,
    caller,
    topic_id,
)

if TYPE_CHECKING:
    from barnabas.metadata.image import MetadataImage
    from tests.unit.broker.api.stand_ins import BrokerStandIn

SHARE_KEY = "group:AAAAAAAAAAAAAAAAAAAAAQ:0"
ANOTHER_NODE = 2
NOWHERE = (-1, "", -1)


async def created(broker: BrokerStandIn) -> None:
    """What the broker asked the controller to create is answered."""
    async with asyncio.timeout(10):
        while not asked(broker):  # noqa: ASYNC110 (the condition has no event)
            await asyncio.sleep(0)
    await broker.topic_creations.close()


def ask(version: int, key_type: int, *keys: str, image: MetadataImage | None = None) -> m.FindCoordinatorResponse:
    async def answer() -> m.FindCoordinatorResponse:
        request = m.FindCoordinatorRequest(key=keys[0], key_type=key_type, coordinator_keys=list(keys))
        return find_coordinator(
            a_broker(image or an_image([a_topic(OFFSETS_TOPIC, 50)])).groups, request, caller(version)
        )

    return asyncio.run(answer())


@pytest.mark.parametrize("version", [0, 3])
def test_up_to_v3_the_coordinator_of_one_group_is_answered(version: int) -> None:
    response = ask(version, 0, "g")
    assert (response.error_code, response.error_message) == (Error.NONE, "NONE")
    assert (response.node_id, response.host, response.port) == (NODE_ID, "host-1", 9092)


def test_from_v4_on_every_key_is_answered() -> None:
    response = ask(4, 0, "g1", "g2")
    assert [(c.key, c.error_code, c.node_id, c.host, c.port) for c in response.coordinators] == [
        ("g1", Error.NONE, NODE_ID, "host-1", 9092),
        ("g2", Error.NONE, NODE_ID, "host-1", 9092),
    ]


def test_a_group_is_found_at_the_leader_of_its_own_partition() -> None:
    groups = ["g0", "g1"]
    places = [partition_of(group, 2) for group in groups]
    assert sorted(places) == [0, 1]
    partitions = (a_partition(), a_partition(ANOTHER_NODE, (ANOTHER_NODE,)))
    topic = TopicImage(OFFSETS_TOPIC, topic_id(OFFSETS_TOPIC), partitions)
    image = an_image([topic], [a_registration(), a_registration(ANOTHER_NODE)])
    response = ask(6, 0, *groups, image=image)
    assert [c.node_id for c in response.coordinators] == [(NODE_ID, ANOTHER_NODE)[place] for place in places]


def test_the_topic_of_groups_is_created_when_somebody_first_asks() -> None:
    async def scenario() -> None:
        broker = a_broker(an_image(), answer=lambda _: m.CreateTopicsResponse())
        request = m.FindCoordinatorRequest(coordinator_keys=["g1", "g2"])
        response = find_coordinator(broker.groups, request, caller(4))
        assert [c.error_code for c in response.coordinators] == [Error.COORDINATOR_NOT_AVAILABLE] * 2
        await created(broker)
        ((request_made,),) = [each.topics for each in asked(broker)]
        settings = {config.name: config.value for config in request_made.configs}
        assert (request_made.name, request_made.num_partitions) == (OFFSETS_TOPIC, 50)
        assert settings == {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": "104857600",
        }

    asyncio.run(scenario())


@pytest.mark.parametrize("version", [1, 3, 4, 6])
def test_a_transactional_id_is_found_at_the_leader_of_its_partition(version: int) -> None:
    partitions = (a_partition(), a_partition(ANOTHER_NODE, (ANOTHER_NODE,)))
    topic = TopicImage(TRANSACTIONS_TOPIC, topic_id(TRANSACTIONS_TOPIC), partitions)
    image = an_image([topic], [a_registration(), a_registration(ANOTHER_NODE)])
    for transactional_id in ("t0", "t1"):
        response = ask(version, 1, transactional_id, image=image)
        found = response.coordinators[0] if version >= 4 else response
        assert (found.error_code, found.node_id) == (0, (NODE_ID, ANOTHER_NODE)[partition_of(transactional_id, 2)])


def test_the_topic_of_transactions_is_created_when_somebody_first_asks() -> None:
    async def scenario() -> None:
        broker = a_broker(an_image(), answer=lambda _: m.CreateTopicsResponse())
        request = m.FindCoordinatorRequest(key_type=1, coordinator_keys=["t"])
        (found,) = find_coordinator(broker.groups, request, caller(4)).coordinators
        assert found.error_code == Error.COORDINATOR_NOT_AVAILABLE
        await created(broker)
        ((request_made,),) = [each.topics for each in asked(broker)]
        assert (request_made.name, request_made.num_partitions) == (TRANSACTIONS_TOPIC, 50)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "image",
    [
        an_image([TopicImage(OFFSETS_TOPIC, topic_id(OFFSETS_TOPIC), (a_partition(leader=-1),))]),
        an_image([a_topic(OFFSETS_TOPIC)], [a_registration(fenced=True)]),
        an_image([a_topic(OFFSETS_TOPIC)], [a_registration(endpoints={"INTERNAL": 1})]),
    ],
    ids=["no leader", "a fenced leader", "a leader without the client's listener"],
)
def test_a_group_whose_coordinator_cannot_be_reached_has_none_for_now(image: MetadataImage) -> None:
    response = ask(3, 0, "g", image=image)
    assert response.error_code == Error.COORDINATOR_NOT_AVAILABLE
    assert response.error_message == "The coordinator is not available."
    assert (response.node_id, response.host, response.port) == NOWHERE


@pytest.mark.parametrize(
    ("version", "key_type", "key", "error"),
    [
        (3, 9, "x", Error.INVALID_REQUEST),
        (5, 2, SHARE_KEY, Error.INVALID_REQUEST),
        (6, 2, SHARE_KEY, Error.COORDINATOR_NOT_AVAILABLE),
        (6, 2, "no share partition", Error.INVALID_REQUEST),
        (6, 2, f"with:colons:{SHARE_KEY}", Error.COORDINATOR_NOT_AVAILABLE),
        (6, 2, SHARE_KEY.replace(":0", ":-1"), Error.COORDINATOR_NOT_AVAILABLE),
        (6, 2, SHARE_KEY.replace(":0", ":x"), Error.INVALID_REQUEST),
        (6, 2, SHARE_KEY.replace(":0", ":9999999999"), Error.INVALID_REQUEST),
        (6, 2, SHARE_KEY.replace("group", " "), Error.INVALID_REQUEST),
        (6, 2, SHARE_KEY.replace("group:", ""), Error.INVALID_REQUEST),
        (6, 2, "group:no id:0", Error.INVALID_REQUEST),
        (6, 2, "", Error.INVALID_REQUEST),
    ],
)
def test_keys_of_other_kinds_have_no_coordinator(version: int, key_type: int, key: str, error: Error) -> None:
    response = ask(version, key_type, key)
    found = response.coordinators[0] if version >= 4 else response
    assert found.error_code == error
    assert (found.node_id, found.host, found.port) == NOWHERE
