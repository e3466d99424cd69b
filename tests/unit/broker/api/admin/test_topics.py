"""CreateTopics, DeleteTopics, CreatePartitions: what goes to the controller, and when the client is answered."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from barnabas.broker.api.admin.topics import create_partitions, create_topics, delete_topics
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from barnabas.protocol.uuids import Uuid
from tests.unit.broker.api.stand_ins import a_broker, an_image, asked, caller, no_controller

TOPIC_ID = Uuid(b"an id of a topic")

CREATION = m.CreateTopicsRequest(topics=[m.CreateTopicsRequest.CreatableTopic(name="t")], timeout_ms=5000)
CREATED = m.CreateTopicsResponse(topics=[m.CreateTopicsResponse.CreatableTopicResult(name="t", topic_id=TOPIC_ID)])


def test_the_controller_decides_and_its_answer_is_the_clients() -> None:
    async def play() -> None:
        broker = a_broker(an_image(), answer=lambda _: CREATED)
        assert await create_topics(broker.admin, CREATION, caller(7)) is CREATED
        assert asked(broker) == [CREATION]

    asyncio.run(play())


def test_the_answer_waits_until_the_broker_has_followed() -> None:
    async def play() -> None:
        broker = a_broker(an_image(), answer=lambda _: CREATED)
        followed = asyncio.Event()

        async def settled() -> None:
            await followed.wait()

        broker.settled = settled
        answer = asyncio.ensure_future(create_topics(broker.admin, CREATION, caller(7)))
        await asyncio.wait([answer], timeout=0.01)
        assert not answer.done()
        followed.set()
        assert await answer is CREATED

    asyncio.run(play())


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_a_request_without_time_is_timed_out_and_nothing_is_asked(timeout_ms: int) -> None:
    async def play() -> list[int]:
        broker = a_broker(an_image(), answer=no_controller)
        created = await create_topics(
            broker.admin, m.CreateTopicsRequest(topics=CREATION.topics, timeout_ms=timeout_ms), caller(7)
        )
        grown = await create_partitions(
            broker.admin,
            m.CreatePartitionsRequest(
                topics=[m.CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=2)], timeout_ms=timeout_ms
            ),
            caller(3),
        )
        deleted = await delete_topics(
            broker.admin, m.DeleteTopicsRequest(topic_names=["t"], timeout_ms=timeout_ms), caller(5)
        )
        return [created.topics[0].error_code, grown.results[0].error_code, deleted.responses[0].error_code]

    assert asyncio.run(play()) == [Error.REQUEST_TIMED_OUT] * 3


def test_a_controller_that_takes_too_long_is_a_timeout() -> None:
    async def never(request: object) -> Any:
        await asyncio.Event().wait()

    async def play() -> m.DeleteTopicsResponse:
        state = m.DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=TOPIC_ID)
        request = m.DeleteTopicsRequest(topics=[state], timeout_ms=10)
        return await delete_topics(a_broker(an_image(), answer=never).admin, request, caller(6))

    (result,) = asyncio.run(play()).responses
    assert (result.topic_id, result.error_code) == (TOPIC_ID, Error.REQUEST_TIMED_OUT)


@pytest.mark.parametrize(
    ("version", "error"), [(1, Error.INVALID_REQUEST), (2, Error.INVALID_REQUEST), (3, Error.TOPIC_DELETION_DISABLED)]
)
def test_older_clients_do_not_know_the_error_of_disabled_deletion(version: int, error: Error) -> None:
    async def play() -> m.DeleteTopicsResponse:
        result = m.DeleteTopicsResponse.DeletableTopicResult(name="t", error_code=Error.TOPIC_DELETION_DISABLED)
        broker = a_broker(an_image(), answer=lambda _: m.DeleteTopicsResponse(responses=[result]))
        return await delete_topics(
            broker.admin, m.DeleteTopicsRequest(topic_names=["t"], timeout_ms=100), caller(version)
        )

    assert asyncio.run(play()).responses[0].error_code == error
