"""An answer that comes later reaches whoever waits for it, a callback or a coroutine, once."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.net.pending import Pending, answered
from barnabas.protocol.errors import Error, KafkaError


def a_refusal(error: Error) -> str:
    return f"refused: {error.name}"


def test_whoever_waits_is_told_at_once() -> None:
    answer: Pending[str] = Pending()
    seen: list[str] = []
    answer.when_done(lambda: seen.append(answer.result()))
    assert not answer.done()
    answer.set_result("yes")
    assert answer.done()
    assert seen == ["yes"]


@pytest.mark.parametrize("comes_first", [True, False])
def test_a_coroutine_may_wait_for_it(comes_first: bool) -> None:
    async def scenario() -> str:
        answer: Pending[str] = Pending()
        if comes_first:
            answer.set_result("yes")
        else:
            asyncio.get_running_loop().call_soon(answer.set_result, "yes")
        return await answer

    assert asyncio.run(scenario()) == "yes"


def test_a_coroutine_that_was_cancelled_does_not_mind_the_answer() -> None:
    async def scenario() -> None:
        answer: Pending[str] = Pending()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(answer, 0.001)
        answer.set_result("too late")

    asyncio.run(scenario())


def test_an_error_of_kafka_becomes_an_answer_where_one_is_known_for_it() -> None:
    answer = Pending(a_refusal, str.upper)
    answer.set_exception(KafkaError(Error.NOT_COORDINATOR, "moved"))
    assert answer.result() == "REFUSED: NOT_COORDINATOR"


@pytest.mark.parametrize("error", [KafkaError(Error.NOT_COORDINATOR, "moved"), ValueError("a mistake")])
def test_other_errors_are_raised_where_the_answer_is_wanted(error: Exception) -> None:
    answer: Pending[str] = Pending(None if isinstance(error, KafkaError) else a_refusal)
    seen: list[str] = []
    answer.when_done(lambda: seen.append("done"))
    answer.set_exception(error)
    assert seen == ["done"]
    with pytest.raises(type(error)):
        answer.result()


def test_what_needs_no_waiting_is_done_from_the_start() -> None:
    assert answered("at once").result() == "at once"
