"""InitProducerId: ids from the controller's blocks, each to one producer."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker import producer_ids
from barnabas.broker.api.transactions.init_producer_id import init_producer_id
from barnabas.protocol import messages as m
from barnabas.protocol.errors import Error
from tests.unit.broker.api.stand_ins import Answer, a_broker, an_image, asked, caller

if TYPE_CHECKING:
    from tests.unit.broker.api.stand_ins import BrokerStandIn


def blocks(length: int = 1000) -> Answer:
    starts = itertools.count(0, length)

    def answer(request: m.AllocateProducerIdsRequest) -> m.AllocateProducerIdsResponse:
        return m.AllocateProducerIdsResponse(producer_id_start=next(starts), producer_id_len=length)

    return answer


async def init(broker: BrokerStandIn, version: int = 5, **fields: Any) -> m.InitProducerIdResponse:
    request = m.InitProducerIdRequest(transactional_id=fields.pop("transactional_id", None), **fields)
    return await init_producer_id(broker.transactions, request, caller(version))


def init_once(answer: Answer, **fields: Any) -> m.InitProducerIdResponse:
    async def play() -> m.InitProducerIdResponse:
        broker = a_broker(an_image(), answer=answer)
        response = await init(broker, **fields)
        await broker.producer_ids.close()
        return response

    return asyncio.run(play())


def test_every_producer_gets_an_id_of_its_own_across_blocks() -> None:
    async def play() -> None:
        broker = a_broker(an_image(), answer=blocks(10))
        responses = await asyncio.gather(*(init(broker) for _ in range(95)))
        assert sorted(response.producer_id for response in responses) == list(range(95))
        assert {(response.error_code, response.producer_epoch) for response in responses} == {(Error.NONE, 0)}

    asyncio.run(play())


def test_the_next_block_is_fetched_before_the_current_one_ends() -> None:
    async def play() -> None:
        broker = a_broker(an_image(), answer=blocks(1000))
        for _ in range(899):
            await init(broker)
        assert len(asked(broker)) == 1
        await init(broker)
        await asyncio.sleep(0)
        assert len(asked(broker)) == 2
        assert (await init(broker)).producer_id == 900

    asyncio.run(play())


def test_blocks_are_asked_for_in_the_name_of_this_registration() -> None:
    async def play() -> m.AllocateProducerIdsRequest:
        broker = a_broker(an_image(), answer=blocks())
        await init(broker)
        (request,) = asked(broker)
        assert isinstance(request, m.AllocateProducerIdsRequest)
        return request

    request = asyncio.run(play())
    assert (request.broker_id, request.broker_epoch) == (1, 5)


def test_an_idempotent_producer_that_names_its_id_gets_another() -> None:
    response = init_once(blocks(), producer_id=77, producer_epoch=3)
    assert (response.producer_id, response.producer_epoch) == (0, 0)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"producer_id": 1}, Error.INVALID_REQUEST),
        ({"producer_epoch": 1}, Error.INVALID_REQUEST),
        ({"transactional_id": "", "transaction_timeout_ms": 1000}, Error.INVALID_REQUEST),
        ({"transactional_id": "t", "transaction_timeout_ms": 0}, Error.INVALID_TRANSACTION_TIMEOUT),
        ({"transactional_id": "t", "transaction_timeout_ms": 900_001}, Error.INVALID_TRANSACTION_TIMEOUT),
    ],
)
def test_what_is_refused_gets_no_id(fields: dict[str, Any], error: Error) -> None:
    response = init_once(blocks(), **fields)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (error, -1, -1)


def test_a_controller_that_refuses_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    answers = [m.AllocateProducerIdsResponse(error_code=Error.STALE_BROKER_EPOCH), blocks()(None)]
    response = init_once(lambda _: answers.pop(0))
    assert (response.error_code, response.producer_id) == (Error.NONE, 0)
    assert "STALE_BROKER_EPOCH" in caplog.text


def test_a_controller_that_keeps_refusing_lets_the_client_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_ids, "BLOCK_WAIT_SECONDS", 0.12)
    refusal = m.AllocateProducerIdsResponse(error_code=Error.NOT_CONTROLLER)
    assert init_once(lambda _: refusal).error_code == Error.COORDINATOR_LOAD_IN_PROGRESS


def test_nobody_waits_longer_than_the_limit_for_a_controller_that_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_ids, "BLOCK_WAIT_SECONDS", 0.01)

    async def never(request: object) -> Any:
        await asyncio.Event().wait()

    assert init_once(never).error_code == Error.COORDINATOR_LOAD_IN_PROGRESS
